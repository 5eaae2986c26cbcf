"""The two interfaces of the room: a Node describes, a Stream reads.

    stream = node.open(Context(seed=7))
    chunk = stream.read(128)          # up to 128 elements; None at the end
    state = stream.get_state()        # small, JSON-able, exact after that chunk

A dataset is a chain of nodes, each a frozen value that names its source. Opening the
last opens them all. To add a verb, write one node and one stream.

`read(n)` never looks beyond the n elements it returns, so a position needs no buffer:
every stage's state is a few integers and its source's state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from estimax.core.errors import InputError
from estimax.input.streams.chunks import Chunk, concatenate
from estimax.input.streams.structure import named_leaves

# What json.dumps takes; Any because it nests.
State = dict[str, Any]


@dataclass(eq=False)
class Counters:
    """What the streams of one iterator count and note together."""

    ignored: int = 0  # errors, by ignore_errors
    opened: dict[str, None] = field(default_factory=dict)  # paths of files, in order


@dataclass(frozen=True)
class Context:
    """Which pass over the data a stream is opened for; all randomness follows from it.

    `path` is the number of the iteration, then the epoch of every repeat around.
    """

    seed: int
    path: tuple[int, ...] = (0,)
    depth: int = 0  # how many shuffles lie behind, so that no two share an order
    counters: Counters = field(default_factory=Counters)

    def in_epoch(self, epoch: int) -> Context:
        """The context of one pass of a repeat."""
        return replace(self, path=(*self.path, epoch))

    def below_shuffle(self) -> Context:
        """The context of what a shuffle reads from."""
        return replace(self, depth=self.depth + 1)


class Stream(Protocol):
    """One pass over a dataset, with an exact position."""

    def read(self, n: int) -> Chunk | None:
        """At least one and at most n elements, or None at the end."""

    def get_state(self) -> State:
        """The position after the last element read."""

    def set_state(self, state: State) -> None:
        """Go to a position that `get_state` returned, without reading up to it."""

    def close(self) -> None:
        """Stop threads and let go of files; reading afterwards is an error."""


class Node(Protocol):
    """A description of a dataset; opening it twice gives two independent streams."""

    @property
    def name(self) -> str:
        """The verb, for messages and for telling saved positions apart."""

    @property
    def source(self) -> Node | None:
        """The node this one reads from."""

    @property
    def columnar(self) -> bool:
        """Whether elements are rows of columns (before batch), to be read by many."""

    def open(self, context: Context) -> Stream:
        """Start a pass."""


def chain_of(node: Node) -> list[Node]:
    """The nodes from the source to this one."""
    behind = chain_of(node.source) if node.source is not None else []
    return [*behind, node]


def inner_nodes(node: Node) -> list[Node]:
    """Return what a node reads from: its source, or all those of a zip or a mixture."""
    found = [getattr(node, name, None) for name in ("source", "first", "second")]
    nodes = [inner for _, inner in named_leaves(getattr(node, "nodes", None))]
    choice = getattr(getattr(node, "choice", None), "node", None)
    return [inner for inner in (*found, *nodes, choice) if inner is not None]


def verbs_of(node: Node) -> list[str]:
    """The names of a chain of nodes, source first."""
    return [one.name for one in chain_of(node) if one.name]


def chains_of(nodes: Iterable[Node]) -> str:
    """The chains of several nodes, for the name of one that reads them all."""
    return ", ".join(" > ".join(verbs_of(node)) for node in nodes)


def read_fully(stream: Stream, n: int) -> Chunk | None:
    """Read n elements, fewer only at the end; None when there is nothing left."""
    parts: list[Chunk] = []
    missing = n
    while missing and (chunk := stream.read(missing)) is not None:
        parts.append(chunk)
        missing -= len(chunk)
    return concatenate(parts) if parts else None


def read_up_to_error(stream: Stream, n: int) -> tuple[Chunk | None, Exception | None]:
    """As `read_fully`; an error comes beside what was read before it."""
    parts: list[Chunk] = []
    missing, found = n, None
    try:
        while missing and (chunk := stream.read(missing)) is not None:
            parts.append(chunk)
            missing -= len(chunk)
    except Exception as error:
        found = error
    return concatenate(parts) if parts else None, found


def saved_error(error: Exception | None) -> str | None:
    """What a position keeps of an error that is still to be raised."""
    return None if error is None else str(error)


def restored_error(saved: str | None) -> Exception | None:
    """The error again: what was read before it must not hide it after a resume."""
    return None if saved is None else InputError(saved)


def discard(stream: Stream, n: int, *, at_once: int = 4096) -> int:
    """Read and drop up to n elements; return how many there were."""
    dropped = 0
    while dropped < n:
        chunk = stream.read(min(n - dropped, at_once))
        if chunk is None:
            break
        dropped += len(chunk)
    return dropped


def check_same(what: str, saved: Any, now: Any) -> None:
    """Refuse a saved position that belongs to a pipeline with another setting."""
    if saved != now:
        raise InputError(
            f"cannot resume the input: {what} was {saved!r} when the position was "
            f"saved and is {now!r} now, so the order differs. Restore the old value, "
            "or start the input from its beginning."
        )


def check_at_least(least: int, value: int, what: str) -> None:
    """Refuse a count that is too small."""
    if value < least:
        raise InputError(f"{what} must be at least {least}, got {value}.")


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
