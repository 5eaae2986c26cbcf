"""`estimax check`, alone and with the data."""


def test_a_good_run_is_summed_up_in_a_line(cli, run_file):
    answer = cli("check", run_file)
    assert answer.code == 0
    assert answer.out == (
        f"{run_file}: ok, dnn_linear_combined, 5 features, sources: train, test; "
        "40 steps\n"
    )


def test_missing_files_are_remarked_on_and_no_error(cli, run_file):
    (run_file.parent / "test.csv").unlink()
    answer = cli("check", run_file)
    assert answer.code == 0
    assert "note: data.sources.test.files: no file matches" in answer.err


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
    assert "train: 'age' should hold numbers; 1 do not, such as 'old'" in answer.err
    assert "set features.age.default to a number or mean" in answer.err
    assert "train: the label 'late' is missing in 1 rows" in answer.err


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
