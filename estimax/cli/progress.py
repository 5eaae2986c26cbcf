"""How training goes: a bar on a terminal, a line now and then elsewhere.

with TrainingProgress(max_steps=1000, every=50, console=notes) as progress:
    estimator.train(input_fn, hooks=[progress])
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from estimax.hooks import Hook, RunContext, Values

# A line for each of so many seconds, where there is no terminal.
_SECONDS_A_LINE = 5.0


class TrainingProgress(Hook):
    """Shows step, loss, speed and time left, every `every` steps."""

    def __init__(
        self,
        max_steps: int | None,
        every: int,
        console: Console,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_steps = max_steps
        self._every = every
        self._console = console
        self._clock = clock
        self._started = 0.0
        self._first_step = 0
        # The first visit ends the compilation, from which no speed can be told.
        self._mark: tuple[float, int] | None = None
        # Of the last few visits the middle one: an evaluation is no slow training.
        self._speeds: deque[float] = deque(maxlen=5)
        self._told = -_SECONDS_A_LINE
        self._loss = "-"
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[told]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("starting", total=max_steps, told="")

    def __enter__(self) -> TrainingProgress:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def begin(self, context: RunContext) -> None:
        """Start the clock."""
        self._started = self._clock()
        self._first_step = context.step
        self._mark = None
        if context.step:
            self._console.print(f"resuming at step {context.step}", highlight=False)
        self._bar.update(self._task, description="compiling", completed=context.step)

    def before_run(self, context: RunContext) -> Sequence[str] | None:
        """Ask for the loss."""
        return ["loss"]

    def after_run(self, context: RunContext, values: Values) -> None:
        """Show where training is."""
        self._loss = f"{float(values['loss']):.4f}"
        told = f"step {self._step(context.step)}  loss {self._loss}"
        now = self._clock()
        if self._mark is not None and now > self._mark[0]:
            speed = (context.examples - self._mark[1]) / (now - self._mark[0])
            self._speeds.append(speed)
            told += f"  {statistics.median(self._speeds):,.0f} examples/s"
        self._mark = (now, context.examples)
        self._bar.update(
            self._task, description="training", completed=context.step, told=told
        )
        if not self._console.is_terminal and now - self._told >= _SECONDS_A_LINE:
            self._told = now
            self._console.print(told, highlight=False, soft_wrap=True)

    def end(self, context: RunContext) -> None:
        """Show the last step and how long it took."""
        seconds = self._clock() - self._started
        steps = context.step - self._first_step
        told = (
            f"trained {steps:,} steps in {seconds:.1f} s, last loss {self._loss} "
            f"(step {self._step(context.step)})"
        )
        self._bar.update(self._task, visible=False)
        self._console.print(told, highlight=False, soft_wrap=True)

    def next_step(self, step: int) -> int:
        """The next multiple: a resumed run then stops at the same steps."""
        return (step // self._every + 1) * self._every

    def _step(self, step: int) -> str:
        return (
            f"{step:,}" if self._max_steps is None else f"{step:,}/{self._max_steps:,}"
        )
