"""Progress of training: step, loss, speed and remaining time.

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

from estimax.cli.console import emit, wrap_lines
from estimax.cli.progress import ProgressLine
from estimax.hooks import Hook, RunContext, Values


class TrainingProgress(Hook):
    """A hook that shows step, loss, speed and remaining time.

    Args:
      max_steps: The last step, or None if it is not known.
      every: Steps between updates.
      console: Where to print.
      clock: Returns seconds; replaced in tests.
    """

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
        # Time and examples at the last update. None before the first one, because the
        # time up to it includes compilation.
        self._mark: tuple[float, int] | None = None
        # The median of the last speeds is shown, so that an interval with an evaluation
        # does not count as slow training.
        self._speeds: deque[float] = deque(maxlen=5)
        self._loss = "-"
        self._line = ProgressLine(console, max_steps)

    def __enter__(self) -> TrainingProgress:
        self._line.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._line.__exit__(kind, error, trace)

    def begin(self, context: RunContext) -> None:
        """Start the clock."""
        self._started = self._clock()
        self._first_step = context.step
        self._mark = None
        self._line.begin("compiling", context.step)

    def before_run(self, context: RunContext) -> Sequence[str] | None:
        """Request the loss."""
        return ["loss"]

    def after_run(self, context: RunContext, values: Values) -> None:
        """Show step, loss and speed."""
        loss, speed = float(values["loss"]), None
        self._loss = f"{loss:.4f}"
        texts = [f"step {self._step(context.step)}", f"loss {self._loss}"]
        now = self._clock()
        if self._mark is not None and now > self._mark[0]:
            speed = (context.examples - self._mark[1]) / (now - self._mark[0])
            self._speeds.append(speed)
            speed = statistics.median(self._speeds)
            texts.append(f"{speed:,.0f} examples/s")
        self._mark = (now, context.examples)
        emit("step", step=context.step, loss=loss, examples_per_second=speed)
        self._line.show("training", context.step, texts, now)

    def end(self, context: RunContext) -> None:
        """Show the number of steps, the time they took and the last loss."""
        seconds = self._clock() - self._started
        steps = context.step - self._first_step
        status = (
            f"trained {steps:,} steps in {seconds:.1f} s, last loss {self._loss} "
            f"(step {self._step(context.step)})"
        )
        self._line.hide()
        status = wrap_lines(status, self._console)
        self._console.print(status, highlight=False, soft_wrap=True)

    def next_step(self, step: int) -> int:
        """Return the next multiple of `every`; the same steps after a resume."""
        return (step // self._every + 1) * self._every

    def _step(self, step: int) -> str:
        return (
            f"{step:,}" if self._max_steps is None else f"{step:,}/{self._max_steps:,}"
        )
