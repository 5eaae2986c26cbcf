"""From a run file to a model, its metrics, its bundle and its predictions."""

import csv
import json
import os
import re
import signal
import subprocess
import sys

import pytest

from tests.cli import conftest


def test_training_tells_metrics_and_what_to_do_next(trained):
    path, answer = trained
    assert "auc" in answer.out
    assert "average_loss" in answer.out
    assert "trained 40 steps" in answer.err
    assert f"estimax show {path.parent}/model/export/best" in answer.err
    assert f"estimax evaluate {path}" in answer.err


def test_an_error_in_the_data_names_its_line_and_can_be_corrected(cli, run_file):
    train = run_file.parent / "train.csv"
    good = train.read_text()
    lines = good.splitlines()
    lines[3] = "50,rome,1,7"
    train.write_text("\n".join(lines) + "\n")
    few = ["--set", "train.max_steps=20", "--set", "export=[]"]
    failed = cli("train", run_file, *few)
    assert failed.code == 1
    assert f"{train}, line 4: data.label: a binary head needs labels" in failed.err
    assert "BinaryClassHead" not in failed.err, "which is Python's name of it"
    train.write_text(good)
    changed = cli("train", run_file, *few, "--set", "model.dnn.hidden_units=[4]")
    assert changed.code == 0, changed.err
    assert "starting anew" in changed.err


def test_too_many_bad_rows_end_the_run_with_the_key_and_the_line(cli, run_file):
    train = run_file.parent / "train.csv"
    lines = train.read_text().splitlines()
    lines[3] = lines[7] = "old,rome,1,1"
    train.write_text("\n".join(lines) + "\n")
    skip = "data.sources.train.on_bad_row=skip"
    options = ["--set", "train.max_steps=20", "--set", "export=[]", "--set", skip]
    limit = "data.sources.train.max_bad_rows"
    failed = cli("train", run_file, *options, "--set", f"{limit}=1")
    assert failed.code == 1
    assert f"{limit}: 2 elements that cannot be read were skipped" in failed.err
    assert f"{train}, line 8" in failed.err
    assert "Traceback" not in failed.err
    assert cli("train", run_file, *options, "--set", f"{limit}=2").code == 0


def test_the_model_directory_holds_the_run(trained):
    config = trained[0].parent / "model" / "config"
    names = {file.name for file in config.iterdir()}
    expected = {"source.yaml", "resolved.yaml", "overrides.txt", "environment.json"}
    assert expected | {"statistics.json"} <= names


def test_a_model_has_learnt_something(cli, trained):
    answer = cli("evaluate", trained[0], "--json")
    assert answer.code == 0, answer.err
    event = json.loads(answer.out)
    assert event["event"] == "evaluation"
    assert event["metrics"]["auc"] > 0.8 > event["baseline"]["auc"]


def test_evaluate_takes_another_source_by_name(cli, trained):
    answer = cli(
        "evaluate",
        trained[0],
        "--source",
        "train",
        "--set",
        "data.sources.train.epochs=1",
    )
    assert answer.code == 0, answer.err
    assert "tiny on train" in answer.out
    assert cli("evaluate", trained[0], "--source", "tain").code == 2


def test_predictions_and_the_bundle_agree_on_every_row(cli, trained):
    folder = trained[0].parent
    rows = ["age,city,plane", "30,rome,1", ",oslo,2", "80,paris,3"]
    (folder / "new.csv").write_text("\n".join(rows) + "\n")
    by_model, by_bundle = folder / "model.csv", folder / "bundle.csv"
    answer = cli(
        "predict", trained[0], "--input", folder / "new.csv", "--output", by_model
    )
    assert answer.code == 0, answer.err
    bundle = folder / "model" / "export" / "best"
    answer = cli("run", bundle, "--input", folder / "new.csv", "--output", by_bundle)
    assert answer.code == 0, answer.err
    expected = list(csv.DictReader(by_model.read_text().splitlines()))
    found = list(csv.DictReader(by_bundle.read_text().splitlines()))
    assert len(expected) == len(found) == 3
    for one, other in zip(expected, found, strict=True):
        assert float(one["logistic"]) == pytest.approx(float(other["logistic"]), 1e-5)
    assert not (folder / "bundle.csv.part").exists()


def test_the_bundle_answers_as_json_too(cli, trained):
    folder = trained[0].parent
    (folder / "one.csv").write_text("age,city,plane\n30,rome,1\n")
    bundle = folder / "model" / "export" / "best"
    for suffix in ("json", "jsonl"):
        output = folder / f"out.{suffix}"
        answer = cli("run", bundle, "--input", folder / "one.csv", "--output", output)
        assert answer.code == 0, answer.err
        rows = json.loads(output.read_text())
        row = rows[0] if suffix == "json" else rows
        assert len(row["probabilities"]) == 2
        assert row["classes"] in ("0", "1")


