"""Host transforms of sequences: ids or numbers at every step, and the lengths.

    SequenceIds(source)          raw ──▶ Ids [B, T, L]: up to L ids at each step
    SequenceNumbers(key, 2)      raw ──▶ floats [B, T, 2]
    SequenceLengths(parts)       raw ──▶ the number of steps of each example [B]

T is the number of steps that the feature was fed with, rounded up to a power of two so
that few shapes compile; the lengths tell which steps are real. The columns of one layer
must have the same lengths: each is transformed by itself, and `SequenceLengths`
compares them all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.core.device_dtypes import as_float32, is_real
from estimax.core.errors import FeatureError
from estimax.core.sparse import Ids, Sparse, padded_length, row_starts
from estimax.core.strings import Strings
from estimax.feature_columns.transforms.transform import (
    BundleFormat,
    IdArray,
    IdSource,
    OutOfRange,
    Record,
    Transform,
    check_bucket_count,
    column_of,
    is_present,
    pad_rows,
    validate_ids,
)

TIME_AXIS = 1
"""The axis of the steps in the arrays of a sequence, [B, T, …]."""


@dataclass(frozen=True)
class SequenceIds(Transform):
    """A source's ids at every step, `Ids` [B, T, L], -1 where a step has no more.

    A feature of rank 2 has one id at each step, one of rank 3 or more has several.

    Args:
      source: Which id each value has.
      out_of_range: "drop", "error" or "error_below"; see `PadIds`.
      rounded: Whether T is rounded up to a power of two.

    Raises:
      FeatureError: The source has more than 2^31 - 1 buckets.

    Example:
      >>> from estimax.transforms import Identity
      >>> SequenceIds(Identity("n", 9))({"n": np.array([[4, 5, 6]])}).ids.tolist()
      [[[4], [5], [6], [-1]]]
    """

    kind = "sequence_ids"

    source: IdSource
    out_of_range: OutOfRange = "drop"
    rounded: bool = True

    def __post_init__(self) -> None:
        check_bucket_count(self.source)

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def keys(self) -> tuple[str, ...]:
        return self.source.keys

    def __call__(self, raw: Mapping[str, Any]) -> Ids:
        """Return the ids of a batch, step by step."""
        entries = self.source.entries(raw)
        ids = validate_ids(self.source, np.asarray(entries.values), self.out_of_range)
        batch, steps = entries.dense_shape[:2]
        places = np.asarray(entries.indices)
        if len(entries.dense_shape) == 2:
            laid = np.full((batch, steps, 1), -1, np.int32)
            laid[places[:, 0], places[:, 1], 0] = ids
        else:
            starts = row_starts(places[:, 0] * steps + places[:, 1], batch * steps)
            flat = pad_rows(ids, starts, -1)
            laid = flat.reshape(batch, steps, flat.shape[1])
        return Ids(_with_time(laid, self.rounded, -1))

    def to_json(self, bundle: BundleFormat) -> Record:
        return {**vars(self), "source": bundle.write(self.source)}

    @classmethod
    def from_json(cls, fields: Record, bundle: BundleFormat) -> SequenceIds:
        return cls(**{**fields, "source": bundle.read(fields["source"])})


@dataclass(frozen=True)
class SequenceNumbers(Transform):
    """The numbers of every step, float32 [B, T, width].

    In a feature of rank 2, each `width` consecutive values are one step.

    Args:
      key: The feature, which must be sparse.
      width: How many numbers a step has.
      default: The number where the feature has none.
      tells_missing: Whether the result is a dict of `values` and `present`, a bool of
        the same shape, so that a normalizer can leave missing numbers alone.
      rounded: Whether T is rounded up to a power of two.

    Example:
      >>> one_row = Sparse(np.array([[0, 0], [0, 1]]), np.array([4.0, 5.0]), (1, 2))
      >>> SequenceNumbers("x", default=-1.0)({"x": one_row}).tolist()
      [[[4.0], [5.0]]]
    """

    kind = "sequence_numbers"

    key: str
    width: int = 1
    default: float = 0.0
    tells_missing: bool = False
    rounded: bool = True

    def __call__(self, raw: Mapping[str, Any]) -> Any:
        """Return the numbers of a batch, step by step."""
        given = _sparse_numbers(raw, self.key)
        steps = _steps_of(given, self.key, self.width)
        shape = (given.dense_shape[0], steps * self.width)
        places = np.ravel_multi_index(
            tuple(np.asarray(given.indices).T[1:]), given.dense_shape[1:]
        )
        rows = np.asarray(given.indices)[:, 0]
        values = np.full(shape, self.default, np.float32)
        values[rows, places] = as_float32(given.values)
        if not self.tells_missing:
            return self._in_steps(values, self.default)
        present = np.zeros(shape, np.bool_)
        present[rows, places] = True
        return {
            "values": self._in_steps(values, self.default),
            "present": self._in_steps(present, False),
        }

    def _in_steps(self, flat: NDArray[Any], fill: float) -> NDArray[Any]:
        steps = flat.shape[1] // self.width
        split = flat.reshape(len(flat), steps, self.width)
        return _with_time(split, self.rounded, fill)


@dataclass(frozen=True)
class SequenceLengths(Transform):
    """The number of steps of each example, int32 [B]; all features must agree.

    A gap counts as a step, and so does a word that is not in the vocabulary. A dense -1
    or '' at the end does not.

    Args:
      parts: For each feature its key, and how many of its numbers make a step; None
        for a feature of ids.

    Example:
      >>> SequenceLengths((("n", None),))({"n": np.array([[7, -1, 8], [9, -1, -1]])})
      array([3, 1], dtype=int32)
    """

    kind = "sequence_lengths"

    parts: tuple[tuple[str, int | None], ...]

    @property
    def name(self) -> str:
        # The same for all: staging numbers calls of one name.
        return "sequence_length"

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(key for key, _ in self.parts))

    def to_json(self, bundle: BundleFormat) -> Record:
        return {"parts": [list(part) for part in self.parts]}

    @classmethod
    def from_json(cls, fields: Record, bundle: BundleFormat) -> SequenceLengths:
        return cls(tuple((key, width) for key, width in fields["parts"]))

    def __call__(self, raw: Mapping[str, Any]) -> NDArray[np.int32]:
        """Return the lengths; raise `FeatureError` if the features disagree."""
        (first, lengths, steps), *others = [
            (key, *_lengths(raw, key, width)) for key, width in self.parts
        ]
        for key, found, found_steps in others:
            _check_agreement(first, lengths, key, found)
            if found_steps != steps:
                raise FeatureError(
                    f"sequence features {first!r} and {key!r} are padded to different "
                    f"numbers of steps, {steps} and {found_steps}."
                )
        return lengths.astype(np.int32)


def _lengths(
    raw: Mapping[str, Any], key: str, width: int | None
) -> tuple[IdArray, int]:
    """Return the number of steps of every example, and T."""
    if width is not None:
        given = _sparse_numbers(raw, key)
        steps = _steps_of(given, key, width)
        last = _last_times(given)
        flat = len(given.dense_shape) == 2
        return (-(-last // width) if flat else last), steps
    column = column_of(raw, key)
    if isinstance(column, Sparse):
        return _last_times(column), column.dense_shape[1]
    present = is_present(column).reshape(*column.shape[:2], -1).any(axis=2)
    counted = np.arange(1, column.shape[1] + 1)
    return (present * counted).max(axis=1, initial=0), column.shape[1]


def _last_times(given: Sparse) -> IdArray:
    """Return one more than the last time index of each row."""
    lengths = np.zeros(given.dense_shape[0], np.int64)
    indices = np.asarray(given.indices)
    np.maximum.at(lengths, indices[:, 0], indices[:, 1] + 1)
    return lengths


def _sparse_numbers(raw: Mapping[str, Any], key: str) -> Sparse:
    column = column_of(raw, key)
    if not isinstance(column, Sparse):
        # Not a FeatureError: TensorFlow raises TypeError here, and programs catch it.
        raise TypeError(
            f"sequence_numeric_column {key!r}: the feature must be sparse, since its "
            f"rows differ in length; it is dense, of shape {tuple(column.shape)}. "
            "Parse it as VarLenFeature, or make it a Sparse in the input_fn."
        )
    values = column.values
    if isinstance(values, Strings) or not is_real(values.dtype):
        raise FeatureError(
            f"sequence_numeric_column {key!r}: the feature must hold numbers."
        )
    return column


def _steps_of(given: Sparse, key: str, width: int) -> int:
    """Return T, the number of steps of `width` numbers that the shape allows."""
    shape = given.dense_shape
    if len(shape) == 2:
        return -(-shape[1] // width)
    if math.prod(shape[2:]) != width:
        raise FeatureError(
            f"sequence_numeric_column {key!r}: a step has {width} numbers, but the "
            f"feature has shape {list(shape)}. Set the column's shape."
        )
    return shape[1]


def _check_agreement(first: str, lengths: IdArray, key: str, found: IdArray) -> None:
    if len(lengths) != len(found):
        raise FeatureError(
            f"sequence features {first!r} and {key!r} have {len(lengths)} and "
            f"{len(found)} rows; all features of a batch must have the same number."
        )
    differ = np.flatnonzero(lengths != found)
    if len(differ):
        row = int(differ[0])
        raise FeatureError(
            f"sequence features {first!r} and {key!r} differ in length: row {row} has "
            f"{lengths[row]} steps of one and {found[row]} of the other. Columns of "
            "one layer must agree; use two layers, or pad the shorter feature."
        )


def _with_time(array: NDArray[Any], rounded: bool, fill: float) -> NDArray[Any]:
    """Return [B, T, ...] with T rounded up to a power of two if `rounded`."""
    steps = array.shape[TIME_AXIS]
    length = padded_length(steps) if rounded else steps
    if length == steps:
        return array
    out = np.full((len(array), length, *array.shape[2:]), fill, array.dtype)
    out[:, :steps] = array
    return out
