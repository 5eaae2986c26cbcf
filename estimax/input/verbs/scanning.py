"""Verbs that remember what came before: take_while, scan, unique.

    Scan(source, 0, lambda total, x: (total + x, total))

Their position holds what they remember: a flag, the user's state, the values seen.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from estimax.core.errors import InputError
from estimax.core.strings import Strings
from estimax.input.streams.chunks import Chunk, Elements, as_element
from estimax.input.streams.stream import Context, Node, State, Stream
from estimax.input.streams.structure import (
    InputTypeError,
    Structure,
    call,
    lists_to_tuples,
)


@dataclass(frozen=True, eq=False)
class TakeWhile:
    """Elements up to the first for which `predicate` is false."""

    source: Node
    predicate: Callable[..., Any]
    name = "take_while"

    @property
    def columnar(self) -> bool:
        """As its source."""
        return self.source.columnar

    def open(self, context: Context) -> TakeWhileStream:
        """Start with the source's first element."""
        return TakeWhileStream(self.source.open(context), self.predicate)


class TakeWhileStream:
    """The source until it has ended for us."""

    def __init__(self, source: Stream, predicate: Callable[..., Any]) -> None:
        self._source = source
        self._predicate = predicate
        self._ended = False

    def read(self, n: int) -> Chunk | None:
        """What comes before the first refused element."""
        chunk = None if self._ended else self._source.read(n)
        if chunk is None:
            return None
        for i in range(len(chunk)):
            if not bool(call(self._predicate, chunk.element(i))):
                self._ended = True
                return chunk.slice(0, i) if i else None
        return chunk

    def get_state(self) -> State:
        """Whether it has ended."""
        return {"ended": self._ended, "source": self._source.get_state()}

    def set_state(self, state: State) -> None:
        """Go there."""
        self._ended = bool(state["ended"])
        self._source.set_state(state["source"])

    def close(self) -> None:
        """Close the source."""
        self._source.close()


@dataclass(frozen=True, eq=False)
class Scan:
    """Calls `fn(state, element) -> (state, output)` and gives the outputs."""

    source: Node
    initial_state: Structure
    fn: Callable[[Any, Any], Any]
    name = "scan"
    columnar = False

    def open(self, context: Context) -> ScanStream:
        """Start with the initial state."""
        return ScanStream(self, self.source.open(context))


class ScanStream:
    """The source and the state after the last element."""

    def __init__(self, node: Scan, source: Stream) -> None:
        self._node = node
        self._source = source
        self._state = node.initial_state

    def read(self, n: int) -> Chunk | None:
        """One output: the state must be that behind it."""
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
        return Elements([as_element(made[1])])

    def get_state(self) -> State:
        """The user's state."""
        return {"state": to_json(self._state), "source": self._source.get_state()}

    def set_state(self, state: State) -> None:
        """Go there."""
        self._state = from_json(state["state"])
        self._source.set_state(state["source"])

    def close(self) -> None:
        """Close the source."""
        self._source.close()


@dataclass(frozen=True, eq=False)
class Unique:
    """Every distinct value once, where it first appears."""

    source: Node
    name = "unique"

    @property
    def columnar(self) -> bool:
        """As its source."""
        return self.source.columnar

    def open(self, context: Context) -> UniqueStream:
        """Nothing is seen yet."""
        return UniqueStream(self.source.open(context))


class UniqueStream:
    """The source, and the values seen, in order."""

    def __init__(self, source: Stream) -> None:
        self._source = source
        self._seen: dict[Any, None] = {}

    def read(self, n: int) -> Chunk | None:
        """The new ones among the next elements."""
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
        """All values seen: this verb alone has a position that grows with its data."""
        seen = tuple(self._seen)
        if seen and isinstance(seen[0], bytes):
            packed = to_json(Strings.of(list(seen)))
        else:
            packed = to_json(np.array(seen))
        return {"seen": packed, "source": self._source.get_state()}

    def set_state(self, state: State) -> None:
        """Go there."""
        self._seen = dict.fromkeys(from_json(state["seen"]).tolist())
        self._source.set_state(state["source"])

    def close(self) -> None:
        """Close the source."""
        self._source.close()


def _hashable(element: Structure) -> Any:
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
    """A structure of arrays, scalars and text, for `json.dumps`.

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
                to_json(np.frombuffer(_joined(tree), np.uint8)),
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
    """The structure that `to_json` was given."""
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


def _joined(text: Strings) -> bytes:
    return text.data[text.offsets[0] : text.offsets[-1]].tobytes()
