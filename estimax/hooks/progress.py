"""Hooks that log the speed and values of training, or keep values of its end.

Lines go to the logger "estimax", with the hook's repr as `hook` of the record.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from estimax.core.errors import ConfigError
from estimax.hooks import summary
from estimax.hooks.fetching import STEP_NAMES, is_observed, names_in, plain_name
from estimax.hooks.hook import (
    NEVER,
    Hook,
    RunContext,
    SecondOrStepTimer,
    Values,
    describe_hook,
)

_log = logging.getLogger("estimax")

FinalOps = str | Sequence[str] | Mapping[str, str] | Callable[[RunContext], Any]


class StepCounterHook(Hook):
    """Log the speed of training as `global_step/sec` and `examples/sec`.

    `train` adds this hook by itself, every `RunConfig.log_step_count_steps` steps. The
    first step is not measured, because it compiles. If more than 10% of the time was
    spent waiting for input, the hook logs the share.

    Args:
      every_n_steps: Steps between two lines.
      every_n_secs: Seconds between two lines. If given, the default of `every_n_steps`
        does not apply.
      output_dir: Folder for TensorBoard summaries of the speed.
      summary_writer: Writer for the summaries, in place of `output_dir`. Without both,
        the hook only logs.
      clock: Function that returns the time in seconds; tests pass their own.

    Raises:
      ConfigError: Both intervals are given, or the given one is not above 0.

    Example:
      >>> StepCounterHook(every_n_secs=30)
      StepCounterHook(every_n_secs=30)
      >>> StepCounterHook(every_n_steps=1000).next_step(0)  # the first step, then 1001
      1
    """

    def __init__(
        self,
        every_n_steps: int | None = 100,
        every_n_secs: float | None = None,
        output_dir: str | os.PathLike[str] | None = None,
        summary_writer: summary.SummaryWriter | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if every_n_secs is not None and every_n_steps == 100:
            every_n_steps = None  # the default, not given by the user
        self._timer = SecondOrStepTimer(every_n_secs, every_n_steps, clock=clock)
        self._output = summary.Output(output_dir, summary_writer)
        self._examples = 0
        self._input_wait = 0.0

    def __repr__(self) -> str:
        timer = self._timer
        return describe_hook(
            self, every_n_steps=timer.every_steps, every_n_secs=timer.every_secs
        )

    def begin(self, context: RunContext) -> None:
        self._timer.reset()
        self._output.open()

    def after_run(self, context: RunContext, values: Values) -> None:
        if not self._timer.should_trigger_for_step(context.step):
            return
        seconds, steps = self._timer.update_last_triggered_step(context.step)
        examples = context.examples - self._examples
        waited = context.input_wait - self._input_wait
        self._examples, self._input_wait = context.examples, context.input_wait
        if seconds and steps:
            remark = ""
            if waited > 0.1 * seconds:
                share = f"{100 * waited / seconds:.0f}% of the time"
                advice = context.input_advice()
                remark = f" ({share} was spent waiting for input)"
                remark += f". {advice}" if advice else ""
            rates = (steps / seconds, examples / seconds)
            self._write(context.step, *rates, remark)

    def end(self, context: RunContext) -> None:
        self._output.close()

    def next_step(self, step: int) -> int:
        return self._timer.next_step(step)

    def _write(self, step: int, steps: float, examples: float, remark: str) -> None:
        line = f"global_step/sec: {steps:.6g}, examples/sec: {examples:.6g}{remark}"
        _log.info("%s", line, extra={"hook": repr(self)})
        if self._output.writer is not None:
            rates = ("global_step/sec", steps), ("examples/sec", examples)
            self._output.writer.add(step, [("scalar", *rate) for rate in rates])


class LoggingTensorHook(Hook):
    """Log values by name at an interval.

    Use it to watch a variable, a summary, or a value that the model names with
    `ex.log_value`. `train` logs the loss this way by itself. The hook logs at the first
    step and then at the interval. A line ends with the step, which is the number of
    steps done before the values were computed.

    Args:
      tensors: Names of values; or a dict from the label in the log to the name.
      every_n_iter: Steps between two lines.
      every_n_secs: Seconds between two lines. Give at most one of the two.
      at_end: Whether to log the values once more when training has ended. This may
        replace the interval.
      formatter: Function that takes a dict of the values by label and returns the
        line. The default writes "label = value" pairs.
      clock: Function that returns the time in seconds; tests pass their own.

    Raises:
      ConfigError: No interval is given and `at_end` is False; or both intervals are
        given; or the given one is not above 0.

    Example:
      >>> import numpy as np
      >>> import estimax as ex
      >>> seen = []
      >>> hook = ex.hooks.LoggingTensorHook(
      ...     ["step", "baseline/bias"],
      ...     every_n_iter=2,
      ...     formatter=lambda values: seen.append(sorted(values)),
      ... )
      >>> data = {"x": np.ones((4, 1))}, np.ones(4)
      >>> model = ex.BaselineRegressor().train(lambda: data, steps=3, hooks=[hook])
      >>> seen  # after the steps 1 and 3
      [['baseline/bias', 'step'], ['baseline/bias', 'step']]
    """

    def __init__(
        self,
        tensors: Sequence[str] | Mapping[str, str],
        every_n_iter: int | None = None,
        every_n_secs: float | None = None,
        at_end: bool = False,
        formatter: Callable[[dict[str, Any]], str] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if isinstance(tensors, str):
            tensors = [tensors]
        if isinstance(tensors, Mapping):
            self._names = dict(sorted(tensors.items()))
        else:
            self._names = {name: name for name in _sort_names(tensors)}
        every = names_in(list(self._names.values()), "LoggingTensorHook")
        self._wanted = [name for name in every if not _is_step(name)]
        self._timer: SecondOrStepTimer | None = None
        if every_n_iter is not None or every_n_secs is not None:
            self._timer = SecondOrStepTimer(every_n_secs, every_n_iter, clock=clock)
        elif not at_end:
            raise ConfigError(
                "LoggingTensorHook: give every_n_iter, every_n_secs or at_end=True."
            )
        self._at_end = at_end
        self._formatter = formatter

    def __repr__(self) -> str:
        return describe_hook(
            self,
            list(self._names),
            every_n_iter=self._timer and self._timer.every_steps,
            every_n_secs=self._timer and self._timer.every_secs,
            at_end=self._at_end or None,
        )

    @property
    def requested(self) -> list[str]:
        """The names of the values that the hook requests."""
        return [plain_name(name) for name in self._wanted]

    def begin(self, context: RunContext) -> None:
        if self._timer is not None:
            self._timer.reset()

    def before_run(self, context: RunContext) -> Sequence[str] | None:
        if self._timer is None or not self._is_due(self._timer, context):
            return None
        return self._wanted

    def _is_due(self, timer: SecondOrStepTimer, context: RunContext) -> bool:
        if any(is_observed(name, context.logged) for name in self.requested):
            return timer.is_due_for_all(context, self._request)
        return timer.is_due_next()

    @property
    def _request(self) -> str:
        assert self._timer is not None, "only an interval is agreed on"
        names = ", ".join(sorted(self._wanted))
        return f"log {names} every {self._timer.every_secs} seconds"

    def after_run(self, context: RunContext, values: Values) -> None:
        # Values are missing if `before_run` saw that no line is due.
        if self._timer is None or any(name not in values for name in self._wanted):
            return
        is_agreed = self._request in context.agreed
        if is_agreed or self._timer.should_trigger_for_step(context.step):
            seconds, _ = self._timer.update_last_triggered_step(context.step)
            self._write_line(context.step - 1, values, seconds)

    def end(self, context: RunContext) -> None:
        if self._at_end and context.losses:
            self._write_line(context.step, context.fetch(self._wanted), None)

    def next_step(self, step: int) -> int:
        return self._timer.next_step(step) if self._timer else NEVER

    def _write_line(self, step: int, values: Values, seconds: float | None) -> None:
        labelled: dict[str, Any] = {
            tag: step if _is_step(name) else values[name]
            for tag, name in self._names.items()
        }
        if self._formatter is not None:
            _log.info("%s", self._formatter(labelled))
            return
        labelled.setdefault("step", step)
        line = ", ".join(
            f"{tag} = {_format_value(value)}" for tag, value in labelled.items()
        )
        line += "" if seconds is None else f" ({seconds:.3f} sec)"
        _log.info("%s", line, extra={"hook": repr(self)})


def _sort_names(names: Any) -> Any:
    """Return a set as a list: the order of a set differs between processes."""
    return sorted(names) if isinstance(names, set | frozenset) else names


def _is_step(name: str) -> bool:
    return plain_name(name) in STEP_NAMES


def _format_value(value: Any) -> str:
    array = np.asarray(value)
    if array.ndim == 0 and array.dtype.kind not in "iub":
        return f"{float(array):.6g}"
    return str(value)


class FinalOpsHook(Hook):
    """Keep values of the end of a run in `final_ops_values`.

    Use it to read variables or logged values after `train` without a checkpoint.

    Args:
      final_ops: The name of a variable or of a value that the model logs; a list of
        names; or a dict whose values are names. Logged values are computed again, on
        the last batch. Or a function of the `RunContext` that returns any value.
      final_ops_feed_dict: Must be None, because there are no placeholders.

    Raises:
      TypeError: `final_ops` holds something else, or `final_ops_feed_dict` is given.

    Example:
      >>> import numpy as np
      >>> import estimax as ex
      >>> data = {"x": np.ones((4, 1))}, np.ones(4)
      >>> hook = ex.hooks.FinalOpsHook({"bias": "baseline/bias"})
      >>> model = ex.BaselineRegressor().train(lambda: data, steps=3, hooks=[hook])
      >>> hook.final_ops_values["bias"].shape
      (1,)
    """

    def __init__(self, final_ops: FinalOps, final_ops_feed_dict: None = None) -> None:
        if not callable(final_ops):
            names_in(final_ops, "FinalOpsHook")
        if final_ops_feed_dict:
            raise TypeError(
                "FinalOpsHook: final_ops_feed_dict must be None, because there are no "
                "placeholders to feed."
            )
        self._final_ops: FinalOps = _sort_names(final_ops)
        self._values: Any = None

    def __repr__(self) -> str:
        return describe_hook(self, self._final_ops)

    @property
    def requested(self) -> list[str]:
        """The names of the values that the hook requests; none for a function."""
        if callable(self._final_ops):
            return []
        every = names_in(self._final_ops, "FinalOpsHook")
        return [plain_name(name) for name in every]

    @property
    def final_ops_values(self) -> Any:
        """The values of the last run that ended, in the form of `final_ops`.

        None before the first run has ended.
        """
        return self._values

    def end(self, context: RunContext) -> None:
        wanted = self._final_ops
        if callable(wanted):
            self._values = wanted(context)
        else:
            self._values = context.run(wanted)

    def next_step(self, step: int) -> int:
        return NEVER
