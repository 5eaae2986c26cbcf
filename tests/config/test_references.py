"""What other models score on the rows of a run."""

import importlib.util
import json
import random
import subprocess
import sys

import numpy as np
import pytest

from estimax.config import references
from estimax.config.load import load
from estimax.config.references import _auc, _score
from estimax.config.saved import claim_model_dir
from tests.config import run_files

RUN = """\
schema: estimax/run/v1
name: table
seed: 3
run: {model_dir: model}
data:
  label: LABEL
  VOCABULARY
  sources:
    all: {format: csv, files: t.csv, batch_size: 8, epochs: null,
          split: {parts: {train: 0.7, test: 0.3}, by: random}}
features:
  x: {type: numeric, default: 0.0}
  price: {type: numeric, text: point}
  day: {type: date, parts: [weekday]}
  city: {type: vocabulary, list: [Oslo, Rome], strip: true}
  rooms: {type: vocabulary, list: [1, 2]}
model:
  type: linear
  linear: {features: [city, rooms]}
  head: HEAD
train: {max_steps: 3}
eval: {source: test}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    chance = random.Random(2)
    lines = ["x,price,day,city,late,kind,cost,rooms"]
    for _ in range(600):
        x, weekday = chance.gauss(0, 1), chance.randrange(7)
        city = chance.choice(["Oslo", " Rome", ""])
        score = 2 * x + 2 * (city == "Oslo") + weekday / 3 - 1
        late = "yes" if score > chance.gauss(0, 0.3) else "no"
        kind = 0 if score < 0 else 1 if score < 2 else 2
        shown = "" if chance.random() < 0.1 else round(x, 3)
        cost = 5 + 3 * x + weekday
        lines.append(
            f'{shown},"${chance.randrange(5000):,}",2024-01-{1 + weekday:02},{city},'
            f"{late},{kind},{cost},{chance.choice(['', 1, 2])}"
        )
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


def loaded_run(folder, label, head, vocabulary="prefetch: 2"):
    text = RUN.replace("LABEL", label).replace("HEAD", head)
    text = text.replace("price: {type", "price: {type")
    unused = "linear: {features: [city, rooms]}"
    text = text.replace("  type: linear\n", "  type: dnn_linear_combined\n").replace(
        unused,
        unused + "\n  dnn: {features: {numeric: [x, price, day]}, hidden_units: [4]}",
    )
    return load(run_files.write(folder, text.replace("VOCABULARY", vocabulary)))


@pytest.mark.parametrize(
    ("label", "head", "vocabulary", "most"),
    [
        ("late", "{type: binary}", "label_vocabulary: ['no', 'yes']", 0.45),
        ("kind", "{type: multi_class, classes: 3}", "prefetch: 2", 0.7),
        ("cost", "{type: regression}", "prefetch: 2", 6.0),
    ],
)
def test_other_models_learn_the_same_table(folder, label, head, vocabulary, most):
    run = loaded_run(folder, label, head, vocabulary).run
    assert references.can_compare(run)
    found = references.references(run, {})
    names = {"linear"}
    if importlib.util.find_spec("lightgbm") is not None:
        names.add("lightgbm")
    assert found.keys() == names
    for metrics in found.values():
        assert metrics["average_loss"] < most


def test_the_program_saves_what_it_found_for_these_files(folder):
    loaded = loaded_run(folder, "cost", "{type: regression}")
    claim_model_dir(loaded)
    run = loaded.run
    assert references.read_references(run) == {}
    references.main(run.run.model_dir)
    assert "linear" in references.read_references(run)
    with (folder / "t.csv").open("a") as file:
        file.write("1,$1,2024-01-01,Oslo,yes,1,2,1\n")
    assert references.read_references(run) == {}, "the data has changed"
    (folder / "model/config/references.json").write_text("{")
    assert references.read_references(run) == {}


def test_a_run_with_weights_is_not_compared(folder):
    run = loaded_run(folder, "cost", "{type: regression}", "weight: x").run
    assert not references.can_compare(run)


def test_scores_are_those_of_the_heads():
    assert _auc(np.array([0.1, 0.5, 0.5, 0.9]), np.array([0, 0, 1, 1])) == 0.875
    predicted = np.array([[0.8, 0.2], [0.4, 0.6]])
    found = _score(predicted, np.array([0.0, 1.0]), 2)
    assert found["accuracy"] == 1.0
    assert found["average_loss"] == pytest.approx(-(np.log(0.8) + np.log(0.6)) / 2)
    numbers = _score(np.array([1.0, 3.0]), np.array([0.0, 4.0]), 0)
    assert json.dumps(numbers)
    assert numbers == {"average_loss": 1.0, "rmse": 1.0, "mae": 1.0, "r2": 0.75}


def test_training_goes_on_while_other_models_are_trained(folder):
    loaded = loaded_run(folder, "cost", "{type: regression}")
    claim_model_dir(loaded)
    process = references.start(loaded.run)
    assert process is not None
    assert references.finish(process, secs=120)
    assert "linear" in references.read_references(loaded.run)
    assert references.start(loaded.run) is None, "it is done"


def test_a_comparison_that_takes_too_long_is_ended():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    assert not references.finish(process, secs=0)
    assert process.returncode is not None
