"""Missing values mean the same in REST, gRPC, Examples, `run` and `Bundle.predict`."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import estimax as ex
from estimax import export
from estimax.cli.main import app
from estimax.export.signature import origins_of
from estimax.feature_columns.transforms import Scaling
from estimax.serving.examples import columns_from_examples, example_from_json
from estimax.serving.protos import message
from estimax.serving.requests import (
    FeatureReader,
    PendingRows,
    check_request,
    features_from_json,
)
from estimax.serving.status import ServingError
from estimax.serving.tensors import check_inputs, fill_proto

FULL = {"size": 2.0, "age": 40.0, "plain": 0.5, "other": 1.0, "plane": -1, "city": ""}
GIVEN = {"plain": 0.5, "other": 1.0}  # what the model does not fill
NULLS = {**dict.fromkeys(FULL), **GIVEN}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """A model whose columns have a default, a fill value, ids, and nothing of these."""
    fc = ex.feature_columns
    hashed = fc.categorical_column_with_hash_bucket
    columns = [
        fc.numeric_column("size", default_value=2.0),
        fc.numeric_column("age", normalizer_fn=Scaling(fill=40.0, mean=40.0, std=9.0)),
        fc.numeric_column("plain"),
        fc.numeric_column("other"),
        fc.indicator_column(hashed("plane", 5, dtype=np.int64)),
        fc.embedding_column(hashed("city", 5), 2),
    ]
    folder = tmp_path_factory.mktemp("model")
    config = ex.RunConfig(str(folder / "run"), tf_random_seed=1)
    model = ex.DNNRegressor([2], columns, config=config, activation_fn=None)
    data = {
        name: np.array([value, value]).astype(np.float32)
        for name, value in FULL.items()
        if isinstance(value, float)
    }
    data |= {"plane": np.array([4, -1]), "city": np.array(["Oslo", ""])}
    model.train(lambda: (data, np.array([1.0, 3.0], np.float32)), steps=1)
    return export.load(model.export_saved_model(folder / "bundle"))


def by_rest(bundle, rows):
    specs = bundle.signature("predict").inputs
    reader = FeatureReader(specs, origins_of(bundle.plan))
    features, _ = features_from_json({"instances": rows}, specs, reader)
    assert isinstance(features, PendingRows)
    return reader.raw_batch([features])


def by_columns(bundle, rows):
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    specs = bundle.signature("predict").inputs
    reader = FeatureReader(specs, origins_of(bundle.plan))
    features, _ = features_from_json({"inputs": columns}, specs, reader)
    if isinstance(features, PendingRows):
        return reader.raw_batch([features])
    return check_request(bundle, bundle.signature("predict"), features)


def by_examples(bundle, rows):
    examples = [example_from_json(row) for row in rows]
    columns = columns_from_examples(bundle, examples)
    return check_request(bundle, bundle.signature("predict"), columns)


def by_predict(bundle, rows):
    return bundle.check(rows)


def by_tensors(bundle, rows):
    """Tensors cannot say null, only lack an input."""
    signature = bundle.signature("predict")
    inputs = {}
    for name in rows[0]:
        if rows[0][name] is not None:
            proto = message("tensorflow.TensorProto")()
            fill_proto(proto, np.array([row[name] for row in rows], np.float32))
            inputs[name] = proto.SerializeToString()
    columns = check_inputs(inputs, signature.inputs).decode()
    return check_request(bundle, signature, columns)


WAYS = (by_rest, by_columns, by_examples, by_tensors, by_predict)


@pytest.mark.parametrize("row", [GIVEN, NULLS], ids=["absent", "null"])
@pytest.mark.parametrize("way", WAYS)
def test_missing_values_are_filled_in_every_way(bundle, way, row):
    wanted = bundle.predict([FULL, FULL])["predictions"]
    found = bundle.run("predict", bundle.transform(way(bundle, [row, row])))
    np.testing.assert_array_equal(found["predictions"], wanted)


@pytest.mark.parametrize("way", WAYS)
def test_one_error_names_all_features_that_are_not_filled(bundle, way):
    with pytest.raises((ServingError, ex.core.errors.BundleError)) as raised:
        way(bundle, [{"size": 1.0}])
    assert "'plain'" in str(raised.value)
    assert "'other'" in str(raised.value)


def test_run_fills_what_a_line_lacks(bundle, tmp_path):
    path, output = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    arguments = ["run", str(bundle.path), "--input", str(path), "--output", str(output)]
    for row in (GIVEN, NULLS):
        path.write_text(json.dumps(row))
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 0, done.output
        found = json.loads(output.read_text())["predictions"]
        assert found == pytest.approx(bundle.predict(FULL)["predictions"].item())


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"size": 1.0}, "needs the columns 'other', 'plain'"),
        ({**GIVEN, "citty": "Oslo"}, "no column 'city', found a column 'citty'"),
    ],
)
def test_run_names_what_it_cannot_fill(bundle, tmp_path, row, words):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row))
    done = CliRunner().invoke(app, ["run", str(bundle.path), "--input", str(path)])
    assert words in str(done.exception)
