"""Output of the commands: results to standard output, all else to standard error."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from estimax.core.errors import EstimaxError

# Names and values come from files, so "[/b]" in them is text and not markup of rich.
_PLAIN: dict[str, Any] = {"highlight": False, "markup": False, "emoji": False}
results = Console(**_PLAIN)
notes = Console(stderr=True, **_PLAIN)


def print_error(error: EstimaxError) -> None:
    """Print an error in red, without wrapping lines: editors parse file positions."""
    # A path may contain bytes that are not UTF-8, which cannot be printed.
    text = str(error).encode(errors="backslashreplace").decode()
    first, _, rest = text.partition("\n")
    notes.print(Text(first, style="bold red"), soft_wrap=True)
    if rest:
        notes.print(Text(rest, style="red"), soft_wrap=True)


def note(text: str, style: str = "") -> None:
    """Print a remark to standard error."""
    notes.print(Text(text, style=style), soft_wrap=True)


def say(text: str) -> None:
    """Print a line of the result without wrapping it, so that paths can be copied."""
    results.print(Text(text), soft_wrap=True)


def metrics_table(metrics: Mapping[str, object], title: str) -> Table:
    """Return a table of metrics, sorted by name."""
    table = Table(title=title, title_justify="left")
    table.add_column("metric")
    table.add_column("value", justify="right")
    for name, value in sorted(metrics.items()):
        table.add_row(name, number(value))
    return table


def number(value: object) -> str:
    """Return the value of a metric with up to six digits.

    >>> number(0.123456789), number(1000)
    ('0.123457', '1,000')
    """
    try:
        as_float = float(value)  # type: ignore[arg-type]  # also NumPy's scalars
    except (TypeError, ValueError):
        return str(value)
    whole = as_float.is_integer() and abs(as_float) >= 1
    return f"{int(as_float):,}" if whole else f"{as_float:.6g}"


def size(count: float) -> str:
    """Return a number of bytes with a unit.

    >>> size(2_500_000)
    '2.5 MB'
    """
    for unit in ("bytes", "kB", "MB"):
        if abs(count) < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"


def log_to(console: Console) -> None:
    """Send the log messages of estimax to a console."""
    logger = logging.getLogger("estimax")
    logger.handlers = [_ConsoleHandler(console)]
    logger.setLevel(logging.INFO)
    logger.propagate = False


class _ConsoleHandler(logging.Handler):
    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        # The progress display shows steps and losses already.
        self.addFilter(lambda record: record.module != "progress")

    def emit(self, record: logging.LogRecord) -> None:
        style = "yellow" if record.levelno >= logging.WARNING else "dim"
        self._console.print(Text(record.getMessage(), style=style), soft_wrap=True)
