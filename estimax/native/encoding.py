"""Encode columns as Example messages, a batch at a time.

age = EncodedColumn("age", np.array([31.0, 40.0]), splits=np.array([0, 1, 2]))
records = encode_examples([age])          # Strings [2]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import InputError
from estimax.core.strings import Strings, concatenate
from estimax.native import loading
from estimax.native.example_types import FLOAT, INT, TEXT, FeatureValues
from estimax.native.reference import examples as reference
from estimax.native.reference.examples import Lists
from estimax.native.string_arrays import check_spans, text_of

_EMPTY = {FLOAT: np.empty(0, np.float32), INT: np.empty(0, np.int64)}


@dataclass(frozen=True, eq=False)
class EncodedColumn:
    """A feature of all rows: row r has `values[splits[r]:splits[r + 1]]`.

    Floats are written as float32, integers and bools as int64. The example of a row
    without values does not have the feature.

    Args:
      key: The key of the feature.
      values: The values of all rows, flat `Strings` or a flat array.
      splits: Where the values of each row begin, and where the last end: [rows + 1].
    """

    key: str
    values: FeatureValues
    splits: NDArray[np.int64]


def encode_examples(columns: Sequence[EncodedColumn]) -> Strings:
    """Return an Example for every row, with features in the order given.

    Raises:
      InputError: Columns have different numbers of rows, a dtype that no Example has,
        or splits or offsets that do not increase within their values.
    """
    if not columns:
        raise InputError("expected at least one column to encode, found none.")
    lists = [_validate_column(column) for column in columns]
    rows = {column.key: len(column.splits) - 1 for column in columns}
    if len(set(rows.values())) > 1:
        shown = ", ".join(f"{key}: {n}" for key, n in rows.items())
        raise InputError(
            f"columns of examples must have the same number of rows, got {shown}."
        )
    # The reference writes 400,000 values a second; the compiler takes 2 seconds.
    count = sum(len(one.values) for one in lists)
    kernels = loading.kernels("encoding", _agrees, waits=count > 1_000_000)
    if kernels is None:
        return reference.encode(lists)
    return _encode(kernels, lists)


def _validate_column(column: EncodedColumn) -> Lists:
    """Return the column in the form that the kernels and the reference expect."""
    values, kind = _typed(column)
    splits = np.asarray(column.splits)
    if splits.dtype.kind not in "iu" or splits.ndim != 1 or not len(splits):
        raise InputError(
            f"column {column.key!r}: splits must be integers [rows + 1], got "
            f"{splits.dtype} {splits.shape}."
        )
    splits = splits.astype(np.int64, copy=False)
    size = len(values)
    if splits[0] < 0 or splits[-1] > size or (splits[1:] < splits[:-1]).any():
        raise InputError(
            f"column {column.key!r}: splits must increase and stay within the {size} "
            f"values, got {splits[0]} to {splits[-1]}."
        )
    return Lists(column.key.encode(), kind, values, splits)


def _typed(column: EncodedColumn) -> tuple[FeatureValues, int]:
    values = column.values
    if isinstance(values, Strings):
        data, offsets = text_of(values)
        check_spans(data, offsets)
        return Strings(data, offsets, (len(offsets) - 1,)), TEXT
    if values.ndim != 1:
        raise InputError(
            f"column {column.key!r}: expected flat values, got shape {values.shape}."
        )
    if values.dtype.kind == "f":
        return values.astype(np.float32, copy=False), FLOAT
    if values.dtype.kind in "bi" or values.dtype in (np.uint8, np.uint16, np.uint32):
        return values.astype(np.int64, copy=False), INT
    raise InputError(
        f"column {column.key!r} has dtype {values.dtype}; an Example holds floats, "
        "integers of up to 64 bits with a sign, and byte strings."
    )


def _encode(kernels: ModuleType, lists: Sequence[Lists]) -> Strings:
    keys, rows = Strings.of([one.key for one in lists]), len(lists[0].splits) - 1
    table = np.zeros((len(lists), kernels.COLUMNS), np.int64)
    parts: dict[int, list[Any]] = {TEXT: [], FLOAT: [], INT: []}
    for f, one in enumerate(lists):
        # All values of a kind are in one array; BASE is where this feature begins.
        table[f, kernels.BASE] = sum(len(part) for part in parts[one.kind])
        table[f, kernels.KIND], table[f, kernels.SPLITS] = one.kind, f * (rows + 1)
        parts[one.kind].append(one.values)
    text = concatenate(parts[TEXT]) if parts[TEXT] else Strings.of([])
    arguments = (
        *(keys.data, keys.offsets, table),
        np.concatenate([one.splits for one in lists]),
        np.concatenate([_EMPTY[FLOAT], *parts[FLOAT]]),
        np.concatenate([_EMPTY[INT], *parts[INT]]),
        *(text.data, text.offsets),
    )
    sizes = np.empty(rows, np.int64)
    kernels.measure(*arguments, sizes)
    # Each row is preceded by a tag of one byte and a length of at most ten bytes.
    out = np.empty(int(sizes.sum()) + 11 * rows, np.uint8)
    ends = np.empty(rows + 1, np.int64)
    kernels.encode(*arguments, sizes, out, ends)
    return Strings(out[: ends[-1]], ends, (rows,))


def _agrees(kernels: ModuleType) -> bool:
    """Return whether the kernels write a few rows as the reference does."""
    splits = np.array([0, 1, 3, 3])
    columns = [
        EncodedColumn("f", np.array([0.5, np.nan, -1e30]), splits),
        EncodedColumn("flags", np.array([True, False, True]), splits),
        EncodedColumn("i", np.array([-1, 300, 1 << 62]), splits),
        EncodedColumn("s", Strings.of([b"", b"x" * 200, b"abc"]), splits),
        EncodedColumn("t", Strings.of([b"a", b"b", b"c", b"d"])[1:], splits),
    ]
    lists = [_validate_column(column) for column in columns]
    return _encode(kernels, lists).tolist() == reference.encode(lists).tolist()
