"""A table, a run file made for it, and a model that beats a constant answer."""

import importlib.metadata
import json
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from estimax.config.load import load

datasets = pytest.importorskip("sklearn.datasets")
PREPARE = Path(__file__).parents[2] / "examples" / "flights" / "prepare.py"


def sklearn_table(name, folder):
    options = {"scaled": False} if name == "diabetes" else {}
    frame = getattr(datasets, f"load_{name}")(as_frame=True, **options).frame
    path = folder / f"{name}.csv"
    frame.to_csv(path, index=False)
    return path


def penguins_table(folder):
    try:
        files = importlib.metadata.files("palmerpenguins") or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("needs the demo extra")
    (source,) = [f for f in files if f.name == "penguins.csv"]
    path = folder / "penguins.csv"
    shutil.copy(source.locate(), path)
    return path


def trained_events(cli, folder, run_file, *options):
    answer = cli("train", run_file, "--json", *options, cwd=folder)
    assert answer.code == 0, answer.err
    return [json.loads(line) for line in answer.out.splitlines()]


def check_better(end, metric, at_least):
    """Print the metric beside the baseline, and check that it is better."""
    value, constant = end["metrics"][metric], end["baseline"][metric]
    print(f"{metric} {value:.4f}, baseline {constant:.4f}")
    if metric == "average_loss":
        assert value < (1 - at_least) * constant
    else:
        assert value > constant + at_least


def test_a_table_of_classes_trains(cli, tmp_path):
    path = sklearn_table("wine", tmp_path)
    answer = cli("init", path, "--label", "target", cwd=tmp_path)
    assert answer.code == 0, answer.err
    assert "predicts 'target' (3 classes" in answer.out
    text = (tmp_path / "wine.yaml").read_text()
    first = text.splitlines()[0]
    assert first.startswith("# yaml-language-server: $schema=file://")
    checked = cli("check", "wine.yaml", "--data", cwd=tmp_path)
    assert checked.code == 0, checked.err
    quick = ["--set", "train.max_steps=60", "--set", "export=[]"]
    events = trained_events(cli, tmp_path, "wine.yaml", *quick)
    assert [e["event"] for e in events][:1] == ["start"]
    assert {"evaluation"} <= {event["event"] for event in events}
    check_better(events[-1], "accuracy", 0.3)


@pytest.mark.skipif(sys.platform != "linux", reason="XDG_CACHE_HOME is of Linux")
def test_all_run_files_share_one_schema_for_editors(cli, tmp_path, monkeypatch):
    path = sklearn_table("wine", tmp_path)
    cache = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    assert cli("init", path, "--label", "target", cwd=tmp_path).code == 0
    schema = cache / "estimax" / "estimax-run.v1.schema.json"
    first = (tmp_path / "wine.yaml").read_text().splitlines()[0]
    assert first == f"# yaml-language-server: $schema={schema.as_uri()}"
    assert json.loads(schema.read_text())["title"]
    # Without a folder for caches, init writes the run file all the same.
    monkeypatch.setenv("XDG_CACHE_HOME", str(path))
    answer = cli("init", path, "--label", "target", "--force", cwd=tmp_path)
    assert answer.code == 0, answer.err
    assert "$schema" not in (tmp_path / "wine.yaml").read_text()


def test_the_run_file_splits_the_rows_and_copies_none(cli, tmp_path):
    path = sklearn_table("wine", tmp_path)
    assert cli("init", path, "--label", "target", cwd=tmp_path).code == 0
    run = load(tmp_path / "wine.yaml").run
    assert list(run.data.sources) == ["train", "validation", "test"]
    assert run.data.sources["test"].part.start == 0.85
    assert (run.eval.source, run.test.source) == ("validation", "test")
    # The last step is one of the evaluations.
    assert run.train.max_steps % run.run.save_checkpoints.every_steps == 0
    assert not list(tmp_path.glob("wine.*.csv"))


def test_a_parquet_file_is_read_as_it_is(cli, tmp_path):
    table = pa.table({"x": [1.0, 2.0] * 20, "y": [0, 1] * 20})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    assert cli("init", "t.parquet", cwd=tmp_path).code == 0
    checked = cli("check", "t.yaml", "--data", cwd=tmp_path)
    assert checked.code == 0, checked.err
    assert "format: parquet" in (tmp_path / "t.yaml").read_text()


def test_files_that_exist_are_not_replaced(cli, tmp_path):
    (tmp_path / "t.csv").write_text("x,y\n" + "1,0\n2,1\n" * 20)
    assert cli("init", "t.csv", cwd=tmp_path).code == 0
    again = cli("init", "t.csv", cwd=tmp_path)
    assert again.code == 2
    assert "t.yaml exists already" in again.err
    assert cli("init", "t.csv", "--force", cwd=tmp_path).code == 0


def test_a_guess_of_the_label_is_told(cli, tmp_path):
    (tmp_path / "t.csv").write_text("x,late,z\n" + "1,0,5\n2,1,6\n" * 20)
    answer = cli("init", "t.csv", cwd=tmp_path)
    assert "label: late (a guess; --label names another column)" in answer.err


