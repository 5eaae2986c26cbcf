"""A model_fn without jit: print, pdb and plain Python see numbers in every call."""

import sys

import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

import estimax as ex


def input_fn():
    x = np.ones((4, 1), np.float32)
    return ex.input.Dataset.from_tensor_slices(({"x": x}, x)).batch(2)


def make(model_fn, folder):
    config = ex.RunConfig(
        folder, debug=True, save_summary_steps=0, log_step_count_steps=None
    )
    return ex.Estimator(model_fn, config=config)


def spec(y, labels, mode):
    if mode == ex.ModeKeys.PREDICT:
        return ex.EstimatorSpec(mode, predictions={"y": y})
    loss = jnp.mean(jnp.square(y - labels))
    return ex.EstimatorSpec(mode, loss=loss, train_op=ex.optimizers.SGD(0.1))


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """The numbers that a model_fn met in every one of its calls, by mode."""
    met = {mode: [] for mode in ("train", "eval", "infer")}

    def model_fn(features, labels, mode):
        y = nn.Dense(1, name="line", kernel_init=nn.initializers.ones)(features["x"])
        if y[0, 0] > -100:  # a plain if, which no compiled step could take
            met[mode].append(float(ex.inspection.value(y)[0, 0]))
        return spec(y, labels, mode)

    folder = tmp_path_factory.mktemp("m")
    make(model_fn, folder).train(input_fn, steps=2)
    again = make(model_fn, folder)
    again.train(input_fn, steps=1)
    again.evaluate(input_fn)
    list(again.predict(input_fn))
    return met


def test_every_call_sees_numbers(seen):
    assert seen["train"][0] == 1.0
    assert all(isinstance(n, float) for calls in seen.values() for n in calls)


def test_evaluation_and_prediction_see_the_trained_numbers(seen):
    assert len(set(seen["eval"][1:] + seen["infer"][1:])) == 1


def test_print_shows_numbers_while_the_gradient_is_taken(tmp_path, capsys):
    def model_fn(features, labels, mode):
        y = nn.Dense(1, name="line", kernel_init=nn.initializers.ones)(features["x"])
        print("y is", y)
        return spec(y, labels, mode)

    make(model_fn, tmp_path).train(input_fn, steps=1)
    last = capsys.readouterr().out.rsplit("y is", 1)[1]
    assert "[1.]" in last


def test_a_breakpoint_in_a_model_fn_is_reached(tmp_path, monkeypatch):
    stops = []
    monkeypatch.setattr(sys, "breakpointhook", lambda: stops.append(sys._getframe(1)))

    def model_fn(features, labels, mode):
        y = nn.Dense(1, name="line")(features["x"])
        breakpoint()
        return spec(y, labels, mode)

    make(model_fn, tmp_path).train(input_fn, steps=1)
    assert {frame.f_code.co_name for frame in stops} == {"model_fn"}
    assert "y" in stops[-1].f_locals
