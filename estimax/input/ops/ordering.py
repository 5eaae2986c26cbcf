"""Verbs that select elements by their place: repeat, take, skip, shard.

    Repeat(source, None)      # opens its source again for every epoch, in a new order
    Shard(source, 4, 1)       # elements 1, 5, 9, …

The position of each is one or two numbers and the position of its source.
"""

from __future__ import annotations

from dataclasses import dataclass

from estimax.core.errors import InputError
from estimax.input.streams.chunks import Chunk
from estimax.input.streams.stream import (
    Context,
    DatasetNode,
    State,
    Stream,
    VerbNode,
    VerbStream,
    check_at_least,
    discard,
)


@dataclass(frozen=True, eq=False)
class Repeat(VerbNode):
    """The source `count` times; None or -1 repeats without end."""

    count: int | None = None
    name = "repeat"

    def __post_init__(self) -> None:
        if self.count is not None:
            check_at_least(-1, self.count, "repeat: count")

    def open(self, context: Context) -> Stream:
        count = None if self.count in (None, -1) else self.count
        return _RepeatStream(self.source, count, context)


class _RepeatStream(VerbStream):
    """The stream of the current epoch, opened anew for every epoch."""

    saved = ("epoch", "seen")

    def __init__(self, node: DatasetNode, count: int | None, context: Context) -> None:
        super().__init__(node.open(context.in_epoch(0)))
        self._node = node
        self._count = count
        self._context = context
        self._epoch = 0
        self._seen = False  # whether this epoch has given an element

    def read(self, n: int) -> Chunk | None:
        while self._count is None or self._epoch < self._count:
            chunk = self._source.read(n)
            if chunk is not None:
                self._seen = True
                return chunk
            if not self._seen:
                return None  # an empty source would be repeated without end
            self._open_epoch(self._epoch + 1)
            self._seen = False
        return None

    def _open_epoch(self, epoch: int) -> None:
        self._source.close()
        self._epoch = epoch
        self._source = self._node.open(self._context.in_epoch(epoch))

    def set_state(self, state: State) -> None:
        # The source must be that of the saved epoch before its position is set.
        self._open_epoch(state["epoch"])
        super().set_state(state)


@dataclass(frozen=True, eq=False)
class Take(VerbNode):
    """The first `count` elements; -1 takes all."""

    count: int
    name = "take"

    def __post_init__(self) -> None:
        check_at_least(-1, self.count, "take: count")

    def open(self, context: Context) -> Stream:
        return _TakeStream(self.source.open(context), self.count)


class _TakeStream(VerbStream):
    saved = ("taken",)

    def __init__(self, source: Stream, count: int) -> None:
        super().__init__(source)
        self._count = count
        self._taken = 0

    def read(self, n: int) -> Chunk | None:
        if self._count >= 0:
            n = min(n, self._count - self._taken)
        chunk = self._source.read(n) if n > 0 else None
        self._taken += len(chunk) if chunk is not None else 0
        return chunk


@dataclass(frozen=True, eq=False)
class Skip(VerbNode):
    """All but the first `count` elements; -1 skips everything."""

    count: int
    name = "skip"

    def __post_init__(self) -> None:
        check_at_least(-1, self.count, "skip: count")

    def open(self, context: Context) -> Stream:
        return _SkipStream(self.source.open(context), self.count)


class _SkipStream(VerbStream):
    saved = ("skipped",)

    def __init__(self, source: Stream, count: int) -> None:
        super().__init__(source)
        self._count = count
        self._skipped = False  # the first read skips

    def read(self, n: int) -> Chunk | None:
        if self._count < 0:
            return None
        if not self._skipped:
            discard(self._source, self._count)
            self._skipped = True
        return self._source.read(n)


@dataclass(frozen=True, eq=False)
class Shard(VerbNode):
    """Every `num_shards`-th element, beginning with number `index`."""

    num_shards: int
    index: int
    name = "shard"

    def __post_init__(self) -> None:
        check_at_least(1, self.num_shards, "shard: num_shards")
        if not 0 <= self.index < self.num_shards:
            raise InputError(
                f"shard: index must be in [0, {self.num_shards}), got {self.index}."
            )

    def open(self, context: Context) -> Stream:
        return _ShardStream(self.source.open(context), self.num_shards, self.index)


class _ShardStream(VerbStream):
    saved = ("ahead",)

    def __init__(self, source: Stream, num_shards: int, index: int) -> None:
        super().__init__(source)
        self._num_shards = num_shards
        self._ahead = index  # elements before the next one of this shard

    def read(self, n: int) -> Chunk | None:
        while True:
            # Exactly as far as the n-th element of this shard, and no further.
            chunk = self._source.read(self._ahead + 1 + (n - 1) * self._num_shards)
            if chunk is None:
                return None
            first, self._ahead = (
                self._ahead,
                (self._ahead - len(chunk)) % self._num_shards,
            )
            if first < len(chunk):
                return chunk.slice(first, len(chunk), self._num_shards)
