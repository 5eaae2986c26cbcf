"""Verbs that select elements: repeat, take, skip, shard, take_while, scan, unique.

    Repeat(source, None)      # opens its source again for every epoch, in a new order
    Shard(source, 4, 1)       # elements 1, 5, 9, …
    Scan(source, 0, lambda total, x: (total + x, total))

The position of a verb is one or two numbers and the position of its source. For the
verbs that depend on earlier elements it holds what the verb remembers: a flag, the
user's state, or all values seen so far. `to_json` and `from_json` convert the last two.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from estimax.core.errors import InputError
from estimax.core.strings import Strings
from estimax.input.streams.chunks import Chunk, ElementList, as_element
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
from estimax.input.streams.structure import (
    InputTypeError,
    Structure,
    call,
    lists_to_tuples,
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
        # Open the source of the saved epoch first: its position belongs to that order.
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


@dataclass(frozen=True, eq=False)
class TakeWhile(VerbNode):
    """Elements before the first for which `predicate` is false."""

    predicate: Callable[..., Any]
    name = "take_while"

    def open(self, context: Context) -> Stream:
        return _TakeWhileStream(self.source.open(context), self.predicate)


class _TakeWhileStream(VerbStream):
    saved = ("ended",)

    def __init__(self, source: Stream, predicate: Callable[..., Any]) -> None:
        super().__init__(source)
        self._predicate = predicate
        self._ended = False

    def read(self, n: int) -> Chunk | None:
        chunk = None if self._ended else self._source.read(n)
        if chunk is None:
            return None
        for i in range(len(chunk)):
            if not bool(call(self._predicate, chunk.element(i))):
                self._ended = True
                return chunk.slice(0, i) if i else None
        return chunk


@dataclass(frozen=True, eq=False)
class Scan(VerbNode):
    """The outputs of `fn(state, element) -> (state, output)`."""

    initial_state: Structure
    fn: Callable[[Any, Any], Any]
    name = "scan"
    columnar = False

    def open(self, context: Context) -> Stream:
        return _ScanStream(self, self.source.open(context))


class _ScanStream(VerbStream):
    def __init__(self, node: Scan, source: Stream) -> None:
        super().__init__(source)
        self._node = node
        self._state = node.initial_state

    def read(self, n: int) -> Chunk | None:
        # One at a time: the position must hold the state after this very element.
        chunk = self._source.read(1)
        if chunk is None:
            return None
        made = lists_to_tuples(self._node.fn(self._state, chunk.element(0)))
        if not isinstance(made, tuple) or len(made) != 2:
            raise InputError(
                "scan: the function must return (new state, output), got "
                f"{type(made).__name__}."
            )
        self._state = made[0]
        return ElementList([as_element(made[1])])

    def get_state(self) -> State:
        return {"state": to_json(self._state), "source": self._source.get_state()}

    def set_state(self, state: State) -> None:
        self._state = from_json(state["state"])
        self._source.set_state(state["source"])


@dataclass(frozen=True, eq=False)
class Unique(VerbNode):
    """Every distinct value once, where it first appears."""

    name = "unique"

    def open(self, context: Context) -> Stream:
        return _UniqueStream(self.source.open(context))


class _UniqueStream(VerbStream):
    """The source and all values seen; its position grows with the data."""

    def __init__(self, source: Stream) -> None:
        super().__init__(source)
        self._seen: dict[Any, None] = {}  # in order of appearance

    def read(self, n: int) -> Chunk | None:
        while (chunk := self._source.read(n)) is not None:
            new = []
            for i in range(len(chunk)):
                value = _hashable(chunk.element(i))
                if value not in self._seen:
                    self._seen[value] = None
                    new.append(i)
            if new:
                return chunk.take(np.array(new))
        return None

    def get_state(self) -> State:
        seen = tuple(self._seen)
        if seen and isinstance(seen[0], bytes):
            packed = to_json(Strings.of(list(seen)))
        else:
            packed = to_json(np.array(seen))
        return {"seen": packed, "source": self._source.get_state()}

    def set_state(self, state: State) -> None:
        self._seen = dict.fromkeys(from_json(state["seen"]).tolist())
        self._source.set_state(state["source"])


def _hashable(element: Structure) -> Any:
    """Return a number or bytes as a Python value; raise for anything else."""
    if isinstance(element, bytes):
        return element
    array = np.asarray(element)
    if array.shape or array.dtype.kind not in "biufSU":
        raise InputError(
            "unique: elements must be single numbers or strings, got "
            f"{type(element).__name__} of shape {array.shape}. Pick one with map()."
        )
    return array.item()


def to_json(tree: Structure) -> Any:
    """Convert a structure of arrays, scalars and text for `json.dumps`.

    >>> from_json(to_json((np.arange(2), {"n": 1.5, "s": b"x"})))
    (array([0, 1]), {'n': 1.5, 's': b'x'})
    """
    if isinstance(tree, Mapping):
        return {"dict": [[key, to_json(value)] for key, value in tree.items()]}
    if isinstance(tree, tuple):
        return {"tuple": [to_json(value) for value in tree]}
    if tree is None or isinstance(tree, bool | int | float | str):
        return {"value": tree}
    if isinstance(tree, bytes):
        return {"bytes": base64.b64encode(tree).decode()}
    if isinstance(tree, Strings):
        return {
            "text": [
                to_json(np.frombuffer(_concat_text(tree), np.uint8)),
                to_json(tree.lengths),
                list(tree.shape),
            ]
        }
    array = np.asarray(tree)
    if array.dtype.kind not in "biufc":
        raise InputTypeError(
            f"a position cannot hold a {type(tree).__name__}; use numbers and text."
        )
    data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return {"array": [array.dtype.str, list(array.shape), data]}


def from_json(saved: Any) -> Structure:
    """Return the structure that `to_json` was called with."""
    ((kind, value),) = saved.items()
    if kind == "dict":
        return {key: from_json(part) for key, part in value}
    if kind == "tuple":
        return tuple(from_json(part) for part in value)
    if kind == "bytes":
        return base64.b64decode(value)
    if kind == "text":
        offsets = np.concatenate([[0], np.cumsum(from_json(value[1]))])
        return Strings(from_json(value[0]), offsets.astype(np.int64), tuple(value[2]))
    if kind == "array":
        dtype, shape, data = value
        return np.frombuffer(base64.b64decode(data), dtype).reshape(shape)[()]
    return value


def _concat_text(text: Strings) -> bytes:
    return text.data[text.offsets[0] : text.offsets[-1]].tobytes()
