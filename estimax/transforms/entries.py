"""Between raw features and padded ids: entries, each at its place in a sparse tensor.

    raw ──source.entries──▶ Sparse of int64 ids ──pad──▶ Ids [B, L]

An out-of-vocabulary id of -1 is an entry (a cross hashes it), a dropped '' is none. So
sources mark what is not there as MISSING, and only padding lets both vanish.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import FeatureError
from estimax.core.sparse import Sparse, padded_length
from estimax.core.strings import Strings, is_text
from estimax.native.hashing import MISSING

Values = NDArray[Any] | Strings
IdArray = NDArray[np.int64]


class IdSource(Protocol):
    """A categorical column's host half: raw features to entries of int64 ids."""

    @property
    def name(self) -> str:
        """The name of the column."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The raw features it reads."""

    @property
    def num_buckets(self) -> int:
        """How many ids there are; the first one out of range."""

    @property
    def stays_in_range(self) -> bool:
        """Whether no id can reach `num_buckets`, whatever the input."""

    def entries(self, raw: Mapping[str, Any]) -> Sparse:
        """The ids, each at its place."""


class ValueSource(Protocol):
    """An `IdSource` that maps each value of one feature by itself."""

    @property
    def key(self) -> str:
        """The raw feature."""

    @property
    def is_integer(self) -> bool:
        """Whether the feature must be of integers, and not of strings."""

    def ids_of(self, values: Values, *, drop: bool) -> IdArray:
        """The id of every value; MISSING for '' or -1 when those are dropped."""


def column_of(raw: Mapping[str, Any], key: str) -> Values | Sparse:
    """A raw feature in one of its three forms, of rank 2 or more."""
    value: Any = raw[key]
    if isinstance(value, Sparse):
        return value if len(value.dense_shape) > 1 else _as_matrix(value)
    if not isinstance(value, Strings):
        value = np.asarray(value)
        if is_text(value):
            value = Strings.of(value)
    if value.ndim == 0:
        raise FeatureError(
            f"feature {key!r} is a single value; a batch needs rank 1 or more, [B, …]."
        )
    column: Values = value.reshape((-1, 1)) if value.ndim == 1 else value
    return column


def is_present(values: Values) -> NDArray[np.bool_]:
    """Where a dense feature says something: not '' and not -1."""
    if isinstance(values, Strings):
        present: NDArray[np.bool_] = values.lengths.reshape(values.shape) > 0
        return present
    return np.asarray(values != -1)


def exceeds_int64(values: NDArray[Any]) -> bool:
    """Whether unsigned integers reach 2^63: as int64 they would turn negative."""
    if values.dtype != np.uint64:
        return False
    return bool(values.max(initial=0) > np.iinfo(np.int64).max)


def decimal_text(values: NDArray[Any]) -> Strings:
    """Integers as decimal text, which is how they are hashed."""
    return Strings.of([str(number) for number in values.tolist()])


def _as_matrix(value: Sparse) -> Sparse:
    rows = np.asarray(value.indices, np.int64).reshape(-1, 1)
    indices = np.concatenate([rows, np.zeros_like(rows)], axis=1)
    return Sparse(indices, value.values, (value.dense_shape[0], 1))


def check_kind(source: ValueSource, values: Values) -> None:
    """Raise unless the values are integers or strings as the source expects."""
    if isinstance(values, Strings):
        found, fits = "strings", not source.is_integer
    else:
        found = f"{values.dtype} values"
        fits = source.is_integer and values.dtype.kind in "iu"
    if fits:
        return
    expected = "integers" if source.is_integer else "strings"
    raise FeatureError(
        f"feature {source.key!r}: its categorical column takes {expected}, got "
        f"{found}. Change the column's dtype, or convert the feature in the input_fn."
    )


def dense_ids(source: ValueSource, values: Values) -> IdArray:
    """The ids of a dense feature [B, …] as [B, W], MISSING where it says nothing."""
    check_kind(source, values)
    ids = source.ids_of(values.reshape((-1,)), drop=True)
    return ids.reshape(len(values), math.prod(values.shape[1:]))


def value_entries(source: ValueSource, raw: Mapping[str, Any]) -> Sparse:
    """The entries of a source that maps value by value."""
    column = column_of(raw, source.key)
    if isinstance(column, Sparse):
        if not len(column.values):  # of no type, when made of rows that are all empty
            return column.with_values(np.zeros(0, np.int64))
        check_kind(source, column.values)
        ids = source.ids_of(column.values, drop=False)
        return column.with_values(ids)
    ids = dense_ids(source, column).reshape(column.shape)
    present = np.nonzero(ids != MISSING)
    return Sparse(np.stack(present, axis=1), ids[present], column.shape)


def padded(values: NDArray[Any], starts: IdArray, fill: float) -> NDArray[Any]:
    """Lay rows out as [B, L], L a power of two, `fill` after a row's last."""
    counts = np.diff(starts)
    batch, longest = len(counts), int(counts.max(initial=0))
    if batch * longest == len(values):  # all rows are as long
        return widened(values.reshape(batch, longest), fill)
    out = np.full((batch, padded_length(longest)), fill, values.dtype)
    rows = np.repeat(np.arange(batch), counts)
    out[rows, np.arange(len(rows)) - starts[rows]] = values
    return out


def widened(values: NDArray[Any], fill: float) -> NDArray[Any]:
    """Pad [B, W] to [B, L], L a power of two."""
    width = padded_length(values.shape[1])
    if width == values.shape[1]:
        return values
    out = np.full((len(values), width), fill, values.dtype)
    out[:, : values.shape[1]] = values
    return out
