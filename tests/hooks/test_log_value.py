"""Values that a model names for hooks to ask for."""

import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

import estimax as ex
from estimax.hooks import Hook


class Asking(Hook):
    """Asks for values by name and keeps them."""

    def __init__(self, *names):
        self.names = names
        self.seen = []

    def before_run(self, context):
        return self.names

    def after_run(self, context, values):
        self.seen.append((context.step, dict(values)))

    def next_step(self, step):
        return step - step % 2 + 2


def model_fn(features, labels, mode):
    y = nn.Dense(1, name="line")(features["x"])
    ex.log_value("mean_x", jnp.mean(features["x"]))
    ex.log_value("x", features["x"])
    loss = jnp.mean(jnp.square(y - labels))
    return ex.EstimatorSpec(mode, loss=loss, train_op=ex.optimizers.SGD(0.01))


def input_fn():
    x = np.arange(8, dtype=np.float32).reshape(8, 1)
    return ex.input.Dataset.from_tensor_slices(({"x": x}, x)).batch(2)


@pytest.mark.parametrize("iterations", [1, 2])
def test_a_hook_gets_the_values_of_the_step_it_asked_at(tmp_path, iterations):
    hook = Asking("mean_x", "x")
    config = ex.RunConfig(
        tmp_path / "m", iterations_per_loop=iterations, save_summary_steps=1
    )
    ex.Estimator(model_fn, config=config).train(input_fn, hooks=[hook])
    assert [step for step, _ in hook.seen] == [2, 4]
    assert [float(values["mean_x"]) for _, values in hook.seen] == [2.5, 6.5]
    # A feature that nothing else reads reaches the device for it.
    assert hook.seen[1][1]["x"].tolist() == [[6], [7]]


def test_what_is_named_is_not_written_to_summaries(tmp_path):
    config = ex.RunConfig(tmp_path / "m", save_summary_steps=1)
    ex.Estimator(model_fn, config=config).train(input_fn)
    written = ex.summary.read_scalars(tmp_path / "m")
    assert "loss" in written
    assert "mean_x" not in written


def test_evaluation_hooks_get_the_values_too(tmp_path):
    hook = Asking("mean_x")
    model = ex.Estimator(model_fn, tmp_path / "m").train(input_fn)
    model.evaluate(input_fn, hooks=[hook])
    assert [float(values["mean_x"]) for _, values in hook.seen] == [0.5, 2.5, 4.5, 6.5]


def test_one_name_for_two_values_is_an_error(tmp_path):
    def twice(features, labels, mode):
        ex.log_value("norm", 1.0)
        ex.log_value("norm", 2.0)

    with pytest.raises(ValueError, match="'norm' already names a value"):
        ex.Estimator(twice, tmp_path / "m").train(input_fn)


def test_a_model_that_logs_can_be_exported(tmp_path):
    def logging_fn(features, labels, mode):
        y = nn.Dense(1, name="line")(features["x"])
        ex.summary.histogram("y", y)
        ex.log_value("ys", y)
        loss = None if labels is None else jnp.mean(jnp.square(y - labels))
        return ex.EstimatorSpec(
            mode, predictions={"y": y}, loss=loss, train_op=ex.optimizers.SGD(0.01)
        )

    model = ex.Estimator(logging_fn, tmp_path / "m").train(input_fn, steps=1)
    bundle = ex.export.load(model.export_saved_model(tmp_path / "out"))
    assert bundle.predict({"x": np.ones((3, 1), np.float32)})["y"].shape == (3, 1)
