"""The request and the result types of the Example parsers.

    age, tags = FeatureRequest("age", "float32", 1), FeatureRequest("tags", "string")
    found = ExamplePlan([age, tags]).run(records)     # Columns, or a Problem
    found.fixed(0, ()), found.variable(1)

`FeatureRequest` describes a feature to parse. A parser returns `Columns` (or a
`FeatureListBatch` for SequenceExamples), or the first `Problem` of the batch. The
compiled parsers and the reference in Python share these types.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import InputError
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings

# The kind of a Feature message is the number of its field that is set.
TEXT, FLOAT, INT = 1, 2, 3
KINDS = {"string": TEXT, "float32": FLOAT, "int64": INT}

# A message has fewer values than this, because its size is limited to 2 GB.
_MOST_VALUES = 1 << 31

FeatureValues = NDArray[Any] | Strings


@dataclass(frozen=True, eq=False)
class FeatureRequest:
    """A feature to read from every record.

    Args:
      key: The key of the feature.
      dtype: "string", "float32" or "int64".
      size: The number of values that each record must have; None for any number.
      default: `size` values for records that lack the key; None if it is required.
      multiple: If `size` is None: the number of values must be a multiple of this.
      indices: Whether to compute the indices that `Columns.sparse` returns.
    """

    key: str
    dtype: str
    size: int | None = None
    default: Sequence[Any] | None = None
    multiple: int = 1
    indices: bool = False


def check_requests(wanted: Sequence[FeatureRequest]) -> None:
    """Raise `InputError` if a description is invalid or a key is repeated."""
    seen = set()
    for one in wanted:
        where = f"feature {one.key!r}: "
        if not isinstance(one.key, str):
            raise InputError(
                f"{where}expected a key of type str, found {type(one.key).__name__}."
            )
        if one.key in seen:
            raise InputError(f"{where}expected every key once, found it twice.")
        seen.add(one.key)
        if one.dtype not in KINDS:
            raise InputError(
                f"{where}expected dtype {', '.join(KINDS)}, found {one.dtype!r}."
            )
        if one.size is not None and not 0 <= one.size <= _MOST_VALUES:
            raise InputError(
                f"{where}expected 0 to {_MOST_VALUES} values, found {one.size}."
            )
        if one.multiple < 1:
            raise InputError(
                f"{where}expected a positive multiple, found {one.multiple}."
            )
        if one.default is not None and len(one.default) != one.size:
            raise InputError(
                f"{where}expected a default of {one.size} values, found "
                f"{len(one.default)}."
            )
        if one.indices and one.size is not None:
            raise InputError(f"{where}a feature of fixed size has no indices.")


@dataclass(frozen=True, eq=False)
class Variable:
    """The values of all rows, flat; row splits; and the length of the longest row."""

    values: FeatureValues
    splits: NDArray[np.int64]
    longest: int


class ParsedColumns(Protocol):
    """A parsed batch; features are numbered as in the list of `FeatureRequest`."""

    @property
    def rows(self) -> int:
        """Return the number of records."""

    def fixed(self, f: int, shape: tuple[int, ...]) -> FeatureValues:
        """Return feature f, of fixed size, as an array `[rows, *shape]`."""

    def sparse(self, f: int) -> Sparse:
        """Return feature f, made with `indices`, as a tensor `[rows, longest]`."""

    def variable(self, f: int) -> Variable:
        """Return feature f, of variable size, as flat values and row splits."""


@dataclass(frozen=True, eq=False)
class Steps:
    """The values of all steps of a feature list, flat, and the splits of the steps."""

    values: FeatureValues
    splits: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class FeatureListBatch:
    """The feature lists of a batch of SequenceExamples.

    Record r has the steps `splits[f, r]` to `splits[f, r + 1]` of feature f.
    `is_missing[f, r]` is true if the record lacks the list. `read(f, size)` returns the
    values of all steps of feature f, or a problem if a step has another number of
    values than `size`; None allows any number.
    """

    splits: NDArray[np.int64]  # [F, rows + 1]
    is_missing: NDArray[np.bool_]  # [F, rows]
    read: Callable[[int, int | None], Steps | Problem]


class Flaw(enum.IntEnum):
    """What is wrong with a record; the numbers are those of the kernels."""

    MALFORMED = 1  # not a valid protocol-buffer message
    WRONG_KIND = 2  # expected and found are kinds
    WRONG_COUNT = 3  # expected and found are numbers of values
    MISSING = 4  # expected is a kind; there is no default
    NOT_MULTIPLE = 5  # expected is the multiple, found the number of values
    OUTSIDE = 6  # the record's offsets are not within the data


@dataclass(frozen=True)
class Problem:
    """The first flaw in a batch, with its row, feature and byte of the record."""

    flaw: Flaw
    row: int
    feature: int | None = None
    offset: int = 0
    expected: int = 0
    found: int = 0
