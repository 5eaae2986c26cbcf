"""A model that was changed between two calls of train on one folder."""

import jax.numpy as jnp
import optax
import pytest
from flax import linen as nn
from tiny_models import data

import estimax as ex
from estimax.core.errors import CheckpointError


def model_fn(features, labels, mode, params):
    y = features["x"]
    for name, units in params["layers"].items():
        y = nn.Dense(units, name=name, kernel_init=nn.initializers.ones)(y)
    loss = jnp.mean(jnp.square(jnp.sum(y, 1, keepdims=True) - labels))
    return ex.EstimatorSpec(mode, loss=loss, train_op=params["optimizer"])


ADAM = ex.optimizers.Adam(0.1)


def test_the_error_lists_what_differs_variable_by_variable(make):
    make(model_fn, {"layers": {"a": 2, "b": 3}, "optimizer": ADAM}).train(
        data(), steps=1
    )
    changed = make(model_fn, {"layers": {"a": 4, "c": 1}, "optimizer": ADAM})
    with pytest.raises(CheckpointError) as caught:
        changed.train(data(), steps=1)
    message = str(caught.value)
    assert "missing in the checkpoint: c/kernel float32[4, 1]" in message
    assert "not in the model: b/kernel float32[2, 3]" in message
    assert (
        "changed: a/kernel is float32[1, 2] in the checkpoint, float32[1, 4] in the "
        "model" in message
    )


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (ADAM, ex.optimizers.Adam(0.0)),
        (optax.adam(0.1), optax.adam(0.0)),
        # Its rate is part of its state, yet no part of a checkpoint.
        (
            optax.inject_hyperparams(optax.adam)(0.1),
            optax.inject_hyperparams(optax.adam)(0.0),
        ),
        (ex.optimizers.SGD(0.1, momentum=0.9), ex.optimizers.SGD(0.0, momentum=0.9)),
    ],
    ids=["Adam", "optax", "injected", "momentum"],
)
def test_a_learning_rate_changed_in_the_code_counts_from_then_on(make, first, second):
    layers = {"a": 1}
    model = make(model_fn, {"layers": layers, "optimizer": first})
    before = model.train(data(), steps=2).get_variable_value("a/bias")
    model = make(model_fn, {"layers": layers, "optimizer": second})
    after = model.train(data(), steps=2).get_variable_value("a/bias")
    if first is ADAM or isinstance(first, optax.GradientTransformation):
        assert after == before
    else:
        # In TensorFlow's momentum the rate is in the velocity: the old one rolls on.
        assert after != before
