"""Verdicts of early stopping, on evaluations that were written by hand."""

import logging
from pathlib import Path
from typing import Any

import pytest

from estimax import checkpoints, hooks
from estimax.core.errors import ConfigError
from estimax.hooks import summary
from estimax.hooks.early_stopping import EarlyStoppingHook


class Model:
    """What early stopping asks of an Estimator."""

    def __init__(self, model_dir: Path) -> None:
        self.model_dir = str(model_dir)

    def eval_dir(self, name: str | None = None) -> str:
        return str(Path(self.model_dir) / "eval")


@pytest.fixture
def model(tmp_path: Path) -> Model:
    return Model(tmp_path)


def evaluated(model: Model, history: dict[int, float], metric: str = "loss") -> None:
    with summary.SummaryWriter(model.eval_dir()) as writer:
        for step, value in history.items():
            writer.scalar(metric, value, step)


EVERY_STEP: dict[str, Any] = {"run_every_secs": None, "run_every_steps": 1}
FALLING = {2: 4.0, 4: 3.0, 6: 3.0, 8: 3.5}


def test_a_metric_above_the_threshold_stops(model: Model, run: Any) -> None:
    evaluated(model, {2: 0.5, 4: 0.9})
    hook = hooks.stop_if_higher_hook(model, "loss", 0.8, **EVERY_STEP)
    assert run([hook], steps=10).step == 4


def test_a_metric_below_the_threshold_stops(model: Model, run: Any) -> None:
    evaluated(model, {2: 0.5, 4: 0.1, 6: 0.9})
    hook = hooks.stop_if_lower_hook(model, "loss", 0.2, **EVERY_STEP)
    assert run([hook], steps=10).step == 4


def test_the_threshold_itself_is_not_beyond_it(model: Model, run: Any) -> None:
    evaluated(model, {2: 0.5})
    higher = hooks.stop_if_higher_hook(model, "loss", 0.5, **EVERY_STEP)
    lower = hooks.stop_if_lower_hook(model, "loss", 0.5, **EVERY_STEP)
    assert run([higher, lower], steps=5).step == 5


def test_evaluations_before_min_steps_do_not_count(model: Model, run: Any) -> None:
    evaluated(model, {2: 0.9, 6: 0.9})
    hook = hooks.stop_if_higher_hook(model, "loss", 0.8, min_steps=3, **EVERY_STEP)
    assert run([hook], steps=10).step == 6


def test_no_decrease_for_so_many_steps_stops(model: Model, run: Any) -> None:
    evaluated(model, FALLING)
    hook = hooks.stop_if_no_decrease_hook(model, "loss", 4, **EVERY_STEP)
    assert run([hook], steps=20).step == 8


def test_no_increase_for_so_many_steps_stops(model: Model, run: Any) -> None:
    evaluated(model, {step: -value for step, value in FALLING.items()}, "auc")
    hook = hooks.stop_if_no_increase_hook(model, "auc", 4, **EVERY_STEP)
    assert run([hook], steps=20).step == 8


def test_a_change_of_min_delta_or_less_is_none(model: Model, run: Any) -> None:
    evaluated(model, {2: 4.0, 4: 3.5, 6: 3.0, 8: 2.9})
    hook = hooks.stop_if_no_decrease_hook(model, "loss", 4, min_delta=0.5, **EVERY_STEP)
    # 3.5 is no decrease of 4.0; 3.0 is; 2.9 is none, but only two steps later.
    assert run([hook], steps=9).step == 9
    hook = hooks.stop_if_no_decrease_hook(model, "loss", 4, min_delta=1.0, **EVERY_STEP)
    assert run([hook], steps=1).step == 9  # at once: 3.0 was none either


def test_a_nan_is_never_the_best(model: Model, run: Any) -> None:
    evaluated(model, {2: float("nan"), 4: 3.0, 6: 2.0, 8: 1.0})
    hook = hooks.stop_if_no_decrease_hook(model, "loss", 4, **EVERY_STEP)
    assert run([hook], steps=10).step == 10


def test_history_of_an_earlier_run_counts(model: Model, run: Any) -> None:
    run([], steps=8)
    evaluated(model, FALLING)
    hook = hooks.stop_if_no_decrease_hook(model, "loss", 4, **EVERY_STEP)
    assert run([hook], steps=20).step == 8  # before the first step


