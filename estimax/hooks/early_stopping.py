"""Hooks that stop training according to the results of evaluations.

    hook = stop_if_no_decrease_hook(model, "loss", max_steps_without_decrease=1000)
    ex.train_and_evaluate(model, ex.TrainSpec(input_fn, hooks=[hook]), eval_spec)

The hooks read evaluation results from the event files in `eval_dir`. It does not matter
whether this process or an evaluator in another process wrote them. Nothing is added to
the model, so a run that began without such a hook can resume with one.

A run that is killed and resumed stops at the same step as a run that was not: results
of steps after the current one are ignored, and `run_every_steps=n` checks at multiples
of n, independent of the step at which the run began. With `run_every_secs`, a result
that this process wrote is checked at the step of its evaluation; the seconds apply to
results of other processes.
"""

from __future__ import annotations

import logging
import math
import operator
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, runtime_checkable

from estimax import checkpoints
from estimax.core.docstrings import document_like
from estimax.core.errors import ConfigError, did_you_mean
from estimax.hooks import summary
from estimax.hooks.hook import Hook, RunContext, Values, check_interval, describe_hook
from estimax.storage.files import Pathish

_log = logging.getLogger("estimax")

# (step, value) of each evaluation of a metric, in the order of steps.
History = list[tuple[int, float]]
# Return the reason to stop after so many steps, or None to continue.
FindReason = Callable[[int], str | None]


def make_early_stopping_hook(
    estimator: HasEvaluations,
    should_stop_fn: Callable[[], bool],
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
    *,
    eval_dir: Pathish | None = None,
) -> Hook:
    """Make a hook that stops training when `should_stop_fn` returns True.

    Use it for a rule of your own. For rules about one metric, the `stop_if_…` functions
    are shorter. The function is not called before the first step of a new model. It is
    called once more whenever this process has written an evaluation.

    Args:
      estimator: The Estimator to train.
      should_stop_fn: Function without arguments that returns whether to stop.
      run_every_secs: Seconds between two calls of the function; 0 for every step.
      run_every_steps: Steps between two calls; the function is called at multiples of
        it. Set `run_every_secs` to None to use it.
      eval_dir: Folder of the evaluations after which the function is called once more;
        by default the folder of unnamed evaluations, `estimator.eval_dir()`.

    Returns:
      The hook.

    Raises:
      TypeError: `estimator` is not an Estimator, or `should_stop_fn` not a function.
      ConfigError: Both or neither of `run_every_secs` and `run_every_steps` are given.

    Example:
      >>> import numpy as np
      >>> import estimax as ex
      >>> data = {"x": np.ones((4, 1))}, np.ones(4)
      >>> model = ex.BaselineRegressor()
      >>> hook = ex.hooks.make_early_stopping_hook(
      ...     model, lambda: True, run_every_secs=None, run_every_steps=3
      ... )
      >>> model = model.train(lambda: data, steps=100, hooks=[hook])
      >>> int(model.get_variable_value("global_step"))
      3
    """
    if not callable(should_stop_fn):
        raise TypeError(
            "make_early_stopping_hook: should_stop_fn must be a function without "
            f"arguments, got {type(should_stop_fn).__name__}."
        )

    def find_reason(step: int) -> str | None:
        return "should_stop_fn returned True" if should_stop_fn() else None

    return _hook(estimator, eval_dir, find_reason, run_every_secs, run_every_steps)


