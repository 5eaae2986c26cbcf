"""The in-memory source: rows of arrays that are already there.

    Slices(columns_of({"x": x, "city": city}))    # Dataset.from_tensor_slices

Reading gives views, so an epoch over memory copies nothing but what a shuffle gathers.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from estimax.core.errors import InputError
from estimax.core.raw_values import frame_columns
from estimax.core.sparse import Sparse
from estimax.input.streams.chunks import Chunk, Columns, columns_of
from estimax.input.streams.columns import as_column
from estimax.input.streams.ragged import Ragged
from estimax.input.streams.stream import Context, State, check_same
from estimax.input.streams.structure import Structure, map_leaves


@dataclass(frozen=True, eq=False)
class Slices:
    """Dim 0 of every array is cut into elements; `paths` are given if it is files."""

    block: Columns
    paths: tuple[str, ...] | None = None
    name = "from_tensor_slices"
    source = None
    columnar = True

    def open(self, context: Context) -> SlicesStream:
        """Start at the first row."""
        return SlicesStream(self.block)


@dataclass(frozen=True, eq=False)
class Range:
    """Numbers of a builtin range, as int64, made when they are read."""

    numbers: range
    name = "range"
    source = None
    columnar = True

    def open(self, context: Context) -> RangeStream:
        """Start at the first number."""
        return RangeStream(self.numbers)


class RangeStream:
    """How many numbers are read."""

    def __init__(self, numbers: range) -> None:
        self._numbers = numbers
        self._at = 0

    def read(self, n: int) -> Chunk | None:
        """The next numbers."""
        part = self._numbers[self._at : self._at + n]
        self._at += len(part)
        if not part:
            return None
        values = np.arange(part.start, part.stop, part.step, dtype=np.int64)
        return Columns(values, len(part))

    def get_state(self) -> State:
        """How many are read."""
        return {"row": self._at, "rows": len(self._numbers)}

    def set_state(self, state: State) -> None:
        """Jump there."""
        check_same("the number of rows in memory", state["rows"], len(self._numbers))
        self._at = int(state["row"])

    def close(self) -> None:
        """Nothing is held."""


def slices_of(tree: Structure) -> Slices:
    """Check and convert arrays, dicts, tuples or pandas frames to a source."""
    block = columns_of(lists_to_columns(tree))
    # A map function that writes into its batch must not reach the caller's arrays.
    return Slices(Columns(map_leaves(_read_only, block.tree), block.rows))


def slices_of_paths(paths: Sequence[str]) -> Slices:
    """Return paths of files as a source of text, one element for each."""
    text = np.array([os.fsencode(path) for path in paths], object)
    return replace(slices_of(text), paths=tuple(paths))


def lists_to_columns(tree: Structure) -> Structure:
    """Replace lists by columns: in what a user gives, they are arrays and no tuples."""
    return map_leaves(_plain, tree)


def _plain(leaf: Any) -> Any:
    return as_column(leaf) if isinstance(leaf, list) else leaf


def _read_only(column: Any) -> Any:
    if isinstance(column, np.ndarray):
        column = column.view()
        column.flags.writeable = False
    return column


class SlicesStream:
    """A cursor over rows in memory."""

    def __init__(self, block: Columns) -> None:
        self._block = block
        self._row = 0

    def read(self, n: int) -> Chunk | None:
        """The next rows, as views."""
        if self._row >= len(self._block):
            return None
        start, self._row = self._row, min(self._row + n, len(self._block))
        return self._block.slice(start, self._row)

    def get_state(self) -> State:
        """The number of the next row."""
        return {"row": self._row, "rows": len(self._block)}

    def set_state(self, state: State) -> None:
        """Jump to a row."""
        check_same("the number of rows in memory", state["rows"], len(self._block))
        self._row = int(state["row"])

    def close(self) -> None:
        """Nothing is held."""


_ROWS_AT_ONCE = 4096


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of something that can be sliced."""

    table: Any
    name = "from_table"
    source = None
    columnar = True

    def __post_init__(self) -> None:
        if not hasattr(self.table, "__len__") or not hasattr(self.table, "__getitem__"):
            raise InputError(
                "from_table needs a table with len() and slices of rows, got "
                f"{type(self.table).__name__}. Pass an iterable of batches to "
                "Dataset.from_batches, of examples to Dataset.from_generator."
            )

    def open(self, context: Context) -> TableStream:
        """Start at the first row."""
        return TableStream(self.table)


class TableStream:
    """A block of rows in memory, and where it begins."""

    def __init__(self, table: Any) -> None:
        self._table = table
        self._row = 0
        self._first = 0
        self._block: Columns | None = None

    def read(self, n: int) -> Chunk | None:
        """Rows of the block, or of the next one."""
        if self._row >= len(self._table):
            return None
        if self._block is None or self._row >= self._first + len(self._block):
            stop = min(self._row + max(n, _ROWS_AT_ONCE), len(self._table))
            self._first = self._row
            self._block = rows_of(self._table[self._row : stop])
        start = self._row - self._first
        out = self._block.slice(start, start + n)
        self._row += len(out)
        return out

    def get_state(self) -> State:
        """The number of the next row."""
        return {"row": self._row, "rows": len(self._table)}

    def set_state(self, state: State) -> None:
        """Jump to a row."""
        check_same("the number of rows of the table", state["rows"], len(self._table))
        self._row, self._block = int(state["row"]), None

    def close(self) -> None:
        """Let go of the block."""
        self._block = None


def rows_of(block: Any) -> Columns:
    """A slice of a table as columns; lists of different lengths become sparse.

    >>> rows_of({"x": [1, 2], "tags": [["a"], []]}).tree["tags"].dense_shape
    (2, 1)
    """
    if frame_columns(block) is not None:
        return columns_of(block)
    if not isinstance(block, Mapping):
        raise InputError(
            "from_table: a slice of the table must be a dict of columns, got "
            f"{type(block).__name__}."
        )
    return columns_of({name: _column(values) for name, values in block.items()})


def _column(values: Any) -> Structure:
    if not isinstance(values, list) or not values or not _is_list(values[0]):
        return as_column(values)
    lengths = np.array([len(row) for row in values], np.int64)
    if (lengths == lengths[0]).all() and lengths[0]:
        return as_column(np.array(values)) if not _is_text(values) else _text(values)
    flat = [value for row in values for value in row]
    column = as_column(flat)
    assert not isinstance(column, Sparse | Ragged)
    return Sparse.of_lists(column, np.concatenate([[0], np.cumsum(lengths)]))


def _is_list(value: Any) -> bool:
    return isinstance(value, list | np.ndarray)


def _is_text(values: list[Any]) -> bool:
    return isinstance(values[0][0], str | bytes)


def _text(values: list[Any]) -> Structure:
    return as_column(np.array(values, object))
