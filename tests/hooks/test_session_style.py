"""Hooks and listeners with the arguments of tf.estimator."""

import collections

import numpy as np
import pytest

import estimax as ex
from estimax.hooks import RunContext, SessionRunArgs


def _input_fn():
    return {"x": np.ones((4, 1), np.float32)}, np.ones(4, np.float32)


def _model_fn(features, labels, mode):
    weight = ex.get_variable("weight", (1,))
    if mode == ex.ModeKeys.PREDICT:
        return ex.EstimatorSpec(mode, {"y": features["x"] * weight})
    loss = ((features["x"][:, 0] * weight - labels) ** 2).mean()
    ex.log_value("accuracy", weight[0] * 0 + 0.5)
    ex.summary.scalar("seen", loss * 2)
    return ex.EstimatorSpec(mode, loss=loss, train_op="SGD")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return ex.Estimator(_model_fn, tmp_path_factory.mktemp("model"))


class Recorder(ex.SessionRunHook):
    """A hook as a program of tf.estimator has it."""

    def __init__(self, wanted):
        self.wanted = wanted
        self.seen = []
        self.calls = []

    def begin(self):
        self.calls.append("begin")

    def after_create_session(self, session, coord):
        self.calls.append(("created", int(session.run("global_step"))))
        assert not coord.should_stop()

    def before_run(self, run_context):
        return self.wanted

    def after_run(self, run_context, run_values):
        self.seen.append(run_values.results)
        assert run_context.session is run_context

    def end(self, session):
        self.calls.append(("end", int(session.run("global_step"))))


def test_a_hook_of_tf_estimator_is_called_with_its_own_arguments(model):
    pair = collections.namedtuple("pair", "first second")
    hooks = [
        Recorder("loss"),
        Recorder(["loss:0", "global_step"]),
        Recorder({"a": "accuracy", "both": ("weight", "seen:0")}),
        Recorder(SessionRunArgs(fetches="global_step:0")),
        Recorder(SessionRunArgs(pair("loss", "accuracy"))),
        Recorder(None),
    ]
    model.train(_input_fn, steps=2, hooks=hooks)
    last = int(model.get_variable_value("global_step"))
    alone, listed, nested, step, named, nothing = [hook.seen[-1] for hook in hooks]
    assert listed == [alone, last]
    assert nested["a"] == 0.5
    weight, seen = nested["both"]
    assert weight.shape == (1,)
    np.testing.assert_allclose(seen, 2 * alone, rtol=1e-6)
    assert step == last
    assert named == (alone, 0.5)
    assert named.second == 0.5
    assert nothing is None
    assert hooks[0].calls == ["begin", ("created", last - 2), ("end", last)]
    assert len(hooks[0].seen) == 2


def test_evaluation_and_prediction_call_such_hooks_too(model):
    model.train(_input_fn, steps=1)
    step = int(model.get_variable_value("global_step"))
    hook = Recorder(["loss", "global_step:0"])
    model.evaluate(_input_fn, steps=1, hooks=[hook])
    assert hook.seen[0][1] == step
    hook = Recorder("global_step")
    next(model.predict(_input_fn, hooks=[hook]))
    assert hook.calls == ["begin", ("created", step)]
    assert hook.seen == [step]


class WrongBegin(ex.hooks.Hook):
    def begin(self, one, two):
        raise AssertionError


class WrongAfterRun(ex.hooks.Hook):
    def after_run(self, run_context):
        raise AssertionError


@pytest.mark.parametrize(
    ("hook", "words"),
    [
        (WrongBegin(), r"WrongBegin\.begin.*Write def begin\(self, context\)"),
        (WrongAfterRun(), r"Write def after_run\(self, context, values\)"),
        (Recorder(np.ones(1)), "expected the names of values.*ex.log_value"),
    ],
)
def test_other_arguments_and_requests_are_explained(model, hook, words):
    with pytest.raises(TypeError, match=words):
        model.train(_input_fn, steps=1, hooks=[hook])


class CallsBase(ex.hooks.LoggingTensorHook):
    def begin(self):
        super().begin()


def test_a_call_of_the_base_class_without_a_context_is_explained(model):
    hook = CallsBase(["loss"], every_n_iter=1)
    with pytest.raises(TypeError) as error:
        model.train(_input_fn, steps=1, hooks=[hook])
    assert "super().begin(context)" in error.value.__notes__[0]


