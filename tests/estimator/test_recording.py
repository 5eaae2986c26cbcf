"""What a model reads is found by running it, not by initializing it."""

import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

import estimax as ex
from estimax import feature_columns as fc
from estimax.core.errors import CheckpointError

X = np.array([[1.0], [2.0]], np.float32)
Z = np.array([[10.0], [20.0]], np.float32)


class AddsAfterInit(nn.Module):
    """Flax's idiom for work that initialization skips."""

    @nn.compact
    def __call__(self, x, more):
        y = nn.Dense(1, kernel_init=nn.initializers.ones, name="line")(x)
        return y if self.is_initializing() else y + more


def is_initializing():
    """Whether the model_fn around the call runs to make variables."""
    return nn.module._context.module_stack[-1].is_initializing()


def pairs(features, labels):
    return lambda: iter([(features, labels)])


def predicted(model, features):
    return [row["y"].item() for row in model.predict(pairs(features, None))]


def spec_of(mode, y, labels, rate=0.0, **outputs):
    if mode == ex.ModeKeys.PREDICT:
        return ex.EstimatorSpec(mode, predictions={"y": y, **outputs})
    loss = jnp.mean(y if labels is None else y - labels)
    metrics = {"mean_y": ex.metrics.mean(y)}
    train_op = ex.optimizers.SGD(rate)
    return ex.EstimatorSpec(mode, loss=loss, train_op=train_op, eval_metric_ops=metrics)


@pytest.mark.parametrize("debug", [False, True])
def test_a_feature_that_initialization_skips_is_read(make, tmp_path, debug):
    def model_fn(features, labels, mode):
        y = AddsAfterInit()(features["x"], features["z"])
        return spec_of(mode, y, None)

    features = {"x": X, "z": Z}
    model = make(model_fn, debug=debug).train(pairs(features, X), steps=1)
    assert model.evaluate(pairs(features, X))["loss"] == 16.5
    assert predicted(model, features) == [11, 22]
    if not debug:
        bundle = ex.export.load(model.export_saved_model(tmp_path / "bundle"))
        assert bundle.predict(features)["y"].ravel().tolist() == [11, 22]


def test_training_reads_a_label_that_initialization_skips(make):
    def model_fn(features, labels, mode):
        w = ex.get_variable("w", (1,), initializer=0.0)
        loss = jnp.sum(w) * (0.0 if is_initializing() else jnp.sum(labels))
        return ex.EstimatorSpec(mode, loss=loss, train_op=ex.optimizers.SGD(1.0))

    model = make(model_fn).train(pairs({"x": X}, Z), steps=1)
    assert model.get_variable_value("w").tolist() == [-30.0]


def test_a_variable_is_set_to_a_feature_as_it_is(make):
    def model_fn(features, labels, mode):
        last = ex.get_variable("last", (2, 1), initializer=0.0, trainable=False)
        ex.assign(last, features["x"])
        w = ex.get_variable("w", (1,), initializer=0.0)
        return spec_of(mode, w + last, None)

    model = make(model_fn).train(pairs({"x": X}, None), steps=1)
    assert model.get_variable_value("last").tolist() == X.tolist()


def test_a_feature_of_one_mode_is_needed_in_that_mode_only(make, tmp_path):
    def model_fn(features, labels, mode):
        y = nn.Dense(1, kernel_init=nn.initializers.ones, name="line")(features["x"])
        if mode == ex.ModeKeys.TRAIN:
            y = y * features["weight"]
        if mode == ex.ModeKeys.EVAL:
            y = y + features["offset"]
        return spec_of(mode, y, labels, rate=1.0)

    train = {"x": X, "weight": Z}
    model = make(model_fn).train(pairs(train, X), steps=1)
    # The gradient of mean(w x z - y): (1 * 10 + 2 * 20) / 2.
    assert model.get_variable_value("line/kernel").item() == 1 - 25
    assert model.get_variable_value("line/bias").item() == -15
    metrics = model.evaluate(pairs({"x": X, "offset": Z}, X))
    assert metrics["mean_y"] == (-24 - 15 + 10 - 48 - 15 + 20) / 2
    assert predicted(model, {"x": X}) == [-39, -63]
    bundle = ex.export.load(model.export_saved_model(tmp_path / "bundle"))
    assert bundle.predict({"x": X})["y"].ravel().tolist() == [-39, -63]


