"""The numeric columns of a layer are one matrix in the program, with the same bits."""

import itertools
import json

import jax.numpy as jnp
import numpy as np
import pytest

import estimax as ex
from estimax.core.errors import BundleError, FeatureError
from estimax.core.spec import ModeKeys
from estimax.export import host_plan
from estimax.feature_columns.transforms import NumberMatrix, from_json, to_json
from estimax.staging.host_plan import flatten
from estimax.staging.trace import Origin
from estimax.training.recording import record

fc = ex.feature_columns
Scaling = ex.transforms.Scaling
RNG = np.random.default_rng(5)
ROWS = 32
SCALINGS = [
    None,
    Scaling(mean=1.3, std=0.7),
    Scaling(fill=2.0, log1p=True),
    Scaling(log1p=True, mean=0.3, std=3.3, smooth_clip=1.5),
    Scaling(fill=0.1, smooth_clip=0.3),
]
DTYPES = [np.float32, np.float64, np.int64, np.int32, np.uint8, np.bool_, np.float16]


def _table():
    """Return a feature for each scaling and dtype, some with NaN, and one of text."""
    features = {}
    for i, scaling in enumerate(SCALINGS):
        for dtype in DTYPES:
            shape = (ROWS, 2) if i % 2 else (ROWS,)
            values = RNG.gamma(2.0, 1.5, shape)
            if scaling is not None and scaling.fill and dtype in (np.float32, float):
                values[::3] = np.nan
            features[f"x{i}_{np.dtype(dtype).name}"] = values.astype(dtype)
    features["city"] = np.array([b"oslo", b"rome"] * (ROWS // 2))
    return features


FEATURES = _table()
LABELS = RNG.integers(0, 2, ROWS)


def _columns(apart):
    """Return the columns; `apart` hides from them that they are numbers as they are."""
    columns = []
    for name, values in FEATURES.items():
        if name == "city":
            continue
        scaling = SCALINGS[int(name[1])]
        hidden = (lambda x: x) if scaling is None else scaling.__call__
        columns.append(
            fc.numeric_column(
                name, values.shape[1:] or 1, normalizer_fn=hidden if apart else scaling
            )
        )
    city = fc.categorical_column_with_hash_bucket("city", 10)
    return [*columns, fc.embedding_column(city, 2)]


def _input_fn():
    rows = ex.input.Dataset.from_tensor_slices((FEATURES, LABELS))
    return rows.repeat().batch(8)


def _answers(columns, model_dir):
    model = ex.DNNClassifier(
        [4],
        columns,
        str(model_dir),
        optimizer=ex.optimizers.Adagrad(0.05),
        activation_fn=jnp.tanh,
        config=ex.RunConfig(tf_random_seed=3),
    )
    model.train(_input_fn, steps=6)
    evaluated = model.evaluate(_input_fn, steps=2)
    bundle = ex.export.load(model.export_saved_model(str(model_dir / "export")))
    answer = bundle.predict({name: value[:5] for name, value in FEATURES.items()})
    rows = itertools.islice(model.predict(_input_fn), 9)
    predicted = [row["logits"] for row in rows]
    variables = {n: model.get_variable_value(n) for n in model.get_variable_names()}
    return variables, evaluated, predicted, answer, bundle


def test_training_evaluation_prediction_and_bundle_have_the_bits_of_columns_apart(
    tmp_path,
):
    apart = _answers(_columns(apart=True), tmp_path / "apart")
    matrix = _answers(_columns(apart=False), tmp_path / "matrix")
    for expected, found in zip(apart[:4], matrix[:4], strict=True):
        np.testing.assert_equal(found, expected)
    plan = matrix[4].plan
    (call,) = [c for c in plan.calls if isinstance(c.transform, NumberMatrix)]
    # A Scaling of float16 computes in float16, so those columns stay apart.
    apart_still = {
        f"x{i}_{dtype}" for i in (1, 2, 3, 4) for dtype in ("float16", "bool")
    }
    assert {origin.short_name for origin in plan.raw} == apart_still
    assert len(call.inputs) == len(FEATURES) - len(apart_still) - 1
    kinds = {i.name: i.dtype for i in matrix[4].signatures["serving_default"].inputs}
    assert kinds["x0_float64"] == "float32", "callers need not send float64"
    assert kinds["x0_int32"] == "int32"


def _recorded(features, columns):
    def model_fn(features, labels):
        net = fc.input_layer(features, columns)
        return ex.EstimatorSpec(ModeKeys.PREDICT, predictions=net)

    return record(model_fn, flatten(features, None), ModeKeys.PREDICT)


def _prepare(first, columns, later):
    return _recorded(first, columns).plan.prepare(flatten(later, None))


AB = [fc.numeric_column("a"), fc.numeric_column("b", 2)]
BATCH = {"a": np.ones(3, np.float32), "b": np.ones((3, 2), np.float32)}


def test_a_later_batch_of_another_form_raises_an_error_that_names_the_feature():
    def later(**changed):
        return _prepare(BATCH, AB, BATCH | changed)

    with pytest.raises(FeatureError, match="'b': expected 2 numbers a row"):
        later(b=np.ones((3, 3), np.float32))
    with pytest.raises(FeatureError, match="'a': expected dense numbers"):
        later(a=np.array([b"x", b"y", b"z"]))
    with pytest.raises(FeatureError, match="features/b is missing in this batch"):
        _prepare(BATCH, AB, {"a": BATCH["a"]})


def test_the_first_batch_raises_the_errors_of_columns_apart():
    def first(**changed):
        return _recorded(BATCH | changed, AB)

    with pytest.raises(FeatureError, match="numeric_column 'b': expected 2 numbers"):
        first(b=np.ones((3, 3), np.float32))
    with pytest.raises(FeatureError, match="feature 'a' is text"):
        first(a=np.array([b"x", b"y", b"z"]))
    sparse = ex.Sparse(np.array([[0, 0]]), np.array([1.0]), (3, 1))
    with pytest.raises(FeatureError, match="feature 'a' is sparse"):
        first(a=sparse)
    with pytest.raises(FeatureError, match="complex64"):
        first(a=np.ones(3, np.complex64))


def test_a_feature_that_the_model_computes_stays_apart():
    def model_fn(features, labels):
        doubled = features | {"a": features["a"] * 2}
        net = fc.input_layer(doubled, [*AB, fc.numeric_column("c")])
        return ex.EstimatorSpec(ModeKeys.PREDICT, predictions=net)

    batch = flatten(BATCH | {"c": np.ones(3)}, None)
    plan = record(model_fn, batch, ModeKeys.PREDICT).plan
    assert plan.raw == (Origin("features", "a"),)
    (call,) = plan.calls
    assert call.transform == NumberMatrix(("b", "c"), (2, 1))


def test_the_blocks_of_columns_are_handed_out_one_by_one():
    blocks = {}

    def model_fn(features, labels):
        given = {}
        net = fc.input_layer(features, AB, cols_to_output_tensors=given)
        blocks.update({column.name: block.shape for column, block in given.items()})
        return ex.EstimatorSpec(ModeKeys.PREDICT, predictions=net)

    record(model_fn, flatten(BATCH, None), ModeKeys.PREDICT)
    assert blocks == {"a": (3, 1), "b": (3, 2)}


def test_the_matrix_is_data_in_a_bundle(tmp_path):
    matrix = NumberMatrix(("a", "b"), (1, 2))
    record_of = to_json(matrix, tmp_path)
    assert from_json(json.loads(json.dumps(record_of)), tmp_path) == matrix
    for damage in ({"widths": [1]}, {"widths": [0, 2]}, {"features": [1, 2]}):
        with pytest.raises(BundleError, match="number_matrix"):
            from_json(record_of | damage, tmp_path)


def test_a_missing_number_of_a_request_has_the_default_of_its_column():
    columns = [fc.numeric_column("a", default_value=7.0), fc.numeric_column("n")]
    batch = {"a": np.ones(3, np.float32), "n": np.arange(3, dtype=np.int64)}
    plan = _recorded(batch, columns).plan
    assert host_plan.declared_default(Origin("features", "a"), plan) == (7.0,)
    assert not host_plan.is_only_ids(Origin("features", "n"), plan)
