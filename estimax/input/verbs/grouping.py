"""group_by_window: elements collected by a key, each full group made into a dataset.

    GroupByWindow(source, key_func, reduce_func, window_size_func, Dataset)

A group may wait long for its last element. Its position therefore names where every
waiting element was read, and resuming reads these again: as many reads as elements
wait, however far the run is.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from estimax.core.errors import InputError
from estimax.input.streams.chunks import Chunk, Elements
from estimax.input.streams.lookahead import Lookahead
from estimax.input.streams.stream import (
    Context,
    Node,
    State,
    Stream,
    check_at_least,
    read_fully,
)
from estimax.input.streams.structure import Structure, call, is_dataset
from estimax.input.verbs.windows import InMemory

# Few, so that the places of waiting elements are read again quickly.
_ROWS_AT_ONCE = 64


@dataclass(frozen=True, eq=False)
class GroupByWindow:
    """`reduce_func(key, dataset)` of all full groups of a key."""

    source: Node
    key_func: Callable[..., Any]
    reduce_func: Callable[[Any, Any], Any]
    window_size_func: Callable[[Any], int]
    make_dataset: Callable[[Node], Any]
    name: str = "group_by_window"
    columnar = False

    def open(self, context: Context) -> GroupStream:
        """Start with no group."""
        return GroupStream(self, context)


@dataclass(eq=False)
class _Group:
    """Elements that wait, and where each was read."""

    key: int
    elements: list[Structure] = field(default_factory=list)
    places: list[State] = field(default_factory=list)


class GroupStream:
    """The waiting groups, and the dataset of the last full one while it is read."""

    def __init__(self, node: GroupByWindow, context: Context) -> None:
        self._node = node
        self._context = context
        at_once = _ROWS_AT_ONCE if node.source.columnar else 1
        self._source = Lookahead(node.source.open(context), at_once)
        self._waiting: dict[int, _Group] = {}
        self._full: _Group | None = None
        self._out: Stream | None = None

    def read(self, n: int) -> Chunk | None:
        """From the last full group's dataset, or the next one's."""
        while True:
            if self._out is not None:
                chunk = self._out.read(n)
                if chunk is not None:
                    return chunk
                self._out.close()
                self._out = self._full = None
            group = self._next_full()
            if group is None:
                return None
            self._reduce(group)

    def _next_full(self) -> _Group | None:
        while self._source.fill():
            place = self._source.get_state()
            element = self._source.give(1).element(0)
            key = int(call(self._node.key_func, element))
            group = self._waiting.setdefault(key, _Group(key))
            group.elements.append(element)
            group.places.append(place)
            size = int(self._node.window_size_func(key))
            check_at_least(1, size, f"{self._node.name}: the window size")
            if len(group.elements) >= size:
                return self._waiting.pop(key)
        return self._waiting.pop(min(self._waiting)) if self._waiting else None

    def _reduce(self, group: _Group) -> Stream:
        window = self._node.make_dataset(InMemory(Elements(group.elements)))
        made = self._node.reduce_func(group.key, window)
        if not is_dataset(made):
            raise InputError(
                f"{self._node.name}: reduce_func must return a Dataset, got "
                f"{type(made).__name__}."
            )
        stream: Stream = made.node.open(self._context)
        self._full, self._out = group, stream
        return stream

    def get_state(self) -> State:
        """The places of all elements that wait or are being given out."""
        before: dict[int, tuple[int, State]] = {}  # by identity: few distinct ones

        def compact(group: _Group) -> list[Any]:
            rows = []
            for place in group.places:
                source = place["source"]
                number, _ = before.setdefault(id(source), (len(before), source))
                rows.append([number, place["given"]])
            return [group.key, rows]

        groups = [compact(group) for group in self._waiting.values()]
        full = None
        if self._full is not None and self._out is not None:
            full = [compact(self._full), self._out.get_state()]
        return {
            "source": self._source.get_state(),
            "groups": groups,
            "full": full,
            "before": [state for _, state in before.values()],
        }

    def set_state(self, state: State) -> None:
        """Read the waiting elements again, then go to where the source was."""
        if self._out is not None:
            self._out.close()
        self._out = self._full = None
        saved = [*state["groups"], *([state["full"][0]] if state["full"] else [])]
        places = [
            {"source": state["before"][number], "given": given}
            for _, rows in saved
            for number, given in rows
        ]
        elements = iter(elements_at(self._node.source, self._context, places))
        at = iter(places)
        groups = [
            _Group(int(key), [next(elements) for _ in rows], [next(at) for _ in rows])
            for key, rows in saved
        ]
        if state["full"]:
            self._reduce(groups.pop()).set_state(state["full"][1])
        self._waiting = {group.key: group for group in groups}
        self._source.set_state(state["source"])

    def close(self) -> None:
        """Let go of the groups and the source."""
        if self._out is not None:
            self._out.close()
        self._waiting.clear()
        self._source.close()


def elements_at(
    node: Node, context: Context, places: Sequence[State]
) -> list[Structure]:
    """The elements at places that a Lookahead gave, each stretch read once."""
    stretches: dict[str, list[int]] = defaultdict(list)
    for i, place in enumerate(places):
        stretches[json.dumps(place["source"], sort_keys=True)].append(i)
    elements: list[Structure] = [None] * len(places)
    stream = node.open(context)
    for numbers in stretches.values():
        stream.set_state(places[numbers[0]]["source"])
        rows = [int(places[i]["given"]) for i in numbers]
        chunk = read_fully(stream, max(rows) + 1)
        if chunk is None or len(chunk) <= max(rows):
            raise InputError(
                "cannot resume the input: there is no element at a saved position. "
                "Has the data changed?"
            )
        for i, row in zip(numbers, rows, strict=True):
            elements[i] = chunk.element(row)
    stream.close()
    return elements
