"""Sources in memory: arrays, ranges, and tables that can be sliced.

    slices_of({"x": x, "city": city})    # Dataset.from_tensor_slices
    Range(range(100))                    # Dataset.range
    Table(table)                         # Dataset.from_table

Reading arrays returns views, so an epoch over memory copies only what a shuffle takes.
A position is the number of the next row.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from estimax.core.errors import InputError
from estimax.core.raw_values import frame_columns
from estimax.core.sparse import Sparse
from estimax.input.streams.chunks import Chunk, Columns, columns_of
from estimax.input.streams.columns import Ragged, as_column
from estimax.input.streams.stream import Context, State, check_same
from estimax.input.streams.structure import Structure, map_leaves

# The least number of rows of a table that are converted at once.
_ROWS_AT_ONCE = 4096


@dataclass(frozen=True, eq=False)
class Slices:
    """The rows of arrays; `paths` are set if the rows are paths of files."""

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
    """The numbers of a builtin range as int64, computed when they are read."""

    numbers: range
    endless: bool = False  # so many numbers that no one reads them all
    name = "range"
    source = None
    columnar = True

    def open(self, context: Context) -> RangeStream:
        """Start at the first number."""
        return RangeStream(self.numbers)


@dataclass(frozen=True, eq=False)
class Table:
    """The rows of a table with `len()` and slices, such as a Hugging Face dataset."""

    table: Any
    name = "from_table"
    source = None
    columnar = True

    def __post_init__(self) -> None:
        if not hasattr(self.table, "__len__") or not hasattr(self.table, "__getitem__"):
            raise InputError(
                "from_table: expected a table with len() and slices of rows, got "
                f"{type(self.table).__name__}. Pass an iterable of batches to "
                "Dataset.from_batches, of examples to Dataset.from_generator."
            )

    def open(self, context: Context) -> TableStream:
        """Start at the first row."""
        return TableStream(self.table)


def slices_of(tree: Structure) -> Slices:
    """Return a source of the rows of arrays, dicts, tuples or pandas frames."""
    block = columns_of(lists_to_columns(tree))
    # Read-only, so that a map function cannot write into the arrays of the caller.
    return Slices(Columns(map_leaves(_read_only, block.tree), block.rows))


def slices_of_paths(paths: Sequence[str]) -> Slices:
    """Return a source of the paths of files as text, one element for each."""
    text = np.array([os.fsencode(path) for path in paths], object)
    return replace(slices_of(text), paths=tuple(paths))


def lists_to_columns(tree: Structure) -> Structure:
    """Convert lists to columns: users pass them as arrays, not as structure."""
    return map_leaves(_list_to_column, tree)


def _list_to_column(leaf: Any) -> Any:
    return as_column(leaf) if isinstance(leaf, list) else leaf


def _read_only(column: Any) -> Any:
    if isinstance(column, np.ndarray):
        column = column.view()
        column.flags.writeable = False
    return column


class _RowStream:
    """A stream over sized rows whose position is the number of the next row."""

    _what = "the number of rows in memory"  # in the message about a changed number

    def __init__(self, rows: Sized) -> None:
        self._rows = rows
        self._row = 0

    def get_state(self) -> State:
        """Return the number of the next row, and the number of rows to compare."""
        return {"row": self._row, "rows": len(self._rows)}

    def set_state(self, state: State) -> None:
        """Go to a row; raise `InputError` if the number of rows has changed."""
        check_same(self._what, state["rows"], len(self._rows))
        self._row = int(state["row"])

    def close(self) -> None:
        """Release nothing: the rows belong to the source."""


class SlicesStream(_RowStream):
    """Reads the rows of arrays as views."""

    def __init__(self, block: Columns) -> None:
        super().__init__(block)
        self._block = block

    def read(self, n: int) -> Chunk | None:
        """Return up to n rows as views; None at the end."""
        if self._row >= len(self._block):
            return None
        start, self._row = self._row, min(self._row + n, len(self._block))
        return self._block.slice(start, self._row)


class RangeStream(_RowStream):
    """Reads the numbers of a range."""

    def __init__(self, numbers: range) -> None:
        super().__init__(numbers)
        self._numbers = numbers

    def read(self, n: int) -> Chunk | None:
        """Return up to n numbers; None at the end."""
        part = self._numbers[self._row : self._row + n]
        self._row += len(part)
        if not part:
            return None
        values = np.arange(part.start, part.stop, part.step, dtype=np.int64)
        return Columns(values, len(part))


class TableStream(_RowStream):
    """Reads a table in blocks of rows, and keeps the present block."""

    _what = "the number of rows of the table"

    def __init__(self, table: Any) -> None:
        super().__init__(table)
        self._table = table
        self._first = 0  # the row at which the block begins
        self._block: Columns | None = None

    def read(self, n: int) -> Chunk | None:
        """Return up to n rows of the block, or of the next one; None at the end."""
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

    def set_state(self, state: State) -> None:
        """Go to a row; the block is read again."""
        super().set_state(state)
        self._block = None

    def close(self) -> None:
        """Release the block."""
        self._block = None


def rows_of(block: Any) -> Columns:
    """Return a slice of a table as columns; lists of several lengths become sparse.

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
