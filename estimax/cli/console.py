"""Output of the commands: results to standard output, all else to standard error.

    with output(quiet=False, as_json=True):
        emit("step", step=100, loss=0.31)     # {"event": "step", "step": 100, …}

With `--json`, standard output has nothing but events, one line of JSON each; remarks
for people are left out, and errors go to standard error as always. With `--quiet`, only
results and errors are printed.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import os
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

# Names and values come from files, so "[/b]" in them is text and not markup of rich.
_PLAIN: dict[str, Any] = {"highlight": False, "markup": False, "emoji": False}
_EQUALS = "\xa0=\xa0"  # lines do not break at these spaces
results = Console(**_PLAIN)
notes = Console(stderr=True, **_PLAIN)


def print_error(message: str) -> None:
    """Print an error in red, without wrapping lines: editors parse file positions.

    It is printed with --quiet as well.
    """
    console = Console(stderr=True, **_PLAIN)
    # A path may contain bytes that are not UTF-8, which cannot be printed.
    text = message.encode(errors="backslashreplace").decode()
    first, _, rest = text.partition("\n")
    console.print(Text(first, style="bold red"), soft_wrap=True)
    if rest:
        console.print(Text(rest, style="red"), soft_wrap=True)


def note(text: str, style: str = "") -> None:
    """Print a remark to standard error."""
    notes.print(Text(text, style=style), soft_wrap=True)


def say(text: str) -> None:
    """Print a line of the result without wrapping it, so that paths can be copied."""
    results.print(Text(text), soft_wrap=True)


def metrics_table(
    metrics: Mapping[str, object],
    title: str,
    baseline: Mapping[str, float] | None = None,
    others: Mapping[str, Mapping[str, float]] | None = None,
) -> Table:
    """Return a table of metrics, sorted by name.

    `baseline` has the metrics of a constant answer, for a column of their own, and
    `others` those of other models by name.
    """
    beside = {"baseline": baseline} if baseline else {}
    beside |= others or {}
    table = Table(title=title, title_justify="left")
    table.add_column("metric", overflow="fold")
    table.add_column("value", justify="right", overflow="fold")
    for column in beside:
        table.add_column(column, justify="right", overflow="fold")
    for name, value in sorted(metrics.items()):
        cells = [number(m[name]) if name in m else "" for m in beside.values()]
        table.add_row(name, number(value), *cells)
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


_LOG_WIDTH = 159  # of lines in files and pipes


def wrap_lines(text: str, console: Console, width_of_files: int | None = None) -> str:
    """Return a text in lines that fit the terminal.

    Lines break between words only, so that a path can be copied, and later lines are
    indented. Without a terminal the lines have at most `width_of_files` characters;
    None leaves them as they are.
    """
    width = console.width if console.is_terminal else width_of_files
    if width is None:
        return text
    lines = [
        textwrap.fill(
            line.replace(" = ", _EQUALS),
            width,
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for line in text.splitlines()
    ]
    return "\n".join(lines).replace(_EQUALS, " = ")


def _is_in_progress(record: logging.LogRecord) -> bool:
    """Return whether the progress display shows what a record says: losses, the end."""
    return record.module == "progress" or record.funcName == "log_training"


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
        self.addFilter(lambda record: not _is_in_progress(record))

    def emit(self, record: logging.LogRecord) -> None:
        style = "yellow" if record.levelno >= logging.WARNING else "dim"
        text = wrap_lines(record.getMessage(), self._console, _LOG_WIDTH)
        self._console.print(Text(text, style=style), soft_wrap=True)


_enabled = False


@contextmanager
def output(*, quiet: bool, as_json: bool) -> Iterator[None]:
    """Print only what the options ask for, within the block."""
    global _enabled
    before = _enabled, notes.quiet
    _enabled, notes.quiet = as_json, quiet or as_json
    try:
        yield
    finally:
        _enabled, notes.quiet = before


def emit(event: str, **values: Any) -> None:
    """Print an event as one line of JSON, if the command was started with --json."""
    if _enabled:
        print(json.dumps({"event": event, **_plain(values)}), flush=True)


def _plain(value: Any) -> Any:
    """Return a value as JSON has it; numbers that JSON lacks become null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):  # arrays and scalars of NumPy
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return os.fspath(value) if isinstance(value, os.PathLike) else value


class EvaluationEvents:
    """An exporter that exports nothing, and emits the metrics of each evaluation."""

    name = "events/of/json"  # no name of an export has a slash

    def export(
        self,
        estimator: object,
        export_path: str,
        checkpoint_path: str,
        eval_result: Mapping[str, Any],
        is_the_final_export: bool,
    ) -> None:
        """Emit the event `evaluation`."""
        metrics = {k: v for k, v in eval_result.items() if k != "global_step"}
        emit("evaluation", step=eval_result["global_step"], metrics=metrics)


def with_exporter(spec: Any, exporter: object) -> Any:
    """Return an `EvalSpec`, or several, with one more exporter for the first."""
    first, *others = spec if isinstance(spec, list) else [spec]
    exporters = [*first.every_exporter, exporter]
    first = dataclasses.replace(first, exporters=exporters)
    return [first, *others] if others else first
