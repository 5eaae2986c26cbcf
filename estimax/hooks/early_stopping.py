"""Stopping when evaluations say so.

    hook = stop_if_no_decrease_hook(model, "loss", max_steps_without_decrease=1000)
    ex.train_and_evaluate(model, ex.TrainSpec(input_fn, hooks=[hook]), eval_spec)

Evaluations are read from the event files in `eval_dir`, whoever wrote them: this
process or an evaluator elsewhere. Nothing is added to the model, so the hook can be
attached to a run that began without it.

A run that is killed and started again stops where one never killed would have: only
evaluations of steps already done count, and `run_every_steps` means multiples of it,
wherever the run began. By seconds, an evaluation of this process is looked at as soon
as it is written, at the very step; the seconds are for those of others.
"""

from __future__ import annotations

import logging
import math
import operator
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from estimax import summary
from estimax.core.errors import ConfigError, did_you_mean
from estimax.hooks.finished import mark_finished
from estimax.hooks.hook import Hook, RunContext, Values

_log = logging.getLogger("estimax")

# The reason to stop after that many steps, or None.
Verdict = Callable[[int], str | None]
Pathish = str | os.PathLike[str]


@runtime_checkable
class Evaluated(Protocol):
    """What early stopping needs of an Estimator: its folders."""

    @property
    def model_dir(self) -> str:
        """The folder of checkpoints."""

    def eval_dir(self, name: str | None = None) -> str:
        """The folder of evaluations of this name."""


