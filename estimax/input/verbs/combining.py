"""Verbs over several datasets: zip, concatenate; and enumerate, which zips a counter.

    Zip((features, labels))        # a structure of nodes; ends with the shortest
    Concatenate(first, second)

Rows stay columns: zipping two tables copies nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from estimax.input.streams.chunks import Chunk, Columns, Elements
from estimax.input.streams.stream import (
    Context,
    Node,
    State,
    Stream,
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
    """One element of each dataset together, in the structure the nodes are in."""

    nodes: Structure  # of Node
    source = None

    @property
    def name(self) -> str:
        """With the chains of all its datasets."""
        return f"zip({chains_of(self._list())})"

    @property
    def columnar(self) -> bool:
        """If all are."""
        return all(node.columnar for node in self._list())

    def _list(self) -> list[Node]:
        return [node for _, node in named_leaves(self.nodes)]

    def open(self, context: Context) -> ZipStream:
        """Open all."""
        return ZipStream(map_leaves(lambda node: node.open(context), self.nodes))


class ZipStream:
    """One stream of each; ended as soon as one of them is."""

    def __init__(self, streams: Structure) -> None:
        self._tree = streams
        self._streams: list[Stream] = [stream for _, stream in named_leaves(streams)]
        self._ended = False

    def read(self, n: int) -> Chunk | None:
        """As many of each as the shortest has."""
        if self._ended:
            return None
        parts: list[Chunk] = []
        for stream in self._streams:
            part = read_fully(stream, n)
            if part is None:
                self._ended = True
                return None
            if parts and len(part) < n:
                self._ended = True
            parts.append(part)
            n = len(part)
        return self._together([part.slice(0, n) for part in parts])

    def _together(self, parts: list[Chunk]) -> Chunk:
        left = iter(parts)
        trees = [part.tree for part in parts if isinstance(part, Columns)]
        if len(trees) == len(parts):
            columns = iter(trees)
            tree = map_leaves(lambda _: next(columns), self._tree)
            return Columns(tree, len(parts[0]))
        by_place = map_leaves(lambda _: next(left), self._tree)
        rows = range(len(parts[0]))
        return Elements(
            [map_leaves(lambda p, i=i: p.element(i), by_place) for i in rows]
        )

    def get_state(self) -> State:
        """Every dataset's."""
        states = [stream.get_state() for stream in self._streams]
        return {"ended": self._ended, "sources": states}

    def set_state(self, state: State) -> None:
        """Every dataset to its own."""
        self._ended = bool(state["ended"])
        for stream, saved in zip(self._streams, state["sources"], strict=True):
            stream.set_state(saved)

    def close(self) -> None:
        """Close all."""
        for stream in self._streams:
            stream.close()


@dataclass(frozen=True, eq=False)
class Concatenate:
    """One dataset behind another, of the same structure and dtypes."""

    first: Node
    second: Node
    source = None

    @property
    def name(self) -> str:
        """With the chains of both."""
        return f"concatenate({chains_of((self.first, self.second))})"

    @property
    def columnar(self) -> bool:
        """If both are."""
        return self.first.columnar and self.second.columnar

    def open(self, context: Context) -> ConcatenateStream:
        """Start with the first."""
        return ConcatenateStream((self.first, self.second), context)


class ConcatenateStream:
    """The stream of the dataset whose turn it is."""

    def __init__(self, nodes: tuple[Node, ...], context: Context) -> None:
        self._nodes = nodes
        self._context = context
        self._kind: str | None = None
        self._go_to(0)

    def _go_to(self, number: int) -> None:
        self._number = number
        self._is_checked = False
        # Two datasets that shuffle without a seed must not share an order.
        context = self._context.in_epoch(number)
        self._source = self._nodes[number].open(context)

    def read(self, n: int) -> Chunk | None:
        """From this dataset, or the first of the next."""
        while (chunk := self._source.read(n)) is None:
            if self._number + 1 == len(self._nodes):
                return None
            self._source.close()
            self._go_to(self._number + 1)
        if not self._is_checked:
            self._check(chunk)
        return chunk

    def _check(self, chunk: Chunk) -> None:
        kind = _kind(chunk.element(0))
        if self._kind is not None and kind != self._kind:
            raise InputTypeError(
                "concatenate: both datasets must have one structure and one dtype for "
                f"each part; the first has {self._kind}, the second {kind}."
            )
        self._kind, self._is_checked = kind, True

    def get_state(self) -> State:
        """Which dataset, and where in it."""
        return {"number": self._number, "source": self._source.get_state()}

    def set_state(self, state: State) -> None:
        """Open that one and go there."""
        self._source.close()
        self._go_to(int(state["number"]))
        self._source.set_state(state["source"])

    def close(self) -> None:
        """Close the present dataset."""
        self._source.close()


def _kind(element: Structure) -> str:
    kinds = [_dtype(leaf) for _, leaf in named_leaves(element)]
    return f"{describe(map_leaves(lambda _: 0, element))} of {', '.join(kinds)}"


def _dtype(value: Any) -> str:
    values = getattr(value, "values", value)  # a Sparse's
    if isinstance(values, bytes | str) or not hasattr(values, "dtype"):
        return "string" if not isinstance(values, int | float) else type(value).__name__
    return str(values.dtype)


@dataclass(frozen=True, eq=False)
class Enumerate:
    """Elements with their numbers, counted from `start`."""

    source: Node
    start: int = 0
    name = "enumerate"

    def __post_init__(self) -> None:
        check_at_least(0, self.start, "enumerate: start")

    @property
    def columnar(self) -> bool:
        """As its source."""
        return self.source.columnar

    def open(self, context: Context) -> EnumerateStream:
        """Count from the start."""
        return EnumerateStream(self.source.open(context), self.start)


class EnumerateStream:
    """The source, and the next number."""

    def __init__(self, source: Stream, start: int) -> None:
        self._source = source
        self._next = start

    def read(self, n: int) -> Chunk | None:
        """Pairs of number and element."""
        chunk = self._source.read(n)
        if chunk is None:
            return None
        numbers = np.arange(self._next, self._next + len(chunk), dtype=np.int64)
        self._next += len(chunk)
        if isinstance(chunk, Columns):
            return Columns((numbers, chunk.tree), len(chunk))
        return Elements(list(zip(numbers, chunk.items, strict=True)))

    def get_state(self) -> State:
        """The next number."""
        return {"next": self._next, "source": self._source.get_state()}

    def set_state(self, state: State) -> None:
        """Go on counting from there."""
        self._next = int(state["next"])
        self._source.set_state(state["source"])

    def close(self) -> None:
        """Close the source."""
        self._source.close()
