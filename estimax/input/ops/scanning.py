"""Verbs that depend on earlier elements: take_while, scan, unique.

    Scan(source, 0, lambda total, x: (total + x, total))

The position holds what the verb remembers: a flag, the user's state, or all values seen
so far. `to_json` and `from_json` convert the last two.
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
from estimax.input.streams.stream import Context, State, Stream, VerbNode, VerbStream
from estimax.input.streams.structure import (
    InputTypeError,
    Structure,
    call,
    lists_to_tuples,
)


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
        return Elements([as_element(made[1])])

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


def _joined(text: Strings) -> bytes:
    return text.data[text.offsets[0] : text.offsets[-1]].tobytes()
