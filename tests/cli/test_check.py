"""`estimax check`, alone and with the data."""

import json

import pytest


def test_a_good_run_is_summed_up_in_a_line(cli, run_file):
    answer = cli("check", run_file)
    assert answer.code == 0
    assert answer.out == (
        f"{run_file}: ok, dnn_linear_combined, 5 features, sources: train, test; "
        "40 steps\n"
    )


def test_all_missing_files_are_an_error(cli, run_file):
    (run_file.parent / "test.csv").unlink()
    words = "features.city={type: vocabulary, file: words.txt}"
    answer = cli("check", run_file, "--set", words)
    assert answer.code == 1
    assert answer.out == ""
    assert "data.sources.test.files: no file matches" in answer.err
    assert "features.city.file: there is no file 'words.txt'" in answer.err


def test_a_missing_file_is_told_beside_other_errors(cli, run_file):
    (run_file.parent / "test.csv").unlink()
    words = "features.city={type: vocabulary, file: words.txt}"
    wrong = ["--set", words, "--set", "train.max_steps=-1", "--set", "run.modeldir=a"]
    answer = cli("check", run_file, *wrong)
    assert answer.code == 2
    assert "4 errors in" in answer.err
    assert "train.max_steps: must be" in answer.err
    assert "data.sources.test.files: no file matches" in answer.err
    assert "features.city.file: there is no file 'words.txt'" in answer.err


def test_a_missing_file_is_told_beside_code_that_is_not_found(cli, run_file):
    (run_file.parent / "test.csv").unlink()
    custom = "model={model_fn: 'nothing_here:model_fn'}"
    answer = cli("check", run_file, "--set", custom, "--set", "optimizers={}")
    assert answer.code == 2
    assert "nothing_here" in answer.err
    assert "data.sources.test.files: no file matches" in answer.err


def test_the_data_is_told_by_column_with_the_label_balance(cli, run_file):
    answer = cli("check", run_file, "--data")
    assert answer.code == 0, answer.err
    assert "train: 400 rows" in answer.out
    assert "3 words: " in answer.out
    assert "label: " in answer.out


def test_data_that_does_not_fit_is_an_error_with_all_reasons(cli, run_file):
    train = run_file.parent / "train.csv"
    lines = train.read_text().splitlines()
    lines[1:3] = ["old,rome,1,1", "50,rome,1,"]
    train.write_text("\n".join(lines) + "\n")
    answer = cli("check", run_file, "--data", "--set", "features.age.default=null")
    assert answer.code == 1
    assert (
        f"{train}, line 2: features.age: expected a number, found 'old'" in answer.err
    )
    assert "set features.age.default to a number or mean" in answer.err
    assert f"{train}, line 3: data.label: the label is missing" in answer.err


LABELS = {
    "2": "line 4: data.label: a binary head needs labels 0 and 1, found '2'",
    "yes": "line 4: data.label: a binary head needs labels 0 and 1, found 'yes'",
}


@pytest.mark.parametrize("label", LABELS)
def test_a_label_that_training_would_refuse_is_an_error(cli, run_file, label):
    _replace_row(run_file, 3, f"50,rome,1,{label}")
    answer = cli("check", run_file, "--data")
    assert answer.code == 1
    assert LABELS[label] in answer.err


def test_a_label_vocabulary_that_matches_nothing_is_an_error(cli, run_file):
    words = "data.label_vocabulary=[no, yes]"
    answer = cli("check", run_file, "--data", "--set", words)
    assert answer.code == 1
    assert "line 2: data.label: " in answer.err
    assert "is not in data.label_vocabulary ['no', 'yes'] (400 rows)" in answer.err


def test_a_class_out_of_range_is_an_error(cli, run_file):
    _replace_row(run_file, 3, "50,rome,1,5")
    head = "model.head={type: multi_class, classes: 3}"
    answer = cli("check", run_file, "--data", "--set", head, "--set", "export=[]")
    assert "line 4: data.label: expected a class from 0 to 2, found '5'" in answer.err


def _replace_row(run_file, index, row):
    train = run_file.parent / "train.csv"
    lines = train.read_text().splitlines()
    lines[index] = row
    train.write_text("\n".join(lines) + "\n")


BROKEN = {
    "line 4: expected 4 values, one for each column, found 5": b"1,rome,1,1,9",
    "line 4: expected 4 values, one for each column, found 2": b"1,rome",
    "line 4: the text is not UTF-8: b'1,Z\\xfcrich": b"1,Z\xfcrich,1,1",
}


