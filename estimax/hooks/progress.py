"""Telling how training goes: speed, and values by name.

Lines go to the logger "estimax"; show them with `logging.basicConfig(level="INFO")`.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from estimax import summary
from estimax.core.errors import ConfigError
from estimax.hooks.hook import NEVER, Hook, RunContext, SecondOrStepTimer, Values

_log = logging.getLogger("estimax")
_STEP_NAMES = ("global_step", "step")  # told by the loop, not by the device


class StepCounterHook(Hook):
    """Logs and writes `global_step/sec` and `examples/sec`.

    The first step only starts the clock: it compiles. Where to write is said by
    `output_dir` or by a `summary_writer`; by neither, it only logs.

    >>> hook = StepCounterHook(every_n_steps=1000)
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
            every_n_steps = None  # the default gives way
        self._timer = SecondOrStepTimer(every_n_secs, every_n_steps, clock=clock)
        self._output = summary.Output(output_dir, summary_writer)
        self._examples = 0
        self._input_wait = 0.0

    def begin(self, context: RunContext) -> None:
        """Open the summaries."""
        self._timer.reset()
        self._output.open()

    def before_run(self, context: RunContext) -> Sequence[str] | None:
        """Ask for nothing."""
        return None

    def after_run(self, context: RunContext, values: Values) -> None:
        """Tell the speed since the time before."""
        if not self._timer.should_trigger_for_step(context.step):
            return
        seconds, steps = self._timer.update_last_triggered_step(context.step)
        examples = context.examples - self._examples
        waited = context.input_wait - self._input_wait
        self._examples, self._input_wait = context.examples, context.input_wait
        if seconds and steps:
            self._tell(context.step, steps / seconds, examples / seconds)
            if waited > 0.1 * seconds:
                share = 100 * waited / seconds
                _log.info("%.0f%% of the time was spent waiting for input", share)

    def end(self, context: RunContext) -> None:
        """Close the summaries."""
        self._output.close()

    def next_step(self, step: int) -> int:
        """The step count at which to tell next."""
        return self._timer.next_step(step)

    def _tell(self, step: int, steps: float, examples: float) -> None:
        _log.info("global_step/sec: %.6g, examples/sec: %.6g", steps, examples)
        if self._output.writer is not None:
            self._output.writer.scalar("global_step/sec", steps, step)
            self._output.writer.scalar("examples/sec", examples, step)


class LoggingTensorHook(Hook):
    """Logs values by name: "loss", or what the model names with `ex.log_value`.

    `tensors` is a list of names, or a dict from what to call a value to its name. Logs
    at the first step and then every `every_n_iter` steps or `every_n_secs` seconds. A
    line ends with the step, counted as the steps done before the values were computed.
    `at_end` logs once more when training has ended, with the values as of then.
    `formatter` makes the line of a dict of the values.

    >>> hook = LoggingTensorHook({"bias": "line/bias"}, every_n_iter=100)
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
        if isinstance(tensors, Mapping):
            self._names = dict(sorted(tensors.items()))
        else:
            self._names = {name: name for name in tensors}
        self._wanted = [n for n in self._names.values() if n not in _STEP_NAMES]
        self._timer: SecondOrStepTimer | None = None
        if every_n_iter is not None or every_n_secs is not None:
            self._timer = SecondOrStepTimer(every_n_secs, every_n_iter, clock=clock)
        elif not at_end:
            raise ConfigError(
                "LoggingTensorHook: give every_n_iter, every_n_secs or at_end=True."
            )
        self._at_end = at_end
        self._formatter = formatter

    def begin(self, context: RunContext) -> None:
        """Start counting from here."""
        if self._timer is not None:
            self._timer.reset()

    def before_run(self, context: RunContext) -> Sequence[str] | None:
        """Ask for the values when a line may be due."""
        if self._timer is None or not self._timer.is_due_next():
            return None
        return self._wanted

    def after_run(self, context: RunContext, values: Values) -> None:
        """Log the values if it is time."""
        if self._timer is None or any(name not in values for name in self._wanted):
            return
        if self._timer.should_trigger_for_step(context.step):
            seconds, _ = self._timer.update_last_triggered_step(context.step)
            self._write_line(context.step - 1, values, seconds)

    def end(self, context: RunContext) -> None:
        """Log the values as they are now, if asked to and there ever was a step."""
        if self._at_end and context.losses:
            self._write_line(context.step, context.fetch(self._wanted), None)

    def next_step(self, step: int) -> int:
        """The step count at which to log next."""
        return self._timer.next_step(step) if self._timer else NEVER

    def _write_line(self, step: int, values: Values, seconds: float | None) -> None:
        told: dict[str, Any] = {
            tag: step if name in _STEP_NAMES else values[name]
            for tag, name in self._names.items()
        }
        if self._formatter is not None:
            _log.info("%s", self._formatter(told))
            return
        told.setdefault("step", step)
        line = ", ".join(f"{tag} = {_shown(value)}" for tag, value in told.items())
        _log.info("%s%s", line, "" if seconds is None else f" ({seconds:.3f} sec)")


def _shown(value: Any) -> str:
    array = np.asarray(value)
    if array.ndim == 0 and array.dtype.kind not in "iub":
        return f"{float(array):.6g}"
    return str(value)


FinalOps = str | Sequence[str] | Mapping[str, str] | Callable[[RunContext], Any]


class FinalOpsHook(Hook):
    """Takes values at the end of a run; `final_ops_values` then holds them.

    `final_ops` is a name, a list of names or a dict to names, and the values come in
    the same form. Names are those of variables and of what the model logs, computed
    anew on the last batch. Or it is a function of the `RunContext`.

    >>> hook = FinalOpsHook({"bias": "line/bias"})
    >>> hook.final_ops_values is None
    True
    """

    def __init__(self, final_ops: FinalOps) -> None:
        self._final_ops = final_ops
        self._values: Any = None

    @property
    def final_ops_values(self) -> Any:
        """The values of the last run that ended; None before."""
        return self._values

    def end(self, context: RunContext) -> None:
        """Take the values."""
        wanted = self._final_ops
        if callable(wanted):
            self._values = wanted(context)
        elif isinstance(wanted, str):
            self._values = context.fetch([wanted])[wanted]
        elif isinstance(wanted, Mapping):
            found = context.fetch(list(wanted.values()))
            self._values = {key: found[name] for key, name in wanted.items()}
        else:
            found = context.fetch(wanted)
            self._values = [found[name] for name in wanted]

    def next_step(self, step: int) -> int:
        """Never: only the end matters."""
        return NEVER
