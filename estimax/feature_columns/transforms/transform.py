"""What a host transform is, and how raw features become padded ids.

    raw ──source.entries──▶ Sparse of int64 ids      used by crosses and sequences
    raw ──source.make_ids─▶ Ids [B, L] of int32      used by tables and indicators

A `Transform` turns the raw features of a batch into arrays for the device. An
`IdSource` is the part of it that knows which id each value has; `PadIds` makes a
transform of a source. Each class also describes itself as JSON for a bundle.

An out-of-vocabulary id of -1 is an entry (a cross hashes it), but a dropped '' is not.
So a source marks absent values as MISSING, and only padding turns both into -1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import FeatureError
from estimax.core.sparse import Ids, Sparse, padded_length
from estimax.core.strings import Strings, is_text
from estimax.native.example_types import FeatureValues
from estimax.native.hashing import MISSING

if TYPE_CHECKING:
    from typing import Self

IdArray = NDArray[np.int64]
Record = dict[str, Any]  # plain JSON values
OutOfRange = Literal["drop", "error", "error_below"]

_MOST_IDS = 2**31 - 1


class BundleFormat(Protocol):
    """How a transform writes and reads the transforms and files that it contains."""

    @property
    def assets(self) -> Path:
        """The folder for files, such as vocabularies."""

    def write(self, transform: Any) -> Record:
        """Describe an inner transform as JSON."""

    def read(self, record: Any) -> Any:
        """Build an inner transform from its JSON."""


class Transform:
    """Base of the host transforms: raw features of a batch to arrays for the device.

    A subclass is a frozen dataclass, hashable by value, and a pure function of its
    input. The defaults here are for a subclass with one feature, named by `key`, whose
    fields are plain JSON values. Add a subclass to the table in `serialize.py`.
    """

    kind: ClassVar[str]  # its "type" in a bundle
    key: str

    @property
    def name(self) -> str:
        """The name of the result; it need not be unique."""
        return self.key

    @property
    def keys(self) -> tuple[str, ...]:
        """The raw features that it reads."""
        return (self.key,)

    def __call__(self, raw: Mapping[str, Any]) -> Any:
        """Return NumPy arrays for a batch, or a pytree of them."""
        raise NotImplementedError

    def to_json(self, bundle: BundleFormat) -> Record:
        """Return the fields as JSON values.

        Args:
          bundle: Writes inner transforms, and names the folder for files.
        """
        return dict(vars(self))

    @classmethod
    def from_json(cls, fields: Record, bundle: BundleFormat) -> Self:
        """Build the transform from what `to_json` returned.

        Args:
          fields: The fields as JSON values.
          bundle: Reads inner transforms, and names the folder of files.
        """
        return cls(**fields)


class IdSource:
    """Base of the sources of ids: what the host computes for a categorical column.

    The defaults here are for a source that reads one feature, named by `key`, and maps
    each value by itself: such a subclass defines `is_integer` and `ids_of`. Other
    subclasses define `name`, `keys`, `entries` and `make_ids`. Every subclass has
    `num_buckets`, the number of ids. Add a subclass to the table in `serialize.py`.
    """

    kind: ClassVar[str]  # its "type" in a bundle
    key: str

    def __init_subclass__(cls) -> None:
        # The method had this name before. Without the error, the default would be used.
        if "padded" in vars(cls):
            raise TypeError(f"{cls.__name__}.padded: rename it to `make_ids`.")

    if TYPE_CHECKING:  # fields in some subclasses, properties in others

        @property
        def num_buckets(self) -> int: ...

        @property
        def is_integer(self) -> bool: ...

    @property
    def name(self) -> str:
        """The name of the column."""
        return self.key

    @property
    def keys(self) -> tuple[str, ...]:
        """The raw features that it reads."""
        return (self.key,)

    @property
    def stays_in_range(self) -> bool:
        """Whether every id is below `num_buckets`, for any input."""
        return True

    def ids_of(self, values: FeatureValues, *, drop: bool) -> IdArray:
        """Return the id of every value of one feature.

        Args:
          values: The values, flat.
          drop: Whether '' and -1 are absent, as in a dense feature; their id is then
            MISSING.
        """
        raise NotImplementedError

    def entries(self, raw: Mapping[str, Any]) -> Sparse:
        """Return the ids as a sparse tensor, each where its value is.

        Args:
          raw: The raw features of a batch by key: arrays, `Strings` or `Sparse`.

        Returns:
          A `Sparse` of int64 ids. An id may be -1 or at least `num_buckets`.

        Raises:
          FeatureError: A feature has the wrong type of values.
        """
        column = column_of(raw, self.key)
        if isinstance(column, Sparse):
            return _sparse_entries(self, column)
        ids = _dense_ids(self, column).reshape(column.shape)
        present = np.nonzero(ids != MISSING)
        return Sparse(np.stack(present, axis=1), ids[present], column.shape)

    def make_ids(self, raw: Mapping[str, Any], out_of_range: OutOfRange) -> Ids:
        """Return the ids as a rectangle [B, L], -1 where a row has no more.

        Args:
          raw: The raw features of a batch by key: arrays, `Strings` or `Sparse`.
          out_of_range: What to do with ids out of range; see `PadIds`.

        Returns:
          `Ids` of int32, with weights if the source has them. L is a power of two.

        Raises:
          FeatureError: A feature has the wrong type of values, or an id is out of
            range and may not be.
        """
        column = column_of(raw, self.key)
        if isinstance(column, Sparse):
            entries = _sparse_entries(self, column)
            return ids_of_rows(self, entries.values, entries.starts, out_of_range)
        # The common case, which needs no indices.
        return ids_of_matrix(self, _dense_ids(self, column), out_of_range)

    def to_json(self, bundle: BundleFormat) -> Record:
        """Return the fields as JSON values.

        Args:
          bundle: Writes inner transforms, and names the folder for files.
        """
        return dict(vars(self))

    @classmethod
    def from_json(cls, fields: Record, bundle: BundleFormat) -> Self:
        """Build the source from what `to_json` returned.

        Args:
          fields: The fields as JSON values.
          bundle: Reads inner transforms, and names the folder of files.
        """
        return cls(**fields)


@dataclass(frozen=True)
class PadIds(Transform):
    """A source's ids as `Ids` [B, L], -1 where a row has no more.

    Use it (or `pad_ids`) to give an `IdSource` to `staging.stage` or to a bundle. L is
    the longest row, rounded up to a power of two so that few shapes compile.

    Args:
      source: Which id each value has.
      out_of_range: "drop" leaves out ids of at least `num_buckets`, as an indicator
        does. "error" raises for them, since a table has no such row. "error_below"
        raises for negative ids as well.

    Raises:
      FeatureError: The source has more than 2^31 - 1 buckets.

    Example:
      >>> from estimax.transforms import Identity
      >>> PadIds(Identity("n", 9))({"n": np.array([[1, 2, 3]])}).ids
      array([[ 1,  2,  3, -1]], dtype=int32)
    """

    kind = "pad_ids"

    source: IdSource
    out_of_range: OutOfRange = "drop"

    def __post_init__(self) -> None:
        check_bucket_count(self.source)

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def keys(self) -> tuple[str, ...]:
        return self.source.keys

    def __call__(self, raw: Mapping[str, Any]) -> Ids:
        """Return the padded ids of a batch."""
        return self.source.make_ids(raw, self.out_of_range)

    def to_json(self, bundle: BundleFormat) -> Record:
        return {**vars(self), "source": bundle.write(self.source)}

    @classmethod
    def from_json(cls, fields: Record, bundle: BundleFormat) -> PadIds:
        return cls(**{**fields, "source": bundle.read(fields["source"])})


def pad_ids(source: IdSource, out_of_range: OutOfRange) -> PadIds:
    """Return the transform that pads a source's ids.

    Prefer it to `PadIds`: a source whose ids cannot be out of range gets the same
    transform for "drop" and "error", so a model that uses it both ways runs it once.

    Args:
      source: Which id each value has.
      out_of_range: "drop", "error" or "error_below"; see `PadIds`.

    Returns:
      A `PadIds`.

    Raises:
      FeatureError: The source has more than 2^31 - 1 buckets.

    Example:
      >>> from estimax.transforms import HashBucket
      >>> pad_ids(HashBucket("city", 100), "error").out_of_range
      'drop'
    """
    if out_of_range == "error" and source.stays_in_range:
        out_of_range = "drop"
    return PadIds(source, out_of_range)


def column_of(raw: Mapping[str, Any], key: str) -> FeatureValues | Sparse:
    """Return a raw feature in one of its three forms, of rank 2 or more."""
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
    column: FeatureValues = value.reshape((-1, 1)) if value.ndim == 1 else value
    return column


def _as_matrix(value: Sparse) -> Sparse:
    rows = np.asarray(value.indices, np.int64).reshape(-1, 1)
    indices = np.concatenate([rows, np.zeros_like(rows)], axis=1)
    return Sparse(indices, value.values, (value.dense_shape[0], 1))


def is_present(values: FeatureValues) -> NDArray[np.bool_]:
    """Return where a dense feature has a value: one that is neither '' nor -1."""
    if isinstance(values, Strings):
        present: NDArray[np.bool_] = values.lengths.reshape(values.shape) > 0
        return present
    return np.asarray(values != -1)


def exceeds_int64(values: NDArray[Any]) -> bool:
    """Return whether an unsigned value is 2^63 or more: negative if cast to int64."""
    if values.dtype != np.uint64:
        return False
    return bool(values.max(initial=0) > np.iinfo(np.int64).max)


def decimal_text(values: NDArray[Any]) -> Strings:
    """Return integers as decimal text, the form in which they are hashed."""
    return Strings.of([str(number) for number in values.tolist()])


def _sparse_entries(source: IdSource, column: Sparse) -> Sparse:
    # Rows that are all empty have values of no particular type: do not check it.
    if not len(column.values):
        return column.with_values(np.zeros(0, np.int64))
    check_type(source, column.values)
    return column.with_values(source.ids_of(column.values, drop=False))


def _dense_ids(source: IdSource, values: FeatureValues) -> IdArray:
    """Return the ids of a dense feature [B, …] as [B, W], MISSING where absent."""
    check_type(source, values)
    ids = source.ids_of(values.reshape((-1,)), drop=True)
    return ids.reshape(len(values), math.prod(values.shape[1:]))


def check_type(source: IdSource, values: FeatureValues) -> None:
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


def ids_of_matrix(source: IdSource, ids: IdArray, out_of_range: OutOfRange) -> Ids:
    """Return ids [B, W] checked and padded to [B, L]."""
    return Ids(widen(validate_ids(source, ids, out_of_range), -1))


def ids_of_rows(
    source: IdSource, ids: Any, starts: IdArray, out_of_range: OutOfRange
) -> Ids:
    """Return flat ids, row i being `ids[starts[i]:starts[i + 1]]`, as [B, L]."""
    checked = validate_ids(source, np.asarray(ids), out_of_range)
    return Ids(pad_rows(checked, starts, -1))


def check_bucket_count(source: IdSource) -> None:
    """Raise if a source has more ids than fit int32, the type on the device."""
    if source.num_buckets > _MOST_IDS:
        raise FeatureError(
            f"column {source.name!r} has {source.num_buckets} buckets; the device "
            f"counts up to {_MOST_IDS}. Use fewer buckets."
        )


def validate_ids(
    source: IdSource, ids: IdArray, out_of_range: OutOfRange
) -> NDArray[np.int32]:
    """Return a source's ids as int32, -1 for those that are missing or dropped."""
    limit = source.num_buckets
    if not source.stays_in_range and ids.max(initial=-1) >= limit:
        if out_of_range != "drop":
            raise _out_of_range_error(source, ids[ids >= limit])
        ids = np.where(ids < limit, ids, -1)
    if out_of_range == "error_below":
        negative = ids[(ids < 0) & (ids != MISSING)]
        if len(negative):
            raise _out_of_range_error(source, negative)
    return np.maximum(ids, -1).astype(np.int32)


