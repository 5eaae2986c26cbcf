"""Inner rows of ragged features: what the partition keys of every record say.

A partition speaks of one record; the result of all of them together. `counts` says how
many values, or rows of the level below, each record has, and each partition turns it
into how many rows of its own level there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.core.strings import Strings
from estimax.input.examples.errors import ExampleError, Names, name_of
from estimax.input.examples.specs import (
    Partition,
    RaggedFeature,
    RowLengths,
    RowLimits,
    RowSplits,
    RowStarts,
    UniformRowLength,
)
from estimax.input.streams.ragged import Ragged
from estimax.native.features import Values, Variable

_Ints = NDArray[np.int64]
# Of a batch. A row id is a number in a file: it must not ask for all memory.
_MOST_ROWS = 1 << 31


def ragged_of(
    feature: RaggedFeature,
    found: Variable,
    keys: Sequence[Variable | None],
    names: Names = None,
    where: str = "",
) -> Ragged:
    """The values of all records, cut by the partitions; `keys` holds their values."""
    values, counts = found.values, np.diff(found.splits)
    inner: list[_Ints] = []
    pairs = list(zip(feature.partitions, keys, strict=True))
    for partition, key in reversed(pairs):
        if isinstance(partition, UniformRowLength) and not inner:
            values, counts = _fold(values, counts, partition.length, names, where)
            continue
        lengths, rows = _row_lengths(partition, key, counts)
        _check(partition, lengths, rows, counts, names, where)
        inner.insert(0, _splits(lengths))
        counts = rows
    dtype = np.dtype(feature.row_splits_dtype)
    splits = (_splits(counts), *inner)
    return Ragged(values, tuple(s.astype(dtype, copy=False) for s in splits))


def _fold(
    values: Values, counts: _Ints, length: int, names: Names, where: str
) -> tuple[Values, _Ints]:
    """Make a uniform innermost row an axis of the values."""
    wrong = np.flatnonzero(counts % max(length, 1)) if length > 0 else np.arange(1)
    if len(wrong):
        row = int(wrong[0])
        raise ExampleError(
            f"{name_of(row, names)}: {where}{counts[row]} values cannot be cut into "
            f"rows of {length}.",
            row,
        )
    shape = (-1, length, *values.shape[1:])
    folded: Values = values.reshape(shape)
    return folded, counts // length


def _row_lengths(
    partition: Partition, key: Variable | None, counts: _Ints
) -> tuple[_Ints, _Ints]:
    """The lengths of all rows, and how many rows each record has."""
    if isinstance(partition, UniformRowLength):
        rows = counts // max(partition.length, 1)
        return np.full(int(rows.sum()), partition.length, np.int64), rows
    assert key is not None
    numbers, rows = _integers(key.values), np.diff(key.splits)
    record = np.repeat(np.arange(len(rows)), rows)
    is_first = np.ones(len(numbers), bool)
    is_first[1:] = record[1:] != record[:-1]
    if isinstance(partition, RowLengths):
        return numbers, rows
    if isinstance(partition, RowSplits):
        # From each number but a record's last to the next one.
        return np.diff(numbers)[~is_first[1:]], np.maximum(rows - 1, 0)
    if isinstance(partition, RowLimits):
        before = np.where(is_first, 0, np.roll(numbers, 1))
        return numbers - before, rows
    is_last = np.roll(is_first, -1)
    if isinstance(partition, RowStarts):
        after = np.where(is_last, counts[record], np.roll(numbers, -1))
        return after - numbers, rows
    return _lengths_from_ids(numbers, record, is_first, is_last, rows)


def _lengths_from_ids(
    numbers: _Ints,
    record: _Ints,
    is_first: NDArray[np.bool_],
    is_last: NDArray[np.bool_],
    rows: _Ints,
) -> tuple[_Ints, _Ints]:
    """Row lengths from every value's row; rows that none names are empty."""
    before = np.where(is_first, 0, np.roll(numbers, 1))
    if np.any(numbers < before):
        return -(numbers < before).astype(np.int64), rows  # negative where it descends
    found = np.zeros(len(rows), np.int64)
    found[record[is_last]] = numbers[is_last] + 1
    if found.sum() > _MOST_ROWS:
        return np.full(len(numbers), -1, np.int64), rows
    place = numbers + (np.cumsum(found) - found)[record]
    return np.bincount(place, minlength=int(found.sum())), found


def _check(
    partition: Partition,
    lengths: _Ints,
    rows: _Ints,
    counts: _Ints,
    names: Names,
    where: str,
) -> None:
    """Rows must have a length, and together all values of their record."""
    negative = np.flatnonzero(lengths < 0)
    if len(negative):
        row = (
            int(np.searchsorted(_splits(np.maximum(rows, 0)), negative[0], "right")) - 1
        )
        raise ExampleError(
            f"{name_of(row, names)}: {where}{partition} must ascend, and holds no "
            "negative numbers.",
            row,
        )
    totals = np.diff(_splits(lengths)[_splits(rows)])
    wrong = np.flatnonzero(totals != counts)
    if len(wrong):
        row = int(wrong[0])
        raise ExampleError(
            f"{name_of(row, names)}: {where}{partition} makes rows of {totals[row]} "
            f"values together, but there are {counts[row]}.",
            row,
        )


def _integers(values: Values) -> _Ints:
    assert not isinstance(values, Strings)
    return values


def _splits(lengths: NDArray[Any]) -> _Ints:
    splits = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=splits[1:])
    return splits