def test_running_a_bundle_imports_no_training_room(trained):
    import subprocess
    import sys

    folder = trained[0].parent
    (folder / "one.csv").write_text("age,city,plane\n30,rome,1\n")
    arguments = [f"{folder}/model/export/best", "--input", f"{folder}/one.csv"]
    code = (
        "import sys\n"
        f"sys.argv = ['estimax', 'run', *{arguments!r}]\n"
        "from estimax.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        "rooms = ('training', 'estimator', 'canned', 'heads', 'optimizers', 'hooks')\n"
        "loaded = [r for r in rooms if f'estimax.{r}' in sys.modules]\n"
        "assert not loaded, loaded\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_file_that_lacks_a_column_is_refused_by_name(cli, trained):
    folder = trained[0].parent
    (folder / "bad.csv").write_text("age,town,plane\n30,rome,1\n")
    bundle = folder / "model" / "export" / "best"
    answer = cli("run", bundle, "--input", folder / "bad.csv")
    assert answer.code == 1
    assert "the bundle needs a column 'city'" in answer.err


def test_show_knows_a_bundle_a_model_and_a_run(cli, trained):
    folder = trained[0].parent
    bundle = cli("show", folder / "model" / "export" / "best")
    assert bundle.code == 0, bundle.err
    assert "features of a request" in bundle.out
    assert "predict" in bundle.out
    model = cli("show", folder / "model")
    assert model.code == 0, model.err
    assert "latest checkpoint" in model.out
    assert "linear/linear_model/bias_weights" in model.out
    run = cli("show", trained[0], "--set", "seed=9")
    assert run.code == 0, run.err
    assert "# --set seed=9" in run.out
    assert f"# {trained[0]}:2:1" in run.out
    assert "# default" in run.out
    assert cli("show", folder / "nothing").code == 1


def test_show_knows_a_checkpoint_and_hides_the_slots(cli, trained):
    model = trained[0].parent / "model"
    answer = cli("show", model / "model.ckpt-40")
    assert answer.code == 0, answer.err
    assert "of step 40" in answer.out
    assert "auc" in answer.out  # of the evaluation at this step
    names = re.findall(r"^│ (\S+)", answer.out, re.M)
    assert "linear/linear_model/bias_weights" in names
    assert not [name for name in names if name.startswith("training/")]
    assert re.search(r"and \d+ arrays of the training.*--all shows them", answer.out)
    everything = cli("show", model / "model.ckpt-40", "--all").out
    assert "training/" in everything
    assert "global_step" in everything


def test_show_explains_the_expiry_of_a_bundle(cli, trained):
    out = cli("show", trained[0].parent / "model" / "export" / "best").out
    expiry = out[out.index("jaxexport_expires") :]
    assert "Nothing has to be done" in " ".join(expiry.split())


def test_tables_fit_the_terminal(process, trained, monkeypatch):
    monkeypatch.setitem(conftest.PLAIN, "COLUMNS", "50")
    model = trained[0].parent / "model"
    for path in (model, model / "export" / "best"):
        lines = process("show", path).out.splitlines()
        fitted = ("│", "┃", "┏", "└", "    ")  # tables and paragraphs
        tables = [line for line in lines if line.startswith(fitted)]
        assert tables
        assert max(map(len, tables)) <= 50


def test_a_run_goes_on_where_it_was_and_refuses_another_model(cli, run_file):
    first = cli("train", run_file, "--set", "train.max_steps=20")
    assert first.code == 0, first.err
    other = cli("train", run_file, "--set", "model.dnn.hidden_units=[9]")
    assert other.code == 2
    assert "model.dnn.hidden_units: [8] -> [9]" in other.err
    more = cli("train", run_file)
    assert more.code == 0, more.err
    assert "training resumes at step 20" in more.err
    assert "trained 20 steps" in more.err


def test_a_finished_run_says_that_there_is_nothing_to_train(cli, trained):
    again = cli("train", trained[0])
    assert again.code == 0, again.err
    told = " ".join(again.err.split())  # lines break where a path is long
    assert "train: nothing to do" in told
    assert "Raise max_steps to train on" in told


def test_ctrl_c_saves_and_the_same_command_resumes(run_file):
    """In a process of its own, as a terminal would start it."""
    settings = ["train.max_steps=100000", "run.save_checkpoints.every_steps=100000"]
    options = [word for text in settings for word in ("--set", text)]
    command = [sys.executable, "-m", "estimax", "train", str(run_file), *options]
    first = start(command)
    read_until(first, "step ")
    first.send_signal(signal.SIGINT)
    _, told = first.communicate(timeout=120)
    assert first.returncode == 130
    assert "Ctrl-C: stopping after this step, and saving it." in told
    stopped = int(re.search(r"training stopped at step (\d+)\.", told)[1])
    assert f"to resume: estimax train {run_file} {' '.join(options)}\n" in told
    assert "Traceback" not in told
    folder = run_file.parent / "model"
    assert (folder / f"model.ckpt-{stopped}").is_dir()
    assert not (folder / "export").exists()
    second = start(command)
    read_until(second, f"training resumes at step {stopped} ")
    read_until(second, "step ")
    second.kill()
    second.communicate(timeout=120)


@pytest.mark.slow
def test_sigterm_of_a_resumed_run_ends_with_its_status(run_file):
    settings = ["train.max_steps=100000", "run.save_checkpoints.every_steps=100000"]
    options = [word for text in settings for word in ("--set", text)]
    command = [sys.executable, "-m", "estimax", "train", str(run_file), *options]
    for _ in range(2):
        process = start(command)
        read_until(process, "step ")
        process.send_signal(signal.SIGTERM)
        _, told = process.communicate(timeout=120)
        assert process.returncode == 128 + signal.SIGTERM, told


def read_until(process, beginning):
    """Read what a process prints up to a line with this beginning."""
    lines = []
    for line in process.stderr:
        if line.startswith(beginning):
            return
        lines.append(line)
    raise AssertionError(f"no line begins with {beginning!r}: {lines}")


def start(command):
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"},
    )
