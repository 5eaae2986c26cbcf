"""How features lie in Examples: the descriptions that the parsers read.

    features = {
        "age": FixedLenFeature([], "float32", default_value=-1.0),
        "tags": VarLenFeature("string"),
        "scores": SparseFeature("index", "value", "float32", size=100),
        "words": RaggedFeature("string", partitions=[RowLengths("words_per_line")]),
    }

dtypes are float32, int64 and string: an Example knows no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from estimax.core.errors import InputError
from estimax.core.parse_spec import FixedLenFeature as FixedLenFeature
from estimax.core.parse_spec import VarLenFeature as VarLenFeature
from estimax.core.parse_spec import dtype_name


@dataclass(frozen=True)
class FixedLenSequenceFeature:
    """Steps of `shape` values each, as many as the example has; padded in a batch.

    >>> FixedLenSequenceFeature([2], "float32", allow_missing=True).shape
    (2,)
    """

    shape: tuple[int, ...]
    dtype: str
    allow_missing: bool = False
    default_value: Any = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        object.__setattr__(self, "dtype", dtype_name(self.dtype))


@dataclass(frozen=True)
class SparseFeature:
    """Values under one key, their indices under others, one for each dimension.

    >>> SparseFeature("i", "v", "float32", 10)
    SparseFeature(index_key='i', value_key='v', dtype='float32', size=10, \
already_sorted=False)
    """

    index_key: str | tuple[str, ...]
    value_key: str
    dtype: str
    size: int | tuple[int, ...]
    already_sorted: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", dtype_name(self.dtype))
        for name in ("index_key", "size"):
            value = getattr(self, name)
            if isinstance(value, Sequence) and not isinstance(value, str):
                object.__setattr__(self, name, tuple(value))
        if len(self.index_keys) != len(self.sizes):
            raise InputError(
                f"SparseFeature: index_key names {len(self.index_keys)} dimensions and "
                f"size {len(self.sizes)}; give one size for each index key."
            )

    @property
    def index_keys(self) -> tuple[str, ...]:
        """The index keys, also when there is one."""
        return (self.index_key,) if isinstance(self.index_key, str) else self.index_key

    @property
    def sizes(self) -> tuple[int, ...]:
        """The dense shape of a row."""
        return (self.size,) if isinstance(self.size, int) else self.size


@dataclass(frozen=True)
class RowSplits:
    """Inner rows by where they begin, with the end of the last."""

    key: str


@dataclass(frozen=True)
class RowLengths:
    """Inner rows by their lengths."""

    key: str


@dataclass(frozen=True)
class RowStarts:
    """Inner rows by where they begin."""

    key: str


@dataclass(frozen=True)
class RowLimits:
    """Inner rows by where they end."""

    key: str


@dataclass(frozen=True)
class ValueRowIds:
    """Inner rows by the row of every value, in ascending order."""

    key: str


@dataclass(frozen=True)
class UniformRowLength:
    """Inner rows that all have the same length."""

    length: int


Partition = (
    RowSplits | RowLengths | RowStarts | RowLimits | ValueRowIds | UniformRowLength
)


@dataclass(frozen=True)
class RaggedFeature:
    """Rows of any length, cut into inner rows by `partitions`, the outermost first.

    >>> RaggedFeature("int64", value_key="v", partitions=[RowLengths("n")]).partitions
    (RowLengths(key='n'),)
    """

    dtype: str
    value_key: str | None = None
    partitions: tuple[Partition, ...] = ()
    row_splits_dtype: str = "int32"
    validate: bool = False

    # As attributes too, where programs written for tf.io look for them.
    RowSplits: ClassVar = RowSplits
    RowLengths: ClassVar = RowLengths
    RowStarts: ClassVar = RowStarts
    RowLimits: ClassVar = RowLimits
    ValueRowIds: ClassVar = ValueRowIds
    UniformRowLength: ClassVar = UniformRowLength

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", dtype_name(self.dtype))
        object.__setattr__(self, "partitions", tuple(self.partitions))
        object.__setattr__(self, "row_splits_dtype", dtype_name(self.row_splits_dtype))
        if self.row_splits_dtype not in ("int32", "int64"):
            raise InputError(
                "RaggedFeature: row_splits_dtype must be int32 or int64, got "
                f"{self.row_splits_dtype}."
            )


FeatureSpec = (
    FixedLenFeature
    | VarLenFeature
    | FixedLenSequenceFeature
    | SparseFeature
    | RaggedFeature
)
