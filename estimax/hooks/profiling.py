"""A hook that traces single steps with the JAX profiler, for TensorBoard."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import jax

from estimax.hooks.hook import Hook, RunContext, SecondOrStepTimer, Values, described

_log = logging.getLogger("estimax")


class ProfilerHook(Hook):
    """Write a profiler trace of one compiled loop at an interval.

    Use it to see where the time of a step goes, on the device and on the host. The
    traces are in `plugins/profile/<time>` below `output_dir`; TensorBoard's profile
    plugin and Perfetto show them. The first trace is taken one interval after the
    start, because the first step compiles.

    Args:
      save_steps: Steps between two traces.
      save_secs: Seconds between two traces. Give exactly one of the two.
      output_dir: Folder to write to; by default the current one.
      show_dataflow: Whether to trace the calls of Python functions on the host too.
      show_memory: Whether to write the content of the device's memory as
        `memory-<step>.prof`, for pprof.
      clock: Function that returns the time in seconds; tests pass their own.

    Raises:
      ConfigError: Neither or both of `save_steps` and `save_secs` are given, or the
        given one is not above 0.

    Example:
      >>> hook = ProfilerHook(save_steps=1000, output_dir="/tmp/profiles")
      >>> hook
      ProfilerHook(save_steps=1000, output_dir='/tmp/profiles')
      >>> hook.begin(RunContext(step=500))  # resumed at step 500
      >>> hook.next_step(500)
      1500
    """

    def __init__(
        self,
        save_steps: int | None = None,
        save_secs: float | None = None,
        output_dir: str | os.PathLike[str] = "",
        show_dataflow: bool = True,
        show_memory: bool = False,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._timer = SecondOrStepTimer(save_secs, save_steps, clock=clock)
        self._output_dir = Path(output_dir)
        self._show_dataflow = show_dataflow
        self._show_memory = show_memory
        self._is_tracing = False

    def __repr__(self) -> str:
        return described(
            self,
            save_steps=self._timer.every_steps,
            save_secs=self._timer.every_secs,
            output_dir=str(self._output_dir),
        )

    def begin(self, context: RunContext) -> None:
        self._timer.update_last_triggered_step(context.step)
        if self._is_tracing:  # the last run failed during a trace
            self._stop_trace()

    def before_run(self, context: RunContext) -> Sequence[str] | None:
        if not self._timer.is_due_next():
            return None
        # Earlier steps may still be queued on the device. Wait for them, to keep them
        # out of the trace.
        jax.block_until_ready(context.state)  # type: ignore[no-untyped-call]
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = int(self._show_dataflow)
        jax.profiler.start_trace(self._output_dir, profiler_options=options)
        self._is_tracing = True
        return None

    def after_run(self, context: RunContext, values: Values) -> None:
        if not self._is_tracing:
            return
        jax.block_until_ready(context.state)  # type: ignore[no-untyped-call]
        self._stop_trace()
        self._timer.update_last_triggered_step(context.step)
        if self._show_memory:
            path = self._output_dir / f"memory-{context.step}.prof"
            jax.profiler.save_device_memory_profile(str(path))
        _log.info("wrote a profile of step %d under %s", context.step, self._output_dir)

    def next_step(self, step: int) -> int:
        return self._timer.next_step(step)

    def _stop_trace(self) -> None:
        jax.profiler.stop_trace()  # type: ignore[no-untyped-call]
        self._is_tracing = False