@pytest.mark.parametrize("message", BROKEN)
def test_a_row_that_cannot_be_parsed_is_named_by_its_line(cli, run_file, message):
    train = run_file.parent / "train.csv"
    lines = train.read_bytes().splitlines()
    # A quoted line break: the fourth line is the third row.
    lines[1:4] = [b'1,"ro', b'me",1,1', BROKEN[message]]
    train.write_bytes(b"\n".join(lines) + b"\n")
    answer = cli("check", run_file, "--data")
    assert answer.code == 1
    assert f"{train}, {message}" in answer.err


def test_training_refuses_the_text_that_the_check_refuses(cli, run_file):
    train = run_file.parent / "train.csv"
    text = train.read_text().replace("bern", "zürich")
    train.write_bytes(text.encode("latin1"))
    line = 1 + next(i for i, row in enumerate(text.splitlines()) if "zürich" in row)
    words = f"{train}, line {line}: the text is not UTF-8"
    few = ["--set", "train.max_steps=2", "--set", "export=[]"]
    for command in (["check", run_file, "--data"], ["train", run_file, *few]):
        answer = cli(*command)
        assert answer.code == 1
        assert words in answer.err
        assert "data.sources.train.csv.encoding, such as latin1" in answer.err
    given = ["--set", "data.sources.train.csv.encoding=latin1"]
    checked = cli("check", run_file, "--data", *given)
    assert checked.code == 0, checked.err
    assert "zürich" in checked.out
    trained = cli("train", run_file, *few, *given)
    assert trained.code == 0, trained.err
    statistics = run_file.parent / "model" / "config" / "statistics.json"
    words = json.loads(statistics.read_bytes())["statistics"]["vocabularies"]["city"]
    assert set(words) == {"rome", "oslo", "zürich"}


FILES = {
    "the file is empty; expected a header": b"",
    "no rows below the header (data.sources.train.files)": b"age,city,plane,late\n",
    "the file is UTF-16": "age,city,plane,late\n1,rome,1,1\n".encode("utf-16"),
    "set data.sources.train.csv.delimiter to ';'": b"age;city;plane;late\n1;a;1;1\n",
    "two columns are named 'age'": b"age,age,city,plane,late\n1,1,a,1,1\n",
}


@pytest.mark.parametrize("message", FILES)
def test_a_file_without_usable_rows_says_why(cli, run_file, message):
    (run_file.parent / "train.csv").write_bytes(FILES[message])
    answer = cli("check", run_file, "--data")
    assert answer.code == 1
    assert message in answer.err


def test_words_of_a_feature_that_never_occur_are_an_error(cli, run_file):
    words = "features.city={type: vocabulary, list: [Rome, Oslo]}"
    answer = cli("check", run_file, "--data", "--set", words)
    assert "no word of features.city.list is in column 'city', which has" in answer.err


def test_a_missing_column_is_an_error_with_its_neighbour(cli, run_file):
    train = run_file.parent / "train.csv"
    train.write_text(train.read_text().replace("plane", "plain", 1))
    answer = cli("check", run_file, "--data")
    assert answer.code == 1
    assert "there is no column 'plane'; did you mean 'plain'?" in answer.err


def test_a_class_of_ones_own_is_checked_against_its_signature(cli, run_file):
    folder = run_file.parent
    (folder / "mine.py").write_text(
        "class Mine:\n"
        "    def __init__(self, depth: int, config, feature_columns): ...\n"
    )
    text = run_file.read_text()
    start, end = text.index("model:\n"), text.index("train: {max")
    model = 'model: {class: "mine:Mine", params: {dept: 3}}\n'
    run_file.write_text(text[:start] + model + text[end:])
    answer = cli("check", run_file, cwd=folder)
    assert answer.code == 2
    assert "model.params.dept: mine:Mine has no such argument" in answer.err
    assert "did you mean 'depth'?" in answer.err
    assert "model.params: mine:Mine needs the argument 'depth'" in answer.err
    run_file.write_text(run_file.read_text().replace("dept: 3", "depth: deep"))
    answer = cli("check", run_file, cwd=folder)
    assert "model.params.depth: expected int, got str 'deep'" in answer.err
    run_file.write_text(run_file.read_text().replace("depth: deep", "depth: 3"))
    assert cli("check", run_file, cwd=folder).code == 0
