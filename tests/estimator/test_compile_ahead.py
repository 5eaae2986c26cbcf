"""The program of an evaluation is compiled while the first steps are trained."""

import threading

import jax.numpy as jnp
import numpy as np
import pytest

import estimax as ex
from estimax.estimator.compile_ahead import CompileAhead

X = np.arange(8, dtype=np.float32)


def batches(size):
    return lambda: ex.input.Dataset.from_tensor_slices(({"x": X}, 2 * X)).batch(size)


@pytest.fixture
def modes():
    return []


@pytest.fixture
def make(tmp_path, modes):
    """Return a function that makes a model, which notes the modes of its calls."""

    def model_fn(features, labels, mode):
        modes.append(mode)
        y = features["x"] * ex.get_variable("w", (), initializer=0.5)
        if mode == ex.ModeKeys.PREDICT:
            return ex.EstimatorSpec(mode, predictions={"y": y})
        loss = jnp.mean((y - labels) ** 2)
        return ex.EstimatorSpec(mode, loss=loss, train_op=ex.optimizers.SGD(0.01))

    def made(name="model", **config):
        one_device = ex.RunConfig(tf_random_seed=1, devices=1, **config)
        return ex.Estimator(model_fn, str(tmp_path / name), one_device)

    return made


def wait():
    for thread in threading.enumerate():
        if thread.name == "estimax-compile":
            thread.join()


class Waiting(ex.hooks.Hook):
    """Wait after the first step, so that training does not end before the thread."""

    def after_run(self, context, values):
        wait()


def test_the_first_evaluation_finds_its_program(make, modes):
    model, evaluation = make(), batches(4)
    model.train(batches(2), [CompileAhead(model, ex.EvalSpec(evaluation))], steps=3)
    wait()
    assert ex.ModeKeys.EVAL in modes
    modes.clear()
    found = model.evaluate(evaluation)
    assert not modes
    plain = make("plain").train(batches(2), steps=3)
    assert plain.evaluate(evaluation) == found


def test_the_first_export_finds_its_program(make, modes, tmp_path):
    model = make()
    spec = ex.EvalSpec(batches(4), exporters=ex.FinalExporter("final"))
    hook = CompileAhead(model, spec)
    model.train(batches(2), [hook, Waiting()], steps=3)
    assert ex.ModeKeys.PREDICT in modes
    modes.clear()
    bundle = ex.export.load(model.export_saved_model(str(tmp_path / "export")))
    assert not modes
    w = model.get_variable_value("w")
    np.testing.assert_allclose(bundle.predict({"x": X[:3]})["y"], X[:3] * w)


def test_an_error_is_raised_by_the_evaluation_and_not_before(make):
    def broken():
        raise ZeroDivisionError

    model = make()
    model.train(batches(2), [CompileAhead(model, ex.EvalSpec(broken))], steps=3)
    wait()
    with pytest.raises(ZeroDivisionError):
        model.evaluate(broken)


def test_a_model_that_is_debugged_is_left_alone(make, modes):
    model = make(debug=True)
    model.train(batches(2), [CompileAhead(model, ex.EvalSpec(batches(4)))], steps=3)
    wait()
    assert ex.ModeKeys.EVAL not in modes


@pytest.mark.parametrize("kind", ["trees", "average"])
def test_programs_that_depend_on_a_checkpoint_are_not_tried(kind):
    columns = [ex.feature_columns.numeric_column("x")]
    model = ex.BoostedTreesRegressor(columns)
    if kind == "average":
        members = {"linear": ex.LinearRegressor(columns)}
        model = ex.AverageEstimator(ex.heads.RegressionHead(), members)
    read = []
    hook = CompileAhead(model, ex.EvalSpec(lambda: read.append("evaluation data")))
    hook.after_run(ex.hooks.RunContext(step=1), {})
    wait()
    assert not read


def test_an_evaluation_waits_for_its_program_and_records_none(make, modes):
    model, may_go_on = make(), threading.Event()

    def slow():
        may_go_on.wait(60)
        return batches(4)()

    class Evaluate(ex.hooks.Hook):
        def after_run(self, context, values):
            threading.Timer(0.05, may_go_on.set).start()
            model.evaluate_state(context.state, batches(4))

    ahead = CompileAhead(model, ex.EvalSpec(slow))
    model.train(batches(2), [ahead, Evaluate()], steps=1)
    assert modes.count(ex.ModeKeys.EVAL) == 3, "recorded (2) and compiled (1) once"
