"""A line about work in progress: redrawn on a terminal, else printed every 5 seconds.

    with ProgressLine(notes, total=1000) as line:
        line.show("training", 50, ["step 50/1,000", "loss 0.31"], time.monotonic())

Only light modules are imported here: `estimax run` shows a line while other processes
load jax.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from types import TracebackType

from rich.console import Console
from rich.progress import Progress, ProgressColumn, SpinnerColumn, Task
from rich.text import Text

_SECONDS_BETWEEN_LINES = 5.0  # without a terminal


class ProgressLine:
    """One line that shows how far some work is.

    Args:
      console: Where to print.
      total: The amount of work, or None if it is not known.
      description: What is going on at first.
      since: The time in seconds from which on the first line is waited for, without a
        terminal. None: the first line is printed at once.
      is_transient: Whether the line vanishes at the end, also after an error.
    """

    def __init__(
        self,
        console: Console,
        total: int | None,
        description: str = "starting",
        *,
        since: float | None = None,
        is_transient: bool = False,
    ) -> None:
        self._console = console
        self._last_line = -_SECONDS_BETWEEN_LINES if since is None else since
        self._bar = Progress(
            SpinnerColumn(),
            _FittingColumn(console),
            console=console,
            disable=not console.is_terminal,
            transient=is_transient,
        )
        self._task = self._bar.add_task(description, total=total, texts=[])

    def __enter__(self) -> ProgressLine:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def begin(self, description: str, completed: int) -> None:
        """Say what is going on before there is anything to show about it."""
        self._bar.update(self._task, description=description, completed=completed)

    def set_total(self, total: int | None) -> None:
        """Set the amount of work, once it is known."""
        self._bar.update(self._task, total=total)

    def show(
        self, description: str, completed: int, texts: Sequence[str], now: float
    ) -> None:
        """Show how far the work is.

        Args:
          description: What is going on.
          completed: How much of the total is complete.
          texts: What to show, the most important first.
          now: The time in seconds.
        """
        self._bar.update(
            self._task, description=description, completed=completed, texts=texts
        )
        is_due = now - self._last_line >= _SECONDS_BETWEEN_LINES
        if not self._console.is_terminal and is_due:
            self._last_line = now
            self._console.print("  ".join(texts), highlight=False, soft_wrap=True)

    def hide(self) -> None:
        """Remove the line from the terminal."""
        self._bar.update(self._task, visible=False)


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
