"""Verbs that make batches of other forms: rebatch, ragged_batch, sparse_batch.

Rebatch(source, (3, 1))            # batches of 3, 1, 3, 1, … rows
RaggedBatch(source, 32)            # arrays of different lengths as Ragged
SparseBatch(source, 32, (None,))   # arrays of different shapes as Sparse
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from estimax.core import strings
from estimax.core.errors import InputError
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.input.ops.batching import Unbatch
from estimax.input.streams.chunks import Chunk, Columns, Elements
from estimax.input.streams.columns import as_column, join, stack
from estimax.input.streams.ragged import Ragged
from estimax.input.streams.stream import (
    Context,
    FunctionStream,
    Stream,
    VerbNode,
    VerbStream,
    check_at_least,
    read_fully,
)
from estimax.input.streams.structure import InputTypeError, Structure, map_leaves


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
        return Elements([chunk.stacked()])


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
            return Elements([chunk.stacked()])
        return Elements([map_leaves(self._column, *chunk.items)])

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
        return Elements([self._batch(rows)])

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
