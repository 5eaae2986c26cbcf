"""Prefetch: elements made ahead in a thread, with the consumer's position.

    Prefetch(source, 2)

The thread reads the source and notes its position before and after each chunk, so the
state is that of the element last handed out, not of the one last made.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from estimax.input.streams.background import Background
from estimax.input.streams.chunks import Chunk
from estimax.input.streams.stream import Context, Node, State, Stream, discard

# Rows before batch() are moved this many at a time: one at a time would cost more in
# thread switches than the reading.
_ROWS_AT_ONCE = 1024


@dataclass(frozen=True, eq=False)
class Prefetch:
    """Up to `buffer_size` elements ahead."""

    source: Node
    buffer_size: int
    name = "prefetch"

    @property
    def columnar(self) -> bool:
        """As its source."""
        return self.source.columnar

    def open(self, context: Context) -> PrefetchStream:
        """The thread starts with the first read."""
        at_once = min(self.buffer_size, _ROWS_AT_ONCE) if self.columnar else 1
        depth = max(1, self.buffer_size // at_once)
        return PrefetchStream(self.source.open(context), at_once, depth)


class PrefetchStream:
    """The chunk being handed out, and a thread that makes the next ones."""

    def __init__(self, source: Stream, at_once: int, depth: int) -> None:
        self._source = source
        self._at_once = at_once
        self._depth = depth
        self._ahead: Background[tuple[Chunk, State, State]] | None = None
        self._chunk: Chunk | None = None
        self._given = 0  # of that chunk
        self._before: State = {}
        self._after: State = source.get_state()

    def read(self, n: int) -> Chunk | None:
        """What is ready, or wait for it."""
        if self._chunk is None:
            if self._ahead is None:
                chunks = _chunks(self._source, self._at_once)
                self._ahead = Background(chunks, depth=self._depth, name="prefetch")
            try:
                self._chunk, self._before, self._after = self._ahead.next()
            except StopIteration:
                return None
            except Exception:
                # The thread has ended, behind what failed; the next read goes on there.
                self._stop()
                self._after = self._source.get_state()
                raise
            self._given = 0
        out = self._chunk.slice(self._given, self._given + n)
        self._given += len(out)
        if self._given == len(self._chunk):
            self._chunk = None
        return out

    def get_state(self) -> State:
        """The source's position when this chunk was read, and how much is given."""
        if self._chunk is None:
            return {"given": 0, "source": self._after}
        return {"given": self._given, "source": self._before}

    def set_state(self, state: State) -> None:
        """Stop the thread, go there, drop the part of a chunk that was given."""
        self._stop()
        self._source.set_state(state["source"])
        discard(self._source, int(state["given"]))
        self._chunk = None
        self._after = self._source.get_state()

    def close(self) -> None:
        """Stop the thread, then close what it read from."""
        if self._stop():
            self._source.close()

    def _stop(self) -> bool:
        ahead, self._ahead = self._ahead, None
        return ahead is None or ahead.close()


def _chunks(source: Stream, n: int) -> Iterator[tuple[Chunk, State, State]]:
    before = source.get_state()
    while (chunk := source.read(n)) is not None:
        after = source.get_state()
        yield chunk, before, after
        before = after
