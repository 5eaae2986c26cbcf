"""Run files of trees, from the data to predictions."""

import numpy as np
import pytest

import estimax as ex
from estimax.config.build import build
from estimax.config.load import load
from estimax.config.nodes import RunFileError
from tests.config import run_files

pytest.importorskip("lightgbm")
RUN = """\
schema: estimax/run/v1
name: table
seed: 3
run: {model_dir: MODEL, save_checkpoints: {every_steps: 10}, save_summary_steps: 0}
data:
  label: late
  sources:
    train: {format: csv, files: train.csv, shuffle: {buffer_rows: 500}, batch_size: 64,
            epochs: null}
    test: {format: csv, files: test.csv, batch_size: 50}
features:
  age: {type: numeric}
  hour: {type: numeric, normalize: zscore}
  city: {type: vocabulary, from_data: {}}
model: {type: boosted_trees, n_trees: 60, num_leaves: 8, early_stopping_rounds: 5}
train: {max_steps: 300}
eval: {source: test}
export: [{type: final}]
"""


def write_rows(path, rows, seed):
    rng = np.random.default_rng(seed)
    lines = ["age,hour,city,late"]
    for _ in range(rows):
        age, hour = rng.integers(0, 80), rng.integers(0, 24)
        city = rng.choice(["Oslo", "Rome", ""])
        late = int((20 < age < 50) ^ (city == "Rome"))
        shown = "" if rng.random() < 0.05 else age
        lines.append(f"{shown},{hour},{city},{late}")
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / "train.csv", 600, seed=1)
    write_rows(tmp_path / "test.csv", 200, seed=2)
    return tmp_path


def written(folder, *changes):
    text = RUN.replace("MODEL", str(folder / "model"))
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return run_files.write(folder, text)


def test_a_run_file_trains_boosted_trees_with_missing_numbers(folder):
    path = written(folder, ("{type: final}", "{type: final, calibrate: isotonic}"))
    built = build(load(path))
    ex.train_and_evaluate(built.estimator, built.train_spec(), built.eval_spec())
    assert isinstance(built.estimator, ex.BoostedTreesEstimator)
    found = built.estimator.evaluate(built.input_fn("test"))
    assert found["accuracy"] > 0.93
    assert found["global_step"] < 60  # stopped early
    (bundle,) = (folder / "model" / "export" / "final").iterdir()
    loaded = ex.export.load(bundle)
    answer = loaded.predict({"hour": [3.0], "city": ["Rome"]})
    assert answer["probabilities"].shape == (1, 2)
    assert answer["calibrated_probabilities"].shape == (1, 2)
    assert loaded.manifest["calibration"]["rows"] == 200
    source = built.input_fn("test")
    report = ex.report.write_report(built.estimator, source, importance_secs=0)
    assert "was calibrated by isotonic on 200 rows" in report.read_text()


def test_a_random_forest_has_its_options(folder):
    forest = (
        "{type: random_forest, features: [age, city], n_trees: 5, num_leaves: 40, "
        "head: {type: regression}}"
    )
    model = (
        "{type: boosted_trees, n_trees: 60, num_leaves: 8, early_stopping_rounds: 5}"
    )
    path = written(
        folder, (model, forest), ("  hour: {type: numeric, normalize: zscore}\n", "")
    )
    built = build(load(path))
    assert isinstance(built.estimator, ex.RandomForestEstimator)
    model = built.estimator.train(built.input_fn("train"), max_steps=9)
    assert model.evaluate(built.input_fn("test"))["global_step"] == 5


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("n_trees: 60", "n_tree: 60", "model.n_tree: unknown key; did you mean"),
        ("n_trees: 60", "features: [aeg]", "'aeg'"),
        ("n_trees: 60", "pruning_mode: last", "model.pruning_mode"),
        ("eval:", "optimizers: {dnn: {type: adam}}\neval:", "optimizers.dnn"),
        (
            "5}\ntrain: {max_steps: 300}\neval: {source: test}\n"
            "export: [{type: final}]",
            "5, head: {type: regression}}\ntrain: {max_steps: 300}\n"
            "eval: {source: test}\nexport: [{type: final, calibrate: platt}]",
            "export.0.calibrate: needs a head of type binary or multi_class",
        ),
    ],
)
def test_a_mistake_is_reported_with_its_place(folder, old, new, words):
    with pytest.raises(RunFileError, match=words):
        load(written(folder, (old, new)))
