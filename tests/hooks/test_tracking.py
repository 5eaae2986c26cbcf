"""Trackers see a whole run, and a tracker that fails stops no training."""

import json
import logging
import time

import numpy as np
import pandas as pd
import pytest

import estimax as ex
from estimax import config
from estimax.cli.main import app
from estimax.hooks.tracking import TrackerHook


class Notebook(TrackerHook):
    """A tracker that writes everything into a list."""

    package, extra, title = "json", "notebook", "Notebook"

    def __init__(self, model_dir, *, every_n_steps=2, wait_secs=60.0, fails_at=None):
        super().__init__(model_dir, {"team": "ads"}, every_n_steps, wait_secs)
        self.pages = []
        self.fails_at = fails_at

    def _write(self, *page):
        if self.fails_at == page[0]:
            raise ConnectionError("the server is down")
        self.pages.append(page)

    def start(self, params, run_id):
        self._write("start", params, run_id)
        return run_id or "run-7"

    def send_metrics(self, step, metrics):
        self._write("metrics", step, sorted(metrics))

    def send_files(self, files, bundle):
        self._write("files", sorted(files), bundle)

    def finish(self, status):
        self._write("finish", status)


def input_fn():
    x = np.arange(8, dtype=np.float32)
    return ex.input.Dataset.from_tensor_slices(({"x": x}, x)).repeat().batch(4)


def evaluated():
    return input_fn().take(2)


def model_at(folder):
    config = ex.RunConfig(save_checkpoints_steps=4, tf_random_seed=1)
    return ex.BaselineRegressor(model_dir=folder, config=config)


def train(folder, hook, steps=4):
    exporter = ex.LatestExporter("latest")
    spec = ex.EvalSpec(evaluated, exporters=exporter, throttle_secs=0)
    train_spec = ex.TrainSpec(input_fn, steps, [hook])
    return ex.train_and_evaluate(model_at(folder), train_spec, spec)


def steps_of(pages, metric):
    return [page[1] for page in pages if page[0] == "metrics" and metric in page[2]]


def test_a_tracker_in_a_block_sees_the_run_its_evaluations_and_its_bundle(tmp_path):
    (tmp_path / "config").mkdir()
    resolved = "train: {max_steps: 4, hooks: []}\ndata: {sources: {t: {files: [a, b]}}}"
    (tmp_path / "config" / "resolved.yaml").write_text(resolved)
    with Notebook(tmp_path) as book:
        train(tmp_path, book)
    first, *others = book.pages
    params = {
        "train.max_steps": "4",
        "train.hooks": "[]",
        "data.sources.t.files": "['a', 'b']",
        "team": "ads",
    }
    assert first == ("start", params, None)
    assert steps_of(others, "train/loss") == [2, 4]
    assert steps_of(others, "eval/average_loss") == [4]
    (bundle,) = [page[2] for page in others if page[0] == "files"]
    assert bundle.parent == tmp_path / "export" / "latest"
    assert others[-1] == ("finish", "finished")
    # Training that goes on is the same run, and old evaluations are not sent again.
    book.pages.clear()
    with book:
        train(tmp_path, book, steps=8)
        book.close("failed")
    assert book.pages[0] == ("start", params, "run-7")
    assert steps_of(book.pages, "eval/average_loss") == [8]
    assert book.pages[-1] == ("finish", "failed")


@pytest.mark.parametrize("fails_at", ["start", "metrics", "files"])
def test_a_tracker_that_fails_is_one_warning(tmp_path, caplog, fails_at):
    book = Notebook(tmp_path, fails_at=fails_at)
    model_at(tmp_path).train(input_fn, [book], max_steps=6)
    warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    (warning,) = [text for text in warnings if text.startswith("Notebook")]
    assert "ConnectionError: the server is down. The training goes on" in warning
    assert model_at(tmp_path).get_variable_value("global_step") == 6


def test_a_tracker_that_hangs_is_waited_for_only_so_long(tmp_path, caplog):
    class Hanging(Notebook):
        def start(self, params, run_id):
            time.sleep(600)

    model_at(tmp_path).train(input_fn, [Hanging(tmp_path, wait_secs=0.1)], max_steps=2)
    assert "Notebook: did not answer within 0.1 seconds" in caplog.text


def test_a_tracker_that_is_not_installed_is_an_error_before_the_first_step(tmp_path):
    class Absent(Notebook):
        package, extra = "no_such_tracker", "absent"

    with pytest.raises(ImportError, match=r'pip install "estimax\[absent\]"'):
        model_at(tmp_path).train(input_fn, [Absent(tmp_path)], max_steps=2)


