"""Verbs that make new elements: batch, padded_batch, unbatch, map, map_blocks, filter.

    StackedBatch(source, 128)                   # rows in, batches out
    PaddedBatch(source, 128)                    # the same for rows of different shapes
    Rebatch(source, (3, 1))                     # batches of 3, 1, 3, 1, … rows
    RaggedBatch(source, 32)                     # arrays of different lengths as Ragged
    SparseBatch(source, 32, (None,))            # arrays of different shapes as Sparse
    MapBlocks(source, lambda rows: {...})       # all rows of a block at once

Except for unbatch they read exactly what they return, so their position is the position
of their source. Unbatch saves how many rows of the current batch were returned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from estimax.core import strings
from estimax.core.errors import InputError
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.input.ops.row_functions import RowFunction
from estimax.input.streams.background import Lookahead
from estimax.input.streams.chunks import (
    Chunk,
    Columns,
    ElementList,
    MappedRows,
    as_element,
    columns_of,
)
from estimax.input.streams.columns import DataColumn, Ragged, as_column, join, stack
from estimax.input.streams.stream import (
    Context,
    DatasetNode,
    FunctionStream,
    Stream,
    VerbNode,
    VerbStream,
    check_at_least,
    elements_at_once,
    read_fully,
)
from estimax.input.streams.structure import (
    InputTypeError,
    Structure,
    call,
    lists_to_tuples,
    map_leaves,
    named_leaves,
)


@dataclass(frozen=True, eq=False)
class StackedBatch(VerbNode):
    """Batches of `batch_size` elements, stacked; the last batch may be smaller."""

    batch_size: int
    drop_remainder: bool = False
    name = "batch"
    columnar = False

    def __post_init__(self) -> None:
        check_at_least(1, self.batch_size, "batch: the batch size")

    def open(self, context: Context) -> Stream:
        return FunctionStream(self.source.open(context), self._read)

    def _read(self, source: Stream, n: int) -> Chunk | None:
        chunk = _batch_of(source, self.batch_size, self.drop_remainder)
        return None if chunk is None else ElementList([chunk.to_batch()])


@dataclass(frozen=True, eq=False)
class Map(VerbNode):
    """The results of a function that is called with one element at a time."""

    fn: Callable[..., Any]
    name = "map"
    columnar = False

    def open(self, context: Context) -> Stream:
        def read(source: Stream, n: int) -> Chunk | None:
            chunk = source.read(n)
            return None if chunk is None else self.function(chunk)

        return FunctionStream(self.source.open(context), read)

    @property
    def maps_blocks(self) -> bool:
        """Whether the function is called for blocks of rows, as far as is known."""
        return elements_at_once(self.source) > 1 and self.function.maps_blocks

    @cached_property
    def function(self) -> RowFunction:
        """The function of chunks, which is kept from epoch to epoch."""
        return row_function_of(self.source, self.fn)


def row_function_of(source: DatasetNode, fn: Callable[..., Any]) -> RowFunction:
    """Return the function that maps chunks of `source`."""
    converts = not source.columnar
    convert = as_element if converts else lists_to_tuples
    return RowFunction(fn, convert, converts=converts)


@dataclass(frozen=True, eq=False)
class MapBlocks(VerbNode):
    """The results of a vectorised function that is called with blocks of rows."""

    fn: Callable[..., Any]
    name: str = "map_blocks"
    is_ours: bool = False  # a function of estimax, whose results need no check

    def open(self, context: Context) -> Stream:
        return FunctionStream(self.source.open(context), self._read)

    def _read(self, source: Stream, n: int) -> Chunk | None:
        chunk = source.read(n)
        if chunk is None:
            return None
        return chunk.rearrange(self.fn) if self.is_ours else chunk.map_blocks(self.fn)


@dataclass(frozen=True, eq=False)
class Filter(VerbNode):
    """The elements for which `predicate` is true.

    With `blocks`, the predicate is called with a block of rows and returns a mask.
    """

    predicate: Callable[..., Any]
    blocks: bool = False
    name = "filter"

    def open(self, context: Context) -> Stream:
        mask = self._mask_of_block if self.blocks else self._mask_by_element

        def read(source: Stream, n: int) -> Chunk | None:
            while (chunk := source.read(n)) is not None:
                kept = np.flatnonzero(mask(chunk))
                if len(kept):
                    return chunk if len(kept) == len(chunk) else chunk.take(kept)
            return None

        return FunctionStream(self.source.open(context), read)

    @cached_property
    def function(self) -> RowFunction:
        """The predicate as a function of chunks, which is kept from epoch to epoch."""
        return RowFunction(self.predicate, lists_to_tuples, converts=False)

    def _mask_by_element(self, chunk: Chunk) -> Any:
        found = self.function(chunk)
        column = found.columns.tree if isinstance(found, MappedRows) else None
        if isinstance(column, np.ndarray) and column.ndim == 1:
            return column.astype(bool)
        return [bool(found.element(i)) for i in range(len(found))]

    def _mask_of_block(self, chunk: Chunk) -> Any:
        if not isinstance(chunk, Columns):
            raise InputError(
                "filter_blocks needs rows; put it before batch(), or use filter() "
                "to keep or drop whole batches."
            )
        mask = np.asarray(call(self.predicate, chunk.tree))
        if mask.dtype != bool or mask.shape != (len(chunk),):
            raise InputError(
                f"filter_blocks: the function must return a bool array [{len(chunk)}], "
                f"got {mask.dtype} {list(mask.shape)}."
            )
        return mask


@dataclass(frozen=True, eq=False)
class Unbatch(VerbNode):
    """The rows of every element, cut along its first dimension."""

    name = "unbatch"
    columnar = True

    def open(self, context: Context) -> Stream:
        return Lookahead(_UnbatchStream(self.source.open(context)), 1)


class _UnbatchStream(VerbStream):
    """All rows of one element with each read, however many were asked for."""

    def read(self, n: int) -> Chunk | None:
        while (chunk := self._source.read(1)) is not None:
            rows = columns_of(chunk.element(0))
            if len(rows):
                return rows
        return None


@dataclass(frozen=True, eq=False)
class PaddedBatch(VerbNode):
    """Batches of `batch_size` elements, padded to the longest or to a given shape."""

    batch_size: int
    padded_shapes: Any = None  # a structure whose leaves are shapes: tuples or lists
    padding_values: Any = None
    drop_remainder: bool = False
    name = "padded_batch"
    columnar = False

    def __post_init__(self) -> None:
        check_at_least(1, self.batch_size, "padded_batch: the batch size")

    def open(self, context: Context) -> Stream:
        return FunctionStream(self.source.open(context), self._read)

    def _read(self, source: Stream, n: int) -> Chunk | None:
        chunk = _batch_of(source, self.batch_size, self.drop_remainder)
        if chunk is None:
            return None
        if isinstance(chunk, ElementList):
            return ElementList([self._pad_elements(list(chunk.items), _pad_rows)])
        return ElementList([self._pad_elements([chunk.to_batch()], _pad_column)])

    def _pad_elements(
        self, trees: list[Structure], pad: Callable[..., DataColumn]
    ) -> Structure:
        first = trees[0]
        named = {id(leaf): name for name, leaf in named_leaves(first)}
        shapes = iter(_by_leaf(first, self.padded_shapes))
        one_value = not isinstance(self.padding_values, Mapping | tuple | list)
        values = iter(
            [self.padding_values] * len(named)
            if one_value
            else _by_leaf(first, self.padding_values)
        )

        def column(*rows: Any) -> DataColumn:
            where = f"padded_batch{named.get(id(rows[0]), '')}"
            return pad(rows, next(shapes), next(values), where)

        return map_leaves(column, *trees)


def _batch_of(source: Stream, size: int, drop_remainder: bool) -> Chunk | None:
    """Read the elements of one batch; None at the end, or for a dropped remainder."""
    chunk = read_fully(source, size)
    if chunk is None or (drop_remainder and len(chunk) < size):
        return None
    return chunk


def _by_leaf(tree: Structure, given: Any) -> list[Any]:
    """Return the value given for each leaf of `tree`; a shape counts as one value."""
    if tree is None:
        return []
    if isinstance(tree, Mapping | tuple):
        keys: Any = tree.keys() if isinstance(tree, Mapping) else range(len(tree))
        if given is None:
            return [leaf for key in keys for leaf in _by_leaf(tree[key], None)]
        try:
            return [leaf for key in keys for leaf in _by_leaf(tree[key], given[key])]
        except (KeyError, IndexError, TypeError) as error:
            raise InputError(
                "padded_batch: padded_shapes and padding_values must have the "
                f"structure of the elements; got {given!r}."
            ) from error
    return [given]


def _pad_rows(
    rows: Sequence[Any], shape: Sequence[int | None] | None, value: Any, where: str
) -> DataColumn:
    columns = [as_column(row) for row in rows]
    parts = [c for c in columns if not isinstance(c, Sparse | Ragged)]
    if len(parts) < len(columns):
        raise InputTypeError(
            f"{where}: sparse and ragged rows need no padding: use batch()."
        )
    dims = _dims([part.shape for part in parts], shape, where)
    if any(isinstance(part, Strings) for part in parts):
        return _pad_text(parts, dims, value, where)
    dtype = np.result_type(*{part.dtype for part in parts})  # type: ignore[union-attr]
    out = np.full((len(parts), *dims), _fill(value, dtype, where), dtype)
    for i, part in enumerate(parts):
        out[_corner(i, part.shape)] = part
    return out


def _corner(row: int | slice, shape: tuple[int, ...]) -> tuple[int | slice, ...]:
    """Return the index of a value of that shape in the corner of a padded row."""
    return (row, *(slice(size) for size in shape))


def _pad_text(
    parts: Sequence[Any], dims: tuple[int, ...], value: Any, where: str
) -> Strings:
    if value is not None and not isinstance(value, str | bytes):
        raise InputTypeError(f"{where}: text must be padded with text, not {value!r}.")
    # Gather from all texts and, as the last one, the padding: no text is copied twice.
    flat = [part.reshape((-1,)) for part in parts]
    joined = strings.concatenate([*flat, Strings.of([value or b""])])
    index = np.full((len(parts), *dims), joined.size - 1)
    start = 0
    for i, part in enumerate(parts):
        places = np.arange(start, start + part.size).reshape(part.shape)
        index[_corner(i, part.shape)] = places
        start += part.size
    padded: Strings = joined[index.reshape(-1)]
    return padded.reshape(index.shape)


def _pad_column(
    rows: Sequence[DataColumn],
    shape: Sequence[int | None] | None,
    value: Any,
    where: str,
) -> DataColumn:
    (column,) = rows
    if isinstance(column, Sparse | Ragged):
        raise InputTypeError(
            f"{where}: sparse and ragged rows need no padding: use batch()."
        )
    inner = column.shape[1:]
    dims = _dims([inner], shape, where)
    if isinstance(column, Strings):
        if dims == inner:
            return column
        return _pad_text([column[i] for i in range(len(column))], dims, value, where)
    fill = _fill(value, column.dtype, where)
    if dims == inner:
        return column
    out = np.full((len(column), *dims), fill, column.dtype)
    out[_corner(slice(None), inner)] = column
    return out


def _dims(
    found: list[tuple[int, ...]], shape: Sequence[int | None] | None, where: str
) -> tuple[int, ...]:
    """Return the padded shape of a row; raise if the ranks or sizes do not fit."""
    ranks = {len(one) for one in found} | ({len(shape)} if shape is not None else set())
    if len(ranks) > 1:
        raise InputError(
            f"{where}: expected one rank, got shapes {sorted(set(found))}"
            + (f" for padded_shapes {list(shape)}." if shape is not None else ".")
        )
    longest = [max(sizes) for sizes in zip(*found, strict=True)]
    dims = []
    for axis, size in enumerate(longest):
        fixed = None if shape is None or shape[axis] in (None, -1) else shape[axis]
        if fixed is not None and size > fixed:
            raise InputError(
                f"{where}: an element has size {size} in dimension {axis}, which is "
                f"more than the {fixed} to pad to. Cut it in map(), or pass None to "
                "pad to the longest of each batch."
            )
        dims.append(size if fixed is None else int(fixed))
    return tuple(dims)


def _fill(value: Any, dtype: np.dtype[Any], where: str) -> Any:
    """Return the padding value in the dtype of the column; 0 if none is given."""
    if value is None:
        return dtype.type(0)
    given = np.asarray(value)
    same = given.dtype == dtype if hasattr(value, "dtype") else True
    if given.dtype.kind != dtype.kind or not same:
        raise InputTypeError(
            f"{where}: values are {dtype}, the padding value {value!r} is "
            f"{given.dtype}. Pass a padding value of the same dtype."
        )
    return given.astype(dtype)[()]


@dataclass(frozen=True, eq=False)
class Rebatch(VerbNode):
    """The rows of all batches, in batches of other sizes, which are used in turn."""

    sizes: tuple[int, ...]
    drop_remainder: bool = False
    name = "rebatch"
    columnar = False

    def __post_init__(self) -> None:
        if not self.sizes:
            raise InputError("rebatch: batch_size must not be an empty list.")
        for size in self.sizes:
            check_at_least(1, size, "rebatch: the batch size")

    def open(self, context: Context) -> Stream:
        return _RebatchStream(self, Unbatch(self.source).open(context))


class _RebatchStream(VerbStream):
    saved = ("number",)

    def __init__(self, node: Rebatch, rows: Stream) -> None:
        super().__init__(rows)
        self._node = node
        self._number = 0  # batches returned

    def read(self, n: int) -> Chunk | None:
        size = self._node.sizes[self._number % len(self._node.sizes)]
        chunk = read_fully(self._source, size)
        if chunk is None or (self._node.drop_remainder and len(chunk) < size):
            return None
        self._number += 1
        return ElementList([chunk.to_batch()])


@dataclass(frozen=True, eq=False)
class RaggedBatch(VerbNode):
    """Batches in which arrays of different lengths are rows of a `Ragged`."""

    batch_size: int
    drop_remainder: bool = False
    row_splits_dtype: str = "int64"
    name = "ragged_batch"
    columnar = False

    def __post_init__(self) -> None:
        check_at_least(1, self.batch_size, "ragged_batch: the batch size")
        if self.row_splits_dtype not in ("int32", "int64"):
            raise InputError(
                "ragged_batch: row_splits_dtype must be int32 or int64, got "
                f"{self.row_splits_dtype}."
            )

    def open(self, context: Context) -> Stream:
        return FunctionStream(self.source.open(context), self._read)

    def _read(self, source: Stream, n: int) -> Chunk | None:
        chunk = read_fully(source, self.batch_size)
        if chunk is None or (self.drop_remainder and len(chunk) < self.batch_size):
            return None
        if isinstance(chunk, Columns):  # rows of a source have one shape
            return ElementList([chunk.to_batch()])
        return ElementList([map_leaves(self._column, *chunk.items)])

    def _column(self, *rows: Any) -> Structure:
        columns = [as_column(row) for row in rows]
        first = columns[0]
        if isinstance(first, Sparse) or getattr(first, "shape", None) == ():
            return stack(rows)
        dtype = np.dtype(self.row_splits_dtype)
        if isinstance(first, Ragged):
            made = stack(columns)
            assert isinstance(made, Ragged)
            splits = tuple(each.astype(dtype) for each in made.row_splits)
            return Ragged(made.values, splits)
        shapes = {getattr(column, "shape", (0,))[1:] for column in columns}
        if len(shapes) > 1:
            raise InputError(
                "ragged_batch: arrays may differ in their first dimension only, got "
                f"other dimensions {sorted(shapes)}. Use sparse_batch or padded_batch."
            )
        lengths = np.cumsum([0, *(len(column) for column in columns)]).astype(dtype)
        values = join(columns)
        assert not isinstance(values, Sparse | Ragged)
        return Ragged(values, (lengths,))


@dataclass(frozen=True, eq=False)
class SparseBatch(VerbNode):
    """Batches of arrays of different shapes as `Sparse`; all values are kept."""

    batch_size: int
    row_shape: tuple[int | None, ...]
    name = "sparse_batch"
    columnar = False

    def __post_init__(self) -> None:
        check_at_least(1, self.batch_size, "sparse_batch: the batch size")

    def open(self, context: Context) -> Stream:
        return FunctionStream(self.source.open(context), self._read)

    def _read(self, source: Stream, n: int) -> Chunk | None:
        chunk = read_fully(source, self.batch_size)
        if chunk is None:
            return None
        rows = [self._row(chunk.element(i)) for i in range(len(chunk))]
        return ElementList([self._batch(rows)])

    def _row(self, element: Structure) -> Any:
        row = None if isinstance(element, dict | tuple) else as_column(element)
        if not isinstance(row, np.ndarray | Strings):
            raise InputTypeError(
                "sparse_batch: elements must be single arrays, got "
                f"{type(element).__name__}. Pick one with map()."
            )
        pairs = zip(row.shape, self.row_shape, strict=False)
        fits = all(limit in (None, -1) or size <= limit for size, limit in pairs)
        if len(row.shape) != len(self.row_shape) or not fits:
            raise InputError(
                f"sparse_batch: an element has shape {list(row.shape)}, which does not "
                f"fit into the row_shape {list(self.row_shape)}."
            )
        return row

    def _batch(self, rows: list[Any]) -> Sparse:
        indices = [
            np.insert(np.indices(row.shape).reshape(len(row.shape), -1).T, 0, i, axis=1)
            for i, row in enumerate(rows)
        ]
        flat = [row.reshape((-1,)) for row in rows]
        is_text = isinstance(flat[0], Strings)
        values = strings.concatenate(flat) if is_text else np.concatenate(flat)
        longest = np.max([row.shape for row in rows], axis=0).tolist()
        shape = [
            size if limit in (None, -1) else int(limit or 0)
            for size, limit in zip(longest, self.row_shape, strict=True)
        ]
        where = np.concatenate(indices).astype(np.int64)
        return Sparse(where, values, (len(rows), *shape))
