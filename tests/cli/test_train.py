"""From a run file to a model, its metrics, its bundle and its predictions."""

import csv
import json

import pytest


def test_training_tells_metrics_and_what_to_do_next(trained):
    path, answer = trained
    assert "auc" in answer.out
    assert "average_loss" in answer.out
    assert "trained 40 steps" in answer.err
    assert f"estimax show {path.parent}/model/export/best" in answer.err
    assert f"estimax evaluate {path}" in answer.err


def test_the_model_directory_holds_the_run(trained):
    config = trained[0].parent / "model" / "config"
    names = {file.name for file in config.iterdir()}
    expected = {"source.yaml", "resolved.yaml", "overrides.txt", "environment.json"}
    assert expected | {"statistics.json"} <= names


def test_a_model_has_learnt_something(cli, trained):
    answer = cli("evaluate", trained[0], "--json")
    assert answer.code == 0, answer.err
    assert json.loads(answer.out)["auc"] > 0.8


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


def test_a_run_goes_on_where_it_was_and_refuses_another_model(cli, run_file):
    first = cli("train", run_file, "--set", "train.max_steps=20")
    assert first.code == 0, first.err
    other = cli("train", run_file, "--set", "model.dnn.hidden_units=[9]")
    assert other.code == 2
    assert "model.dnn.hidden_units: [8] -> [9]" in other.err
    more = cli("train", run_file)
    assert more.code == 0, more.err
    assert "resuming at step 20" in more.err
    assert "trained 20 steps" in more.err
