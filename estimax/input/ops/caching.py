"""cache: keep the elements of one complete pass in memory or in files.

    Cache(source, Memory())              # the second epoch does not read the source
    Cache(source, CacheFile("a/prefix"))

The source of a cache is opened with the same order for every pass. A resumed run, whose
memory is empty, therefore reads the same elements. Every cached chunk is stored with
the source's position before it, so a position in the cache is also one in the source.

`CacheStore`, `CachedPass` and `CacheWriter` are the interfaces of a place to cache in;
`Memory` implements them here and `CacheFile` in `sources/cache_files.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from estimax.input.streams.background import Lookahead
from estimax.input.streams.chunks import Chunk
from estimax.input.streams.stream import (
    Context,
    State,
    Stream,
    VerbNode,
    elements_at_once,
)


@dataclass(frozen=True, eq=False)
class Cache(VerbNode):
    """The elements of the source, from the store once it holds a complete pass."""

    store: CacheStore
    name: str = "cache"

    def open(self, context: Context) -> Stream:
        return Lookahead(_CacheStream(self, context), elements_at_once(self))


class CacheStore(Protocol):
    """A place that keeps one complete pass."""

    def complete_pass(self) -> CachedPass | None:
        """Return the complete pass, if there is one."""

    def start(self, seed: int) -> CacheWriter:
        """Start to write a pass."""


class CachedPass(Protocol):
    """The chunks of a complete pass."""

    @property
    def seed(self) -> int:
        """The seed of the run that filled the cache; it determined the order."""

    @property
    def states(self) -> Sequence[State]:
        """The position of the source before each chunk."""

    def chunk(self, number: int) -> Chunk:
        """Return one chunk, which may be read from a file."""


class CacheWriter(Protocol):
    """A pass that is being written."""

    def add(self, before: State, chunk: Chunk) -> None:
        """Append a chunk and the position of the source before it."""

    def finish(self) -> None:
        """Publish the pass, which is complete."""

    def abandon(self) -> None:
        """Discard the pass, which was interrupted."""


class _CacheStream:
    """Reads chunks from the store, or from the source while filling the store."""

    def __init__(self, node: Cache, context: Context) -> None:
        self._node = node
        self._context = context
        self._kept = node.store.complete_pass()
        self._number = 0  # of the next cached chunk
        self._seed = context.seed if self._kept is None else self._kept.seed
        self._source: Stream | None = None
        self._writer: CacheWriter | None = None
        self._write_error: OSError | None = None

    def read(self, n: int) -> Chunk | None:
        if self._write_error is not None:
            # A reader that retries after an error would otherwise go on uncached.
            error, self._write_error = self._write_error, None
            raise error
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
                self._add(before, chunk)
            else:
                self._writer.finish()
                self._writer = None
        return chunk

    def _add(self, before: State, chunk: Chunk) -> None:
        assert self._writer is not None
        try:
            self._writer.add(before, chunk)
        except OSError as error:  # the disk is full, for example
            self._write_error = error
            raise

    def _open(self) -> Stream:
        # Pass -1 does not exist otherwise, so a shuffle after the cache never uses the
        # same order as one before it.
        context = Context(self._seed, (-1,), counters=self._context.counters)
        return self._node.source.open(context)

    def get_state(self) -> State:
        if self._kept is not None:
            at_end = self._number == len(self._kept.states)
            before = None if at_end else self._kept.states[self._number]
        elif self._source is not None:
            before = self._source.get_state()
        else:
            before = {}  # nothing was read: the beginning
        return {"seed": self._seed, "source": before}

    def set_state(self, state: State) -> None:
        # Closing abandons the writer: the pass would lack the chunks before `state`.
        self.close()
        self._seed, self._number = int(state["seed"]), 0
        kept = self._node.store.complete_pass()
        before = state["source"]
        if before is None or before == {}:
            self._restart(kept, at_end=before is None)
        elif kept is not None and kept.seed == self._seed and before in kept.states:
            self._kept, self._number = kept, list(kept.states).index(before)
        else:
            self._kept, self._source = None, self._open()
            self._source.set_state(before)

    def _restart(self, kept: CachedPass | None, *, at_end: bool) -> None:
        self._kept = kept if kept is not None and kept.seed == self._seed else None
        self._source = None
        if at_end:
            self._kept = _EmptyPass(self._seed)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.abandon()
            self._writer = None
        if self._source is not None:
            self._source.close()
            self._source = None


@dataclass(frozen=True)
class _EmptyPass:
    """A pass without chunks, for a stream that was restored to its end."""

    seed: int
    states: tuple[State, ...] = ()

    def chunk(self, number: int) -> Chunk:
        raise AssertionError("an empty pass has no chunks")


class Memory:
    """A complete pass in memory, shared by all iterators of a dataset."""

    def __init__(self) -> None:
        self._kept: _MemoryPass | None = None
        self._lock = threading.Lock()

    def complete_pass(self) -> CachedPass | None:
        """Return the complete pass, if there is one."""
        return self._kept

    def start(self, seed: int) -> CacheWriter:
        """Start to collect a pass."""
        return _MemoryWriter(self, seed)

    def keep(self, kept: _MemoryPass) -> None:
        """Keep a complete pass, unless another iterator has completed one before."""
        with self._lock:
            self._kept = self._kept or kept


@dataclass(frozen=True, eq=False)
class _MemoryPass:
    seed: int
    states: list[State]
    chunks: list[Chunk]

    def chunk(self, number: int) -> Chunk:
        return self.chunks[number]


class _MemoryWriter:
    def __init__(self, memory: Memory, seed: int) -> None:
        self._memory = memory
        self._pass = _MemoryPass(seed, [], [])

    def add(self, before: State, chunk: Chunk) -> None:
        self._pass.states.append(before)
        self._pass.chunks.append(chunk)

    def finish(self) -> None:
        self._memory.keep(self._pass)

    def abandon(self) -> None:
        pass
