"""Run files with numbers that are computed: the same in training, bundle and server."""

import json

import numpy as np
import pytest
from serving.servers import running_server

import estimax as ex
from estimax.config import statistics
from estimax.config.build import build
from estimax.config.data_report import report
from estimax.config.load import load
from estimax.config.references import references
from estimax.config.script import script_of
from tests.config import run_files

RUN = """\
schema: estimax/run/v1
name: table
seed: 3
run: {model_dir: model, save_checkpoints: {every_steps: 50}, save_summary_steps: 0}
data:
  label: y
  sources:
    train: {format: csv, files: train.csv, batch_size: 8, epochs: null}
features:
  price: {type: numeric, default: 0.0}
  ratio: {type: expression, expression: price / area, default: mean, normalize: zscore}
  ratio_bins: {type: bucketized, source: ratio, boundaries: {quantiles: 2}}
  ratio_codes: {type: piecewise_linear, source: ratio}
  delay: {type: date_difference, from: due, to: done, unit: hours, default: mean,
          normalize: zscore}
  hour: {type: date, column: done, parts: [hour], time_zone: Europe/Berlin}
  is_large: {type: expression, expression: "area > 5 or coalesce(price, 0) > 9"}
  city: {type: hashed, buckets: 8}
  groups: {type: bucketized, source: price, boundaries: {k_means: 2}}
  note: {type: text, ngrams: [1, 2], min_count: 8, oov_buckets: 1}
  note_hash: {type: text, column: note, hash_buckets: 6}
  cross: {type: crossed, keys: [ratio_bins, city], buckets: 50}
model:
  type: dnn_linear_combined
  linear: {features: [ratio_bins, groups, cross, note_hash]}
  dnn:
    features:
      numeric: [price, ratio, ratio_codes, is_large, delay, hour]
      indicator: [city, note]
    hidden_units: [4]
  head: {type: binary}
train: {max_steps: 3}
eval: {source: train, steps: 1}
"""
HEADER = "price,area,city,due,done,note,y"
ROWS = (
    "6,2,Oslo,2024-05-01,2024-05-01T13:00Z,Too late!,1",
    "1,9,Rome,2024-05-01,2024-05-02 06:00,late; too late,0",
    "12,0,Oslo,,2024-12-01 08:00+01:00,,1",
    "8,1,Rome,2024-05-02 03:00,2024-05-02 02:00,on time,0",
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.csv").write_text("\n".join([HEADER, *ROWS * 4]) + "\n")
    return tmp_path


def columns():
    kinds = (float, float, str, str, str, str)
    cells = [row.split(",")[: len(kinds)] for row in ROWS]
    return {
        name: [kind(row[i]) for row in cells]
        for i, (name, kind) in enumerate(zip(HEADER.split(","), kinds, strict=False))
    }


def test_training_bundle_and_server_compute_the_same(folder):
    built = build(load(run_files.write(folder, RUN)))
    ratios = [3, 1 / 9, 8]  # and one division by zero
    found = built.plan.statistics
    assert found.raw["ratio"].mean == pytest.approx(np.mean(ratios))
    assert found.boundaries["ratio_bins"] == pytest.approx((3.0,))
    assert found.boundaries["groups"] == pytest.approx(((1 + 26 / 3) / 2,))
    assert found.vocabularies["note"] == ("late", "too", "too late")
    assert found.raw["delay"].mean == pytest.approx((13 + 30 - 1) / 3)
    built.estimator.train(built.input_fn("train"), max_steps=3)

    def rows():
        given = {k: np.array(v) for k, v in columns().items()}
        return ex.input.Dataset.from_tensor_slices(given).batch(4)

    wanted = [float(one["logits"][0]) for one in built.estimator.predict(rows)]
    assert len({round(logit, 5) for logit in wanted}) == 4
    built.estimator.export_saved_model(str(folder / "out" / "m"))
    bundle = ex.export.load(next((folder / "out" / "m").iterdir()))
    np.testing.assert_allclose(
        bundle.predict(columns())["logits"][:, 0], wanted, rtol=1e-5
    )
    given = columns()
    each = [{k: v[i] for k, v in given.items()} for i in range(4)]
    with running_server(folder, f"m={folder / 'out' / 'm'}") as server:
        status, answer, _ = server.request(
            "/v1/models/m:predict", {"signature_name": "predict", "instances": each}
        )
        assert status == 200, answer
        logits = [row["logits"][0] for row in answer["predictions"]]
        np.testing.assert_allclose(logits, wanted, rtol=1e-5)
        # A null is a missing number, as NaN is.
        body = {"signature_name": "predict", "instances": [{**each[0], "price": None}]}
        status, answer, _ = server.request("/v1/models/m:predict", body)
        assert status == 200, answer
        nan = {**{k: v[:1] for k, v in given.items()}, "price": [np.nan]}
        (logit,) = answer["predictions"][0]["logits"]
        assert logit == pytest.approx(float(bundle.predict(nan)["logits"][0, 0]))


def test_a_run_that_resumes_keeps_its_boundaries(folder):
    cache = folder / "statistics.json"
    run = load(run_files.write(folder, RUN)).run
    first = statistics.statistics_for(run, cache).boundaries
    with (folder / "train.csv").open("a") as file:
        file.write("900,1,Oslo,,,,1\n" * 50)
    assert statistics.statistics_for(run, cache, keep=True).boundaries == first
    assert statistics.statistics_for(run, cache).boundaries["groups"][0] > 100


def test_statistics_are_computed_again_if_the_expression_changes(folder):
    cache = folder / "statistics.json"
    text = RUN.replace("default: mean, normalize: zscore", "default: 0.0")
    for expression, median in (("price / area", 3.0), ("price - 3", 4.0)):
        run = load(run_files.write(folder, text.replace("price / area", expression)))
        found = statistics.statistics_for(run.run, cache)
        assert found.boundaries["ratio_bins"][0] == pytest.approx(median)
        saved = json.loads(cache.read_text())["statistics"]
        assert saved["boundaries"]["ratio_bins"] == list(found.boundaries["ratio_bins"])


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("price / area", "price / (area", "expression: expected ')', found the end at"),
        ("price / area", "lg(price)", "unknown function 'lg' at position 1; did you"),
        ("price / area", "y / area", "features.ratio: reads the label 'y'"),
        ("expression: price / area, ", "", "features.ratio"),
        ("[ratio_bins, city]", "[ratio, city]", "'ratio' is expression; cross a"),
        ("[city, note]", "[city, note, ratio]", "'ratio' is expression; put it"),
        ("price / area", "price / city", "'city' as text"),
        ("ngrams: [1, 2]", "ngrams: [1, 1]", "note.ngrams.1: 1 is listed twice"),
        ("ngrams: [1, 2]", "ngrams: [0]", "features.note.ngrams"),
        ("hash_buckets: 6", "hash_buckets: 6, max_size: 3", "conflicts with hash_b"),
        ("[ratio_bins, city]", "[ratio_bins, note]", "'note' is text, which cannot"),
        ("numeric: [price,", "numeric: [note_hash, price,", "'note_hash' is text; put"),
        ("to: done", "to: due", "features.delay.to: is the column of `from`, 'due'"),
        ("unit: hours", "unit: hour", "features.delay.unit: "),
        ("Europe/Berlin", "Europe/Berln", "did you mean 'Europe/Berlin'?"),
        ("from: due", "from: y", "features.delay: reads the label 'y'"),
        ("normalize: zscore", "normalize: {min: 3, max: 1}", "must be > min (3)"),
    ],
)  # fmt: skip
def test_mistakes_are_named(folder, old, new, words):
    text = RUN.replace(old, new)
    assert text != RUN
    problems = run_files.problems(folder, text)
    assert any(words in problem for problem in problems), problems


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("6,2,Oslo", "6,two,Oslo", "line 2: features.ratio: expected a number, found"),
        ("2024-05-02 03:00", "soon", "line 5: features.delay: expected a date such as"),
        ("area", "aera", "there is no column 'area'; did you mean 'aera'?"),
    ],
)
def test_check_reads_the_columns_of_expressions(folder, old, new, words):
    path = folder / "train.csv"
    path.write_text(path.read_text().replace(old, new, 1))
    (problem,) = report(load(run_files.write(folder, RUN)).run, "train").problems
    assert words in problem


def test_other_models_are_compared_with_the_same_numbers(folder):
    chance = np.random.default_rng(0)
    price, area = chance.uniform(1, 10, (2, 400))
    label = (price / area > 1).astype(int)
    lines = [
        f"{p},{a},Oslo,,,late,{y}" for p, a, y in zip(price, area, label, strict=True)
    ]
    (folder / "train.csv").write_text("\n".join([HEADER, *lines]) + "\n")
    run = load(run_files.write(folder, RUN)).run
    with_ratio = references(run, {})["linear"]["auc"]
    text = RUN.replace("expression: price / area", "expression: area * 0")
    without = references(load(run_files.write(folder, text)).run, {})["linear"]["auc"]
    assert with_ratio > without + 0.02


def test_the_script_of_a_run_has_the_expression(folder):
    text = script_of(load(run_files.write(folder, RUN)))
    assert "expression_column(" in text
    assert "'price / area'" in text or '"price / area"' in text


def test_a_run_without_a_model_takes_expressions_as_numbers(folder):
    text = RUN.partition("  ratio_bins")[0] + "train: {max_steps: 3}\n"
    run = load(run_files.write(folder, text)).run
    assert "ratio" in str(run.model)
