"""When hooks are called, and what ends a training, as tf.estimator has it."""

import json
import os
import signal
import threading
import time

import jax.numpy as jnp
import pytest
from tiny_models import Recorder, Saves, X, data, line_model_fn, once

import estimax as ex
from estimax import checkpoints, hooks
from estimax.estimator.training_hooks import training_hooks
from estimax.hooks import Hook


class Phases(Recorder):
    """A recorder of one more phase."""

    def after_create_session(self, context):
        self.log.append((self.name, "after_create_session", context.step))


class Asks(Phases):
    """Asks to stop in one phase, after two steps."""

    def __init__(self, phase, error=None, name="asks", log=None):
        super().__init__(name, log)
        self.phase, self.error = phase, error

    def before_run(self, context):
        super().before_run(context)
        self.act("before_run", context, 2)

    def after_run(self, context, values):
        super().after_run(context, values)
        self.act("after_run", context, 2)

    def act(self, phase, context, step):
        if phase == self.phase and context.step == step:
            if self.error is not None:
                raise self.error
            context.request_stop()


def phases(log):
    return [(name, phase) for name, phase, _ in log]


def test_phases_follow_each_other_hook_by_hook(make):
    log = []
    make().train(data(), [Phases("a", log), Phases("b", log)], steps=1)
    expected = ["begin", "after_create_session", "before_run", "after_run", "end"]
    assert phases(log) == [(name, phase) for phase in expected for name in "ab"]


def test_evaluate_and_predict_have_the_same_phases(make):
    model = make().train(data(), steps=1)
    expected = ["begin", "after_create_session", "before_run", "after_run", "end"]
    for run in (
        lambda hook: model.evaluate(once(batch=8), hooks=[hook]),
        lambda hook: list(model.predict(once(batch=8), hooks=[hook])),
    ):
        hook = Phases()
        run(hook)
        assert [phase for _, phase, _ in hook.log] == expected


def test_the_start_is_saved_when_every_hook_has_begun(make):
    class Looks(Hook):
        def begin(self, context):
            self.at_begin = checkpoints.latest(model.model_dir)

        def after_create_session(self, context):
            self.after = checkpoints.latest(model.model_dir)

    model, hook, saves = make(), Looks(), Saves()
    model.train(data(), [hook], steps=1, saving_listeners=[saves])
    assert hook.at_begin is None
    assert hook.after.name == "model.ckpt-0"


@pytest.mark.parametrize("loop", [1, 4])
def test_the_other_hooks_see_the_step_at_which_one_asks_to_stop(make, loop):
    log = []
    hooks_ = [Asks("after_run", log=log), Phases("b", log)]
    model = make(iterations_per_loop=loop).train(data(), hooks_, steps=9)
    assert ("b", "after_run", 2) in log
    assert log[-2:] == [("asks", "end", 2), ("b", "end", 2)]
    assert model.get_variable_value("global_step") == 2


@pytest.mark.parametrize("phase", ["before_run", "after_run"])
def test_a_hook_that_raises_stop_iteration_ends_training_well(make, phase):
    log = []
    stops = Asks(phase, StopIteration(), log=log)
    model = make().train(data(), [stops, Phases("b", log)], steps=9)
    assert log[-3:] == [
        ("asks", phase, 2),
        ("asks", "end", 2),
        ("b", "end", 2),
    ]
    assert model.get_variable_value("global_step") == 2


@pytest.mark.parametrize("phase", ["before_run", "after_run"])
def test_another_error_ends_nothing_and_saves_nothing(make, phase):
    model, hook = make(), Asks(phase, RuntimeError("broken"))
    with pytest.raises(RuntimeError, match="broken"):
        model.train(data(), [hook], steps=9)
    assert "end" not in [phase for _, phase, _ in hook.log]
    assert checkpoints.step_of(model.latest_checkpoint()) == 0


def test_every_hook_has_its_place(make):
    """Savers, the chief's, counters, summaries, yours, the end, NaN, logs, the rest."""
    log = []

    def model_fn(features, labels, mode):
        spec = line_model_fn(features, labels, mode)
        return spec._replace(
            training_chief_hooks=[Phases("chief", log)],
            training_hooks=[Phases("model", log)],
        )

    class Noted(Saves):
        def after_save(self, step, path):
            log.append(("saver", "save", step))

    config = {"save_checkpoints_steps": 1, "log_step_count_steps": 1}
    make(model_fn, **config).train(
        data(), [Phases("mine", log)], steps=1, saving_listeners=[Noted()]
    )
    assert log == [
        ("chief", "begin", 0),
        ("mine", "begin", 0),
        ("model", "begin", 0),
        ("saver", "save", 0),
        *[(name, "after_create_session", 0) for name in ("chief", "mine", "model")],
        *[(name, "before_run", 0) for name in ("chief", "mine", "model")],
        ("saver", "save", 1),
        *[(name, "after_run", 1) for name in ("chief", "mine", "model")],
        *[(name, "end", 1) for name in ("chief", "mine", "model")],
    ]


