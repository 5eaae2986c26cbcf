"""Sources of every format give the same rows; splits, shards and slices of them."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from run_files import write

from estimax.config import load
from estimax.config.build import plan
from estimax.config.build_input import make_predict_input_fn
from estimax.config.data_report import check_files
from estimax.config.expressions import evaluate
from estimax.core.errors import MissingFileError

RUN = """\
schema: estimax/run/v1
name: formats
run: {{model_dir: "{model}"}}
data:
  label: click
  weight: weight
  sources:
    train: {{{source}, batch_size: 64}}
features:
  age: {{type: numeric, default: mean, normalize: zscore}}
  price: {{type: numeric, normalize: minmax}}
  price_buckets: {{type: bucketized, source: price, boundaries: {{quantiles: 4}}}}
  position: {{type: numeric, shape: [3]{split}}}
  category: {{type: vocabulary, from_data: {{}}}}
  item: {{type: identity, buckets: 60}}
  tags: {{type: vocabulary, from_data: {{}}{many}}}
  strong_tags: {{type: weighted, source: tags, weights: tag_weights{split}}}
  history: {{type: identity, buckets: 60, sequence: true{split}}}
model:
  type: rnn
  rnn:
    sequence: {{embedding: {{dim: 2, of: [history]}}}}
    context:
      numeric: [age, price, position]
      embedding: {{dim: 2, of: [item, category, strong_tags], shared: false}}
      indicator: [price_buckets]
    units: 4
"""
FORMATS = {
    "csv": 'format: csv, files: "data/shop/train.csv"',
    "gzip": 'format: csv, files: "data/shop/*n.csv.gz", compression: gzip',
    "parquet": 'format: parquet, files: ["data/shop/train.parquet"]',
    "jsonl": 'format: jsonl, files: "data/shop/train.jsonl"',
    "tfrecord": 'format: tfrecord, files: "data/shop/train.tfrecord"',
}


def loaded(folder, form, *overrides):
    is_csv = "format: csv" in FORMATS[form]
    text = RUN.format(
        model=folder / form,
        source=FORMATS[form],
        split=', delimiter: "|"' if is_csv else "",
        many=', delimiter: "|"' if is_csv else ", many: true",
    )
    return load(write(folder, text, f"{form}.yaml"), overrides)


def batches(made, source="train"):
    return list(evaluate(made.input_fn(source))())


@pytest.fixture(scope="module")
def expected(shop, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(shop)
        made = plan(loaded(tmp_path_factory.mktemp("csv"), "csv"))
        return made.statistics, batches(made)


@pytest.mark.parametrize("form", sorted(FORMATS.keys() - {"csv"}))
def test_a_format_gives_the_rows_of_the_csv_file(
    form, expected, shop, tmp_path, monkeypatch
):
    monkeypatch.chdir(shop)
    statistics, rows = expected
    made = plan(loaded(tmp_path, form))
    assert made.statistics.vocabularies == statistics.vocabularies
    for name, moments in statistics.moments.items():
        found = made.statistics.moments[name]
        assert found.mean == pytest.approx(moments.mean, rel=1e-6)
        assert found.high == pytest.approx(moments.high, rel=1e-6)
    found = batches(made)
    assert len(found) == len(rows) == 3
    for (features, label), (wanted, click) in zip(found, rows, strict=True):
        assert features.keys() == wanted.keys()
        np.testing.assert_array_equal(label, click)
        for name in wanted:
            np.testing.assert_allclose(
                plain(features[name]), plain(wanted[name]), rtol=1e-6, err_msg=name
            )


def plain(column):
    column = getattr(column, "values", column)
    if not isinstance(column, np.ndarray):
        return [hash(word) for word in column.tolist()]
    return column


def test_boundaries_are_at_the_quantiles(expected):
    statistics, _ = expected
    boundaries = statistics.boundaries["price_buckets"]
    assert len(boundaries) == 3
    low, high = statistics.moments["price"].low, statistics.moments["price"].high
    assert low < boundaries[0] < boundaries[1] < boundaries[2] < high


SPLITS = {
    "random": "{parts: {train: 0.7, test: 0.3}}",
    "hash": "{parts: {train: 0.7, test: 0.3}, by: hash, key: user}",
    "time": "{parts: {train: 0.7, test: 0.3}, by: time, key: day}",
}


@pytest.mark.parametrize("by", SPLITS)
def test_a_source_is_split_into_parts_without_a_common_row(
    by, shop, tmp_path, monkeypatch
):
    monkeypatch.chdir(shop)
    run = RUN.replace("train: {{{source}, batch_size: 64}}", "all: {{{source}}}")
    text = run.format(
        model=tmp_path / "model",
        source=FORMATS["parquet"] + f", batch_size: 999, split: {SPLITS[by]}",
        split="",
        many=", many: true",
    )
    made = plan(load(write(tmp_path, text)))
    assert list(made.run.data.sources) == ["train", "test"]
    (train, _), (test, _) = batches(made)[0], batches(made, "test")[0]
    counts = len(train["price"]), len(test["price"])
    assert sum(counts) == 160
    assert counts[0] / 160 == pytest.approx(0.7, abs=0.12)
    assert "user" not in train
    assert "day" not in train


def test_shards_and_bad_rows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{i},1\n" for i in range(6))
    (tmp_path / "a.csv").write_text(f"age,late\n{rows}old,1\n7,0\n")
    text = """\