class SessionListener(ex.hooks.CheckpointSaverListener):
    def __init__(self):
        self.calls = []

    def begin(self):
        self.calls.append("begin")

    def before_save(self, session, global_step_value):
        self.calls.append(("before", global_step_value))

    def after_save(self, session, global_step_value):
        assert session.run("global_step") == global_step_value
        self.calls.append(("after", global_step_value))

    def end(self, session, global_step_value):
        self.calls.append(("end", global_step_value))


class UnnamedSession(ex.hooks.CheckpointSaverListener):
    def after_save(self, _, step):
        self.step = step


class WrongListener(ex.hooks.CheckpointSaverListener):
    def after_save(self, step):
        raise AssertionError


def test_a_listener_of_tf_estimator_is_called_with_its_own_arguments(tmp_path):
    listeners = [SessionListener(), UnnamedSession()]
    model = ex.Estimator(_model_fn, tmp_path)
    model.train(_input_fn, steps=2, saving_listeners=listeners)
    assert listeners[0].calls == [
        "begin",
        *[("before", 0), ("after", 0)],
        *[("before", 2), ("after", 2)],
        ("end", 2),
    ]
    assert listeners[1].step == 2
    with pytest.raises(TypeError, match=r"Write def after_save\(self, step, path\)"):
        model.train(_input_fn, steps=1, saving_listeners=[WrongListener()])


@pytest.mark.parametrize(
    "make",
    [
        lambda value: ex.hooks.LoggingTensorHook({"loss": value}, every_n_iter=1),
        lambda value: ex.hooks.NanTensorHook(value),
        lambda value: ex.hooks.FinalOpsHook([value]),
        lambda value: SessionRunArgs(value),
    ],
)
def test_stock_hooks_explain_that_they_take_names(make):
    with pytest.raises(TypeError, match="expected the names of values"):
        make(np.ones(1))


def test_values_cannot_be_fed(model):
    with pytest.raises(TypeError, match="feed_dict must be None"):
        SessionRunArgs("loss", feed_dict={"x": 1})
    with pytest.raises(TypeError, match="feed_dict must be None"):
        RunContext(0).run("loss", {"x": 1})
    with pytest.raises(TypeError, match="final_ops_feed_dict must be None"):
        ex.hooks.FinalOpsHook("loss", {"x": 1})


def test_stock_hooks_take_the_names_of_tensors(model, caplog):
    caplog.set_level("INFO", "estimax")
    log = ex.hooks.LoggingTensorHook(["loss:0", "global_step:0"], every_n_iter=1)
    final = ex.hooks.FinalOpsHook(["loss:0", "global_step"])
    model.train(_input_fn, steps=1, hooks=[log, final])
    step = int(model.get_variable_value("global_step"))
    assert final.final_ops_values[1] == step
    assert any(f"global_step:0 = {step - 1}" in line for line in caplog.messages)


def test_arguments_that_need_a_session_are_refused(tmp_path):
    with pytest.raises(ValueError, match="saver and scaffold must be None"):
        ex.hooks.CheckpointSaverHook(tmp_path, None, 10, object())
    with pytest.raises(ValueError, match="scaffold and summary_op must be None"):
        ex.hooks.SummarySaverHook(10, None, tmp_path, scaffold=object())
    with pytest.raises(ValueError, match="scaffold must be None"):
        ex.EstimatorSpec("infer", {"y": np.ones(1)}, scaffold=object())


def test_a_rule_may_be_checked_at_every_step(tmp_path):
    model = ex.Estimator(_model_fn, tmp_path)
    calls = []
    hook = ex.hooks.make_early_stopping_hook(
        model, lambda: len(calls.append(0) or calls) >= 3, run_every_secs=0
    )
    model.train(_input_fn, steps=10, hooks=[hook])
    assert int(model.get_variable_value("global_step")) == 3
    with pytest.raises(ValueError, match="got None steps and -1 seconds"):
        ex.hooks.make_early_stopping_hook(model, lambda: True, run_every_secs=-1)


def test_the_name_of_an_evaluation_is_text():
    with pytest.raises(TypeError, match="name must be text, got 123"):
        ex.EvalSpec(_input_fn, name=123)
