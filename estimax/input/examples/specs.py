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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

from estimax.core.errors import InputError, did_you_mean
from estimax.core.parse_spec import FixedLenFeature as FixedLenFeature
from estimax.core.parse_spec import VarLenFeature as VarLenFeature
from estimax.core.parse_spec import dtype_name
from estimax.core.strings import Strings
from estimax.native.features import Flaw, Problem, Wanted
from estimax.wire import messages


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


# What messages call the examples of a batch: by their place, unless the user says.
Names = Sequence[Any] | Callable[[int], Any] | None


class ExampleError(InputError):
    """An example that cannot be parsed.

    `record` is its place in the batch, `feature` and `offset` say what in it is wrong.
    `data` holds its bytes; `where` is its file, record and byte, if a dataset found
    them.
    """

    def __init__(
        self, message: str, record: int, feature: str | None = None, offset: int = 0
    ) -> None:
        super().__init__(message)
        self.record = record
        self.feature = feature
        self.offset = offset
        self.data = b""
        self.where: str | None = None


class AttachData:
    """A context that gives an `ExampleError` the bytes of its example.

    A class, as every batch enters it: a generator takes four times as long.
    """

    __slots__ = ("_records",)

    def __init__(self, records: Strings) -> None:
        self._records = records

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, ExampleError):
            error.data = self._records[error.record]


def raise_problem(
    problem: Problem, wanted: Sequence[Wanted], records: Strings, names: Names
) -> NoReturn:
    """Raise the `ExampleError` that says what a parser found wrong."""
    text, key = _described(problem, wanted, records), None
    if problem.feature is not None:
        key = wanted[problem.feature].key
    where = name_of(problem.row, names)
    raise ExampleError(f"{where}: {text}", problem.row, key, problem.offset)


def _described(problem: Problem, wanted: Sequence[Wanted], records: Strings) -> str:
    offset, expected, found = problem.offset, problem.expected, problem.found
    if problem.feature is None:
        return f"not a valid Example message: broken at byte {offset}."
    key, dtype = wanted[problem.feature].key, wanted[problem.feature].dtype
    if problem.flaw == Flaw.MALFORMED:
        return (
            f"not a valid Example message: broken at byte {offset}, in feature {key!r}."
        )
    if problem.flaw == Flaw.MISSING:
        return (
            f"feature {key!r} ({dtype}) is missing, and its FixedLenFeature has no "
            f"default_value{_hint(key, records[problem.row])}"
        )
    where = f"feature {key!r} (byte {offset})"
    if problem.flaw == Flaw.WRONG_KIND:
        return f"{where}: expected {dtype}, found a {messages.NAMES[found]}."
    if problem.flaw == Flaw.NOT_MULTIPLE:
        return (
            f"{where}: found {found} values, which is no multiple of the {expected} "
            "that a step has."
        )
    return f"{where}: expected {expected} values, found {found}."


def _hint(key: str, record: bytes) -> str:
    """The key that was meant, or those that the example has."""
    try:
        keys = messages.decode_example(record)
    except InputError:
        return "."
    return did_you_mean(key, keys) if keys else "; the example has no feature at all."


def name_of(row: int, names: Names) -> str:
    """How messages call an example of the batch."""
    if names is None:
        return f"example {row} of the batch"
    given = names(row) if callable(names) else names[row]
    shown = given.decode("utf-8", "replace") if isinstance(given, bytes) else given
    return f"example {shown}"
