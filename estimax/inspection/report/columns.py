"""The columns of the data: a summary of each, and slices of the rows by value."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.inspection.report.tasks import as_text

Array = NDArray[Any]

_MOST_VALUES = 8  # values of a column that are named; others share a slice
_FEW = 20  # distinct whole numbers that are taken as categories


@dataclass(frozen=True)
class ColumnSummary:
    """What a column contains.

    Attributes:
      name: The name of the column.
      kind: "text", "number", "list" or "array".
      missing: The share of rows without a value.
      distinct: The number of distinct values; None if they are not counted.
      values: Range and mean of numbers, or the most frequent values.
    """

    name: str
    kind: str
    missing: float
    distinct: int | None
    values: str


def summaries(features: Mapping[str, Any]) -> list[ColumnSummary]:
    """Return a summary of every column, sorted by name."""
    return [summary_of(name, features[name]) for name in sorted(features)]


def as_markdown(features: Mapping[str, Any]) -> str:
    """Return the summaries of all columns as a table of Markdown."""
    lines = ["| column | kind | missing | values |", "|---|---|---|---|"]
    for s in summaries(features):
        values = s.values.replace("|", "\\|")
        lines.append(f"| {s.name} | {s.kind} | {s.missing:.1%} | {values} |")
    return "\n".join(lines)


def summary_of(name: str, column: Any) -> ColumnSummary:
    """Return a summary of one column.

    >>> summary_of("age", np.array([1.0, 3.0, np.nan, 2.0])).values
    '1 to 3, mean 2'
    >>> summary_of("city", np.array(["a", "b", "a"])).values
    'a (67%), b (33%)'
    """
    if isinstance(column, Sparse):
        lengths = np.diff(column.starts)
        share = float(np.mean(lengths == 0))
        each = f"{lengths.mean():.3g} values a row, at most {lengths.max()}"
        return ColumnSummary(name, "list", share, None, each)
    values = flat(column)
    if values is None:
        shape = list(np.shape(column)[1:])
        return ColumnSummary(name, "array", 0.0, None, f"shape {shape}")
    if values.dtype.kind in "fiub":
        numbers = values.astype(np.float64)
        there = numbers[np.isfinite(numbers)]
        missing = 1 - len(there) / max(len(numbers), 1)
        spread = "no values"
        if len(there):
            low, high, middle = there.min(), there.max(), there.mean()
            spread = f"{low:.4g} to {high:.4g}, mean {middle:.4g}"
        return ColumnSummary(name, "number", missing, len(np.unique(there)), spread)
    words, counts = np.unique(values, return_counts=True)
    empty = counts[words == ""].sum() / max(len(values), 1)
    top = np.argsort(-counts, kind="stable")[:4]
    listed = ", ".join(
        f"{_short(words[i]) or '(empty)'} ({counts[i] / len(values):.0%})" for i in top
    )
    more = f", and {len(words) - 4:,} more" if len(words) > 4 else ""
    return ColumnSummary(name, "text", float(empty), len(words), listed + more)


def flat(column: Any) -> Array | None:
    """Return a column of one value a row as an array [N]; None for any other."""
    if isinstance(column, Sparse):
        return None
    array = (
        np.array([as_text(v) for v in _each(column.tolist())])
        if isinstance(column, Strings)
        else np.asarray(column)
    )
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        return None
    if array.dtype.kind not in "fiubU":
        array = np.array([as_text(value) for value in array.tolist()])
    return array


def _each(rows: list[Any]) -> Iterator[Any]:
    for row in rows:
        yield row[0] if isinstance(row, list) and len(row) == 1 else row


def slices(name: str, column: Any) -> Iterator[tuple[str, Array]]:
    """Yield the name and the rows, [N] booleans, of each slice by a column.

    Text and few whole numbers are sliced by value, other numbers by quartile.

    >>> [(s, r.tolist()) for s, r in slices("city", np.array(["a", "b", "a"]))]
    [('city = a', [True, False, True]), ('city = b', [False, True, False])]
    """
    values = flat(column)
    if values is None:
        return
    if values.dtype.kind in "fiub":
        numbers = values.astype(np.float64)
        there = np.isfinite(numbers)
        distinct = np.unique(numbers[there])
        if len(distinct) > _FEW:
            yield from _quartiles(name, numbers, there)
        else:
            for value in distinct:
                yield f"{name} = {value:.6g}", numbers == value
        if not there.all():
            yield f"{name} is missing", ~there
        return
    words, counts = np.unique(values, return_counts=True)
    top = words[np.argsort(-counts, kind="stable")[:_MOST_VALUES]]
    for word in top:
        yield f"{name} = {_short(word) or '(empty)'}", values == word
    if len(words) > _MOST_VALUES:
        rest = ~np.isin(values, top)
        yield f"{name}: {len(words) - _MOST_VALUES:,} other values", rest


def _quartiles(name: str, numbers: Array, there: Array) -> Iterator[tuple[str, Array]]:
    edges = np.unique(np.quantile(numbers[there], [0, 0.25, 0.5, 0.75, 1]))
    for low, high in itertools.pairwise(edges):
        is_last = high == edges[-1]
        inside = (numbers >= low) & ((numbers <= high) if is_last else (numbers < high))
        yield f"{name} {low:.4g} to {high:.4g}", there & inside


def cell(column: Any, row: int) -> str:
    """Return the value of a column in one row, as short text."""
    if isinstance(column, Sparse):
        first, last = column.starts[row], column.starts[row + 1]
        return _short(as_text(column.values[first:last].tolist()))
    value = column[row : row + 1].tolist()[0]
    return "" if value != value else _short(as_text(value))  # NaN differs from itself


def _short(text: Any, most: int = 40) -> str:
    whole = str(text)
    return whole if len(whole) <= most else f"{whole[: most - 1]}…"