def stop_if_higher_hook(
    estimator: HasEvaluations,
    metric_name: str,
    threshold: float,
    eval_dir: Pathish | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> Hook:
    """Make a hook that stops training when a metric is above a threshold.

    Use it to stop at a target such as an accuracy of 0.95.

    Args:
      estimator: The Estimator to train.
      metric_name: Name of the metric, as in the results of `evaluate`.
      threshold: Training stops when a value is above it, not when it is equal.
      eval_dir: Folder of the evaluations; by default the folder of unnamed
        evaluations, `estimator.eval_dir()`.
      min_steps: Evaluations before this step are ignored.
      run_every_secs: Seconds between two checks; 0 for every step. Evaluations of
        this process are checked at once.
      run_every_steps: Steps between two checks, at multiples of it. Set
        `run_every_secs` to None to use it.

    Returns:
      The hook.

    Raises:
      TypeError: `estimator` is not an Estimator.
      ConfigError: Both or neither of `run_every_secs` and `run_every_steps` are given.
      KeyError: During training: the evaluations have no metric of this name.

    Example:
      >>> import numpy as np
      >>> import estimax as ex
      >>> data = {"x": np.ones((4, 1))}, np.ones(4)
      >>> model = ex.BaselineRegressor()
      >>> test = ex.hooks.InMemoryEvaluatorHook(model, lambda: data, 1, every_n_iter=2)
      >>> stop = ex.hooks.stop_if_higher_hook(model, "prediction/mean", 0.5)
      >>> model = model.train(lambda: data, steps=100, hooks=[test, stop])
      >>> int(model.get_variable_value("global_step")) < 100
      True
    """
    rule = _threshold_rule(metric_name, threshold, operator.gt, "above")
    find_reason = _metric_reason(estimator, metric_name, eval_dir, min_steps, rule)
    return _hook(estimator, eval_dir, find_reason, run_every_secs, run_every_steps)


@document_like(stop_if_higher_hook)
def stop_if_lower_hook(
    estimator: HasEvaluations,
    metric_name: str,
    threshold: float,
    eval_dir: Pathish | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> Hook:
    """Make a hook that stops training when a metric is below a threshold.

    Use it to stop at a target such as a loss of 0.1.

    Args:
      threshold: Training stops when a value is below it, not when it is equal.

    Example:
      >>> import numpy as np
      >>> import estimax as ex
      >>> data = {"x": np.ones((4, 1))}, np.ones(4)
      >>> model = ex.BaselineRegressor()
      >>> test = ex.hooks.InMemoryEvaluatorHook(model, lambda: data, 1, every_n_iter=2)
      >>> stop = ex.hooks.stop_if_lower_hook(model, "loss", 0.1)
      >>> model = model.train(lambda: data, steps=100, hooks=[test, stop])
      >>> int(model.get_variable_value("global_step")) < 100
      True
    """
    rule = _threshold_rule(metric_name, threshold, operator.lt, "below")
    find_reason = _metric_reason(estimator, metric_name, eval_dir, min_steps, rule)
    return _hook(estimator, eval_dir, find_reason, run_every_secs, run_every_steps)


@document_like(stop_if_higher_hook)
def stop_if_no_increase_hook(
    estimator: HasEvaluations,
    metric_name: str,
    max_steps_without_increase: int,
    eval_dir: Pathish | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
    *,
    min_delta: float = 0.0,
) -> Hook:
    """Make a hook that stops training when a metric no longer increases.

    Use it for metrics where higher is better, such as accuracy or AUC.

    Args:
      max_steps_without_increase: Training stops when the best value is this many steps
        old.
      min_delta: Only a value more than this above the best one counts as an
        increase.

    Raises:
      TypeError: `estimator` is not an Estimator.
      ConfigError: `max_steps_without_increase` or `min_delta` is below 0; or both or
        neither of `run_every_secs` and `run_every_steps` are given.
      KeyError: During training: the evaluations have no metric of this name.

    Example:
      >>> import numpy as np
      >>> import estimax as ex
      >>> data = {"x": np.ones((4, 1))}, np.ones(4)
      >>> model = ex.BaselineRegressor()
      >>> test = ex.hooks.InMemoryEvaluatorHook(model, lambda: data, 1, every_n_iter=2)
      >>> stop = ex.hooks.stop_if_no_increase_hook(model, "label/mean", 4)
      >>> model = model.train(lambda: data, steps=100, hooks=[test, stop])
      >>> int(model.get_variable_value("global_step"))
      4
    """
    rule = _patience_rule(
        metric_name, max_steps_without_increase, min_delta, 1, "increase"
    )
    find_reason = _metric_reason(estimator, metric_name, eval_dir, min_steps, rule)
    return _hook(estimator, eval_dir, find_reason, run_every_secs, run_every_steps)


@document_like(stop_if_higher_hook)
def stop_if_no_decrease_hook(
    estimator: HasEvaluations,
    metric_name: str,
    max_steps_without_decrease: int,
    eval_dir: Pathish | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
    *,
    min_delta: float = 0.0,
) -> Hook:
    """Make a hook that stops training when a metric no longer decreases.

    Use it for metrics where lower is better, such as the loss.

    Args:
      max_steps_without_decrease: Training stops when the best value is this many steps
        old.
      min_delta: Only a value more than this below the best one counts as a
        decrease.

    Raises:
      TypeError: `estimator` is not an Estimator.
      ConfigError: `max_steps_without_decrease` or `min_delta` is below 0; or both or
        neither of `run_every_secs` and `run_every_steps` are given.
      KeyError: During training: the evaluations have no metric of this name.

    Example:
      >>> import numpy as np
      >>> import estimax as ex
      >>> data = {"x": np.ones((4, 1))}, np.ones(4)
      >>> model = ex.BaselineRegressor()
      >>> test = ex.hooks.InMemoryEvaluatorHook(model, lambda: data, 1, every_n_iter=2)
      >>> stop = ex.hooks.stop_if_no_decrease_hook(model, "loss", 4)
      >>> model = model.train(lambda: data, steps=100, hooks=[test, stop])
      >>> int(model.get_variable_value("global_step")) < 100
      True
    """
    rule = _patience_rule(
        metric_name, max_steps_without_decrease, min_delta, -1, "decrease"
    )
    find_reason = _metric_reason(estimator, metric_name, eval_dir, min_steps, rule)
    return _hook(estimator, eval_dir, find_reason, run_every_secs, run_every_steps)


def read_eval_metrics(eval_dir: Pathish) -> dict[int, dict[str, float]]:
    """Read the results of all evaluations from their event files.

    Use it in the `should_stop_fn` of `make_early_stopping_hook`, or to plot results.

    Args:
      eval_dir: Folder of the evaluations, `estimator.eval_dir()`.

    Returns:
      The metrics by name, by step, in the order of steps. Empty if there are none.

    Example:
      >>> import numpy as np
      >>> import estimax as ex
      >>> data = {"x": np.ones((4, 1))}, np.ones(4)
      >>> model = ex.BaselineRegressor().train(lambda: data, steps=3)
      >>> _ = model.evaluate(lambda: data, steps=1)
      >>> metrics = ex.hooks.read_eval_metrics(model.eval_dir())
      >>> list(metrics), sorted(metrics[3])[:2]
      ([3], ['average_loss', 'label/mean'])
    """
    by_step: dict[int, dict[str, float]] = {}
    for name, history in summary.read_scalars(eval_dir).items():
        for step, value in history:
            by_step.setdefault(step, {})[name] = value
    return dict(sorted(by_step.items()))


def _metric_reason(
    estimator: HasEvaluations,
    name: str,
    eval_dir: Pathish | None,
    min_steps: int,
    rule: Callable[[History], str | None],
) -> FindReason:
    """Return a function that applies `rule` to the metric's evaluations so far."""
    folder = _folder(estimator, eval_dir)

    def find_reason(step: int) -> str | None:
        scalars = summary.read_scalars(folder)
        if scalars and name not in scalars:
            raise KeyError(
                f"early stopping: the evaluations in {os.fspath(folder)} have no "
                f"metric {name!r}{did_you_mean(name, scalars)}"
            )
        # Evaluations of later steps were written by a run that was killed and resumed
        # from an earlier checkpoint. This run will evaluate those steps again.
        every = scalars.get(name, [])
        return rule([(at, value) for at, value in every if min_steps <= at <= step])

    return find_reason


def _threshold_rule(
    name: str,
    threshold: float,
    is_beyond: Callable[[float, float], bool],
    word: str,
) -> Callable[[History], str | None]:
    def rule(history: History) -> str | None:
        for at, value in history:
            if is_beyond(value, threshold):
                where = f"{name!r} is {value:.6g} at step {at}"
                return f"{where}, {word} {threshold:.6g}"
        return None

    return rule


def _patience_rule(
    name: str, patience: int, min_delta: float, sign: int, word: str
) -> Callable[[History], str | None]:
    """Return a rule that decides whether the metric has stopped improving.

    `sign` is +1 if higher is better, -1 if lower is.
    """
    if patience < 0 or not min_delta >= 0:
        raise ConfigError(
            f"stop_if_no_{word}_hook: max_steps_without_{word} and min_delta must be "
            f"at least 0, got {patience} and {min_delta}."
        )

    def rule(history: History) -> str | None:
        best, best_step = math.nan, -1
        for at, value in history:
            # The first value counts as better than none, any number as better than NaN.
            is_better = math.isnan(best) and not math.isnan(value)
            if best_step < 0 or is_better or sign * (value - best) > min_delta:
                best, best_step = value, at
            elif at - best_step >= patience:
                return (
                    f"no {word} of {name!r} for {at - best_step} steps: "
                    f"{best:.6g} at step {best_step}, {value:.6g} at step {at}"
                )
        return None

    return rule


def _hook(
    estimator: HasEvaluations,
    eval_dir: Pathish | None,
    find_reason: FindReason,
    every_secs: float | None,
    every_steps: int | None,
) -> Hook:
    check_interval(
        "run_every_secs or run_every_steps", secs=every_secs, steps=every_steps
    )
    folder = _folder(estimator, eval_dir)
    return EarlyStoppingHook(
        estimator.model_dir, folder, find_reason, every_secs, every_steps
    )


def _folder(estimator: HasEvaluations, eval_dir: Pathish | None) -> Pathish:
    if not isinstance(estimator, HasEvaluations):
        raise TypeError(
            "early stopping: estimator must be an Estimator, got "
            f"{type(estimator).__name__}."
        )
    return estimator.eval_dir() if eval_dir is None else eval_dir


@runtime_checkable
class HasEvaluations(Protocol):
    """The folders of an Estimator that early stopping needs."""

    @property
    def model_dir(self) -> str:
        """The folder of checkpoints."""

    def eval_dir(self, name: str | None = None) -> str:
        """Return the folder of the evaluations of this name."""


class EarlyStoppingHook(Hook):
    """Stop training when `find_reason` returns a reason; made by the functions above.

    At the end it writes the reason to the model's folder, where an evaluator in another
    process reads that training has ended.
    """

    def __init__(
        self,
        model_dir: str,
        eval_dir: Pathish,
        find_reason: FindReason,
        every_secs: float | None,
        every_steps: int | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._model_dir = model_dir
        self._eval_dir = Path(eval_dir).absolute()
        self._find_reason = find_reason
        self._every_secs = every_secs
        self._every_steps = every_steps
        self._clock = clock
        self._checked_at = 0.0
        self._written = 0
        self._reason: str | None = None

    def __repr__(self) -> str:
        return describe_hook(
            self,
            os.fspath(self._eval_dir),
            every_secs=self._every_secs,
            every_steps=self._every_steps,
        )

    def after_create_session(self, context: RunContext) -> None:
        """Check a resumed run before its first step.

        A run that was killed after the deciding evaluation stops here, at the step at
        which it would have stopped.
        """
        self._reason = None
        self._start_interval()
        every = self._every_steps
        if context.step > 0 and (every is None or context.step % every == 0):
            self._check(context)

    def after_run(self, context: RunContext, values: Values) -> None:
        if self._is_due():
            self._check(context)

    def end(self, context: RunContext) -> None:
        if self._reason is not None:
            checkpoints.mark_finished(self._model_dir, context.step, self._reason)

    def next_step(self, step: int) -> int:
        if self._every_steps is None:
            return step if self._every_secs else step + 1  # 0 seconds: at every step
        return (step // self._every_steps + 1) * self._every_steps

    def _is_due(self) -> bool:
        if self._every_secs is None:
            return True  # the loop calls only at multiples of `every_steps`
        if summary.times_written(self._eval_dir) != self._written:
            return True  # this process has just written an evaluation
        return self._clock() >= self._checked_at + self._every_secs

    def _check(self, context: RunContext) -> None:
        self._start_interval()
        self._reason = self._find_reason(context.step)
        if self._reason is not None:
            _log.info("stopping at step %d: %s", context.step, self._reason)
            context.request_stop()

    def _start_interval(self) -> None:
        self._checked_at = self._clock()
        self._written = summary.times_written(self._eval_dir)
