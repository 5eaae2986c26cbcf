"""Parse Example messages into columns, a batch in two calls of compiled code.

    features = make_parse_example_spec(columns)
    batch = parse_example(records, features)          # key -> column

    parser = ExampleParser(features)                  # made once, for many batches
    batch = parser(block.records, block.name)

A column is a NumPy array or `Strings` [B, *shape] for a feature of fixed length,
`Sparse` for one of variable length, and `Ragged` for a ragged one. The kernels release
the GIL, so several threads can parse several batches at once. The second half of the
file cuts the values of a `RaggedFeature` into rows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import InputError
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings, concatenate
from estimax.input.examples.specs import (
    AttachData,
    ExampleError,
    FeatureSpec,
    FixedLenFeature,
    FixedLenSequenceFeature,
    Names,
    Partition,
    RaggedFeature,
    RowLengths,
    RowLimits,
    RowSplits,
    RowStarts,
    SparseFeature,
    UniformRowLength,
    VarLenFeature,
    name_of,
    raise_problem,
)
from estimax.input.streams.block_rows import BlockValue
from estimax.input.streams.ragged import Ragged
from estimax.input.streams.row_forms import ROW, RowForm
from estimax.native.example_types import (
    KINDS,
    FeatureRequest,
    FeatureValues,
    ParsedColumns,
    Problem,
    Variable,
)
from estimax.native.examples import ExamplePlan

Parsed = dict[str, Any]  # arrays, Strings, Sparse and Ragged
_Make = Callable[[ParsedColumns, Names], Any]
_MOST_SHOWN = 3  # features in a repr
_SPARSE = RowForm("sparse")


def parse_example(
    serialized: Any, features: Mapping[str, FeatureSpec], example_names: Names = None
) -> Parsed:
    """Parse a batch of serialized Examples into one column for each feature.

    Use it in a `map` over batches of records: `dataset.batch(512).map(parse)`. The
    parser is built once for the same features. `ExampleParser` holds one explicitly.

    Args:
      serialized: A vector of B serialized Examples: `Strings`, a list or an array.
      features: What to parse, by key: `FixedLenFeature`, `VarLenFeature`,
        `FixedLenSequenceFeature`, `SparseFeature` or `RaggedFeature`.
      example_names: The names of the examples in error messages: a sequence, or a
        function of the index in the batch.

    Returns:
      A dict with one column for each feature.

    Raises:
      InputError: `features` is empty or not valid, or `serialized` is not a vector.
      ExampleError: An example is damaged or does not fit the features.

    Example:
      >>> from estimax.input import VarLenFeature, serialize_examples
      >>> records = serialize_examples({"x": np.array([1.5, 2.5]), "s": ["a", "b"]})
      >>> parse_example(records, {"x": FixedLenFeature([], "float32")})
      {'x': array([1.5, 2.5], dtype=float32)}
      >>> parse_example(records, {"s": VarLenFeature("string")})["s"].values
      Strings([b'a', b'b'], shape=(2,))
    """
    parsed = parser_of(features)(serialized, example_names)
    recorded = _parsings.get()
    if recorded is not None:
        # A copy of the dict, which the caller may change.
        recorded.append(Parsing(Strings.of(serialized), dict(features), dict(parsed)))
    return parsed


@dataclass(frozen=True, eq=False)
class Parsing:
    """A call of `parse_example`: its records, its features and its result."""

    records: Strings
    features: Mapping[str, FeatureSpec]
    parsed: Parsed


_parsings: ContextVar[list[Parsing] | None] = ContextVar("parsings", default=None)


@contextmanager
def recorded_parsings() -> Iterator[list[Parsing]]:
    """Record the calls of `parse_example` in a block, for an export."""
    found: list[Parsing] = []
    token = _parsings.set(found)
    try:
        yield found
    finally:
        _parsings.reset(token)


def parse_single_example(
    serialized: Any, features: Mapping[str, FeatureSpec], example_names: Any = None
) -> Parsed:
    """Parse one serialized Example into values without a batch dimension.

    Use it in a `map` over single records. Before `batch`, `map` calls it for many
    records at once; otherwise `parse_example` is faster.

    Args:
      serialized: The bytes of one Example; in a `map`, what stands for those of a row.
      features: What to parse, by key, as in `parse_example`.
      example_names: The name of the example in error messages.

    Returns:
      A dict with one value for each feature.

    Raises:
      InputError: `features` is empty or not valid, or `serialized` is not bytes.
      ExampleError: The example is damaged or does not fit the features.

    Example:
      >>> from estimax.input import Example
      >>> record = Example.of({"x": [1.5, 2.5]}).serialize()
      >>> parse_single_example(record, {"x": FixedLenFeature([2], "float32")})
      {'x': array([1.5, 2.5], dtype=float32)}
    """
    if isinstance(serialized, BlockValue):
        return _parse_block(serialized, features)
    if not isinstance(serialized, bytes | bytearray):
        raise InputError(
            "parse_single_example: expected one example as bytes, got "
            f"{type(serialized).__name__}. Use parse_example for several."
        )
    names = None if example_names is None else [example_names]
    ends = np.array([0, len(serialized)])
    records = Strings(np.frombuffer(serialized, np.uint8), ends, (1,))
    batch = parse_example(records, features, names)
    return {key: without_batch(column) for key, column in batch.items()}


def _parse_block(serialized: BlockValue, features: Mapping[str, FeatureSpec]) -> Parsed:
    """Parse the records of many rows at once, for `map`."""
    for feature in features.values():
        if isinstance(feature, FixedLenSequenceFeature | RaggedFeature):
            serialized.block.refuse(f"parses a {type(feature).__name__}")
    batch = parse_example(serialized.text, features)
    # The sparse value of one record is as wide as the values of that record.
    forms = {
        key: _SPARSE for key, f in features.items() if isinstance(f, VarLenFeature)
    }
    return {
        key: serialized.like(column, forms.get(key, ROW))
        for key, column in batch.items()
    }


def parser_of(features: Mapping[str, FeatureSpec]) -> ExampleParser:
    """Return a parser of these features, from a cache if the features are hashable."""
    try:
        return _kept_parser(tuple(features.items()) if features else ())
    except TypeError:  # a default that is a list or an array
        return ExampleParser(features)


@functools.lru_cache(maxsize=64)
def _kept_parser(features: tuple[tuple[str, FeatureSpec], ...]) -> ExampleParser:
    return ExampleParser(dict(features))


class ExampleParser:
    """A function that parses batches of Examples with one set of features.

    Use it as the argument of `Dataset.map` after `batch`. It may be called from several
    threads at once. Call it with a vector of records, and `example_names` as in
    `parse_example`.

    Args:
      features: What to parse, by key, as in `parse_example`.

    Raises:
      InputError: `features` is empty, a dtype or shape is not possible, or two features
        read the same key in ways that exclude each other.

    Example:
      >>> from estimax.input import serialize_examples
      >>> parser = ExampleParser({"x": FixedLenFeature([], "int64")})
      >>> parser(serialize_examples({"x": [7, 8]}))
      {'x': array([7, 8])}
      >>> parser
      ExampleParser(
        x: FixedLenFeature(shape=(), dtype='int64', default_value=None)
      )
    """

    def __init__(self, features: Mapping[str, FeatureSpec]) -> None:
        if not features:
            raise InputError("parse_example: `features` must not be empty.")
        self.features = dict(features)
        self._wanted: dict[str, FeatureRequest] = {}
        self._groups: dict[str, str] = {}
        self._places: dict[str, int] = {}
        self._makers: dict[str, _Make] = {}
        for key, feature in self.features.items():
            self._makers[key] = self._maker(key, feature)
        self._plan = ExamplePlan(list(self._wanted.values()))

    def __call__(self, serialized: Any, example_names: Names = None) -> Parsed:
        """Parse a vector of serialized Examples into a dict of columns."""
        records = as_records(serialized, "parse_example")
        raw = self._plan.run(records)
        with AttachData(records):
            if isinstance(raw, Problem):
                raise_problem(raw, self._plan.wanted, records, example_names)
            return {key: make(raw, example_names) for key, make in self._makers.items()}

    def __repr__(self) -> str:
        lines = [f"  {key}: {spec}" for key, spec in self.features.items()]
        if len(lines) > _MOST_SHOWN:
            lines[_MOST_SHOWN:] = [f"  … {len(lines) - _MOST_SHOWN} more"]
        return "\n".join(["ExampleParser(", *lines, ")"])

    def _maker(self, key: str, feature: FeatureSpec) -> _Make:
        """Register the keys of a feature; return a function that makes its column."""
        if not isinstance(feature, FeatureSpec):
            raise InputError(
                f"feature {key!r}: expected FixedLenFeature, VarLenFeature, "
                "SparseFeature, FixedLenSequenceFeature or RaggedFeature, got "
                f"{type(feature).__name__}."
            )
        check_dtype(key, feature.dtype)
        if isinstance(feature, FixedLenFeature):
            return self._fixed(key, feature)
        if isinstance(feature, FixedLenSequenceFeature):
            return self._padded(key, feature)
        if isinstance(feature, SparseFeature):
            return self._indexed(key, feature)
        if isinstance(feature, RaggedFeature):
            return self._ragged(key, feature)
        place = self._want(FeatureRequest(key, feature.dtype, indices=True), "sparse")
        return lambda raw, names: raw.sparse(place)

    def _fixed(self, key: str, feature: FixedLenFeature) -> _Make:
        size = size_of(key, feature.shape)
        default = _default_of(key, feature.default_value, feature.dtype, size)
        place = self._want(FeatureRequest(key, feature.dtype, size, default), "dense")
        return lambda raw, names: raw.fixed(place, feature.shape)

    def _padded(self, key: str, feature: FixedLenSequenceFeature) -> _Make:
        if not feature.allow_missing:
            raise InputError(
                f"feature {key!r}: FixedLenSequenceFeature requires allow_missing=True "
                "here, because an example may have any number of steps."
            )
        step = size_of(key, feature.shape)
        if not step:
            raise InputError(
                f"feature {key!r}: a step of shape {feature.shape} has no values."
            )
        default = _default_of(key, feature.default_value, feature.dtype, 1)
        place = self._want(FeatureRequest(key, feature.dtype, multiple=step), "dense")
        blank = default[0] if default else blank_of(feature.dtype)

        def make(raw: ParsedColumns, names: Names) -> FeatureValues:
            found = raw.variable(place)
            flat = pad_rows(found.values, found.splits, found.longest, blank)
            return flat.reshape((raw.rows, found.longest // step, *feature.shape))

        return make

    def _indexed(self, key: str, feature: SparseFeature) -> _Make:
        values = self._want(FeatureRequest(feature.value_key, feature.dtype), "sparse")
        indices = [
            self._want(FeatureRequest(k, "int64"), "sparse") for k in feature.index_keys
        ]

        def make(raw: ParsedColumns, names: Names) -> Sparse:
            found = [raw.variable(place) for place in indices]
            return _indexed_sparse(key, feature, raw.variable(values), found, names)

        return make

    def _ragged(self, key: str, feature: RaggedFeature) -> _Make:
        value_key = feature.value_key or key
        values = self._want(FeatureRequest(value_key, feature.dtype), "ragged")
        places = [
            None
            if isinstance(partition, UniformRowLength)
            else self._want(FeatureRequest(partition.key, "int64"), "ragged")
            for partition in feature.partitions
        ]

        def make(raw: ParsedColumns, names: Names) -> Ragged:
            keys = [None if p is None else raw.variable(p) for p in places]
            found = raw.variable(values)
            return ragged_of(feature, found, keys, names, f"feature {key!r}: ")

        return make

    def _want(self, wanted: FeatureRequest, group: str) -> int:
        """Register a key, once for all features that share it; return its number."""
        key = wanted.key
        known = self._wanted.get(key)
        if known is None:
            self._wanted[key], self._groups[key] = wanted, group
            return self._places.setdefault(key, len(self._places))
        if group == "dense" or self._groups[key] != group:
            raise InputError(
                f"two features read key {key!r}, one as {self._groups[key]} and one as "
                f"{group}. Remove one of them."
            )
        if known.dtype != wanted.dtype:
            raise InputError(
                f"two features read key {key!r}, one as {known.dtype} and one as "
                f"{wanted.dtype}. Use the same dtype for both."
            )
        indices = known.indices or wanted.indices
        self._wanted[key] = replace(known, indices=indices)
        return self._places[key]


def as_records(serialized: Any, where: str) -> Strings:
    """Return serialized examples as `Strings`; raise unless they are a vector."""
    if isinstance(serialized, bytes | str):
        raise InputError(
            f"{where}: expected a vector of serialized examples, got one example. Use "
            "parse_single_example, or pass a list."
        )
    records = Strings.of(
        list(serialized) if isinstance(serialized, tuple) else serialized
    )
    if records.ndim != 1:
        raise InputError(
            f"{where}: expected a vector of serialized examples, got shape "
            f"{records.shape}."
        )
    return records


def check_dtype(key: str, dtype: str) -> None:
    """Raise `InputError` for a dtype that an Example cannot hold."""
    if dtype not in KINDS:
        raise InputError(
            f"feature {key!r}: dtype must be float32, int64 or string, got {dtype}. "
            "An Example holds no others: parse one of these, then convert."
        )


def size_of(key: str, shape: tuple[int | None, ...]) -> int:
    """Return the number of values of a shape; raise if a dimension is unknown."""
    known = [n for n in shape if n is not None and n >= 0]
    if len(known) < len(shape):
        raise InputError(
            f"feature {key!r}: the shape must be fully known, got {shape}."
        )
    return int(np.prod(known, dtype=np.int64))


def blank_of(dtype: str) -> Any:
    """Return the value that pads rows when no default is given."""
    return b"" if dtype == "string" else 0


def without_batch(column: Any) -> Any:
    """Return the only row of a batch of one."""
    if isinstance(column, Sparse):
        return Sparse(column.indices[:, 1:], column.values, column.dense_shape[1:])
    if isinstance(column, Ragged):
        inner = column.row_splits[1:]
        return Ragged(column.values, inner) if inner else column.values
    return column[0]


def pad_rows(
    values: FeatureValues, splits: NDArray[np.int64], width: int, blank: Any
) -> FeatureValues:
    """Return rows of different lengths as one array [rows, width], padded."""
    counts = np.diff(splits)
    rows = np.repeat(np.arange(len(counts)), counts)
    places = np.arange(len(rows)) - np.repeat(splits[:-1], counts)
    if isinstance(values, Strings):
        # The blank string is appended to the values, and every gap takes its index.
        taken = np.full((len(counts), width), len(values), np.int64)
        taken[rows, places] = np.arange(len(rows))
        joined = concatenate([values, Strings.of([blank])])
        padded: Strings = joined[taken.reshape(-1)]
        return padded.reshape((len(counts), width))
    out = np.full((len(counts), width), blank, values.dtype)
    out[rows, places] = values
    return out


def _indexed_sparse(
    key: str,
    feature: SparseFeature,
    found: Variable,
    indices: list[Variable],
    names: Names,
) -> Sparse:
    counts = np.diff(found.splits)
    for index_key, index in zip(feature.index_keys, indices, strict=True):
        wrong = np.flatnonzero(np.diff(index.splits) != counts)
        if len(wrong):
            row = int(wrong[0])
            raise ExampleError(
                f"{name_of(row, names)}: feature {key!r}: found {counts[row]} values "
                f"under {feature.value_key!r} and {np.diff(index.splits)[row]} indices "
                f"under {index_key!r}; expected as many indices as values.",
                row,
                key,
            )
    rows = np.repeat(np.arange(len(counts)), counts)
    columns = [rows, *(np.asarray(index.values, np.int64) for index in indices)]
    values, table = found.values, np.stack(columns, axis=1)
    if not feature.already_sorted:
        order = np.lexsort(columns[::-1])  # stable; sorts by its last key first
        values, table = values[order], table[order]
    return Sparse(table, values, (len(counts), *feature.sizes))


def _default_of(key: str, default: Any, dtype: str, size: int) -> list[Any] | None:
    if default is None:
        return None
    if dtype == "string":
        wrapped = [default] if isinstance(default, str | bytes) else default
        values: list[Any] = Strings.of(wrapped).tolist()
    else:
        values = np.asarray(default, dtype).reshape(-1).tolist()
    if len(values) != size:
        raise InputError(
            f"feature {key!r}: default_value must have {size} values, got "
            f"{len(values)}. A shorter default is not repeated."
        )
    return values


_Ints = NDArray[np.int64]
# Inner rows of a batch. Row ids come from the file: a large one in a damaged or hostile
# file must not make us allocate all memory.
_MOST_ROWS = 1 << 31


def ragged_of(
    feature: RaggedFeature,
    found: Variable,
    keys: Sequence[Variable | None],
    names: Names = None,
    where: str = "",
) -> Ragged:
    """Return the values of all records, cut into rows by the partitions of a feature.

    `keys` holds the integers of each partition, None for a uniform row length.
    """
    values, counts = found.values, np.diff(found.splits)
    inner: list[_Ints] = []
    pairs = list(zip(feature.partitions, keys, strict=True))
    # From the innermost partition outwards: `counts` is the number of items that each
    # record has at the present level, first values, then rows of the level below.
    for partition, key in reversed(pairs):
        if isinstance(partition, UniformRowLength) and not inner:
            values, counts = _fold(values, counts, partition.length, names, where)
            continue
        lengths, rows = _row_lengths(partition, key, counts)
        _check(partition, lengths, rows, counts, names, where)
        inner.insert(0, _splits(lengths))
        counts = rows
    dtype = np.dtype(feature.row_splits_dtype)
    splits = (_splits(counts), *inner)
    return Ragged(values, tuple(s.astype(dtype, copy=False) for s in splits))


def _fold(
    values: FeatureValues, counts: _Ints, length: int, names: Names, where: str
) -> tuple[FeatureValues, _Ints]:
    """Turn innermost rows of one length into an axis of the values."""
    wrong = np.flatnonzero(counts % max(length, 1)) if length > 0 else np.arange(1)
    if len(wrong):
        row = int(wrong[0])
        raise ExampleError(
            f"{name_of(row, names)}: {where}{counts[row]} values cannot be cut into "
            f"rows of {length}.",
            row,
        )
    shape = (-1, length, *values.shape[1:])
    folded: FeatureValues = values.reshape(shape)
    return folded, counts // length


def _row_lengths(
    partition: Partition, key: Variable | None, counts: _Ints
) -> tuple[_Ints, _Ints]:
    """Return the lengths of all rows, and the number of rows of each record."""
    if isinstance(partition, UniformRowLength):
        rows = counts // max(partition.length, 1)
        return np.full(int(rows.sum()), partition.length, np.int64), rows
    assert key is not None
    numbers, rows = _integers(key.values), np.diff(key.splits)
    record = np.repeat(np.arange(len(rows)), rows)
    is_first = np.ones(len(numbers), bool)
    is_first[1:] = record[1:] != record[:-1]
    if isinstance(partition, RowLengths):
        return numbers, rows
    if isinstance(partition, RowSplits):
        # The difference of neighbours, except across two records.
        return np.diff(numbers)[~is_first[1:]], np.maximum(rows - 1, 0)
    if isinstance(partition, RowLimits):
        before = np.where(is_first, 0, np.roll(numbers, 1))
        return numbers - before, rows
    is_last = np.roll(is_first, -1)
    if isinstance(partition, RowStarts):
        after = np.where(is_last, counts[record], np.roll(numbers, -1))
        return after - numbers, rows
    return _lengths_from_ids(numbers, record, is_first, is_last, rows)


def _lengths_from_ids(
    numbers: _Ints,
    record: _Ints,
    is_first: NDArray[np.bool_],
    is_last: NDArray[np.bool_],
    rows: _Ints,
) -> tuple[_Ints, _Ints]:
    """Return row lengths from the row id of every value; absent ids are empty rows.

    Invalid ids give a negative length, which `_check` reports.
    """
    before = np.where(is_first, 0, np.roll(numbers, 1))
    if np.any(numbers < before):
        return -(numbers < before).astype(np.int64), rows  # -1 where ids descend
    found = np.zeros(len(rows), np.int64)
    found[record[is_last]] = numbers[is_last] + 1
    if found.sum() > _MOST_ROWS:
        return np.full(len(numbers), -1, np.int64), rows
    place = numbers + (np.cumsum(found) - found)[record]
    return np.bincount(place, minlength=int(found.sum())), found


def _check(
    partition: Partition,
    lengths: _Ints,
    rows: _Ints,
    counts: _Ints,
    names: Names,
    where: str,
) -> None:
    """Raise unless all lengths are >= 0 and add up to the items of their record."""
    negative = np.flatnonzero(lengths < 0)
    if len(negative):
        row = (
            int(np.searchsorted(_splits(np.maximum(rows, 0)), negative[0], "right")) - 1
        )
        raise ExampleError(
            f"{name_of(row, names)}: {where}{partition} must ascend and hold no "
            "negative numbers.",
            row,
        )
    totals = np.diff(_splits(lengths)[_splits(rows)])
    wrong = np.flatnonzero(totals != counts)
    if len(wrong):
        row = int(wrong[0])
        raise ExampleError(
            f"{name_of(row, names)}: {where}{partition} makes rows of {totals[row]} "
            f"values in total, but there are {counts[row]} values.",
            row,
        )


def _integers(values: FeatureValues) -> _Ints:
    assert not isinstance(values, Strings)
    return values


def _splits(lengths: NDArray[Any]) -> _Ints:
    splits = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=splits[1:])
    return splits
