"""Verbs over several datasets: zip and concatenate; also enumerate.

    Zip((features, labels))        # a structure of nodes; ends with the shortest
    Concatenate(first, second)
    Enumerate(source, start=0)     # a zip with a counter

Rows stay columns: zipping two tables copies nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from estimax.input.streams.chunks import Chunk, Columns, ElementList
from estimax.input.streams.stream import (
    Context,
    DatasetNode,
    State,
    Stream,
    VerbNode,
    VerbStream,
    chains_of,
    check_at_least,
    read_fully,
)
from estimax.input.streams.structure import (
    InputTypeError,
    Structure,
    describe,
    map_leaves,
    named_leaves,
)


@dataclass(frozen=True, eq=False)
class Zip:
    """One element of each dataset, combined in the structure of `nodes`."""

    nodes: Structure  # its leaves are nodes
    source = None

    @property
    def name(self) -> str:
        return f"zip({chains_of(self._list())})"

    @property
    def columnar(self) -> bool:
        return all(node.columnar for node in self._list())

    def _list(self) -> list[DatasetNode]:
        return [node for _, node in named_leaves(self.nodes)]

    def open(self, context: Context) -> Stream:
        return _ZipStream(map_leaves(lambda node: node.open(context), self.nodes))


class _ZipStream:
    """A stream of each dataset; it ends as soon as one of them ends."""

    def __init__(self, streams: Structure) -> None:
        self._tree = streams
        self._streams: list[Stream] = [stream for _, stream in named_leaves(streams)]
        self._ended = False

    def read(self, n: int) -> Chunk | None:
        if self._ended:
            return None
        parts: list[Chunk] = []
        for stream in self._streams:
            # A shorter part is the end of its dataset. The datasets before it have read
            # further by then, which no longer matters.
            part = read_fully(stream, n)
            if part is None:
                self._ended = True
                return None
            if parts and len(part) < n:
                self._ended = True
            parts.append(part)
            n = len(part)
        return self._combine([part.slice(0, n) for part in parts])

    def _combine(self, parts: list[Chunk]) -> Chunk:
        """Put chunks of equal length into the structure of the datasets."""
        left = iter(parts)
        trees = [part.tree for part in parts if isinstance(part, Columns)]
        if len(trees) == len(parts):
            columns = iter(trees)
            tree = map_leaves(lambda _: next(columns), self._tree)
            return Columns(tree, len(parts[0]))
        by_place = map_leaves(lambda _: next(left), self._tree)
        rows = range(len(parts[0]))
        return ElementList(
            [map_leaves(lambda p, i=i: p.element(i), by_place) for i in rows]
        )

    def get_state(self) -> State:
        states = [stream.get_state() for stream in self._streams]
        return {"ended": self._ended, "sources": states}

    def set_state(self, state: State) -> None:
        self._ended = bool(state["ended"])
        for stream, saved in zip(self._streams, state["sources"], strict=True):
            stream.set_state(saved)

    def close(self) -> None:
        for stream in self._streams:
            stream.close()


@dataclass(frozen=True, eq=False)
class Concatenate:
    """One dataset after another, of the same structure and dtypes."""

    first: DatasetNode
    second: DatasetNode
    source = None

    @property
    def name(self) -> str:
        return f"concatenate({chains_of((self.first, self.second))})"

    @property
    def columnar(self) -> bool:
        return self.first.columnar and self.second.columnar

    def open(self, context: Context) -> Stream:
        return _ConcatenateStream((self.first, self.second), context)


class _ConcatenateStream(VerbStream):
    """The stream of the current dataset."""

    saved = ("number",)

    def __init__(self, nodes: tuple[DatasetNode, ...], context: Context) -> None:
        self._nodes = nodes
        self._context = context
        self._kind: str | None = None  # structure and dtypes of the first dataset
        super().__init__(self._open(0))

    def _open(self, number: int) -> Stream:
        self._number = number
        self._is_checked = False
        # Two datasets that shuffle without a seed must not use the same order.
        return self._nodes[number].open(self._context.in_epoch(number))

    def read(self, n: int) -> Chunk | None:
        while (chunk := self._source.read(n)) is None:
            if self._number + 1 == len(self._nodes):
                return None
            self._source.close()
            self._source = self._open(self._number + 1)
        if not self._is_checked:
            self._check(chunk)
        return chunk

    def _check(self, chunk: Chunk) -> None:
        """Raise if the first element of the second dataset is of another kind."""
        kind = _kind(chunk.element(0))
        if self._kind is not None and kind != self._kind:
            raise InputTypeError(
                "concatenate: both datasets must have one structure and one dtype for "
                f"each part; the first has {self._kind}, the second {kind}."
            )
        self._kind, self._is_checked = kind, True

    def set_state(self, state: State) -> None:
        self._source.close()
        self._source = self._open(state["number"])
        super().set_state(state)


def _kind(element: Structure) -> str:
    """Describe the structure and dtypes of an element."""
    kinds = [_dtype(leaf) for _, leaf in named_leaves(element)]
    return f"{describe(map_leaves(lambda _: 0, element))} of {', '.join(kinds)}"


def _dtype(value: Any) -> str:
    values = getattr(value, "values", value)  # a Sparse's
    if isinstance(values, bytes | str) or not hasattr(values, "dtype"):
        return "string" if not isinstance(values, int | float) else type(value).__name__
    return str(values.dtype)


@dataclass(frozen=True, eq=False)
class Enumerate(VerbNode):
    """Pairs of a number, counted from `start`, and an element."""

    start: int = 0
    name = "enumerate"

    def __post_init__(self) -> None:
        check_at_least(0, self.start, "enumerate: start")

    def open(self, context: Context) -> Stream:
        return _EnumerateStream(self.source.open(context), self.start)


class _EnumerateStream(VerbStream):
    saved = ("next",)

    def __init__(self, source: Stream, start: int) -> None:
        super().__init__(source)
        self._next = start

    def read(self, n: int) -> Chunk | None:
        chunk = self._source.read(n)
        if chunk is None:
            return None
        numbers = np.arange(self._next, self._next + len(chunk), dtype=np.int64)
        self._next += len(chunk)
        if isinstance(chunk, Columns):
            return Columns((numbers, chunk.tree), len(chunk))
        return ElementList(list(zip(numbers, chunk.items, strict=True)))
