"""Window: elements in groups that may overlap, each group a dataset of its own.

    Window(source, size=3, shift=1)      # {0, 1, 2}, {1, 2, 3}, …

The source is read `shift` elements at a time and the last few pieces are kept, so the
position is that of the oldest piece: resuming reads one window again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from estimax.input.streams.chunks import Chunk, Columns, Elements, concatenate
from estimax.input.streams.stream import (
    Context,
    Node,
    State,
    Stream,
    check_at_least,
    discard,
    read_fully,
)
from estimax.input.streams.structure import Structure, map_leaves


@dataclass(frozen=True, eq=False)
class Window:
    """Groups of `size` elements `stride` apart, one group every `shift` elements."""

    source: Node
    size: int
    shift: int
    stride: int
    drop_remainder: bool
    make_dataset: Callable[[Node], Any]
    name = "window"
    columnar = False

    def __post_init__(self) -> None:
        check_at_least(1, self.size, "window: size")
        check_at_least(1, self.shift, "window: shift")
        check_at_least(1, self.stride, "window: stride")

    def open(self, context: Context) -> WindowStream:
        """Start with the source's first element."""
        return WindowStream(self, self.source.open(context))


class WindowStream:
    """The pieces of `shift` elements that the present window reaches over."""

    def __init__(self, node: Window, source: Stream) -> None:
        self._node = node
        self._source = source
        self._pieces: deque[tuple[State, Chunk]] = deque()
        self._held = 0

    def read(self, n: int) -> Chunk | None:
        """One window: it is made of a whole chunk anyway."""
        node = self._node
        reach = (node.size - 1) * node.stride + 1
        while self._held < reach and self._read_piece(reach):
            pass
        if not self._pieces or (node.drop_remainder and self._held < reach):
            return None
        joined = concatenate([piece for _, piece in self._pieces])
        window = joined.slice(0, min(reach, len(joined)), node.stride)
        _, piece = self._pieces.popleft()
        self._held -= len(piece)
        return Elements([as_datasets(window, node.make_dataset)])

    def _read_piece(self, reach: int) -> bool:
        before = self._source.get_state()
        # Beyond the window's reach elements are only passed over.
        wanted = min(self._node.shift, reach)
        piece = read_fully(self._source, wanted)
        if piece is None:
            return False
        self._pieces.append((before, piece))
        self._held += len(piece)
        if len(piece) == wanted:
            discard(self._source, self._node.shift - wanted)
        return True

    def get_state(self) -> State:
        """Where the oldest piece begins."""
        if self._pieces:
            return {"source": self._pieces[0][0]}
        return {"source": self._source.get_state()}

    def set_state(self, state: State) -> None:
        """Go there; the pieces are read again."""
        self._pieces.clear()
        self._held = 0
        self._source.set_state(state["source"])

    def close(self) -> None:
        """Let go of the pieces and the source."""
        self._pieces.clear()
        self._source.close()


def as_datasets(chunk: Chunk, make: Callable[[Node], Any]) -> Structure:
    """A dataset for every part of the elements of a chunk, as tf.data's windows are."""
    if isinstance(chunk, Columns):
        rows = len(chunk)
        return map_leaves(lambda c: make(InMemory(Columns(c, rows))), chunk.tree)
    return map_leaves(lambda *c: make(InMemory(Elements(c))), *chunk.items)


@dataclass(frozen=True, eq=False)
class InMemory:
    """A chunk as a source."""

    chunk: Chunk
    name: str = "window"
    source = None

    @property
    def columnar(self) -> bool:
        """If the chunk is."""
        return isinstance(self.chunk, Columns)

    def open(self, context: Context) -> InMemoryStream:
        """Start at the first element."""
        return InMemoryStream(self.chunk)


class InMemoryStream:
    """A cursor over a chunk."""

    def __init__(self, chunk: Chunk) -> None:
        self._chunk = chunk
        self._at = 0

    def read(self, n: int) -> Chunk | None:
        """The next elements, sharing memory."""
        start, self._at = self._at, min(self._at + n, len(self._chunk))
        return self._chunk.slice(start, self._at) if self._at > start else None

    def get_state(self) -> State:
        """The number of the next element."""
        return {"at": self._at}

    def set_state(self, state: State) -> None:
        """Jump there."""
        self._at = int(state["at"])

    def close(self) -> None:
        """Nothing is held."""
