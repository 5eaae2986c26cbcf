"""Verbs that change elements: batch, unbatch, map, map_blocks, filter.

    Batch(source, 128)                          # rows in, batches out
    MapBlocks(source, lambda rows: {...})       # all rows of a block at once

All but unbatch never look ahead, so their position is their source's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from estimax.core.errors import InputError
from estimax.input.streams.chunks import (
    Chunk,
    Columns,
    Elements,
    as_element,
    columns_of,
)
from estimax.input.streams.derived import Derived
from estimax.input.streams.lookahead import Lookahead
from estimax.input.streams.stream import (
    Context,
    Node,
    Stream,
    check_at_least,
    read_fully,
)
from estimax.input.streams.structure import call, lists_to_tuples

# So that a thread has more to do than to be woken.
_ROWS_PER_CALL = 16


@dataclass(frozen=True, eq=False)
class Batch:
    """Stacks `size` elements into one; the last batch may be short."""

    source: Node
    size: int
    drop_remainder: bool = False
    name = "batch"
    columnar = False

    def __post_init__(self) -> None:
        check_at_least(1, self.size, "batch: the batch size")

    def open(self, context: Context) -> Stream:
        """Start with the source's first element."""
        return Derived(self.source.open(context), self._read)

    def _read(self, source: Stream, n: int) -> Chunk | None:
        chunk = read_fully(source, self.size)
        if chunk is None or (self.drop_remainder and len(chunk) < self.size):
            return None
        return Elements([chunk.stacked()])


@dataclass(frozen=True, eq=False)
class Map:
    """Calls a function with one element at a time: a batch, once batched."""

    source: Node
    fn: Callable[..., Any]
    name = "map"
    columnar = False

    def open(self, context: Context) -> Stream:
        """Start with the source's first element."""
        mapper, _ = mapper_of(self.source, self.fn)

        def read(source: Stream, n: int) -> Chunk | None:
            chunk = source.read(n)
            return None if chunk is None else mapper(chunk)

        return Derived(self.source.open(context), read)


def mapper_of(
    source: Node, fn: Callable[..., Any]
) -> tuple[Callable[[Chunk], Chunk], int]:
    """What `map` does with a chunk, and how many elements a thread takes at once."""
    convert = lists_to_tuples if source.columnar else as_element

    def mapper(chunk: Chunk) -> Chunk:
        elements = (chunk.element(i) for i in range(len(chunk)))
        return Elements([convert(call(fn, element)) for element in elements])

    return mapper, _ROWS_PER_CALL if source.columnar else 1


@dataclass(frozen=True, eq=False)
class MapBlocks:
    """Calls a vectorised function with as many rows as happen to travel together."""

    source: Node
    fn: Callable[..., Any]
    name: str = "map_blocks"
    is_ours: bool = False  # and needs no check of what it returns

    @property
    def columnar(self) -> bool:
        """As its source."""
        return self.source.columnar

    def open(self, context: Context) -> Stream:
        """Start with the source's first element."""
        return Derived(self.source.open(context), self._read)

    def _read(self, source: Stream, n: int) -> Chunk | None:
        chunk = source.read(n)
        if chunk is None:
            return None
        return chunk.rearranged(self.fn) if self.is_ours else chunk.map_blocks(self.fn)


@dataclass(frozen=True, eq=False)
class Filter:
    """Keeps the elements for which a function says so; `blocks`: a mask for many."""

    source: Node
    predicate: Callable[..., Any]
    blocks: bool = False
    name = "filter"

    @property
    def columnar(self) -> bool:
        """As its source."""
        return self.source.columnar

    def open(self, context: Context) -> Stream:
        """Start with the source's first element."""
        mask = self._mask_of_block if self.blocks else self._mask_by_element

        def read(source: Stream, n: int) -> Chunk | None:
            while (chunk := source.read(n)) is not None:
                kept = np.flatnonzero(mask(chunk))
                if len(kept):
                    return chunk if len(kept) == len(chunk) else chunk.take(kept)
            return None

        return Derived(self.source.open(context), read)

    def _mask_by_element(self, chunk: Chunk) -> list[bool]:
        elements = (chunk.element(i) for i in range(len(chunk)))
        return [bool(call(self.predicate, element)) for element in elements]

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
class Unbatch:
    """Cuts every element along its first dimension, as `batch` had stacked it."""

    source: Node
    name = "unbatch"
    columnar = True

    def open(self, context: Context) -> Stream:
        """Start with the source's first element."""
        return Lookahead(_Rows(self.source.open(context)), 1)


class _Rows:
    """The rows of one element of the source at a time."""

    def __init__(self, source: Stream) -> None:
        self._source = source
        self.get_state = source.get_state
        self.set_state = source.set_state
        self.close = source.close

    def read(self, n: int) -> Chunk | None:
        while (chunk := self._source.read(1)) is not None:
            rows = columns_of(chunk.element(0))
            if len(rows):
                return rows
        return None
