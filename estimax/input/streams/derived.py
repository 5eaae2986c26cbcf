"""Derived: the stream of a verb that never looks ahead, so needs no state of its own.

Derived(source.open(context), lambda source, n: source.read(n))
"""

from __future__ import annotations

from collections.abc import Callable

from estimax.input.streams.chunks import Chunk
from estimax.input.streams.stream import State, Stream


class Derived:
    """A stream whose position is its source's."""

    def __init__(
        self, source: Stream, read: Callable[[Stream, int], Chunk | None]
    ) -> None:
        self._source = source
        self._read = read

    def read(self, n: int) -> Chunk | None:
        """What the verb makes of the source."""
        return self._read(self._source, n)

    def get_state(self) -> State:
        """The source's."""
        return self._source.get_state()

    def set_state(self, state: State) -> None:
        """The source's."""
        self._source.set_state(state)

    def close(self) -> None:
        """Close the source."""
        self._source.close()
