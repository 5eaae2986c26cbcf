"""Defaults of a run file: optimizers by model, and normalised labels."""

import json
import random
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from run_files import GOOD, load_text, spoiled

from estimax.config.baseline import yaml_hint
from estimax.config.build import build

REGRESSION = spoiled("  label: late", "  label: price").replace(
    "    hidden_units: [8]\n",
    "    hidden_units: [8]\n  head: {type: regression}\n",
)


def test_each_part_of_a_model_has_an_optimizer_that_learns(tmp_path):
    run = load_text(tmp_path, GOOD).run
    assert run.optimizers.dnn.type == "adagrad"
    assert run.optimizers.dnn.learning_rate == 0.05
    assert run.optimizers.linear is None, "the model has no linear part"


def test_a_given_optimizer_is_kept(tmp_path):
    run = load_text(
        tmp_path, GOOD, "optimizers.dnn={type: sgd, learning_rate: 0.5}"
    ).run
    assert run.optimizers.dnn.type == "sgd"


def _write_prices(folder):
    """Prices around 3000 with a deviation of about 400, given by age and city."""
    chance = random.Random(0)
    rows = []
    for _ in range(256):
        age, city = chance.uniform(0, 10), chance.choice(["rome", "oslo"])
        rows.append((age, city, 2500 + 100 * age + (600 if city == "rome" else 0)))
    lines = ["age,city,price", *(",".join(map(str, row)) for row in rows)]
    (folder / "train.csv").write_text("\n".join(lines) + "\n")
    return np.array([row[2] for row in rows])


def test_a_regression_learns_its_label_in_the_unit_of_the_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    prices = _write_prices(tmp_path)
    built = build(load_text(tmp_path, REGRESSION, "data.sources.train.epochs=25"))
    built.estimator.train(built.input_fn("train"))
    found = built.estimator.evaluate(built.input_fn("train"), steps=8)
    assert found["average_loss"] < 0.1 * prices.var()
    assert found["loss"] < 0.1, "of labels with a standard deviation of 1"
    assert found["prediction/mean"] == pytest.approx(prices.mean(), rel=0.05)
    predicted = next(built.estimator.predict(built.input_fn("train")))
    assert 2000 < predicted["predictions"][0] < 4500
    saved = json.loads((tmp_path / "runs/small/config/statistics.json").read_text())
    assert saved["statistics"]["labels"]["price"]["mean"] == pytest.approx(
        prices.mean()
    )


def test_a_label_is_left_as_it_is_if_the_run_says_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _write_prices(tmp_path)
    text = REGRESSION.replace(
        "type: regression}", "type: regression, normalize_label: false}"
    )
    loaded = load_text(tmp_path, text)
    built = build(loaded)
    saved = json.loads((tmp_path / "runs/small/config/statistics.json").read_text())
    assert saved["statistics"]["labels"] == {}
    assert "remove model.head.normalize_label" in built.estimator.not_learning_hint


def test_advice_names_the_keys_of_the_run_file(tmp_path):
    run = load_text(
        tmp_path, GOOD, "optimizers.dnn={type: adagrad, learning_rate: 0.001}"
    ).run
    assert "set optimizers.dnn.learning_rate to 0.05 (it is 0.001)" in yaml_hint(run)
