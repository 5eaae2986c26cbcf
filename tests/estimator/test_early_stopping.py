"""Early stopping of real trainings, killed and not."""

import jax.numpy as jnp
import pytest
from tiny_models import data, once

import estimax as ex
from estimax import checkpoints, hooks
from estimax.hooks import Hook


def climbing(features, labels, mode):
    """Its weight is the number of steps; "off" is how far that is from 5."""
    w = ex.get_variable("w", (), initializer=0.0)
    return ex.EstimatorSpec(
        mode,
        loss=-w,
        train_op=ex.optimizers.SGD(1.0),
        eval_metric_ops={"off": ex.metrics.mean(jnp.abs(w - 5))},
    )


class KilledError(Exception):
    """What a kill looks like from inside: nothing after it runs."""


class KillsAt(Hook):
    """Kills the run after a step."""

    def __init__(self, step):
        self.step = step

    def after_run(self, context, values):
        if context.step == self.step:
            raise KilledError


def kill():
    raise KilledError


# Off is 3, 1, 1 and 3 at steps 2, 4, 6 and 8: no decrease for 4 steps at step 8.
def run(model, *more_hooks, eval_input_fn=None, run_every_steps=None, **spec):
    stop = hooks.stop_if_no_decrease_hook(
        model,
        "off",
        4,
        run_every_secs=None if run_every_steps else 60,
        run_every_steps=run_every_steps,
    )
    ex.train_and_evaluate(
        model,
        ex.TrainSpec(data(), hooks=[*more_hooks, stop], max_steps=50),
        ex.EvalSpec(eval_input_fn or once(), throttle_secs=0, **spec),
    )
    return model.get_variable_value("global_step")


@pytest.fixture
def climber(make):
    return lambda **settings: make(climbing, **{"save_checkpoints_steps": 2} | settings)


def test_a_training_stops_at_the_evaluation_that_says_so(climber):
    model = climber()
    assert run(model) == 8
    assert checkpoints.read_finished(model.model_dir).step == 8


def test_steps_that_are_named_are_where_it_stops(climber):
    assert run(climber(), run_every_steps=5) == 10


@pytest.mark.parametrize("step", [3, 4, 7, 8])
def test_a_killed_run_stops_where_one_never_killed_does(climber, step):
    with pytest.raises(KilledError):
        run(climber(), KillsAt(step))
    model = climber()
    assert checkpoints.read_finished(model.model_dir) is None
    assert run(model) == 8
    assert model.get_variable_value("w") == 8


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_a_run_killed_while_it_evaluates_makes_up_for_it(climber, number):
    evaluations = iter([*[once()] * (number - 1), kill])
    with pytest.raises(KilledError):
        run(climber(), eval_input_fn=lambda: next(evaluations)())
    assert run(climber()) == 8


def test_a_run_that_was_stopped_stays_stopped(climber):
    run(climber())
    assert run(climber()) == 8


def test_a_folder_trained_without_it_can_be_trained_with_it(climber):
    climber().train(data(), steps=3)
    # Evaluations at 5, 7, 9: off is 0, 2, 4.
    assert run(climber()) == 9


def test_evaluations_in_memory_are_seen_in_the_same_step(climber):
    assert run(climber(save_checkpoints_steps=100), every_steps=2) == 8


def test_the_last_export_is_a_final_one_though_no_step_was_named(climber):
    class Exports:
        name = "noted"

        def export(self, estimator, export_path, checkpoint_path, result, is_final):
            seen.append((int(result["global_step"]), is_final))

    seen = []
    run(climber(), exporters=Exports())
    assert seen == [(2, False), (4, False), (6, False), (8, False), (8, True)]


def test_an_in_memory_evaluator_can_be_listened_to(climber):
    model = climber()
    evaluates = hooks.InMemoryEvaluatorHook(model, once(), every_n_iter=2)
    stop = hooks.stop_if_higher_hook(model, "off", 2.5, min_steps=5)
    model.train(data(), [evaluates, stop], steps=50)
    assert model.get_variable_value("global_step") == 8
