"""The two interfaces of the input: a DatasetNode describes, a Stream reads.

    stream = node.open(Context(seed=7))
    chunk = stream.read(128)          # up to 128 elements; None at the end
    state = stream.get_state()        # small, JSON-able, exact after that chunk

A dataset is a chain of nodes. Each node is a frozen value that names its source, and
opening the last node opens the whole chain. To add a verb, write one node and one
stream; `VerbNode` and `VerbStream` hold the members that verbs over one source share.

`read(n)` never reads further than the n elements that it returns, so a position needs
no buffer: the state of a stream is a few integers and the state of its source. Verbs
that buffer (shuffle, prefetch) save where the buffer began.

The rest of the file is shared by the streams: walking a chain of nodes, reading or
discarding an exact number of elements, and checks with their error messages.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

from estimax.core.errors import InputError
from estimax.input.streams.chunks import Chunk, concatenate
from estimax.input.streams.structure import Structure, named_leaves

# Rows are read this many at a time by verbs that read ahead.
ROWS_AT_ONCE = 1024

# A position, as json.dumps takes it. Any, because positions nest.
State = dict[str, Any]


@dataclass(eq=False)
class Counters:
    """Counts that all streams of one iterator share."""

    ignored: int = 0  # errors that ignore_errors skipped
    opened: dict[str, None] = field(default_factory=dict)  # paths of files, in order


@dataclass(frozen=True)
class Context:
    """The pass over the data that a stream is opened for; it determines all randomness.

    Attributes:
      seed: The seed of the iterator, used by shuffles that have none of their own.
      path: The number of the pass, then the epoch of every enclosing `repeat`.
      depth: The number of shuffles downstream. It keeps two shuffles of one dataset
        from using the same order.
      counters: Counts shared by all streams of the iterator.
    """

    seed: int
    path: tuple[int, ...] = (0,)
    depth: int = 0
    counters: Counters = field(default_factory=Counters)

    def in_epoch(self, epoch: int) -> Context:
        """Return the context of one epoch of a `repeat`."""
        return replace(self, path=(*self.path, epoch))

    def below_shuffle(self) -> Context:
        """Return the context of the source of a shuffle."""
        return replace(self, depth=self.depth + 1)


class Stream(Protocol):
    """One pass over a dataset, with an exact position."""

    def read(self, n: int) -> Chunk | None:
        """Return at least one and at most n elements, or None at the end."""

    def get_state(self) -> State:
        """Return the position after the last element read."""

    def set_state(self, state: State) -> None:
        """Go to a position that `get_state` returned, without reading up to it."""

    def close(self) -> None:
        """Stop threads and close files. Reading afterwards is an error."""


class DatasetNode(Protocol):
    """A description of a dataset; opening it twice gives two independent streams."""

    @property
    def name(self) -> str:
        """The verb, for messages and to tell saved positions apart."""

    @property
    def source(self) -> DatasetNode | None:
        """The node that this one reads from; None for the first of a chain."""

    @property
    def columnar(self) -> bool:
        """Whether elements are rows of columns, as before `batch`.

        Rows are read a thousand at a time, other elements (batches) one at a time.
        """

    def open(self, context: Context) -> Stream:
        """Start a pass."""


@dataclass(frozen=True, eq=False)
class VerbNode:
    """Base class of nodes that read one source.

    A subclass sets `name` and defines `open`. It sets `columnar` if its elements are
    of another kind than the elements of its source.
    """

    source: DatasetNode

    @property
    def columnar(self) -> bool:
        return self.source.columnar


class VerbStream:
    """Base class of streams that read one source; a subclass defines `read`.

    The position is the position of the source, unless the subclass names attributes in
    `saved`: with `saved = ("taken",)`, it is `{"taken": self._taken, "source": …}`.
    These keys are in every checkpoint that was ever written, so they must not change.
    """

    saved: ClassVar[tuple[str, ...]] = ()

    def __init__(self, source: Stream) -> None:
        self._source = source

    def get_state(self) -> State:
        if not self.saved:
            return self._source.get_state()
        state: State = {name: getattr(self, f"_{name}") for name in self.saved}
        state["source"] = self._source.get_state()
        return state

    def set_state(self, state: State) -> None:
        for name in self.saved:
            setattr(self, f"_{name}", state[name])
        self._source.set_state(state["source"] if self.saved else state)

    def close(self) -> None:
        self._source.close()


class FunctionStream(VerbStream):
    """A stream whose `read(n)` is `function(source, n)`."""

    def __init__(
        self, source: Stream, function: Callable[[Stream, int], Chunk | None]
    ) -> None:
        super().__init__(source)
        self._function = function

    def read(self, n: int) -> Chunk | None:
        return self._function(self._source, n)


def elements_at_once(node: DatasetNode) -> int:
    """Return how many elements of a node a verb that reads ahead should read.

    Rows are read a thousand at a time, and so are the results of a map over rows that
    is called for blocks of them (`maps_blocks`), also behind verbs that only select
    elements. Other elements may be batches and are read singly.
    """
    if node.columnar:
        return ROWS_AT_ONCE
    if isinstance(node, VerbNode):
        if getattr(node, "maps_blocks", False):
            return ROWS_AT_ONCE
        if type(node).columnar is VerbNode.columnar and node.source is not None:
            return elements_at_once(node.source)
    return 1


def chain_of(node: DatasetNode) -> list[DatasetNode]:
    """Return the nodes from the first source to this node."""
    upstream = chain_of(node.source) if node.source is not None else []
    return [*upstream, node]


def inner_nodes(node: DatasetNode) -> list[DatasetNode]:
    """Return the nodes that a node reads: its source, or the inputs of a zip or mix."""
    found = [getattr(node, name, None) for name in ("source", "first", "second")]
    nodes = [inner for _, inner in named_leaves(getattr(node, "nodes", None))]
    choice = getattr(getattr(node, "choice", None), "node", None)
    return [inner for inner in (*found, *nodes, choice) if inner is not None]


def verbs_of(node: DatasetNode) -> list[str]:
    """Return the names of a chain of nodes, source first."""
    return [one.name for one in chain_of(node) if one.name]


def chains_of(nodes: Iterable[DatasetNode]) -> str:
    """Return the chains of several nodes as text, for the name of a zip or mix."""
    return ", ".join(" > ".join(verbs_of(node)) for node in nodes)


def read_fully(stream: Stream, n: int) -> Chunk | None:
    """Read n elements, fewer only at the end; return None if there are none."""
    parts: list[Chunk] = []
    missing = n
    while missing and (chunk := stream.read(missing)) is not None:
        parts.append(chunk)
        missing -= len(chunk)
    return concatenate(parts) if parts else None


def read_up_to_error(stream: Stream, n: int) -> tuple[Chunk | None, Exception | None]:
    """Read as `read_fully` does; return an error beside the elements before it."""
    parts: list[Chunk] = []
    missing, found = n, None
    try:
        while missing and (chunk := stream.read(missing)) is not None:
            parts.append(chunk)
            missing -= len(chunk)
    except Exception as error:
        found = error
    return concatenate(parts) if parts else None, found


def elements_at(
    node: DatasetNode, context: Context, positions: Sequence[State]
) -> list[Structure]:
    """Read single elements at saved positions, with one stream opened for this.

    It takes a position of a `Lookahead`: row `"given"` of the chunk that begins at
    position `"source"`. Rows of one chunk are read together.
    """
    if not positions:
        return []
    by_chunk: dict[str, list[int]] = defaultdict(list)
    for i, position in enumerate(positions):
        by_chunk[json.dumps(position["source"], sort_keys=True)].append(i)
    elements: list[Structure] = [None] * len(positions)
    stream = node.open(context)
    for numbers in by_chunk.values():
        stream.set_state(positions[numbers[0]]["source"])
        rows = [int(positions[i]["given"]) for i in numbers]
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


def save_error(error: Exception | None) -> str | None:
    """Return the text that a position keeps of an error that is still to be raised."""
    return None if error is None else str(error)


def restore_error(saved: str | None) -> Exception | None:
    """Return the error that `save_error` saved, to be raised after a resume."""
    return None if saved is None else InputError(saved)


def discard(stream: Stream, n: int, *, at_once: int = 4096) -> int:
    """Read and drop up to n elements; return how many were dropped."""
    dropped = 0
    while dropped < n:
        chunk = stream.read(min(n - dropped, at_once))
        if chunk is None:
            break
        dropped += len(chunk)
    return dropped


def check_same(what: str, saved: Any, now: Any) -> None:
    """Raise `InputError` if a setting differs from the one in the saved position."""
    if saved != now:
        raise InputError(
            f"cannot resume the input: {what} was {saved!r} when the position was "
            f"saved and is {now!r} now, so the order differs. Restore the old value, "
            "or start the input from its beginning."
        )


def check_at_least(least: int, value: int, what: str) -> None:
    """Raise `InputError` if a count is smaller than `least`."""
    if value < least:
        raise InputError(f"{what} must be at least {least}, got {value}.")