def test_columns_that_initialization_skips_are_computed(make, tmp_path):
    # Both columns have one name, so that their results are told apart by number.
    low = fc.bucketized_column(fc.numeric_column("x"), [1.5])
    city = fc.indicator_column(
        fc.categorical_column_with_vocabulary_list("city", ["Oslo", "Rome"])
    )
    turned = fc.indicator_column(
        fc.categorical_column_with_vocabulary_list("city", ["Rome", "Oslo"])
    )

    def model_fn(features, labels, mode):
        w = ex.get_variable("w", (2, 1), initializer=1.0)
        scale = jnp.array([[1.0], [10.0]])
        if is_initializing():
            y = fc.input_layer(features, [city]) @ (w * scale)
        else:
            y = fc.input_layer(features, [turned, low]) @ jnp.array(
                [[1.0], [10.0], [100.0], [1000.0]]
            )
            y = y + 0 * jnp.sum(w)
        return spec_of(mode, y, None)

    features = {"x": X, "city": np.array(["Oslo", "Oslo"])}
    model = make(model_fn).train(pairs(features, X), steps=1)
    assert predicted(model, features) == [110, 1010]
    bundle = ex.export.load(model.export_saved_model(tmp_path / "bundle"))
    assert bundle.predict(features)["y"].ravel().tolist() == [110, 1010]


def test_a_lookup_and_a_summary_that_initialization_skips(make):
    def model_fn(features, labels, mode):
        table = ex.get_variable("table", (5, 1), initializer=0.0)
        rows = jnp.zeros((2, 1))
        if not is_initializing():
            rows = ex.embedding_lookup(table, features["id"])
            ex.summary.scalar("late", jnp.sum(features["id"]))
        return spec_of(mode, rows, None, rate=1.0)

    features = {"id": np.array([1, 3])}
    model = make(model_fn, save_summary_steps=1).train(pairs(features, None), steps=1)
    found = model.get_variable_value("table").ravel().tolist()
    assert found == [0, -0.5, 0, -0.5, 0]


def test_variables_of_some_modes_load_in_every_order(make):
    def model_fn(features, labels, mode):
        w = ex.get_variable("w", (1,), initializer=1.0)
        y = w * features["x"]
        if mode != ex.ModeKeys.PREDICT:
            seen = ex.get_variable("seen", (), initializer=5.0, trainable=False)
            y = y + seen
        if mode == ex.ModeKeys.TRAIN:
            ex.get_variable("count", (), initializer=0.0, trainable=False)
        return spec_of(mode, y, None)

    model = make(model_fn).train(pairs({"x": X}, None), steps=1)
    for _ in range(2):
        assert predicted(model, {"x": X}) == [1, 2]
        assert model.evaluate(pairs({"x": X}, None))["loss"] == 6.5


class EvaluatesInMemory(ex.hooks.Hook):
    def __init__(self):
        self.seen = []

    def end(self, context):
        self.seen.append(self.evaluate(context.state)["loss"])


def test_a_variable_of_evaluation_alone_is_named_in_the_error(make):
    def model_fn(features, labels, mode):
        y = ex.get_variable("w", (1,), initializer=1.0) * features["x"]
        ex.get_variable("seen", (), initializer=0.0, trainable=False)
        if mode == ex.ModeKeys.EVAL:
            y = y + ex.get_variable("extra", (), initializer=5.0, trainable=False)
        return spec_of(mode, y, None)

    model = make(model_fn)
    hook, data = EvaluatesInMemory(), pairs({"x": X}, None)
    hook.evaluate = lambda state: model.evaluate_state(state, data)
    with pytest.raises(CheckpointError, match="extra"):
        model.train(data, steps=1, hooks=[hook])
    model.train(data, steps=1)
    with pytest.raises(CheckpointError, match="extra"):
        model.evaluate(data)