def run_file(folder, hook):
    """A run file of boosted trees on a small table, with a tracker."""
    rng = np.random.default_rng(0)
    age = rng.uniform(18, 80, 200)
    pd.DataFrame({"age": age, "late": (age > 50).astype(int)}).to_csv(
        folder / "rows.csv", index=False
    )
    path = folder / "run.yaml"
    path.write_text(f"""
schema: estimax/run/v1
name: trees
run: {{model_dir: {folder / "model"}}}
data:
  label: late
  sources:
    all:
      format: csv
      files: {folder / "rows.csv"}
      split: {{parts: {{train: 0.8, eval: 0.2}}, by: random}}
      batch_size: 64
features: {{age: {{type: numeric}}}}
model: {{type: boosted_trees, n_trees: 20}}
train: {{max_steps: 20, hooks: [{hook}]}}
eval: {{source: eval}}
export: [{{type: final, name: final}}]
""")
    return path


def invoke(*arguments):
    with pytest.raises(SystemExit) as end:
        app([str(argument) for argument in arguments])
    assert end.value.code == 0


@pytest.mark.slow  # mlflow is large, and no dependency of the tests
@pytest.mark.filterwarnings("default")
def test_mlflow_has_the_run_and_predicts_with_its_bundle(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="needs estimax[mlflow]")
    monkeypatch.chdir(tmp_path)  # where MLflow stores files
    store = f"sqlite:///{tmp_path / 'mlflow.db'}"
    options = f"tracking_uri: '{store}', every_n_steps: 5, params: {{team: ads}}"
    path = run_file(tmp_path, f"{{type: mlflow, experiment: late, {options}}}")
    invoke("train", path, "--quiet")
    client = mlflow.MlflowClient(tracking_uri=store)
    experiment = client.get_experiment_by_name("late")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.params["model.n_trees"] == "20"
    assert run.data.params["team"] == "ads"
    losses = client.get_metric_history(run.info.run_id, "train/loss")
    assert [m.step for m in losses] == [5, 10, 15, 20]
    assert losses[-1].value < losses[0].value
    assert run.data.metrics["eval/accuracy"] > 0.9
    files = {f.path for f in client.list_artifacts(run.info.run_id)}
    assert {"config", "model", "report.html"} <= files
    mlflow.set_tracking_uri(store)
    model = mlflow.pyfunc.load_model(f"runs:/{run.info.run_id}/model")
    answer = model.predict(pd.DataFrame({"age": [20.0, 70.0]}))
    assert isinstance(answer, pd.DataFrame)
    assert answer["class_ids"].tolist() == [0, 1]
    # A run that is resumed goes on in the same run.
    invoke("train", path, "--quiet", "--set", "model.n_trees=20")
    assert len(client.search_runs([experiment.experiment_id])) == 1


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_mlflow_that_is_down_does_not_stop_training(tmp_path, monkeypatch, caplog):
    pytest.importorskip("mlflow", reason="needs estimax[mlflow]")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    # A port of this machine at which nothing listens: 1 is reserved.
    hook = ex.hooks.MLflowHook(tmp_path, tracking_uri="http://127.0.0.1:1")
    model_at(tmp_path).train(input_fn, [hook], max_steps=4)
    assert "MLflow: the run is not tracked any more" in caplog.text
    assert model_at(tmp_path).get_variable_value("global_step") == 4


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_wandb_writes_a_run_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="needs estimax[wandb]")
    monkeypatch.setenv("WANDB_MODE", "offline")
    path = run_file(tmp_path, "{type: wandb, project: late, every_n_steps: 5}")
    invoke("train", path, "--quiet")
    (folder,) = (tmp_path / "model" / "wandb").glob("offline-run-*")
    (written,) = folder.glob("*.wandb")
    content = written.read_bytes()
    for text in (b"train/loss", b"eval/accuracy", b"model.n_trees", b"bundle-"):
        assert text in content
    run_id = json.loads((tmp_path / "model" / "config" / "wandb.json").read_bytes())
    assert run_id["run_id"] in folder.name


def test_a_run_file_names_the_trackers(tmp_path):
    hooks = "{type: mlflow, experiment: a}, {type: wandb, mode: offline}"
    run = config.load(run_file(tmp_path, hooks)).run
    assert [hook.type for hook in run.train.hooks] == ["mlflow", "wandb"]
