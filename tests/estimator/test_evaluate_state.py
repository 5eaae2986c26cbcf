"""Evaluating the variables of a training under way."""

import numpy as np
import pytest
from tiny_models import Recorder, data, line_model_fn, once

import estimax as ex
from estimax.core.errors import ConfigError
from estimax.hooks import Hook, InMemoryEvaluatorHook


class Evaluates(Hook):
    """Evaluates the state that it finds at the end."""

    def __init__(self, model):
        self.model = model

    def end(self, context):
        self.results = self.model.evaluate_state(context.state, once())


def test_a_state_evaluates_as_its_checkpoint_does(make):
    model = make()
    hook = Evaluates(model)
    model.train(data(), [hook], steps=3)
    assert hook.results == model.evaluate(once())


@pytest.mark.parametrize("use", [True, False])
def test_a_state_is_evaluated_by_its_averages_if_they_are_wanted(make, use):
    model = make(average_decay=0.9, use_averages=use)
    hook = Evaluates(model)
    model.train(data(), [hook], steps=3)
    assert hook.results == model.evaluate(once())


def test_in_memory_evaluation_comes_before_every_n_steps_and_at_the_end(make):
    model, recorder = make(), Recorder()
    hook = InMemoryEvaluatorHook(model, once(), hooks=[recorder], every_n_iter=3)
    model.train(data(), [hook], steps=7)
    begun = [step for _, phase, step in recorder.log if phase == "begin"]
    assert begun == [0, 3, 6, 7]
    written = ex.summary.read_scalars(model.eval_dir())["error"]
    assert [step for step, _ in written] == [0, 3, 6, 7]
    assert np.float32(written[-1][1]) == hook.results["error"]


def test_in_memory_evaluation_needs_no_checkpoint_and_makes_none(make):
    model = make(save_checkpoints_steps=None, save_checkpoints_secs=None)
    hook = InMemoryEvaluatorHook(model, once(), steps=1, name="live", every_n_iter=2)
    model.train(data(), [hook], steps=2)
    assert model.latest_checkpoint() is None
    assert hook.results["global_step"] == 2
    assert "loss" in ex.summary.read_scalars(model.eval_dir("live"))


def test_in_memory_evaluation_counts_from_where_a_run_resumes(make):
    model, recorder = make().train(data(), steps=4), Recorder()
    hook = InMemoryEvaluatorHook(model, once(), hooks=[recorder], every_n_iter=3)
    model.train(data(), [hook], steps=4)
    begun = [step for _, phase, step in recorder.log if phase == "begin"]
    assert begun == [4, 7, 8]


def test_what_cannot_be_meant_is_refused(make):
    with pytest.raises(ConfigError, match="every_n_iter must be > 0"):
        InMemoryEvaluatorHook(make(), once(), every_n_iter=0)
    with pytest.raises(TypeError, match="must be an Estimator, got function"):
        InMemoryEvaluatorHook(line_model_fn, once())