def test_steps_are_multiples_wherever_a_run_began(model: Model, run: Any) -> None:
    evaluated(model, {2: 0.9})
    run([], steps=3)
    hook = hooks.stop_if_higher_hook(
        model, "loss", 0.8, run_every_secs=None, run_every_steps=5
    )
    assert run([hook], steps=20).step == 5


def test_by_seconds_an_evaluation_of_this_process_is_seen_at_once(
    model: Model, run: Any
) -> None:
    def evaluate(step: int) -> None:
        if step == 4:
            evaluated(model, {4: 0.9})

    run.on_step = evaluate
    hook = hooks.stop_if_higher_hook(model, "loss", 0.8, run_every_secs=3600)
    assert run([hook], steps=20).step == 4


def test_by_seconds_it_asks_when_they_have_passed(model: Model, run: Any) -> None:
    now, asked = [0.0], []
    run.on_step = lambda step: now.__setitem__(0, float(step))

    def verdict(step: int) -> str | None:
        asked.append(step)
        return "enough" if step > 6 else None

    hook = EarlyStoppingHook(
        model.model_dir, model.eval_dir(), verdict, 3, None, clock=lambda: now[0]
    )
    assert run([hook], steps=20).step == 9
    assert asked == [3, 6, 9]


def test_a_function_can_be_the_verdict(model: Model, run: Any) -> None:
    calls: list[int] = []
    hook = hooks.make_early_stopping_hook(
        model, lambda: len(calls) > 2 or calls.append(0) is not None, **EVERY_STEP
    )
    assert run([hook], steps=10).step == 4


def test_a_stop_leaves_word_and_says_why(
    model: Model, run: Any, caplog: pytest.LogCaptureFixture
) -> None:
    evaluated(model, FALLING)
    hook = hooks.stop_if_no_decrease_hook(model, "loss", 4, **EVERY_STEP)
    with caplog.at_level(logging.INFO, "estimax"):
        run([hook], steps=20)
    why = "no decrease of 'loss' for 4 steps: 3 at step 4, 3.5 at step 8"
    assert f"stopping at step 8: {why}" in caplog.text
    found = checkpoints.read_finished(model.model_dir)
    assert found is not None
    assert (found.step, found.reason) == (8, why)


def test_a_run_that_begins_takes_the_word_back(
    model: Model, run: Any, tmp_path: Path
) -> None:
    checkpoints.mark_finished(tmp_path, 3, "enough")
    run([hooks.CheckpointSaverHook(tmp_path, save_steps=10)], steps=1)
    assert checkpoints.read_finished(tmp_path) is None


def test_no_evaluation_yet_is_no_reason(model: Model, run: Any) -> None:
    hook = hooks.stop_if_lower_hook(model, "loss", 1.0, **EVERY_STEP)
    assert run([hook], steps=3).step == 3
    assert checkpoints.read_finished(model.model_dir) is None


def test_a_metric_that_no_evaluation_has_is_an_error(model: Model, run: Any) -> None:
    evaluated(model, {1: 0.5}, "accuracy")
    hook = hooks.stop_if_higher_hook(model, "acuracy", 0.8, **EVERY_STEP)
    with pytest.raises(KeyError, match="did you mean 'accuracy'"):
        run([hook], steps=3)


def test_another_folder_can_be_watched(model: Model, run: Any, tmp_path: Path) -> None:
    with summary.SummaryWriter(tmp_path / "eval_other") as writer:
        writer.scalar("loss", 9.0, 2)
    hook = hooks.stop_if_higher_hook(
        model, "loss", 1.0, eval_dir=tmp_path / "eval_other", **EVERY_STEP
    )
    assert run([hook], steps=5).step == 2


@pytest.mark.parametrize(
    "interval",
    [
        {"run_every_secs": None},
        {"run_every_steps": 10},
        {"run_every_secs": -1},
        {"run_every_secs": None, "run_every_steps": 0},
    ],
)
def test_exactly_one_interval_is_needed(model: Model, interval: Any) -> None:
    with pytest.raises(ConfigError, match="run_every_secs or run_every_steps"):
        hooks.make_early_stopping_hook(model, lambda: False, **interval)


def test_what_cannot_be_meant_is_refused(model: Model) -> None:
    with pytest.raises(TypeError, match="must be an Estimator, got str"):
        hooks.stop_if_lower_hook("model", "loss", 1.0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="should_stop_fn must be a function"):
        hooks.make_early_stopping_hook(model, True)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="max_steps_without_decrease and min_delta"):
        hooks.stop_if_no_decrease_hook(model, "loss", 10, min_delta=-1)
