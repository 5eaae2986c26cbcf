"""Columns: the arrays, strings, sparse and ragged values that rows are made of.

    city = as_column(["Oslo", "Rome", "Lima"])     # Strings
    take_rows(city, np.array([2, 0]))              # Lima, Oslo
    join([city, city])                             # six rows

Every function works on all rows at once. The speed of a dataset depends on these
functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.core import strings
from estimax.core.errors import InputError
from estimax.core.raw_values import as_raw, is_plain
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.input.streams.ragged import Ragged
from estimax.native import string_arrays

# Fewer strings are gathered with NumPy, because importing Numba takes half a second.
_MANY = 4096

DataColumn = NDArray[Any] | Strings | Sparse | Ragged


def as_column(value: Any, name: str = "") -> DataColumn:  # Any: an array-like
    """Turn an array-like into a column: numbers as NumPy, text as `Strings`.

    See `core.raw_values` for the accepted types. Error messages begin with `name`.
    """
    return value if isinstance(value, Ragged) else as_raw(value, name)


def as_value(value: Any, name: str = "") -> Any:  # a column, or bytes
    """Turn a part of an element into a column; a single text becomes `bytes`.

    So a function or loop of a user sees the same type, whatever the element came
    through.
    """
    column = as_column(value, name)
    if isinstance(column, Strings) and not column.shape:
        return column.tolist()[0]
    return column


def is_value(value: Any) -> bool:
    """Return whether `as_value` would return this value unchanged."""
    # Called for every column of every batch, so the common types come first.
    if type(value) is Strings:
        return bool(value.shape)
    if is_plain(value) or type(value) is bytes:
        return True
    return isinstance(value, Sparse) and is_value(value.values)


def row_count(column: DataColumn, name: str = "") -> int:
    """Return the number of rows of a column; raise `InputError` for a scalar."""
    is_text = isinstance(column, bytes)  # of `as_value`
    if is_text or (isinstance(column, np.ndarray | Strings) and not column.shape):
        raise InputError(
            f"{_at(name)}a scalar has no rows; expected an array with at least one "
            "dimension, the first being the rows."
        )
    return len(column)


def slice_rows(column: DataColumn, start: int, stop: int, step: int = 1) -> DataColumn:
    """Return rows start, start + step, … below stop, as a view if possible."""
    # The types of most columns come first.
    if step == 1 and isinstance(column, np.ndarray):
        return column[start:stop]
    if step == 1 and isinstance(column, Strings) and len(column.shape) == 1:
        return column.rows(start, stop)
    if isinstance(column, Sparse) and step == 1:
        return column.rows(start, stop)
    if isinstance(column, Ragged | Sparse):
        return take_rows(column, np.arange(start, stop, step))
    cut: DataColumn = column[start:stop] if step == 1 else column[start:stop:step]
    return cut


def take_rows(column: DataColumn, index: NDArray[np.int64]) -> DataColumn:
    """Return the rows at `index`, in that order."""
    if isinstance(column, Strings) and len(index) >= _MANY and column.ndim == 1:
        return string_arrays.gather(column, index)
    if isinstance(column, Ragged):
        return _take_ragged(column, index)
    if not isinstance(column, Sparse):
        rows: DataColumn = column[index]
        return rows
    first = column.starts[index]
    lengths = column.starts[index + 1] - first
    starts = np.concatenate([[0], np.cumsum(lengths)])
    # Entry k of the result, in row r, comes from first[r] + (k - starts[r]): all rows
    # are expanded at once by repeating first[r] - starts[r] for each entry of r.
    entries = np.repeat(first - starts[:-1], lengths) + np.arange(starts[-1])
    if column.is_lists:
        values = column.values[entries]
        return Sparse.of_lists(values, starts, column.dense_shape[1])
    indices = column.indices[entries]
    indices[:, 0] = np.repeat(np.arange(len(index)), lengths)
    shape = (len(index), *column.dense_shape[1:])
    return Sparse(indices, column.values[entries], shape)


def _take_ragged(column: Ragged, index: NDArray[np.int64]) -> Ragged:
    """Take rows level by level: items of one level are the rows to take of the next."""
    taken = []
    for splits in column.row_splits:
        starts = splits[index].astype(np.int64)
        ends = np.cumsum(splits[index + 1] - starts)
        lengths = np.diff(ends, prepend=0)
        taken.append(np.concatenate([[0], ends]).astype(splits.dtype))
        index = np.repeat(starts - (ends - lengths), lengths) + np.arange(lengths.sum())
    values = take_rows(column.values, index)
    assert not isinstance(values, Sparse | Ragged)
    return Ragged(values, tuple(taken))


def join(parts: Sequence[DataColumn]) -> DataColumn:
    """Concatenate columns along the rows."""
    if len(parts) == 1:
        return parts[0]
    if all(isinstance(part, Strings) for part in parts):
        return strings.concatenate(part for part in parts if isinstance(part, Strings))
    if all(isinstance(part, Sparse) for part in parts):
        return _join_sparse([part for part in parts if isinstance(part, Sparse)])
    if all(isinstance(part, Ragged) for part in parts):
        return _join_ragged([part for part in parts if isinstance(part, Ragged)])
    return np.concatenate([_as_array(part) for part in parts])


def row_of(column: DataColumn, i: int) -> Any:  # a scalar, bytes, or a column
    """Return one row, without the row dimension."""
    if isinstance(column, Sparse):
        one = slice_rows(column, i, i + 1)
        assert isinstance(one, Sparse)
        return Sparse(one.indices[:, 1:], one.values, one.dense_shape[1:])
    if isinstance(column, Ragged):
        row = _take_ragged(column, np.array([i]))
        inner = row.row_splits[1:]
        return Ragged(row.values, inner) if inner else row.values
    return column[i]


def stack(rows: Sequence[Any]) -> DataColumn:
    """Stack single values into a column: the opposite of `row_of`."""
    first = rows[0]
    if isinstance(first, Sparse):
        return _stack_sparse(rows)
    if isinstance(first, Ragged):
        lengths = np.cumsum([0] + [len(row) for row in rows])
        joined = _join_ragged(rows)
        outer = lengths.astype(first.row_splits[0].dtype)
        return Ragged(joined.values, (outer, *joined.row_splits))
    if isinstance(first, Strings):
        return strings.concatenate(row.reshape((1, *row.shape)) for row in rows)
    if any(isinstance(row, str | bytes) for row in rows):
        # Through an object array: np.array would convert numbers among them to text.
        objects = np.empty(len(rows), object)
        objects[:] = rows
        return as_column(objects)
    arrays = [_as_array(row) for row in rows]
    shapes = {array.shape for array in arrays}
    if len(shapes) > 1:
        raise InputError(
            f"cannot batch values of different shapes {sorted(shapes)}; use "
            "padded_batch(), or make them sparse before batch()."
        )
    return as_column(np.stack(arrays))


def _join_sparse(parts: Sequence[Sparse]) -> Sparse:
    values = join([part.values for part in parts])
    assert not isinstance(values, Sparse | Ragged)
    sizes = [len(part.values) for part in parts]
    if all(part.is_lists for part in parts):
        ends = np.cumsum(sizes) - sizes
        starts = [p.starts[1:] + end for p, end in zip(parts, ends, strict=True)]
        longest = max(part.dense_shape[1] for part in parts)
        return Sparse.of_lists(values, np.concatenate([[0], *starts]), longest)
    rows = np.cumsum([0] + [len(part) for part in parts])
    indices = np.concatenate([part.indices for part in parts])
    indices[:, 0] += np.repeat(rows[:-1], sizes)
    widths = np.max([part.dense_shape[1:] for part in parts], axis=0)
    return Sparse(indices, values, (int(rows[-1]), *(int(n) for n in widths)))


def _join_ragged(parts: Sequence[Ragged]) -> Ragged:
    depths = {part.ragged_rank for part in parts}
    if len(depths) > 1:
        raise InputError(f"cannot join ragged rows of different depths {depths}.")
    levels = []
    for level in zip(*(part.row_splits for part in parts), strict=True):
        lengths = np.concatenate([np.diff(splits) for splits in level])
        ends = np.concatenate([[0], np.cumsum(lengths)])
        levels.append(ends.astype(level[0].dtype))
    values = join([part.values for part in parts])
    assert not isinstance(values, Sparse | Ragged)
    return Ragged(values, tuple(levels))


def _stack_sparse(rows: Sequence[Sparse]) -> Sparse:
    first = np.repeat(np.arange(len(rows)), [len(row.indices) for row in rows])
    inner = np.concatenate([row.indices for row in rows])
    values = join([row.values for row in rows])
    assert not isinstance(values, Sparse | Ragged)
    widths = np.max([row.dense_shape for row in rows], axis=0).tolist()
    return Sparse(np.column_stack([first, inner]), values, (len(rows), *widths))


def _as_array(part: Any) -> NDArray[Any]:
    if isinstance(part, np.ma.MaskedArray):
        part = as_column(part)  # raises if a value is missing
    if isinstance(part, Strings | Sparse | Ragged):
        raise InputError(f"cannot join numbers with a {type(part).__name__} column.")
    return np.asarray(part)


def _at(name: str) -> str:
    return f"{name}: " if name else ""
