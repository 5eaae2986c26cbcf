"""Verbs that change elements: batch, map, map_blocks, filter.

    Batch(source, 128)                          # rows in, batches out
    MapBlocks(source, lambda rows: {...})       # all rows of a block at once

None of them looks ahead, so their position is their source's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from estimax.core.errors import InputError
from estimax.input.chunks import Chunk, Columns, Elements, as_element
from estimax.input.stream import (
    Context,
    Node,
    State,
    Stream,
    check_at_least,
    read_fully,
)
from estimax.input.structure import call, lists_to_tuples


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
        return _Derived(self.source.open(context), self._read)

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
        convert = lists_to_tuples if self.source.columnar else as_element

        def read(source: Stream, n: int) -> Chunk | None:
            chunk = source.read(n)
            if chunk is None:
                return None
            elements = (chunk.element(i) for i in range(len(chunk)))
            return Elements([convert(call(self.fn, element)) for element in elements])

        return _Derived(self.source.open(context), read)


@dataclass(frozen=True, eq=False)
class MapBlocks:
    """Calls a vectorised function with as many rows as happen to travel together."""

    source: Node
    fn: Callable[..., Any]
    name: str = "map_blocks"

    @property
    def columnar(self) -> bool:
        """As its source."""
        return self.source.columnar

    def open(self, context: Context) -> Stream:
        """Start with the source's first element."""
        return _Derived(self.source.open(context), self._read)

    def _read(self, source: Stream, n: int) -> Chunk | None:
        chunk = source.read(n)
        return None if chunk is None else chunk.map_blocks(self.fn)


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

        return _Derived(self.source.open(context), read)

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


class _Derived:
    """A stream whose position is its source's, because it never looks ahead."""

    def __init__(
        self, source: Stream, read: Callable[[Stream, int], Chunk | None]
    ) -> None:
        self._source = source
        self._read = read

    def read(self, n: int) -> Chunk | None:
        return self._read(self._source, n)

    def get_state(self) -> State:
        return self._source.get_state()

    def set_state(self, state: State) -> None:
        self._source.set_state(state)

    def close(self) -> None:
        self._source.close()