def make_early_stopping_hook(
    estimator: Evaluated,
    should_stop_fn: Callable[[], bool],
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> Hook:
    """Stop training when a function of yours says so.

    It is asked every `run_every_steps` steps or `run_every_secs` seconds (set the other
    to None), and when an evaluation of this process has been written. It is not asked
    before the first step of a new model.

    >>> import estimax as ex
    >>> model = ex.BaselineRegressor(model_dir="/tmp/estimax-doc-stopping")
    >>> hook = make_early_stopping_hook(model, lambda: False)
    """
    if not callable(should_stop_fn):
        raise TypeError(
            "make_early_stopping_hook: should_stop_fn must be a function without "
            f"arguments, got {type(should_stop_fn).__name__}."
        )

    def verdict(step: int) -> str | None:
        return "should_stop_fn said so" if should_stop_fn() else None

    return _hook(estimator, None, verdict, run_every_secs, run_every_steps)


def stop_if_higher_hook(
    estimator: Evaluated,
    metric_name: str,
    threshold: float,
    eval_dir: Pathish | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> Hook:
    """Stop when an evaluation at `min_steps` or later is above the threshold.

    >>> import estimax as ex
    >>> model = ex.BaselineRegressor(model_dir="/tmp/estimax-doc-stopping")
    >>> hook = stop_if_higher_hook(model, "accuracy", 0.95)
    """
    return _threshold_hook(
        *(estimator, metric_name, threshold, eval_dir, min_steps),
        *(run_every_secs, run_every_steps, operator.gt, "above"),
    )


def stop_if_lower_hook(
    estimator: Evaluated,
    metric_name: str,
    threshold: float,
    eval_dir: Pathish | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> Hook:
    """Stop when an evaluation at `min_steps` or later is below the threshold.

    >>> import estimax as ex
    >>> model = ex.BaselineRegressor(model_dir="/tmp/estimax-doc-stopping")
    >>> hook = stop_if_lower_hook(model, "loss", 0.1, run_every_secs=30)
    """
    return _threshold_hook(
        *(estimator, metric_name, threshold, eval_dir, min_steps),
        *(run_every_secs, run_every_steps, operator.lt, "below"),
    )


def stop_if_no_increase_hook(
    estimator: Evaluated,
    metric_name: str,
    max_steps_without_increase: int,
    eval_dir: Pathish | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
    *,
    min_delta: float = 0.0,
) -> Hook:
    """Stop when a metric has not increased for so many training steps.

    Looks at evaluations from `min_steps` on. Only a value more than `min_delta` above
    the best is an increase.

    >>> import estimax as ex
    >>> model = ex.BaselineRegressor(model_dir="/tmp/estimax-doc-stopping")
    >>> hook = stop_if_no_increase_hook(model, "auc", 1000, min_delta=0.001)
    """
    return _patience_hook(
        *(estimator, metric_name, max_steps_without_increase, eval_dir, min_steps),
        *(run_every_secs, run_every_steps, min_delta, 1.0, "increase"),
    )


def stop_if_no_decrease_hook(
    estimator: Evaluated,
    metric_name: str,
    max_steps_without_decrease: int,
    eval_dir: Pathish | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
    *,
    min_delta: float = 0.0,
) -> Hook:
    """Stop when a metric has not decreased for so many training steps.

    Looks at evaluations from `min_steps` on. Only a value more than `min_delta` below
    the best is a decrease.

    >>> import estimax as ex
    >>> model = ex.BaselineRegressor(model_dir="/tmp/estimax-doc-stopping")
    >>> hook = stop_if_no_decrease_hook(
    ...     model, "loss", 1000, run_every_secs=None, run_every_steps=100
    ... )
    """
    return _patience_hook(
        *(estimator, metric_name, max_steps_without_decrease, eval_dir, min_steps),
        *(run_every_secs, run_every_steps, min_delta, -1.0, "decrease"),
    )


def _threshold_hook(
    estimator: Evaluated,
    metric: str,
    threshold: float,
    eval_dir: Pathish | None,
    min_steps: int,
    every_secs: float | None,
    every_steps: int | None,
    is_beyond: Callable[[float, float], bool],
    word: str,
) -> Hook:
    _check_estimator(estimator)
    folder = eval_dir if eval_dir is not None else estimator.eval_dir()

    def verdict(step: int) -> str | None:
        for at, value in _history(folder, metric, min_steps, step):
            if is_beyond(value, threshold):
                return f"{metric!r} is {value:.6g} at step {at}, {word} {threshold:.6g}"
        return None

    return _hook(estimator, folder, verdict, every_secs, every_steps)


def _patience_hook(
    estimator: Evaluated,
    metric: str,
    patience: int,
    eval_dir: Pathish | None,
    min_steps: int,
    every_secs: float | None,
    every_steps: int | None,
    min_delta: float,
    sign: float,
    word: str,
) -> Hook:
    _check_estimator(estimator)
    if patience < 0 or not min_delta >= 0:
        raise ConfigError(
            f"stop_if_no_{word}_hook: max_steps_without_{word} and min_delta must be "
            f"at least 0, got {patience} and {min_delta}."
        )
    folder = eval_dir if eval_dir is not None else estimator.eval_dir()

    def verdict(step: int) -> str | None:
        best, best_step = -math.inf, None
        for at, value in _history(folder, metric, min_steps, step):
            # A NaN is above nothing, so it is never the best; the steps still count.
            if sign * value > best + (0 if math.isinf(best) else min_delta):
                best, best_step = sign * value, at
            best_step = at if best_step is None else best_step
            if at - best_step >= patience and at != best_step:
                return (
                    f"no {word} of {metric!r} for {at - best_step} steps: "
                    f"{sign * best:.6g} at step {best_step}, {value:.6g} at step {at}"
                )
        return None

    return _hook(estimator, folder, verdict, every_secs, every_steps)


def _history(
    folder: Pathish, metric: str, min_steps: int, step: int
) -> list[tuple[int, float]]:
    """The metric's evaluations from `min_steps` up to the present step."""
    scalars = summary.read_scalars(folder)
    if metric not in scalars:
        if scalars:
            raise KeyError(
                f"early stopping: the evaluations in {os.fspath(folder)} have no "
                f"metric {metric!r}{did_you_mean(metric, scalars)}"
            )
        return []
    # Evaluations of later steps are of a run that was killed: this one has not got
    # there yet, and will evaluate them again.
    return [(at, value) for at, value in scalars[metric] if min_steps <= at <= step]


def _hook(
    estimator: Evaluated,
    folder: Pathish | None,
    verdict: Verdict,
    every_secs: float | None,
    every_steps: int | None,
) -> Hook:
    _check_estimator(estimator)
    given = [value for value in (every_secs, every_steps) if value is not None]
    if len(given) != 1 or given[0] <= 0:
        raise ConfigError(
            "early stopping: give run_every_secs or run_every_steps, above 0, and set "
            f"the other to None; got {every_secs} and {every_steps}."
        )
    watched = folder if folder is not None else estimator.eval_dir()
    return EarlyStoppingHook(
        estimator.model_dir, watched, verdict, every_secs, every_steps
    )


def _check_estimator(estimator: object) -> None:
    if not isinstance(estimator, Evaluated):
        raise TypeError(
            "early stopping: estimator must be an Estimator, got "
            f"{type(estimator).__name__}."
        )


class EarlyStoppingHook(Hook):
    """Asks for a verdict now and then, stops, and says so in the model's folder.

    Made by the functions above.
    """

    def __init__(
        self,
        model_dir: str,
        eval_dir: Pathish,
        verdict: Verdict,
        every_secs: float | None,
        every_steps: int | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._model_dir = model_dir
        self._eval_dir = Path(eval_dir).absolute()
        self._verdict = verdict
        self._every_secs = every_secs
        self._every_steps = every_steps
        self._clock = clock
        self._asked = 0.0
        self._written = 0
        self._reason: str | None = None

    def after_create_session(self, context: RunContext) -> None:
        """Stop a resumed run before its first step, where it would have stopped."""
        self._reason = None
        self._note_asking()
        every = self._every_steps
        if context.step > 0 and (every is None or context.step % every == 0):
            self._ask(context)

    def before_run(self, context: RunContext) -> Sequence[str] | None:
        """Ask for nothing."""
        return None

    def after_run(self, context: RunContext, values: Values) -> None:
        """Ask for a verdict, if it is time."""
        if self._is_time(context.step):
            self._ask(context)

    def end(self, context: RunContext) -> None:
        """Leave word that training has ended."""
        if self._reason is not None:
            mark_finished(self._model_dir, context.step, self._reason)

    def next_step(self, step: int) -> int:
        """The next multiple of the steps; by seconds, whenever the loop comes out."""
        every = self._every_steps
        return step if every is None else (step // every + 1) * every

    def _is_time(self, step: int) -> bool:
        if self._every_secs is None:
            return True  # the loop calls only then
        if summary.times_written(self._eval_dir) != self._written:
            return True
        return self._clock() >= self._asked + self._every_secs

    def _ask(self, context: RunContext) -> None:
        self._note_asking()
        self._reason = self._verdict(context.step)
        if self._reason is not None:
            _log.info("stopping at step %d: %s", context.step, self._reason)
            context.request_stop()

    def _note_asking(self) -> None:
        self._asked = self._clock()
        self._written = summary.times_written(self._eval_dir)
