"""Columns to Example messages: the way into TFRecord files, many rows at once.

records = serialize_examples({"age": ages, "city": cities, "tags": sparse_tags})
with TFRecordWriter(path) as writer:
    writer.write_all(records)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import InputError
from estimax.core.ragged import Ragged
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings, concatenate
from estimax.input.columns import as_column
from estimax.native import loading

_TEXT, _FLOAT, _INT = 1, 2, 3
_Flat = tuple[NDArray[Any] | Strings, NDArray[np.int64]]


def serialize_examples(columns: Mapping[str, Any]) -> Strings:
    """Write each row as an Example; keys sorted, lists packed.

    Columns are arrays [B, ...], `Strings`, `Sparse` or `Ragged`; inner axes are
    flattened. Floats become float32, integers and bools int64. A row of a sparse or
    ragged column that has no values is left out of its example.

    >>> records = serialize_examples({"x": np.array([1.0, 2.0]), "s": ["a", "b"]})
    >>> [len(record) for record in records]
    [29, 29]
    """
    if not columns:
        raise InputError("serialize_examples: there are no columns.")
    named = sorted((key.encode(), key, columns[key]) for key in columns)
    flats = [_flat(key, column) for _, key, column in named]
    rows = {
        key: len(splits) - 1
        for (_, key, _), (_, splits) in zip(named, flats, strict=True)
    }
    if len(set(rows.values())) > 1:
        shown = ", ".join(f"{key}: {n}" for key, n in rows.items())
        raise InputError(
            f"serialize_examples: all columns must have the same rows, got {shown}."
        )
    count = next(iter(rows.values()))
    keys = Strings.of([encoded for encoded, _, _ in named])
    table = np.zeros((len(flats), 3), np.int64)
    table[:, 2] = np.arange(len(flats)) * (count + 1)
    values: dict[int, list[Any]] = {_TEXT: [], _FLOAT: [], _INT: []}
    for f, (flat, _) in enumerate(flats):
        kind = _kind(named[f][1], flat)
        table[f, :2] = kind, sum(len(part) for part in values[kind])
        values[kind].append(flat)
    return _encode(keys, table, [splits for _, splits in flats], values, count)


def _encode(
    keys: Strings,
    table: NDArray[np.int64],
    splits: list[NDArray[np.int64]],
    values: Mapping[int, list[Any]],
    rows: int,
) -> Strings:
    text = concatenate(values[_TEXT]) if values[_TEXT] else Strings.of([])
    arguments = (
        *(keys.data, keys.offsets, table, np.concatenate(splits)),
        np.concatenate([np.empty(0, np.float32), *values[_FLOAT]], dtype=np.float32),
        np.concatenate([np.empty(0, np.int64), *values[_INT]], dtype=np.int64),
        *(text.data, text.offsets),
    )
    kernels = loading.load("estimax.native.kernels.encoding")
    sizes = np.empty(rows, np.int64)
    kernels.measure(*arguments, sizes)
    # The record's own head is a tag and at most ten bytes of length.
    out = np.empty(int(sizes.sum()) + 11 * rows, np.uint8)
    ends = np.empty(rows + 1, np.int64)
    kernels.encode(*arguments, sizes, out, ends)
    return Strings(out[: ends[-1]], ends, (rows,))


def _flat(key: str, column: Any) -> _Flat:  # Any: what users call a column
    """The values one after the other, and where each row's begin."""
    if isinstance(column, Ragged):
        splits = np.asarray(column.row_splits[0], np.int64)
        for inner in column.row_splits[1:]:
            splits = np.asarray(inner, np.int64)[splits]
        values = column.values
        inner_size = int(np.prod(values.shape[1:], dtype=np.int64))
        return values.reshape((-1,)), splits * inner_size
    column = as_column(column, key)
    if isinstance(column, Sparse):
        return column.values, column.starts
    if not column.ndim:
        raise InputError(f"serialize_examples: {key!r} is a scalar; it needs rows.")
    size = int(np.prod(column.shape[1:], dtype=np.int64))
    return column.reshape((-1,)), np.arange(len(column) + 1, dtype=np.int64) * size


def _kind(key: str, flat: NDArray[Any] | Strings) -> int:
    if isinstance(flat, Strings):
        return _TEXT
    if flat.dtype.kind == "f":
        return _FLOAT
    if flat.dtype.kind in "bi" or flat.dtype in (np.uint8, np.uint16, np.uint32):
        return _INT
    raise InputError(
        f"serialize_examples: {key!r} has dtype {flat.dtype}; an Example holds floats, "
        "integers of up to 64 bits with a sign, and byte strings."
    )
