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
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from estimax import summary
from estimax.checkpoints.finished import mark_finished
from estimax.core.errors import ConfigError, did_you_mean
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
    _check_estimator(estimator)
    if not callable(should_stop_fn):
        raise TypeError(
            "make_early_stopping_hook: should_stop_fn must be a function without "
            f"arguments, got {type(should_stop_fn).__name__}."
        )

    def verdict(step: int) -> str | None:
        return "should_stop_fn said so" if should_stop_fn() else None

    folder = estimator.eval_dir()
    return _hook(estimator, folder, verdict, run_every_secs, run_every_steps)


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
    metric = _metric(estimator, metric_name, eval_dir, min_steps)
    verdict = _beyond(metric, threshold, operator.gt, "above")
    return _hook(estimator, metric.folder, verdict, run_every_secs, run_every_steps)


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
    metric = _metric(estimator, metric_name, eval_dir, min_steps)
    verdict = _beyond(metric, threshold, operator.lt, "below")
    return _hook(estimator, metric.folder, verdict, run_every_secs, run_every_steps)


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
    metric = _metric(estimator, metric_name, eval_dir, min_steps)
    verdict = _stagnant(metric, max_steps_without_increase, min_delta, 1, "increase")
    return _hook(estimator, metric.folder, verdict, run_every_secs, run_every_steps)


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
    metric = _metric(estimator, metric_name, eval_dir, min_steps)
    verdict = _stagnant(metric, max_steps_without_decrease, min_delta, -1, "decrease")
    return _hook(estimator, metric.folder, verdict, run_every_secs, run_every_steps)


@dataclass(frozen=True)
class _Metric:
    """A metric's evaluations, as they are written to a folder."""

    folder: Pathish
    name: str
    min_steps: int

    def history(self, step: int) -> list[tuple[int, float]]:
        """(step, value) from `min_steps` up to the present step."""
        scalars = summary.read_scalars(self.folder)
        if scalars and self.name not in scalars:
            raise KeyError(
                f"early stopping: the evaluations in {os.fspath(self.folder)} have no "
                f"metric {self.name!r}{did_you_mean(self.name, scalars)}"
            )
        # Evaluations of later steps are of a run that was killed: this one has not got
        # there yet, and will evaluate them again.
        every = scalars.get(self.name, [])
        return [(at, value) for at, value in every if self.min_steps <= at <= step]


def _metric(
    estimator: Evaluated, name: str, eval_dir: Pathish | None, min_steps: int
) -> _Metric:
    _check_estimator(estimator)
    folder = estimator.eval_dir() if eval_dir is None else eval_dir
    return _Metric(folder, name, min_steps)


def _beyond(
    metric: _Metric,
    threshold: float,
    is_beyond: Callable[[float, float], bool],
    word: str,
) -> Verdict:
    def verdict(step: int) -> str | None:
        for at, value in metric.history(step):
            if is_beyond(value, threshold):
                where = f"{metric.name!r} is {value:.6g} at step {at}"
                return f"{where}, {word} {threshold:.6g}"
        return None

    return verdict


def _stagnant(
    metric: _Metric, patience: int, min_delta: float, sign: int, word: str
) -> Verdict:
    """A verdict on a metric of which more, times the sign, is better."""
    if patience < 0 or not min_delta >= 0:
        raise ConfigError(
            f"stop_if_no_{word}_hook: max_steps_without_{word} and min_delta must be "
            f"at least 0, got {patience} and {min_delta}."
        )

    def verdict(step: int) -> str | None:
        best, best_step = math.nan, -1
        for at, value in metric.history(step):
            # Any number is better than a NaN, and a NaN than nothing.
            is_better = math.isnan(best) and not math.isnan(value)
            if best_step < 0 or is_better or sign * (value - best) > min_delta:
                best, best_step = value, at
            elif at - best_step >= patience:
                return (
                    f"no {word} of {metric.name!r} for {at - best_step} steps: "
                    f"{best:.6g} at step {best_step}, {value:.6g} at step {at}"
                )
        return None

    return verdict


def _hook(
    estimator: Evaluated,
    folder: Pathish,
    verdict: Verdict,
    every_secs: float | None,
    every_steps: int | None,
) -> Hook:
    given = [value for value in (every_secs, every_steps) if value is not None]
    if len(given) != 1 or given[0] <= 0:
        raise ConfigError(
            "early stopping: give run_every_secs or run_every_steps, above 0, and set "
            f"the other to None; got {every_secs} and {every_steps}."
        )
    return EarlyStoppingHook(
        estimator.model_dir, folder, verdict, every_secs, every_steps
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
