"""Progress of training: a bar on a terminal, else a line every five seconds.

with TrainingProgress(max_steps=1000, every=50, console=notes) as progress:
    estimator.train(input_fn, hooks=[progress])
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from types import TracebackType

from rich.console import Console
from rich.progress import Progress, ProgressColumn, SpinnerColumn, Task
from rich.text import Text

from estimax.cli.console import emit, wrapped
from estimax.hooks import Hook, RunContext, Values

_SECONDS_BETWEEN_LINES = 5.0  # without a terminal


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
        self._last_line = -_SECONDS_BETWEEN_LINES
        self._loss = "-"
        self._bar = Progress(
            SpinnerColumn(),
            _FittingColumn(console),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("starting", total=max_steps, texts=[])

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
        self._bar.update(self._task, description="compiling", completed=context.step)

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
        self._bar.update(
            self._task, description="training", completed=context.step, texts=texts
        )
        if (
            not self._console.is_terminal
            and now - self._last_line >= _SECONDS_BETWEEN_LINES
        ):
            self._last_line = now
            self._console.print("  ".join(texts), highlight=False, soft_wrap=True)

    def end(self, context: RunContext) -> None:
        """Show the number of steps, the time they took and the last loss."""
        seconds = self._clock() - self._started
        steps = context.step - self._first_step
        status = (
            f"trained {steps:,} steps in {seconds:.1f} s, last loss {self._loss} "
            f"(step {self._step(context.step)})"
        )
        self._bar.update(self._task, visible=False)
        status = wrapped(status, self._console)
        self._console.print(status, highlight=False, soft_wrap=True)

    def next_step(self, step: int) -> int:
        """Return the next multiple of `every`; the same steps after a resume."""
        return (step // self._every + 1) * self._every

    def _step(self, step: int) -> str:
        return (
            f"{step:,}" if self._max_steps is None else f"{step:,}/{self._max_steps:,}"
        )


class _FittingColumn(ProgressColumn):
    """Shows as much as fits into the terminal, the most important first.

    The terminal may be resized meanwhile, so its width is read each time.
    """

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def render(self, task: Task) -> Text:
        """Return one line: a bar if there is room, step, loss, speed, time left."""
        width = self._console.width - 3  # beside the spinner
        seconds = task.time_remaining
        left = "" if seconds is None else str(timedelta(seconds=int(seconds)))
        texts = [*task.fields["texts"], left] if left else task.fields["texts"]
        return Text(fitting_line(width, task.description, texts, task.percentage))


def fitting_line(width: int, name: str, texts: Sequence[str], percent: float) -> str:
    """Return a line of at most `width` characters.

    Args:
      width: The characters that fit.
      name: What is going on, shown in front if there is room.
      texts: What to show, the most important first; the last ones are left out first.
      percent: How long the bar is, of what the rest leaves.

    >>> fitting_line(24, "training", ["step 5/10", "loss 0.5", "0:01:00"], 50.0)
    'step 5/10  loss 0.5'
    >>> fitting_line(45, "training", ["step 5/10", "loss 0.5"], 50.0)
    'training ━━━━━━━━         step 5/10  loss 0.5'
    """
    shown = list(texts)
    while len(shown) > 1 and len("  ".join(shown)) > width:
        shown.pop()
    line = "  ".join(shown) or name
    if len(line) + len(name) + 1 <= width and shown:
        room = width - len(line) - len(name) - 2
        if room >= _SHORTEST_BAR:
            bar = "━" * round(room * percent / 100)
            return f"{name} {bar.ljust(room)} {line}"
        return f"{name} {line}"
    return line[: max(width, 0)]


_SHORTEST_BAR = 8
