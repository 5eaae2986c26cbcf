"""Layers that compute in bfloat16, of a model whose variables are float32."""

import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

import estimax as ex

RNG = np.random.default_rng(0)
X = RNG.normal(size=(64, 4)).astype(np.float32)
Y = (X @ np.array([[1.0], [-2.0], [0.5], [0.0]], np.float32) > 0).astype(np.float32)
WORDS = np.array([["a"], ["b"], ["c"], ["d"]] * 16)


def input_fn():
    features = {"x": X, "word": WORDS}
    return ex.input.Dataset.from_tensor_slices((features, Y)).repeat().batch(16)


def eval_fn():
    features = {"x": X, "word": WORDS}
    return ex.input.Dataset.from_tensor_slices((features, Y)).batch(16)


def own_model_fn(features, labels, mode):
    """Layers that name no dtype; the types they computed in are noted."""
    net = nn.Dense(8, name="hidden")(features["x"])
    seen = {"hidden": net.dtype.name}
    net = nn.BatchNorm(mode != ex.ModeKeys.TRAIN, name="norm")(net)
    seen["norm"] = net.dtype.name
    exact = nn.Dense(1, name="exact", dtype=jnp.float32)(net)
    seen["exact"] = exact.dtype.name
    y = nn.Dense(1, name="out")(net)
    own_model_fn.seen = seen
    if mode == ex.ModeKeys.PREDICT:
        return ex.EstimatorSpec(mode, predictions={"y": y})
    loss = jnp.mean(jnp.square(y + exact - labels))
    return ex.EstimatorSpec(mode, loss=loss, train_op=ex.optimizers.Adam(0.01))


def config(folder, precision):
    return ex.RunConfig(
        folder,
        tf_random_seed=1,
        precision=precision,
        save_summary_steps=0,
        log_step_count_steps=None,
    )


def dnn(folder, precision):
    words = ex.feature_columns.categorical_column_with_vocabulary_list(
        "word", ["a", "b", "c", "d"]
    )
    return ex.DNNClassifier(
        hidden_units=[8],
        feature_columns=[
            ex.feature_columns.numeric_column("x", (4,)),
            ex.feature_columns.embedding_column(words, 2),
        ],
        optimizer=ex.optimizers.Adagrad(0.5),
        config=config(folder, precision),
    )


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """One DNN trained in float32 and one in bfloat16, from the same start."""
    folder = tmp_path_factory.mktemp("pair")
    models = {}
    for precision in ("float32", "bfloat16"):
        models[precision] = dnn(folder / precision, precision)
        models[precision].train(input_fn, steps=30)
    return models


def test_a_canned_model_trains_almost_as_in_float32(pair):
    full, narrow = (pair[p].evaluate(eval_fn) for p in ("float32", "bfloat16"))
    assert narrow["loss"] != full["loss"]
    assert narrow["loss"] == pytest.approx(full["loss"], abs=0.03)
    assert narrow["accuracy"] > 0.9


def test_everything_that_is_kept_stays_float32(pair):
    names = pair["bfloat16"].get_variable_names()
    types = {n: pair["bfloat16"].get_variable_value(n).dtype.name for n in names}
    assert "bfloat16" not in types.values()


def test_checkpoints_pass_between_the_precisions(pair):
    folder = pair["bfloat16"].model_dir
    as_full = dnn(folder, "float32").evaluate(eval_fn)
    as_narrow = pair["bfloat16"].evaluate(eval_fn)
    assert as_full["loss"] == pytest.approx(as_narrow["loss"], abs=0.01)


def test_an_exported_model_computes_alike_and_answers_in_float32(pair, tmp_path):
    model = pair["bfloat16"]
    bundle = ex.export.load(model.export_saved_model(tmp_path))
    answer = bundle.predict({"x": X[:4], "word": WORDS[:4]}, "predict")
    expected = next(model.predict(eval_fn, yield_single_examples=False))["logits"]
    assert answer["logits"].dtype == np.float32
    np.testing.assert_allclose(answer["logits"], expected[:4], rtol=1e-2)


def test_flax_layers_that_name_no_type_compute_in_bfloat16(tmp_path):
    model = ex.Estimator(own_model_fn, config=config(tmp_path, "bfloat16"))
    model.train(input_fn, steps=2)
    assert own_model_fn.seen == {
        "hidden": "bfloat16",
        "norm": "bfloat16",
        "exact": "float32",
    }
    assert next(model.predict(eval_fn))["y"].dtype == np.float32
    for name in model.get_variable_names():
        assert model.get_variable_value(name).dtype.name != "bfloat16", name


def test_an_unknown_precision_is_refused():
    with pytest.raises(ex.EstimaxError, match="did you mean 'bfloat16'"):
        ex.RunConfig(precision="bfloat")