def _out_of_range_error(source: IdSource, ids: IdArray) -> FeatureError:
    keys = ", ".join(map(repr, source.keys))
    found = int(ids[0])
    # `Identity` sets larger values, which only uint64 has, to the largest int64.
    shown = f"{found} or larger" if found == np.iinfo(np.int64).max else str(found)
    return FeatureError(
        f"column {source.name!r} of feature {keys}: id {shown} is not in "
        f"[0, {source.num_buckets}), the rows of its table ({len(ids)} such ids in "
        "this batch). Raise num_buckets, or give the column a default_value."
    )


def pad_rows(values: NDArray[Any], starts: IdArray, fill: float) -> NDArray[Any]:
    """Lay flat rows out as [B, L], L a power of two, with `fill` behind each row."""
    counts = np.diff(starts)
    batch, longest = len(counts), int(counts.max(initial=0))
    if batch * longest == len(values):  # every row has the same length
        return widen(values.reshape(batch, longest), fill)
    out = np.full((batch, padded_length(longest)), fill, values.dtype)
    rows = np.repeat(np.arange(batch), counts)
    out[rows, np.arange(len(rows)) - starts[rows]] = values
    return out


def widen(values: NDArray[Any], fill: float) -> NDArray[Any]:
    """Pad [B, W] to [B, L], L a power of two."""
    width = padded_length(values.shape[1])
    if width == values.shape[1]:
        return values
    out = np.full((len(values), width), fill, values.dtype)
    out[:, : values.shape[1]] = values
    return out
