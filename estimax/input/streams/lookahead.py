"""Lookahead: a stream read a chunk at a time, given out in pieces, exactly positioned.

    ahead = Lookahead(stream, at_once=1024)
    while have := ahead.fill():           # how many elements are in hand; 0 at the end
        chunk = ahead.give(min(have, 3))

The position is (the stream's before the chunk in hand, how much of it is given), so a
stage that must see elements before it gives them needs no buffer in its state.
"""

from __future__ import annotations

import functools
from concurrent.futures import Future

from estimax.input.streams.background import Workers
from estimax.input.streams.chunks import Chunk
from estimax.input.streams.stream import State, Stream

# Rows are cheap by the thousand; anything else may be a batch, and is taken singly.
ROWS_AT_ONCE = 1024


class Lookahead:
    """The chunk in hand; with workers, the next one is already being read."""

    def __init__(
        self, source: Stream, at_once: int, *, workers: Workers | None = None
    ) -> None:
        self._source = source
        self._at_once = at_once
        self._next_size = at_once
        self._workers = workers
        self._chunk: Chunk | None = None
        self._given = 0  # of the chunk in hand, or to be dropped of the next
        self._before: State = {}
        self._next: tuple[State, int, Future[Chunk | None]] | None = None
        self._singly = 0  # so many elements to be read one by one

    def fill(self, wanted: int = 0) -> int:
        """Have at least one element in hand; how many there are, 0 at the end.

        `wanted` rows may be read at once where rows are what is read.
        """
        if self._at_once > 1:
            self._next_size = max(self._at_once, wanted)
        while self._chunk is None:
            before, chunk = self._fetch()
            if chunk is None:
                return 0
            if self._given >= len(chunk):
                self._given -= len(chunk)
            else:
                self._before, self._chunk = before, chunk
        self.start()
        return len(self._chunk) - self._given

    def start(self) -> None:
        """Let a worker read the next chunk, if there are any."""
        if self._workers is not None and self._next is None:
            before = self._source.get_state()
            size = 1 if self._singly else self._next_size
            future = self._workers.submit(self._source.read, size)
            self._next = before, size, future

    def _fetch(self) -> tuple[State, Chunk | None]:
        if self._next is not None:
            (before, size, future), self._next = self._next, None
            read = future.result
        else:
            before = self._source.get_state()
            size = 1 if self._singly else self._next_size
            read = functools.partial(self._source.read, size)
        self._singly = max(0, self._singly - 1)
        try:
            return before, read()
        except Exception:
            if size == 1:
                raise
        # One of many cannot be made: the others singly, so that only that one is lost.
        self._source.set_state(before)
        self._singly = size - 1
        return before, self._source.read(1)

    def give(self, n: int) -> Chunk:
        """The next n of the elements in hand."""
        assert self._chunk is not None
        out = self._chunk.slice(self._given, self._given + n)
        self._given += len(out)
        if self._given >= len(self._chunk):
            self._chunk, self._given = None, 0
        return out

    def read(self, n: int) -> Chunk | None:
        """What is in hand, up to n, or None at the end."""
        have = self.fill(n)
        return self.give(min(n, have)) if have else None

    def get_state(self) -> State:
        """The position of the next element to be given."""
        if self._chunk is not None:
            before = self._before
        else:
            before = self._next[0] if self._next else self._source.get_state()
        return {"given": self._given, "source": before}

    def set_state(self, state: State) -> None:
        """Go there; the chunk is read again when needed."""
        self._settle()
        self._chunk = None
        self._source.set_state(state["source"])
        self._given = int(state["given"])

    def close(self) -> None:
        """Wait for the read under way and close the source."""
        self._settle()
        self._chunk = None
        self._source.close()

    def _settle(self) -> None:
        ahead, self._next = self._next, None
        if ahead is not None and not ahead[2].cancel():
            ahead[2].exception()  # waited for and dropped: nobody wants it any more
