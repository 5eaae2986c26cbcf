"""What to parse from an Example, and the error for an example that does not fit.

    features = {
        "age": FixedLenFeature([], "float32", default_value=-1.0),
        "tags": VarLenFeature("string"),
        "scores": SparseFeature("index", "value", "float32", size=100),
        "words": RaggedFeature("string", partitions=[RowLengths("words_per_line")]),
    }

The dtypes are float32, int64 and string; an Example has no others. Parsers report what
does not fit as an `ExampleError` (`raise_problem`), which names the example, the
feature and the byte.
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
from estimax.formats import messages
from estimax.native.example_types import FeatureRequest, Flaw, Problem


@dataclass(frozen=True)
class FixedLenSequenceFeature:
    """A feature with any number of steps per example, padded to the longest one.

    Use it for sequences that a model wants as a dense array [B, steps, *shape]. In
    `parse_example` it needs `allow_missing=True`. In `parse_sequence_example` it reads
    a feature list, and the number of steps is returned as well.

    Args:
      shape: The shape of one step.
      dtype: "float32", "int64" or "string".
      allow_missing: Whether an example may lack the feature. It then has 0 steps.
      default_value: The value that pads short examples: 0 or "" by default. Not
        possible in `parse_sequence_example`.

    Example:
      >>> from estimax.input import parse_example, serialize_examples
      >>> spec = {"x": FixedLenSequenceFeature([2], "float32", allow_missing=True)}
      >>> records = serialize_examples({"x": [[1.0, 2.0, 3.0, 4.0]]})
      >>> parse_example(records, spec)["x"].tolist()
      [[[1.0, 2.0], [3.0, 4.0]]]
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
    """A sparse feature: values under one key, their indices under other keys.

    Use it where an example stores pairs of index and value, such as word counts.

    Args:
      index_key: The key of the indices; for several dimensions, one key for each.
      value_key: The key of the values.
      dtype: The dtype of the values: "float32", "int64" or "string".
      size: The size of the dense row; for several dimensions, one size for each.
      already_sorted: Whether the indices of every example ascend. If True, they are
        not sorted after parsing.

    Raises:
      InputError: `index_key` and `size` have different numbers of dimensions.

    Example:
      >>> from estimax.input import Example, parse_example
      >>> record = Example.of({"i": [3, 1], "v": [0.5, 2.0]}).serialize()
      >>> spec = {"x": SparseFeature("i", "v", "float32", size=10)}
      >>> found = parse_example([record], spec)["x"]
      >>> found.indices.tolist(), found.values.tolist(), found.dense_shape
      ([[0, 1], [0, 3]], [2.0, 0.5], (1, 10))
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
        """The index keys as a tuple, one for each dimension."""
        return (self.index_key,) if isinstance(self.index_key, str) else self.index_key

    @property
    def sizes(self) -> tuple[int, ...]:
        """The dense shape of a row."""
        return (self.size,) if isinstance(self.size, int) else self.size


@dataclass(frozen=True)
class _KeyedPartition:
    """A partition into inner rows by the integers under `key` of the same example."""

    key: str


class RowSplits(_KeyedPartition):
    """The integers are the start of every row, and the end of the last row."""


class RowLengths(_KeyedPartition):
    """The integers are the lengths of the rows."""


class RowStarts(_KeyedPartition):
    """The integers are the starts of the rows."""


class RowLimits(_KeyedPartition):
    """The integers are the ends of the rows."""


class ValueRowIds(_KeyedPartition):
    """The integers are the row of every value, in ascending order."""


@dataclass(frozen=True)
class UniformRowLength:
    """A partition into inner rows that all have `length` items."""

    length: int


Partition = (
    RowSplits | RowLengths | RowStarts | RowLimits | ValueRowIds | UniformRowLength
)


@dataclass(frozen=True)
class RaggedFeature:
    """A feature with any number of values per example, possibly nested.

    Use it for lists of lists. `partitions` say how the values of an example are cut
    into inner rows; the integers that say where come from the same example.

    Args:
      dtype: The dtype of the values: "float32", "int64" or "string".
      value_key: The key of the values, by default the key of the feature.
      partitions: `RaggedFeature.RowLengths(key)`, `RowSplits`, `RowStarts`,
        `RowLimits`, `ValueRowIds` or `UniformRowLength(length)`, the outermost first.
      row_splits_dtype: The dtype of the row splits: "int32" or "int64".
      validate: Has no effect: row splits are always validated.

    Raises:
      InputError: `row_splits_dtype` is neither int32 nor int64.

    Example:
      >>> from estimax.input import Example, parse_example
      >>> record = Example.of({"v": [1, 2, 3], "n": [2, 1]}).serialize()
      >>> spec = RaggedFeature(
      ...     "int64", value_key="v", partitions=[RaggedFeature.RowLengths("n")])
      >>> parse_example([record], {"words": spec})["words"].tolist()
      [[[1, 2], [3]]]
    """

    dtype: str
    value_key: str | None = None
    partitions: tuple[Partition, ...] = ()
    row_splits_dtype: str = "int32"
    validate: bool = False

    # Programs written for tf.io use `RaggedFeature.RowSplits` and so on.
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


# The names of the examples of a batch in messages: one for each, or a function of the
# index in the batch. None names them by that index.
Names = Sequence[Any] | Callable[[int], Any] | None


class ExampleError(InputError):
    """An example that cannot be parsed, or does not fit the features to parse.

    Attributes:
      record: The index of the example in its batch.
      feature: The key of the feature that is wrong, if it is known.
      offset: The byte in the example at which the error was found.
      data: The bytes of the example.
      where: The file, record and byte of the example, if a dataset found it.
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
    """A context manager that sets `data` of an `ExampleError` raised in its block.

    It is a class because every batch enters it: a generator takes four times as long.
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
    problem: Problem, wanted: Sequence[FeatureRequest], records: Strings, names: Names
) -> NoReturn:
    """Raise an `ExampleError` for a problem that a parser found."""
    text, key = _described(problem, wanted, records), None
    if problem.feature is not None:
        key = wanted[problem.feature].key
    where = name_of(problem.row, names)
    raise ExampleError(f"{where}: {text}", problem.row, key, problem.offset)


def _described(
    problem: Problem, wanted: Sequence[FeatureRequest], records: Strings
) -> str:
    """Return a sentence on what is wrong, without the name of the example."""
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
        return f"{where}: expected {dtype}, found a {messages.LIST_NAMES[found]}."
    if problem.flaw == Flaw.NOT_MULTIPLE:
        return (
            f"{where}: found {found} values, which is not a multiple of {expected}, "
            "the number of values in a step."
        )
    return f"{where}: expected {expected} values, found {found}."


def _hint(key: str, record: bytes) -> str:
    """Return a suggestion: the key nearest to `key`, or the keys of the example."""
    try:
        keys = messages.decode_example(record)
    except InputError:
        return "."
    listed = did_you_mean(key, keys, listed_as="found")
    return listed if keys else "; the example has no features."


def name_of(row: int, names: Names) -> str:
    """Return the name of an example of the batch, for messages."""
    if names is None:
        return f"example {row} of the batch"
    given = names(row) if callable(names) else names[row]
    shown = given.decode("utf-8", "replace") if isinstance(given, bytes) else given
    return f"example {shown}"
