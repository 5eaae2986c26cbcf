"""Run files with dates, numbers that are text, and words with blanks around them."""

import json
from pathlib import Path

import numpy as np
import pytest

import estimax as ex
from estimax.config.build import build
from estimax.config.data_report import report
from estimax.config.load import load
from tests.config import run_files

RUN = """\
schema: estimax/run/v1
name: table
seed: 3
run: {model_dir: model, save_checkpoints: {every_steps: 50}, save_summary_steps: 0}
data:
  label: y
  sources:
    train: {format: csv, csv: {delimiter: ";"}, files: train.csv, batch_size: 8,
            epochs: null}
features:
  price: {type: numeric, text: comma, default: mean, normalize: zscore}
  price_bins: {type: bucketized, source: price, boundaries: [10, 100]}
  day: {type: date, parts: [month, days_since, missing], since: 2024-01-01}
  size: {type: vocabulary, from_data: {}, strip: true}
  city: {type: hashed, buckets: 8, strip: true}
model:
  type: dnn_linear_combined
  linear: {features: [price_bins, size, city]}
  dnn: {features: {numeric: [price, day], indicator: [size, city]}, hidden_units: [4]}
  head: {type: binary}
train: {max_steps: 3}
"""
ROWS = (
    ("3,25 €", "2024-05-01", " S", "Oslo"),
    ("1.302,10", "2024-12-31 13:45", "M ", " Oslo "),
    ("", "", "S", "Rome"),
    ("65%", "2024/2/3", "M", "Rome\t"),
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = ["price;day;size;city;y"]
    lines += [";".join([*row, str(i % 2)]) for i, row in enumerate(ROWS * 4)]
    (tmp_path / "train.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_a_bundle_reads_text_as_training_does(folder):
    built = build(load(run_files.write(folder, RUN)))
    assert built.plan.statistics.vocabularies["size"] == ("M", "S")
    assert built.plan.statistics.raw["price"].mean == pytest.approx(
        (3.25 + 1302.10 + 65) / 3
    )
    built.estimator.train(built.input_fn("train"), max_steps=3)
    columns = dict(
        zip(("price", "day", "size", "city"), zip(*ROWS, strict=True), strict=True)
    )

    def rows():
        return ex.input.Dataset.from_tensor_slices(
            {name: list(values) for name, values in columns.items()}
        ).batch(4)

    wanted = [one["logits"][0] for one in built.estimator.predict(rows)]
    bundle = ex.export.load(built.estimator.export_saved_model(str(folder / "out")))
    found = bundle.predict({k: list(v) for k, v in columns.items()})
    np.testing.assert_allclose(found["logits"][:, 0], wanted, rtol=1e-5)
    # A client that strips its words gets the same answer.
    stripped = {k: [text.strip() for text in v] for k, v in columns.items()}
    again = bundle.predict(stripped)
    np.testing.assert_array_equal(again["logits"], found["logits"])


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("2024/2/3", "soon", "features.day: expected a date such as 2024-05-01, found"),
        ("65%", "cheap", "features.price: expected a number such as 1.302,10, found"),
    ],
)
def test_check_names_the_line_of_a_text_that_cannot_be_read(folder, old, new, words):
    path = folder / "train.csv"
    path.write_text(path.read_text().replace(old, new))
    (problem,) = report(load(run_files.write(folder, RUN)).run, "train").problems
    assert problem.startswith(f"train.csv, line 5: {words} '{new}'")
    assert problem.endswith("(4 rows)")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("since: 2024-01-01", "since: May", "expected a date such as 2024-05-01"),
        ("month, days_since", "month, month", "'month' is listed twice"),
        ("month, days_since", "moth", "month"),
        ("from_data: {}, strip", "list: [1, 2], strip", "strip: is for words"),
        ("numeric: [price, day]", "indicator: [day]", "'day' is date"),
    ],
)
def test_mistakes_are_named(folder, old, new, words):
    text = RUN.replace(old, new)
    if "indicator: [day]" in new:
        text = text.replace(", indicator: [size, city]", "")
    assert text != RUN
    problems = run_files.problems(folder, text)
    assert any(words in problem for problem in problems), problems


def test_the_transforms_of_a_bundle_are_json(folder):
    built = build(load(run_files.write(folder, RUN)))
    built.estimator.train(built.input_fn("train"), max_steps=1)
    path = built.estimator.export_saved_model(str(folder / "out"))
    text = "".join(p.read_text() for p in Path(path).glob("*.json"))
    assert "date_parts" in text
    assert "text_numbers" in text
    assert json.dumps("comma") in text
