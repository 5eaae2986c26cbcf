"""Verbs that choose which elements come: repeat, take, skip, shard.

    Repeat(source, None)      # opens its source again for every epoch, a new order each
    Shard(source, 4, 1)       # elements 1, 5, 9, …

Each knows its position as one integer beside its source's.
"""

from __future__ import annotations

from dataclasses import dataclass

from estimax.core.errors import InputError
from estimax.input.streams.chunks import Chunk
from estimax.input.streams.stream import (
    Context,
    Node,
    State,
    Stream,
    check_at_least,
    discard,
)


@dataclass(frozen=True, eq=False)
class Repeat:
    """The source `count` times over; None or -1 is for ever."""

    source: Node
    count: int | None = None
    name = "repeat"

    def __post_init__(self) -> None:
        if self.count is not None:
            check_at_least(-1, self.count, "repeat: count")

    @property
    def columnar(self) -> bool:
        """As its source."""
        return self.source.columnar

    def open(self, context: Context) -> RepeatStream:
        """Start the first epoch."""
        count = None if self.count in (None, -1) else self.count
        return RepeatStream(self.source, count, context)


class RepeatStream:
    """The source's stream of the present epoch."""

    def __init__(self, source: Node, count: int | None, context: Context) -> None:
        self._node = source
        self._count = count
        self._context = context
        self._epoch = 0
        self._seen = False
        self._source = source.open(context.in_epoch(0))

    def read(self, n: int) -> Chunk | None:
        """From this epoch, or the first of the next."""
        while self._count is None or self._epoch < self._count:
            chunk = self._source.read(n)
            if chunk is not None:
                self._seen = True
                return chunk
            if not self._seen:
                return None  # an empty source would be repeated for ever
            self._go_to(self._epoch + 1)
            self._seen = False
        return None

    def _go_to(self, epoch: int) -> None:
        self._source.close()
        self._epoch = epoch
        self._source = self._node.open(self._context.in_epoch(epoch))

    def get_state(self) -> State:
        """The epoch, and where in it."""
        source = self._source.get_state()
        return {"epoch": self._epoch, "seen": self._seen, "source": source}

    def set_state(self, state: State) -> None:
        """Open that epoch and go to its position."""
        self._go_to(int(state["epoch"]))
        self._source.set_state(state["source"])
        self._seen = bool(state["seen"])

    def close(self) -> None:
        """Close the present epoch."""
        self._source.close()


@dataclass(frozen=True, eq=False)
class Take:
    """The first `count` elements; -1 is all."""

    source: Node
    count: int
    name = "take"

    def __post_init__(self) -> None:
        check_at_least(-1, self.count, "take: count")

    @property
    def columnar(self) -> bool:
        """As its source."""
        return self.source.columnar

    def open(self, context: Context) -> TakeStream:
        """Count from the source's start."""
        return TakeStream(self.source.open(context), self.count)


class TakeStream:
    """The source, until enough came."""

    def __init__(self, source: Stream, count: int) -> None:
        self._source = source
        self._count = count
        self._taken = 0

    def read(self, n: int) -> Chunk | None:
        """No more than are left to take."""
        if self._count >= 0:
            n = min(n, self._count - self._taken)
        chunk = self._source.read(n) if n > 0 else None
        self._taken += len(chunk) if chunk is not None else 0
        return chunk

    def get_state(self) -> State:
        """How many were taken."""
        return {"taken": self._taken, "source": self._source.get_state()}

    def set_state(self, state: State) -> None:
        """Go on counting from there."""
        self._taken = int(state["taken"])
        self._source.set_state(state["source"])

    def close(self) -> None:
        """Close the source."""
        self._source.close()


@dataclass(frozen=True, eq=False)
class Skip:
    """All but the first `count` elements; -1 skips everything."""

    source: Node
    count: int
    name = "skip"

    def __post_init__(self) -> None:
        check_at_least(-1, self.count, "skip: count")

    @property
    def columnar(self) -> bool:
        """As its source."""
        return self.source.columnar

    def open(self, context: Context) -> SkipStream:
        """Skip when first read."""
        return SkipStream(self.source.open(context), self.count)


class SkipStream:
    """The source, some elements in."""

    def __init__(self, source: Stream, count: int) -> None:
        self._source = source
        self._count = count
        self._skipped = False

    def read(self, n: int) -> Chunk | None:
        """Read on behind the skipped elements."""
        if self._count < 0:
            return None
        if not self._skipped:
            discard(self._source, self._count)
            self._skipped = True
        return self._source.read(n)

    def get_state(self) -> State:
        """Whether the skipping is done."""
        return {"skipped": self._skipped, "source": self._source.get_state()}

    def set_state(self, state: State) -> None:
        """Go on from there; nothing is skipped twice."""
        self._skipped = bool(state["skipped"])
        self._source.set_state(state["source"])

    def close(self) -> None:
        """Close the source."""
        self._source.close()


@dataclass(frozen=True, eq=False)
class Shard:
    """Every `num`-th element, beginning with number `index`."""

    source: Node
    num: int
    index: int
    name = "shard"

    def __post_init__(self) -> None:
        check_at_least(1, self.num, "shard: num_shards")
        if not 0 <= self.index < self.num:
            raise InputError(
                f"shard: index must be in [0, {self.num}), got {self.index}."
            )

    @property
    def columnar(self) -> bool:
        """As its source."""
        return self.source.columnar

    def open(self, context: Context) -> ShardStream:
        """Count from the source's start."""
        return ShardStream(self.source.open(context), self.num, self.index)


class ShardStream:
    """The source with a stride; `_ahead` elements come before the next wanted one."""

    def __init__(self, source: Stream, num: int, index: int) -> None:
        self._source = source
        self._num = num
        self._ahead = index

    def read(self, n: int) -> Chunk | None:
        """Read just far enough to hold n wanted elements."""
        while True:
            chunk = self._source.read(self._ahead + 1 + (n - 1) * self._num)
            if chunk is None:
                return None
            first, self._ahead = self._ahead, (self._ahead - len(chunk)) % self._num
            if first < len(chunk):
                return chunk.slice(first, len(chunk), self._num)

    def get_state(self) -> State:
        """How many elements come before the next wanted one."""
        return {"ahead": self._ahead, "source": self._source.get_state()}

    def set_state(self, state: State) -> None:
        """Go on from there."""
        self._ahead = int(state["ahead"])
        self._source.set_state(state["source"])

    def close(self) -> None:
        """Close the source."""
        self._source.close()