schema: estimax/run/v1
name: small
run: {model_dir: model}
data:
  label: late
  sources:
    train: {format: csv, files: a.csv, batch_size: 9, on_bad_row: skip,
            shard: {count: 2, index: 1}, cache: true}
features: {age: {type: numeric}}
model: {type: linear, linear: {features: [age]}}
"""
    made = plan(load(write(tmp_path, text)))
    features, _ = batches(made)[0]
    assert features["age"].tolist() == [1.0, 3.0, 5.0]


def test_a_source_may_be_a_url_with_a_pattern(tmp_path):
    (tmp_path / "day=1").mkdir()
    (tmp_path / "day=1" / "a.csv").write_text("age,late\n1,0\n2,1\n")
    text = f"""\
schema: estimax/run/v1
name: small
run: {{model_dir: "{tmp_path}/model"}}
data:
  label: late
  sources:
    train: {{format: csv, files: "file://{tmp_path}/day=*/*.csv", batch_size: 9}}
features: {{age: {{type: numeric, normalize: zscore}}}}
model: {{type: linear, linear: {{features: [age]}}}}
"""
    found = load(write(tmp_path, text))
    features, _ = batches(plan(found))[0]
    assert features["age"].tolist() == [1.0, 2.0]
    nothing = load(write(tmp_path, text.replace("*.csv", "*.txt")))
    check_files(nothing.run, ["train"], list_urls=False)
    words = r"data.sources.train.files: no file matches 'file:.*day=\*/\*.txt'"
    with pytest.raises(MissingFileError, match=words):
        check_files(nothing.run, ["train"])


def test_a_slice_has_only_the_rows_of_its_value(shop, tmp_path, monkeypatch):
    monkeypatch.chdir(shop)
    path = Path(__file__).parents[2] / "configs" / "shop_linear.yaml"
    made = plan(load(path, model_dir=str(tmp_path)))
    specs = evaluate(made.eval_specs(), {})
    assert [spec.name for spec in specs] == ["test", "country_DE", "country_NO"]
    features, _ = next(iter(specs[1].input_fn()))
    assert set(features["country"].tolist()) == {b"DE"}
    assert [spec.exporters != [] for spec in specs]


def test_prediction_reads_the_format_of_the_source_without_labels(
    shop, tmp_path, monkeypatch
):
    monkeypatch.chdir(shop)
    run = loaded(tmp_path, "jsonl").run
    batch = next(iter(make_predict_input_fn(run, "data/shop/test.jsonl")()))
    assert "click" not in batch
    assert len(batch["price"]) == 40
