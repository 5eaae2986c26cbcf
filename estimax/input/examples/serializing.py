"""Columns to Example messages: the way into TFRecord files, many rows at once.

records = serialize_examples({"age": ages, "city": cities, "tags": sparse_tags})
with TFRecordWriter(path) as writer:
    writer.write_all(records)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import InputError
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.input.streams.columns import as_column
from estimax.input.streams.ragged import Ragged
from estimax.native import encoding
from estimax.native.encoding import EncodedColumn


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
    return encoding.encode_examples([_flat(key, column) for _, key, column in named])


def _flat(key: str, column: Any) -> EncodedColumn:  # Any: what users call a column
    """Return the values one after the other, and where each row's begin."""
    if isinstance(column, Ragged):
        values = column.values
        inner_size = math.prod(values.shape[1:])
        splits = _outer_splits(key, column) * inner_size
        return EncodedColumn(key, values.reshape((-1,)), splits)
    column = as_column(column, key)
    if isinstance(column, Sparse):
        return EncodedColumn(key, column.values, column.starts)
    if not column.ndim:
        raise InputError(f"serialize_examples: {key!r} is a scalar; it needs rows.")
    splits = np.arange(len(column) + 1, dtype=np.int64) * math.prod(column.shape[1:])
    flat = column if column.ndim == 1 else column.reshape((-1,))
    return EncodedColumn(key, flat, splits)


def _outer_splits(key: str, column: Ragged) -> NDArray[np.int64]:
    """Return where the values of each row of the outermost level begin."""
    *outer, last = [np.asarray(each, np.int64) for each in column.row_splits]
    splits = last
    _check_splits(key, splits, len(column.values))
    for each in reversed(outer):
        _check_splits(key, each, len(splits) - 1)
        splits = splits[each]
    return splits


def _check_splits(key: str, splits: NDArray[np.int64], items: int) -> None:
    if splits.min(initial=0) < 0 or splits.max(initial=0) > items:
        raise InputError(
            f"serialize_examples: {key!r}: row splits must stay within the {items} "
            f"items of their level, got {splits.min()} to {splits.max()}."
        )
