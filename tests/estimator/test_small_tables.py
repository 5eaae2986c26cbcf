"""Exports whose embedding tables are stored in float16 or int8."""

import numpy as np
import pytest

import estimax as ex
from estimax.core.errors import SpecError

WORDS = 300


def rows(count=64):
    rng = np.random.default_rng(0)
    item = rng.integers(0, WORDS, count)
    features = {"item": item, "likes": rng.integers(-1, WORDS, (count, 3))}
    return features, (item % 3 == 0).astype(np.int32)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    fc = ex.feature_columns
    item = fc.categorical_column_with_identity("item", WORDS)
    likes = fc.categorical_column_with_identity("likes", WORDS)
    model = ex.DNNLinearCombinedClassifier(
        model_dir=tmp_path_factory.mktemp("m"),
        linear_feature_columns=[item],
        dnn_feature_columns=[*fc.shared_embeddings([item, likes], 8)],
        dnn_hidden_units=[4],
    )
    return model.train(
        lambda: ex.input.Dataset.from_tensor_slices(rows()).batch(64).repeat(), steps=5
    )


def load(path):
    return ex.export.load(path, self_test=True)


@pytest.fixture(scope="module")
def exact(model, tmp_path_factory):
    return load(model.export_saved_model(tmp_path_factory.mktemp("exact")))


@pytest.mark.parametrize(("dtype", "share"), [("float16", 0.5), ("int8", 0.4)])
def test_tables_are_smaller_and_answers_almost_the_same(
    model, exact, tmp_path, dtype, share
):
    fitted = ex.calibration.Temperature().fit([0, 1, 0, 1], [0.3, 0.6, 0.4, 0.6])
    path = model.export_saved_model(tmp_path, table_dtype=dtype, calibration=fitted)
    bundle = load(path)
    arrays = bundle.weights.values()
    tables = [a for a in arrays if a.ndim == 2 and len(a) == WORDS]
    assert {a.dtype.name for a in tables} == {dtype, "float16"}  # one has width 1
    said = bundle.manifest["tables"]
    assert said["tables"] == 2  # shared embeddings, and the linear weights
    assert said["bytes"]["before"] == WORDS * 9 * 4
    assert said["bytes"]["after"] <= share * said["bytes"]["before"]
    assert 0 < max(said["errors"].values()) < 0.01
    features, _ = rows()
    wanted, got = exact.predict(features), bundle.predict(features)
    np.testing.assert_allclose(
        got["probabilities"], wanted["probabilities"], atol=0.005
    )
    assert "calibrated_probabilities" in got


def test_the_program_never_has_a_whole_table_in_float32(model, exact, tmp_path):
    path = model.export_saved_model(tmp_path, table_dtype="int8")
    bundle = load(path)
    whole = f"tensor<{WORDS}x8xf32>"
    program = exact.exported(exact.function_of("predict")).mlir_module()
    assert whole in program
    program = bundle.exported(bundle.function_of("predict")).mlir_module()
    assert whole not in program
    assert f"tensor<{WORDS}x8xi8>" in program


def test_more_than_the_bound_is_refused(model, tmp_path):
    exporter = ex.FinalExporter("f", table_dtype="int8", max_table_error=1e-6)
    with pytest.raises(SpecError, match=r"changes by 0.\d+% of its .*use \"float16\""):
        exporter.export(model, str(tmp_path), None, {}, True)
    with pytest.raises(SpecError, match="unknown table_dtype 'int4'"):
        model.export_saved_model(tmp_path, table_dtype="int4")
    with pytest.raises(SpecError, match="explain and table_dtype cannot be given"):
        model.export_saved_model(tmp_path, table_dtype="int8", explain=True)
    with pytest.raises(SpecError, match="max_table_error must be a number above 0"):
        model.export_saved_model(tmp_path, table_dtype="int8", max_table_error=0)
    x = np.ones(4, np.float32)
    plain = ex.LinearRegressor(
        [ex.feature_columns.numeric_column("x")], tmp_path / "plain"
    ).train(lambda: iter([({"x": x}, x)]))
    with pytest.raises(SpecError, match="the model has no embedding tables"):
        plain.export_saved_model(tmp_path, table_dtype="int8")
    assert not list(tmp_path.glob("[0-9]*"))
