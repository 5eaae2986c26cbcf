"""On a CPU, steps of a model with convolutions run one at a time."""

import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

import estimax as ex


def model_fn(features, mode, params):
    net = features["image"][..., None]
    if params["convolves"]:
        net = nn.jit(nn.Conv)(2, (3, 3))(net)  # inside of a jit of its own
    loss = jnp.mean(nn.Dense(1)(net.mean((1, 2))) ** 2)
    return ex.EstimatorSpec(mode, loss=loss, train_op="SGD")


def input_fn():
    rows = {"image": np.zeros((64, 8, 8), np.float32)}
    return ex.input.Dataset.from_tensor_slices(rows).batch(4)


class Calls(ex.hooks.Hook):
    """Counts compiled calls: a hook on the clock is called after each."""

    def __init__(self):
        self.count = 0

    def next_step(self, step):
        return step

    def after_run(self, context, values):
        self.count += 1


@pytest.mark.parametrize(
    ("convolves", "length", "is_single"),
    [(True, None, True), (True, 8, True), (False, None, False), (False, 8, False)],
)
def test_loops_are_for_models_without_convolutions(
    tmp_path, convolves, length, is_single
):
    config = ex.RunConfig(iterations_per_loop=length, save_summary_steps=None)
    params = {"convolves": convolves}
    model = ex.Estimator(model_fn, tmp_path, config, params)
    calls = Calls()
    model.train(input_fn, hooks=[calls])
    assert model.get_variable_value("global_step") == 16
    assert (calls.count == 16) == is_single
