"""What the device and the host do during a step, now and then, for TensorBoard."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import jax

from estimax.hooks.hook import Hook, RunContext, SecondOrStepTimer, Values

_log = logging.getLogger("estimax")


class ProfilerHook(Hook):
    """Writes a trace of one call of the compiled step under `output_dir`.

    TensorBoard's profile plugin and Perfetto show it; the files are under
    `plugins/profile/<time>`. Acts every `save_steps` steps or `save_secs` seconds, the
    first time one interval after the start. `show_dataflow` traces the calls of the
    host's Python code too; `show_memory` writes what the device's memory holds as
    `memory-<step>.prof`, for pprof.

    >>> hook = ProfilerHook(save_steps=1000, output_dir="/tmp/estimax-doc-profile")
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

    def begin(self, context: RunContext) -> None:
        """Start counting: the first step compiles, and is not what one wants to see."""
        self._timer.update_last_triggered_step(context.step)
        if self._is_tracing:  # a run that failed in the middle of it
            self._stop_trace()

    def before_run(self, context: RunContext) -> Sequence[str] | None:
        """Start a trace, if it is time."""
        if not self._timer.is_due_next():
            return None
        # Steps are queued ahead of the device; those before are not to be in the trace.
        jax.block_until_ready(context.state)  # type: ignore[no-untyped-call]
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = int(self._show_dataflow)
        jax.profiler.start_trace(self._output_dir, profiler_options=options)
        self._is_tracing = True
        return None

    def after_run(self, context: RunContext, values: Values) -> None:
        """Write the trace when the step is done."""
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
        """The step count of the next trace."""
        return self._timer.next_step(step)

    def _stop_trace(self) -> None:
        jax.profiler.stop_trace()  # type: ignore[no-untyped-call]
        self._is_tracing = False