def test_a_terminal_is_asked_for_the_label(tmp_path):
    (tmp_path / "t.csv").write_text("x,late,z\n" + "1,0,5\n2,1,6\n" * 20)
    code = (
        "import os, pty, sys\n"
        "child, terminal = pty.fork()\n"
        "if not child:\n"
        "    words = [sys.executable, '-m', 'estimax', 'init', 't.csv']\n"
        "    os.execv(words[0], words)\n"
        "seen = b''\n"
        "while b'predicted?' not in seen:\n"
        "    seen += os.read(terminal, 1000)\n"
        "os.write(terminal, b'nmae\\n')\n"
        "while seen.count(b'predicted?') < 2:\n"
        "    seen += os.read(terminal, 1000)\n"
        "os.write(terminal, b'z\\n')\n"
        "try:\n"
        "    while part := os.read(terminal, 1000):\n"
        "        seen += part\n"
        "except OSError:\n"
        "    pass\n"
        "print(seen.decode())\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[late]" in done.stdout
    assert "no column 'nmae'" in done.stdout
    assert "label: z" in (tmp_path / "t.yaml").read_text()


def test_rows_without_a_label_are_left_out(cli, tmp_path):
    (tmp_path / "t.csv").write_text("x,y\n" + "1,0\n2,1\n3,NA\n" * 20)
    answer = cli("init", "t.csv", cwd=tmp_path)
    assert "20 rows have no label" in answer.err
    assert "NA" not in (tmp_path / "t.labelled.csv").read_text()
    assert len(load(tmp_path / "t.yaml").run.data.sources) == 3


def test_a_test_file_of_ones_own_is_used_as_it_is(cli, tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text("x;y\n" + "1;0\n2;1\n" * 20)
    answer = cli("init", "a.csv", "--test", "b.csv", cwd=tmp_path)
    assert answer.code == 0, answer.err
    text = (tmp_path / "a.yaml").read_text()
    assert re.search(r"files: a\.csv", text)
    assert re.search(r"files: b\.csv", text)
    assert "delimiter: ;" in text
    assert not (tmp_path / "a.train.csv").exists()


def write_leaks(folder):
    """A table of three classes with a copy of the label and its one-hot columns."""
    chance = random.Random(5)
    lines = ["x,size,outcome,target,target_0,target_1,target_2"]
    for _ in range(400):
        kind = chance.randrange(3)
        hot = ",".join(str(int(kind == one)) for one in range(3))
        size = kind + chance.gauss(0, 0.5)
        lines.append(f"{chance.random():.4f},{size:.4f},c{kind},{kind},{hot}")
    (folder / "t.csv").write_text("\n".join(lines) + "\n")


def test_columns_that_give_the_label_away_are_left_out_and_told(cli, tmp_path):
    write_leaks(tmp_path)
    answer = cli("init", "t.csv", "--label", "target", cwd=tmp_path)
    assert answer.code == 0, answer.err
    assert "left out: 'outcome' alone predicts the label" in answer.err
    assert "left out: 'target_2' is set exactly where the label is '2'" in answer.err
    text = (tmp_path / "t.yaml").read_text()
    assert "- outcome: alone predicts the label: right in 100.0%" in text
    run = load(tmp_path / "t.yaml").run
    assert {"x", "size"} <= run.features.keys()
    assert not {"outcome", "target_0", "target_1", "target_2"} & run.features.keys()


def test_a_perfect_metric_asks_whether_the_label_is_a_feature(cli, tmp_path):
    write_leaks(tmp_path)
    options = ["--label", "target", "--keep", "outcome", "--drop", "x"]
    answer = cli("init", "t.csv", *options, cwd=tmp_path)
    assert answer.code == 0, answer.err
    assert "--drop x --keep outcome" in (tmp_path / "t.yaml").read_text()
    quick = ["--set", "train.max_steps=300", "--set", "export=[]"]
    trained = cli("train", "t.yaml", *quick, cwd=tmp_path)
    assert trained.code == 0, trained.err
    asked = "accuracy is 1 on test: is the label among the features?"
    assert trained.err.count(asked) == 1, trained.out


@pytest.mark.parametrize("option", ["--drop", "--keep"])
def test_a_column_to_drop_or_keep_must_be_there(cli, tmp_path, option):
    write_leaks(tmp_path)
    answer = cli("init", "t.csv", "--label", "target", option, "outcme", cwd=tmp_path)
    assert answer.code == 2
    assert f"{option}: t.csv has no column 'outcme'" in answer.err
    assert "did you mean 'outcome'" in answer.err
    answer = cli("init", "t.csv", "--label", "target", option, "target", cwd=tmp_path)
    assert "'target' is the label" in answer.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("table", "label", "metric", "at_least"),
    [
        ("digits", "target", "accuracy", 0.8),
        ("wine", "target", "accuracy", 0.5),
        ("breast_cancer", "target", "auc", 0.45),
        ("diabetes", "target", "average_loss", 0.3),
        # Half of the test rows are of one species: the most is 0.5.
        ("penguins", "species", "accuracy", 0.45),
    ],
)
def test_real_tables_train_untouched(process, tmp_path, table, label, metric, at_least):
    is_ours = table == "penguins"
    path = penguins_table(tmp_path) if is_ours else sklearn_table(table, tmp_path)
    made = process("init", path, "--label", label, cwd=tmp_path)
    assert made.code == 0, made.err
    end = trained_events(process, tmp_path, f"{table}.yaml")[-1]
    check_better(end, metric, at_least)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["init", "short"])
def test_flights_come_within_a_hundredth_of_the_tuned_run(process, tmp_path, way):
    data = tmp_path / "data" / "flights"
    command = [sys.executable, str(PREPARE), "--output", str(data)]
    subprocess.run(command, check=True, capture_output=True)
    run = tmp_path / "flights.yaml"
    if way == "init":
        files = [data / "train.csv", "--test", data / "test.csv"]
        made = process("init", *files, "--label", "late", "--output", run)
        assert made.code == 0, made.err
    else:
        run.write_text(
            "data:\n  label: late\n  sources:\n"
            f"    train: {{files: {data}/train.csv}}\n"
            f"    test: {{files: {data}/test.csv}}\n"
        )
    end = trained_events(process, tmp_path, run)[-1]
    check_better(end, "auc", 0.19)
    # configs/flights_wide_deep.yaml reaches 0.704.
    assert end["metrics"]["auc"] > 0.694
