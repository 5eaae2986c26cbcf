"""Ids for tables that a `model_fn` declares: checked on the host, before the lookup.

`TableIds` is the host transform of `ex.embedding_lookup` and keeps the shape of the
feature. `IndexIds` is that of `nn.Embed` and `table[ids]`. `TableBags` is the host
transform of `ex.embedding_lookup_sparse` and pads rows of different lengths.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.core.device_dtypes import as_float32, is_real
from estimax.core.errors import FeatureError
from estimax.core.sparse import Ids, Sparse
from estimax.core.strings import Strings
from estimax.feature_columns.transforms.transform import Transform, column_of, pad_rows


@dataclass(frozen=True)
class TableIds(Transform):
    """A feature of integers as int32 ids of the same shape, checked to be in range.

    It is the host transform of `ex.embedding_lookup`.

    Args:
      key: The feature.
      num_buckets: The number of rows of the table; ids are in [0, num_buckets).

    Raises:
      FeatureError: When called: an id is out of range, or the feature has no integers.

    Example:
      >>> TableIds("item", 9)({"item": np.array([[7, 0]])})
      array([[7, 0]], dtype=int32)
    """

    kind = "table_ids"

    key: str
    num_buckets: int

    def __call__(self, raw: Mapping[str, Any]) -> NDArray[np.int32]:
        """Return the ids of a batch."""
        value = raw[self.key]
        if isinstance(value, Sparse):
            raise FeatureError(
                f"embedding_lookup: feature {self.key!r} is sparse, with any number of "
                "ids in a row. Use ex.embedding_lookup_sparse, which combines them."
            )
        ids = _integers(value, self.key, "embedding_lookup")
        _check_range(ids, self, lowest=0)
        return ids.astype(np.int32, copy=False)


@dataclass(frozen=True)
class IndexIds(Transform):
    """A feature of integers as int32 ids of the same shape, by the rules of an index.

    It is the host transform of `nn.Embed` and `table[ids]` in training: a negative id
    counts from the end of the table. An id beyond the table becomes -1, or the nearest
    row.

    Args:
      key: The feature.
      num_buckets: The number of rows of the table.
      clips: Whether an id beyond the table becomes the nearest row.

    Raises:
      FeatureError: When called: the feature has no integers, or one beyond 32 bits.

    Example:
      >>> IndexIds("item", 9)({"item": np.array([[7, -1, 9]])})
      array([[ 7,  8, -1]], dtype=int32)
    """

    kind = "index_ids"

    key: str
    num_buckets: int
    clips: bool = False

    def __call__(self, raw: Mapping[str, Any]) -> NDArray[np.int32]:
        """Return the ids of a batch."""
        ids = _integers(raw[self.key], self.key, "an index of a table")
        limits = np.iinfo(np.int32)
        lowest, highest = (ids.min(), ids.max()) if ids.size else (0, 0)
        if lowest < limits.min or highest > limits.max:
            raise FeatureError(
                f"an index of a table: feature {self.key!r} holds an id beyond 32 "
                f"bits. Ids are in [0, {self.num_buckets}): map them in the input_fn."
            )
        ids = ids.astype(np.int32, copy=False)
        if lowest >= 0 and highest < self.num_buckets:
            return ids
        ids = np.where(ids < 0, ids + np.int32(self.num_buckets), ids)
        is_beyond = (ids < 0) | (ids >= self.num_buckets)
        nearest = np.clip(ids, 0, self.num_buckets - 1) if self.clips else np.int32(-1)
        return np.where(is_beyond, nearest, ids)


@dataclass(frozen=True)
class TableBags(Transform):
    """Any number of ids in each row, padded with -1 to [B, L], with optional weights.

    It is the host transform of `ex.embedding_lookup_sparse`. A sparse feature is padded
    to a power of two. A dense one keeps its shape, and -1 in it means "no id".

    Args:
      key: The feature with the ids.
      num_buckets: The number of rows of the table; ids are in [0, num_buckets).
      weight_key: The feature with a weight for each id; None for none.

    Raises:
      FeatureError: When called: an id is out of range, the feature has no integers, or
        the weights are not where the ids are.

    Example:
      >>> TableBags("tag", 9)({"tag": Sparse.of_rows([[7, 0, 8], [1]])}).ids
      array([[ 7,  0,  8, -1],
             [ 1, -1, -1, -1]], dtype=int32)
    """

    kind = "table_bags"

    key: str
    num_buckets: int
    weight_key: str | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        more = () if self.weight_key in (None, self.key) else (self.weight_key,)
        return (self.key, *more)

    def __call__(self, raw: Mapping[str, Any]) -> Ids:
        """Return the padded ids and weights of a batch."""
        column = column_of(raw, self.key)
        weights = None if self.weight_key is None else column_of(raw, self.weight_key)
        if isinstance(column, Sparse):
            return self._pad_rows(column, weights)
        ids = _integers(column, self.key, "embedding_lookup_sparse")
        _check_range(ids, self, lowest=-1)
        if weights is not None:
            if isinstance(weights, Sparse) or weights.shape != ids.shape:
                raise self._mismatch(ids.shape, weights)
            weights = self._floats(weights).reshape(len(ids), -1)
        return Ids(ids.astype(np.int32).reshape(len(ids), -1), weights)

    def _pad_rows(self, column: Sparse, weights: Any) -> Ids:
        values = column.values
        if not len(values):  # rows that are all empty have values of any type
            values = np.zeros(0, np.int32)
        values = _integers(values, self.key, "embedding_lookup_sparse")
        _check_range(values, self, lowest=0, rows=column)
        starts = column.starts
        ids = pad_rows(values.astype(np.int32), starts, -1)
        if weights is None:
            return Ids(ids)
        if not isinstance(weights, Sparse) or not np.array_equal(
            weights.indices, column.indices
        ):
            raise self._mismatch(column.dense_shape, weights)
        return Ids(ids, pad_rows(self._floats(weights.values), starts, 0.0))

    def _floats(self, values: Any) -> NDArray[np.float32]:
        if isinstance(values, Strings) or not is_real(values.dtype):
            raise FeatureError(
                f"embedding_lookup_sparse: the weights in feature {self.weight_key!r} "
                "are not numbers."
            )
        return as_float32(values)

    def _mismatch(self, shape: tuple[int, ...], weights: Any) -> FeatureError:
        is_sparse = isinstance(weights, Sparse)
        found = weights.dense_shape if is_sparse else weights.shape
        return FeatureError(
            f"embedding_lookup_sparse: feature {self.weight_key!r} (shape {found}) "
            f"must have one weight where feature {self.key!r} (shape {shape}) has an "
            "id. Give both as sparse features with the same indices, or both dense "
            "with the same shape."
        )


def _integers(value: Any, key: str, function: str) -> NDArray[Any]:
    found = "text" if isinstance(value, Strings) else value.dtype.name
    if found != "text" and value.dtype.kind in "iu":
        integers: NDArray[Any] = value
        return integers
    raise FeatureError(
        f"{function}: feature {key!r} holds {found}; ids must be integers. Convert the "
        "feature in the input_fn, or use a categorical column for text."
    )


def _check_range(
    ids: NDArray[Any],
    table: TableIds | TableBags,
    *,
    lowest: int,
    rows: Sparse | None = None,
) -> None:
    """Raise if an id is not in [lowest, num_buckets); name the first one's place."""
    limit = table.num_buckets
    if not ids.size or (ids.min() >= lowest and ids.max() < limit):
        return
    bad = (ids < lowest) | (ids >= limit)
    first = tuple(int(i[0]) for i in np.nonzero(bad))
    place = (
        first if rows is None else tuple(np.asarray(rows.indices)[first[0]].tolist())
    )
    column = f", column {', '.join(map(str, place[1:]))}" if place[1:] else ""
    padding = " (-1 stands for no id)" if lowest < 0 else ""
    raise FeatureError(
        f"feature {table.key!r}, row {place[0]}{column}: id {ids[first]} is not in "
        f"[0, {limit}){padding}, the rows of its table. Ids out of range in this "
        f"batch: {int(bad.sum())}. Make the table larger, or map the ids in the "
        "input_fn."
    )
