"""Run files of the tabular model, from the data to predictions."""

import subprocess
import sys

import numpy as np
import pytest

import estimax as ex
from estimax.config.build import build
from estimax.config.load import load
from tests.config import run_files

RUN = """\
schema: estimax/run/v1
name: table
seed: 3
run: {model_dir: MODEL, save_checkpoints: {every_steps: 50}, save_summary_steps: 0}
data:
  label: late
  sources:
    train: {format: csv, files: train.csv, shuffle: {buffer_rows: 500}, batch_size: 64,
            epochs: null}
    test: {format: csv, files: test.csv, batch_size: 50}
features:
  age: {type: numeric, default: mean}
  hour: {type: numeric}
  city: {type: vocabulary, from_data: {}, oov_buckets: 1}
model: {type: tabular}
train: {max_steps: 300}
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


def train(path):
    command = [sys.executable, "-m", "estimax", "train", str(path), "--no-report"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_run_file_trains_a_tabular_model(folder):
    path = written(folder)
    train(path)
    built = build(load(path))
    found = built.estimator.evaluate(built.input_fn("test"))
    assert found["accuracy"] > found["accuracy_baseline"] + 0.15
    assert found["global_step"] == 300


def test_encodings_of_your_own_are_used(folder):
    path = written(
        folder,
        (
            "  city:",
            "  age_bins: {type: piecewise_linear, source: age, boundaries: {bins: 8}}\n"
            "  waves: {type: periodic, source: hour, periods: [24, 12]}\n"
            "  city:",
        ),
        (
            "{type: tabular}",
            "{type: tabular, dnn: {features: [age, age_bins, waves, city], members: 2,"
            " hidden_units: [8], train_rows: 600}}",
        ),
        ("max_steps: 300", "max_steps: 5"),
    )
    train(path)
    built = build(load(path))
    assert isinstance(built.estimator, ex.TabularEstimator)
    scale = built.estimator.get_variable_value("tabular/members/scale")
    # The number itself, 8 bins in 16 units, 4 waves, 3 words, and the flag of a word.
    assert scale.shape == (2, 1 + 16 + 4 + 3 + 1)


def test_encodings_enter_a_dnn_as_numbers(folder):
    path = written(
        folder,
        (
            "  city:",
            "  bins: {type: piecewise_linear, source: age, boundaries: [0, 20, 50]}\n"
            "  city:",
        ),
        (
            "{type: tabular}",
            "{type: dnn, dnn: {hidden_units: [4],"
            " features: {numeric: [age, bins, hour], indicator: [city]}}}",
        ),
        ("max_steps: 300", "max_steps: 5"),
    )
    train(path)


AVERAGE = """{type: average, held_out: valid, models: {
  network: {type: tabular, dnn: {hidden_units: [8], members: 2}},
  linear: {type: linear, linear: {features: [city]}}}}
optimizers: {models: {linear: {linear: {type: sgd, learning_rate: 0.3}}}}"""
VALID = "    valid: {format: csv, files: valid.csv, batch_size: 50}\n    test:"


def test_an_average_has_so_many_seeds_of_each_model(folder):
    several = AVERAGE.replace("type: average,", "type: average, seeds: 2,")
    write_rows(folder / "valid.csv", 100, seed=3)
    path = written(folder, ("{type: tabular}", several), ("    test:", VALID))
    members = build(load(path)).estimator.members
    first = load(path).run.seed
    assert {name: model.config.tf_random_seed for name, model in members.items()} == {
        "network_seed_1": first,
        "network_seed_2": first + 1,
        "linear_seed_1": first,
        "linear_seed_2": first + 1,
    }
    assert len({model.model_dir for model in members.values()}) == 4


def test_a_run_file_averages_models(folder):
    write_rows(folder / "valid.csv", 100, seed=3)
    path = written(
        folder,
        ("{type: tabular}", AVERAGE),
        ("    test:", VALID),
        (
            "max_steps: 300}",
            "max_steps: 100}\neval: {source: test}\nexport: [{type: final}]",
        ),
    )
    train(path)
    built = build(load(path))
    assert sum(built.estimator.member_weights.values()) == pytest.approx(1.0)
    found = built.estimator.evaluate(built.input_fn("test"))
    assert found["average_loss"] < 0.69
    (bundle,) = (folder / "model/export/final").iterdir()
    rows = {"age": [30.0], "hour": [1.0], "city": ["Oslo"]}
    shares = ex.export.load(bundle).predict(rows, "predict")["probabilities"]
    assert shares.shape == (1, 2)
    # The network has its sizes from the number of rows that were counted.
    network = built.estimator.members["network"]
    assert str(folder / "model/members/network") == network.model_dir


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("held_out: valid", "held_out: vald"), "vald"),
        (("held_out: valid", "held_out: train"), "what the models train on"),
        (
            (
                "linear: {type: linear,",
                "linear: {type: linear, head: {type: regression},",
            ),
            "that of the average",
        ),
        (("models: {linear:", "models: {lin:"), "no model has this name"),
        (("{models: {linear: {", "{models: {network: {"), "has no linear part"),
    ],
)
def test_mistakes_in_an_average_are_named(folder, change, words):
    text = RUN.replace("MODEL", "model").replace("{type: tabular}", AVERAGE)
    text = text.replace("    test:", VALID)
    assert change[0] in text
    found = run_files.problems(folder, text.replace(*change))
    assert any(words in problem for problem in found)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("{type: tabular}", "{type: tabular, dnn: {members: 0}}"), "members"),
        (("{type: tabular}", "{type: tabular, dnn: {features: [agee]}}"), "agee"),
        (
            ("  city:", "  c: {type: periodic, source: city, periods: 24}\n  city:"),
            "name a numeric feature",
        ),
        (
            (
                "  city:",
                "  c: {type: piecewise_linear, source: age, boundaries: [2, 1]}\n"
                "  city:",
            ),
            "boundaries",
        ),
    ],
)
def test_mistakes_are_named(folder, change, words):
    text = RUN.replace("MODEL", "model").replace(*change)
    assert any(words in problem for problem in run_files.problems(folder, text))
