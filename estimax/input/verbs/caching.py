"""cache: the elements of one complete pass, kept in memory or in a file.

    Cache(source, Memory())              # the second epoch reads nothing
    Cache(source, CacheFile("a/prefix"))

What lies before a cache is frozen: it is opened with the same order for every pass, so
that a resumed run, whose memory is empty, reads the very same elements. Each kept chunk
knows the position it was read from, so a position in a cache is one before it too.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from estimax.input.streams.background import ROWS_AT_ONCE, Lookahead
from estimax.input.streams.chunks import Chunk
from estimax.input.streams.stream import Context, Node, State, Stream


class Kept(Protocol):
    """The chunks of a complete pass."""

    @property
    def seed(self) -> int:
        """The seed of the run that filled the cache, which froze the order."""

    @property
    def states(self) -> Sequence[State]:
        """The position that each chunk was read from."""

    def chunk(self, number: int) -> Chunk:
        """One chunk, which may be read from a file."""


class Store(Protocol):
    """Where complete passes are kept."""

    def kept(self) -> Kept | None:
        """The complete pass, if there is one."""

    def start(self, seed: int) -> Writer:
        """Begin to keep a pass."""


class Writer(Protocol):
    """A pass being kept."""

    def add(self, before: State, chunk: Chunk) -> None:
        """One more chunk."""

    def finish(self) -> None:
        """The pass is complete."""

    def abandon(self) -> None:
        """It will never be."""


@dataclass(frozen=True, eq=False)
class Cache:
    """The source's elements, from the store once it holds them all."""

    source: Node
    store: Store
    name = "cache"

    @property
    def columnar(self) -> bool:
        """As its source."""
        return self.source.columnar

    def open(self, context: Context) -> Stream:
        """From the store, or through the source."""
        at_once = ROWS_AT_ONCE if self.columnar else 1
        return Lookahead(_CacheStream(self, context), at_once)


class _CacheStream:
    """Chunks of the store by number, or of the source, which fill the store."""

    def __init__(self, node: Cache, context: Context) -> None:
        self._node = node
        self._context = context
        self._kept = node.store.kept()
        self._number = 0
        self._seed = context.seed if self._kept is None else self._kept.seed
        self._source: Stream | None = None
        self._writer: Writer | None = None

    def read(self, n: int) -> Chunk | None:
        if self._kept is not None:
            if self._number == len(self._kept.states):
                return None
            self._number += 1
            return self._kept.chunk(self._number - 1)
        if self._source is None:
            self._source = self._open()
            self._writer = self._node.store.start(self._seed)
        before = self._source.get_state()
        chunk = self._source.read(n)
        if self._writer is not None:
            if chunk is not None:
                self._writer.add(before, chunk)
            else:
                self._writer.finish()
                self._writer = None
        return chunk

    def _open(self) -> Stream:
        # No pass has number -1: a shuffle behind the cache must not share this order.
        context = Context(self._seed, (-1,), counters=self._context.counters)
        return self._node.source.open(context)

    def get_state(self) -> State:
        if self._kept is not None:
            at_end = self._number == len(self._kept.states)
            before = None if at_end else self._kept.states[self._number]
        elif self._source is not None:
            before = self._source.get_state()
        else:
            before = {}  # nothing is read yet: the beginning
        return {"seed": self._seed, "source": before}

    def set_state(self, state: State) -> None:
        self.close()
        self._seed, self._number = int(state["seed"]), 0
        kept = self._node.store.kept()
        before = state["source"]
        if before is None or before == {}:
            self._restart(kept, at_end=before is None)
        elif kept is not None and kept.seed == self._seed and before in kept.states:
            self._kept, self._number = kept, list(kept.states).index(before)
        else:
            self._kept, self._source = None, self._open()
            self._source.set_state(before)

    def _restart(self, kept: Kept | None, *, at_end: bool) -> None:
        self._kept = kept if kept is not None and kept.seed == self._seed else None
        self._source = None
        if at_end:
            self._kept = _Nothing(self._seed)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.abandon()
            self._writer = None
        if self._source is not None:
            self._source.close()
            self._source = None


@dataclass(frozen=True)
class _Nothing:
    """What is left to read at the end of a pass."""

    seed: int
    states: tuple[State, ...] = ()

    def chunk(self, number: int) -> Chunk:
        raise AssertionError("nothing is kept")


class Memory:
    """A complete pass in memory, shared by all iterators of a dataset."""

    def __init__(self) -> None:
        self._kept: _InMemory | None = None
        self._lock = threading.Lock()

    def kept(self) -> Kept | None:
        """The complete pass, if there is one."""
        return self._kept

    def start(self, seed: int) -> _MemoryWriter:
        """Begin to keep a pass."""
        return _MemoryWriter(self, seed)

    def keep(self, kept: _InMemory) -> None:
        """The first complete pass stays, whoever else was filling."""
        with self._lock:
            self._kept = self._kept or kept


@dataclass(frozen=True, eq=False)
class _InMemory:
    seed: int
    states: list[State]
    chunks: list[Chunk]

    def chunk(self, number: int) -> Chunk:
        return self.chunks[number]


class _MemoryWriter:
    def __init__(self, memory: Memory, seed: int) -> None:
        self._memory = memory
        self._pass = _InMemory(seed, [], [])

    def add(self, before: State, chunk: Chunk) -> None:
        self._pass.states.append(before)
        self._pass.chunks.append(chunk)

    def finish(self) -> None:
        self._memory.keep(self._pass)

    def abandon(self) -> None:
        pass