def stock_hooks(config):
    spec = ex.EstimatorSpec("train", loss=jnp.zeros(()), train_op="SGD")
    every = training_hooks(config, spec, [Phases()], [], last_step=9)
    return [type(hook).__name__ for hook in every]


def test_workers_save_their_rows_and_only_the_chief_writes_summaries(
    tmp_path, monkeypatch
):
    everyones = ["Phases", "StopAtStepHook", "NanTensorHook"]
    everyones += ["OutOfRangeIdsHook", "LoggingTensorHook"]
    assert stock_hooks(ex.RunConfig(tmp_path)) == [
        "CheckpointSaverHook",
        "StepCounterHook",
        "SummarySaverHook",
        *everyones,
    ]
    cluster = {"chief": ["a:1"], "worker": ["b:1"]}
    task = {"cluster": cluster, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(task))
    # A worker requests the values that the chief does, so that both run the same steps.
    shared = ["CheckpointSaverHook", "SummarySaverHook"]
    assert stock_hooks(ex.RunConfig(tmp_path)) == [*shared, *everyones]


def test_a_saver_may_come_from_the_model(make, tmp_path):
    saver = hooks.CheckpointSaverHook(tmp_path / "own", save_steps=2)

    def model_fn(features, labels, mode):
        spec = line_model_fn(features, labels, mode)
        return spec._replace(training_hooks=[saver])

    model, saves = make(model_fn), Saves()
    model.train(data(), steps=3, saving_listeners=[saves])
    assert saves.steps == [0, 2, 3]
    assert model.latest_checkpoint() is None


@pytest.mark.parametrize("loop", [1, 4])
def test_a_hook_can_ask_for_variables_and_summaries_at_any_step(make, loop):
    class Wants(Hook):
        def __init__(self):
            self.seen = []

        def before_run(self, context):
            return ["line/bias", "loss", "learning_rate"]

        def after_run(self, context, values):
            self.seen.append((context.step, float(values["line/bias"][0])))
            self.rate = float(values["learning_rate"])

        def next_step(self, step):
            return (step // 2 + 1) * 2

        def end(self, context):
            self.last = float(context.fetch(["line/bias"])["line/bias"][0])

    model, hook = make(iterations_per_loop=loop), Wants()
    model.train(data(), [hook], steps=5)
    assert [step for step, _ in hook.seen] == [2, 4]
    assert hook.rate == pytest.approx(0.01)
    assert hook.last == model.get_variable_value("line/bias")[0]


def test_values_that_no_step_has_told_cannot_be_fetched(make):
    class Early(Hook):
        def begin(self, context):
            context.fetch(["loss"])

    with pytest.raises(ValueError, match="no training step has run yet"):
        make().train(data(), [Early()], steps=1)


def test_what_was_being_saved_when_an_error_came_is_on_disk(make):
    class Fails(Hook):
        def after_run(self, context, values):
            if context.step == 3:
                raise OSError("the disk is gone")

    def model_fn(features, labels, mode):
        # Large, so that writing it takes longer than the next step.
        ex.get_variable("large", (5_000_000,), initializer=0.0, trainable=False)
        return line_model_fn(features, labels, mode)

    model = make(model_fn, save_checkpoints_steps=2)
    with pytest.raises(OSError, match="the disk is gone"):
        model.train(data(), hooks=[Fails()], max_steps=10)
    assert model.latest_checkpoint().endswith("model.ckpt-2")


def test_a_signal_is_heard_while_the_input_is_waited_for(make):
    used, ended, heard = threading.Event(), threading.Event(), []

    class Notes(Hook):
        def after_run(self, context, values):
            if context.step == 2:
                used.set()

        def end(self, context):
            ended.set()

    def input_fn():
        for _ in range(2):
            yield {"x": X}, X / 2
        used.wait(20)
        time.sleep(0.1)  # by now the loop waits
        os.kill(os.getpid(), signal.SIGTERM)
        heard.append(ended.wait(20))

    model = make(iterations_per_loop=1)
    with pytest.raises(SystemExit):
        model.train(input_fn, hooks=[Notes()])
    assert heard == [True]
    assert model.latest_checkpoint().endswith("model.ckpt-2")
