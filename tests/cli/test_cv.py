"""`estimax cv`: folds of the rows of a run file."""

import json

import numpy as np
import pandas as pd
import pytest

from estimax import config
from estimax.cli import cv
from estimax.cli.main import app
from estimax.config.build import build
from estimax.core.errors import ConfigError

RUN = """
schema: estimax/run/v1
name: trees
run: {{model_dir: {folder}/model}}
data:
  label: late
  sources:
    all:
      format: csv
      files: {folder}/rows.csv
      split: {{parts: {{train: 0.6, eval: 0.2, test: 0.2}}, by: {by}, key: {key}}}
      batch_size: 64
features: {{age: {{type: numeric}}}}
model: {{type: boosted_trees, n_trees: 5}}
train: {{max_steps: 5}}
eval: {{source: eval}}
test: {{source: test}}
"""


@pytest.fixture
def run_file(tmp_path):
    def written(by="random", key="null"):
        age = np.random.default_rng(0).uniform(18, 80, 300).round(6)
        frame = pd.DataFrame({"age": age, "late": (age > 50).astype(int)})
        frame["user"] = [f"u{i % 60}" for i in range(300)]
        frame.to_csv(tmp_path / "rows.csv", index=False)
        path = tmp_path / "run.yaml"
        path.write_text(RUN.format(folder=tmp_path, by=by, key=key))
        return path

    return written


def invoke(*arguments):
    with pytest.raises(SystemExit) as end:
        app([str(argument) for argument in arguments])
    return end.value.code


@pytest.mark.parametrize(("by", "key"), [("random", "null"), ("hash", "user")])
def test_every_row_is_held_out_once_and_never_trained_on_there(
    run_file, tmp_path, by, key
):
    loaded = config.load(run_file(by, key))
    seen = []
    for fold in range(3):
        run = cv._of_fold(loaded, fold, 3, tmp_path / "cv")
        built = build(run)
        rows = {
            name: [
                float(age)
                for features, _ in built.input_fn(name)()
                for age in features["age"]
            ]
            for name in ("train", "eval", "fold")
        }
        assert len(rows["train"]) + len(rows["eval"]) + len(rows["fold"]) == 300
        assert len({age for part in rows.values() for age in part}) == 300
        assert 80 < len(rows["train"]) < 220
        assert len(rows["eval"]) > 10
        seen += rows["fold"]
    assert len(set(seen)) == 300


def test_the_metrics_of_folds_are_averaged_and_an_interrupted_one_is_continued(
    run_file, tmp_path, capsys
):
    path = run_file()
    assert invoke("cv", path, "--folds", "2", "--quiet") == 0
    assert "2 folds" in capsys.readouterr().out
    saved = tmp_path / "model-cv" / "cv.json"
    first = json.loads(saved.read_bytes())
    values = [first["metrics"][fold]["auc"] for fold in ("0", "1")]
    assert first["summary"]["auc"]["mean"] == pytest.approx(np.mean(values))
    assert first["summary"]["auc"]["deviation"] == pytest.approx(np.std(values, ddof=1))
    assert min(values) > 0.9
    # As if it was killed before the second fold had ended.
    del first["metrics"]["1"]
    saved.write_text(json.dumps(first))
    before = (tmp_path / "model-cv" / "fold-0" / "config" / "resolved.yaml").stat()
    assert invoke("cv", path, "--folds", "2", "--quiet") == 0
    again = json.loads(saved.read_bytes())
    assert [again["metrics"][fold]["auc"] for fold in ("0", "1")] == values
    after = (tmp_path / "model-cv" / "fold-0" / "config" / "resolved.yaml").stat()
    assert after.st_mtime_ns == before.st_mtime_ns
    with pytest.raises(ConfigError, match="a cross-validation with another run"):
        app(["cv", str(path), "--folds", "2", "--set", "model.n_trees=6"])


def test_a_split_by_time_and_one_fold_are_refused(run_file):
    with pytest.raises(ConfigError, match="is split by time"):
        app(["cv", str(run_file("time", "user")), "--folds", "2"])
    with pytest.raises(ConfigError, match="--folds: expected at least 2"):
        app(["cv", str(run_file()), "--folds", "1"])
