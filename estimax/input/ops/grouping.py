"""Verbs that group: group_by_window, bucket_by_sequence_length, window.

    GroupByWindow(source, key_func, reduce_func, window_size_func, Dataset)
    Buckets(length_func, (10, 20), (64, 32, 16)).node(source, Dataset)
    Window(source, size=5, shift=1, stride=1, drop_remainder=True, make_dataset=Dataset)

`group_by_window` collects elements by key and makes a dataset of each full group. A
group may wait for its last element until the end of the data. The position therefore
holds the source's position for every waiting element, and resuming reads those again:
the cost depends on the number of waiting elements, not on the length of the run.

`bucket_by_sequence_length` is a `group_by_window` whose key is the bucket. `window`
makes datasets of consecutive elements. Nodes here are given `make_dataset`, the
constructor of `Dataset`, because that class is in a higher layer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from estimax.core.errors import InputError
from estimax.input.streams.background import Lookahead
from estimax.input.streams.chunks import Chunk, Columns, ElementList, concatenate
from estimax.input.streams.stream import (
    Context,
    DatasetNode,
    State,
    Stream,
    VerbNode,
    VerbStream,
    check_at_least,
    discard,
    elements_at,
    read_fully,
)
from estimax.input.streams.structure import Structure, call, is_dataset, map_leaves

# Resuming reads up to this many rows for each waiting element, so it is small.
_ROWS_AT_ONCE = 64


@dataclass(frozen=True, eq=False)
class GroupByWindow(VerbNode):
    """The elements of `reduce_func(key, dataset)`, called with every full group."""

    key_func: Callable[..., Any]
    reduce_func: Callable[[Any, Any], Any]
    window_size_func: Callable[[Any], int]
    make_dataset: Callable[[DatasetNode], Any]
    name: str = "group_by_window"
    columnar = False

    def open(self, context: Context) -> Stream:
        return _GroupStream(self, context)


@dataclass(eq=False)
class _Group:
    """Elements of one key, and the position at which each can be read again."""

    key: int
    elements: list[Structure] = field(default_factory=list)
    positions: list[State] = field(default_factory=list)


class _GroupStream:
    """The incomplete groups, and the dataset made of the last full group."""

    def __init__(self, node: GroupByWindow, context: Context) -> None:
        self._node = node
        self._context = context
        at_once = _ROWS_AT_ONCE if node.source.columnar else 1
        self._source = Lookahead(node.source.open(context), at_once)
        self._waiting: dict[int, _Group] = {}  # incomplete groups by key
        self._full: _Group | None = None  # the group whose dataset is being read
        self._out: Stream | None = None  # the stream of that dataset

    def read(self, n: int) -> Chunk | None:
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
        """Return the next full group; at the end of the data, the one of least key."""
        while self._source.fill():
            position = self._source.get_state()
            element = self._source.give(1).element(0)
            key = int(call(self._node.key_func, element))
            group = self._waiting.setdefault(key, _Group(key))
            group.elements.append(element)
            group.positions.append(position)
            size = int(self._node.window_size_func(key))
            check_at_least(1, size, f"{self._node.name}: the window size")
            if len(group.elements) >= size:
                return self._waiting.pop(key)
        return self._waiting.pop(min(self._waiting)) if self._waiting else None

    def _reduce(self, group: _Group) -> Stream:
        """Open the dataset that `reduce_func` makes of a group."""
        window = self._node.make_dataset(InMemory(ElementList(group.elements)))
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
        # Rows of one chunk share the source's position before that chunk. Each distinct
        # one is saved once, in "before"; an element is its number there and its row.
        before: dict[int, tuple[int, State]] = {}  # by identity

        def compact(group: _Group) -> list[Any]:
            rows = []
            for position in group.positions:
                source = position["source"]
                number, _ = before.setdefault(id(source), (len(before), source))
                rows.append([number, position["given"]])
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
        # First read the elements of all groups again, then position the source.
        if self._out is not None:
            self._out.close()
        self._out = self._full = None
        saved = [*state["groups"], *([state["full"][0]] if state["full"] else [])]
        positions = [
            {"source": state["before"][number], "given": given}
            for _, rows in saved
            for number, given in rows
        ]
        elements = iter(elements_at(self._node.source, self._context, positions))
        at = iter(positions)
        groups = [
            _Group(int(key), [next(elements) for _ in rows], [next(at) for _ in rows])
            for key, rows in saved
        ]
        if state["full"]:
            self._reduce(groups.pop()).set_state(state["full"][1])
        self._waiting = {group.key: group for group in groups}
        self._source.set_state(state["source"])

    def close(self) -> None:
        if self._out is not None:
            self._out.close()
        self._waiting.clear()
        self._source.close()


@dataclass(frozen=True, eq=False)
class Buckets:
    """The arguments of `bucket_by_sequence_length`, checked."""

    length_func: Callable[..., Any]
    boundaries: tuple[int, ...]
    batch_sizes: tuple[int, ...]
    padded_shapes: Any = None
    padding_values: Any = None
    pad_to_bucket_boundary: bool = False
    no_padding: bool = False
    drop_remainder: bool = False

    def __post_init__(self) -> None:
        if len(self.batch_sizes) != len(self.boundaries) + 1:
            raise InputError(
                "bucket_by_sequence_length: expected one more bucket_batch_sizes than "
                f"bucket_boundaries, got {len(self.batch_sizes)} and "
                f"{len(self.boundaries)}."
            )
        if list(self.boundaries) != sorted(set(self.boundaries)):
            raise InputError(
                "bucket_by_sequence_length: bucket_boundaries must increase, got "
                f"{list(self.boundaries)}."
            )

    def node(
        self, source: DatasetNode, make_dataset: Callable[[DatasetNode], Any]
    ) -> DatasetNode:
        """Return a `group_by_window` that batches elements by bucket."""
        return GroupByWindow(
            source,
            self._bucket,
            self._batch,
            lambda bucket: self.batch_sizes[bucket],
            make_dataset,
            "bucket_by_sequence_length",
        )

    def _bucket(self, *element: Structure) -> int:
        length = int(self.length_func(*element))
        bucket = int(np.searchsorted(self.boundaries, length, side="right"))
        if self.pad_to_bucket_boundary and bucket == len(self.boundaries):
            last = self.boundaries[-1] if self.boundaries else 0
            raise InputError(
                f"bucket_by_sequence_length: an element of length {length} is not "
                f"below the last boundary ({last}), so it has no boundary to pad to. "
                "Add a boundary, or remove longer elements with filter()."
            )
        return bucket

    def _batch(self, bucket: int, window: Any) -> Any:  # a Dataset in, a Dataset out
        size = self.batch_sizes[bucket]
        if self.no_padding:
            return window.batch(size, self.drop_remainder)
        shapes = self.padded_shapes
        if self.pad_to_bucket_boundary:
            longest = self.boundaries[bucket] - 1
            shapes = (
                self._shapes_of(window.node, longest)
                if shapes is None
                else _with_size(shapes, longest)
            )
        return window.padded_batch(
            size, shapes, self.padding_values, self.drop_remainder
        )

    def _shapes_of(self, window: InMemory, longest: int) -> Any:
        """Return shapes that pad to `longest` where dim 0 is the element's length."""
        assert isinstance(window.chunk, ElementList)
        items = window.chunk.items
        lengths = [int(call(self.length_func, item)) for item in items]

        def shape(*rows: Any) -> list[int | None]:
            shapes = [np.shape(row) for row in rows]
            rank = len(shapes[0])
            starts = [one[:1] for one in shapes]
            if rank and starts == [(length,) for length in lengths]:
                return [longest, *[None] * (rank - 1)]
            return [None] * rank

        return map_leaves(shape, *items)


def _with_size(shapes: Any, size: int) -> Any:
    """Replace the unknown dimensions (None or -1) of shapes by `size`."""
    if isinstance(shapes, Mapping):
        return {key: _with_size(value, size) for key, value in shapes.items()}
    if isinstance(shapes, Sequence):
        return type(shapes)(_with_size(value, size) for value in shapes)  # type: ignore[call-arg]
    return size if shapes in (None, -1) else shapes


@dataclass(frozen=True, eq=False)
class Window(VerbNode):
    """Datasets of `size` elements `stride` apart, one every `shift` elements."""

    size: int
    shift: int
    stride: int
    drop_remainder: bool
    make_dataset: Callable[[DatasetNode], Any]
    name = "window"
    columnar = False

    def __post_init__(self) -> None:
        check_at_least(1, self.size, "window: size")
        check_at_least(1, self.shift, "window: shift")
        check_at_least(1, self.stride, "window: stride")

    def open(self, context: Context) -> Stream:
        return _WindowStream(self, self.source.open(context))


class _WindowStream(VerbStream):
    """The elements of the current window, in pieces of `shift` elements.

    A window begins with the oldest piece; the next window, with the piece after it.
    """

    def __init__(self, node: Window, source: Stream) -> None:
        super().__init__(source)
        self._node = node
        # Each piece with the source's position before it.
        self._pieces: deque[tuple[State, Chunk]] = deque()
        self._held = 0  # elements in all pieces

    def read(self, n: int) -> Chunk | None:
        node = self._node
        # From the first to the last element of a window.
        reach = (node.size - 1) * node.stride + 1
        while self._held < reach and self._read_piece(reach):
            pass
        if not self._pieces or (node.drop_remainder and self._held < reach):
            return None
        joined = concatenate([piece for _, piece in self._pieces])
        window = joined.slice(0, min(reach, len(joined)), node.stride)
        _, piece = self._pieces.popleft()
        self._held -= len(piece)
        return ElementList([as_datasets(window, node.make_dataset)])

    def _read_piece(self, reach: int) -> bool:
        before = self._source.get_state()
        # With shift > reach, the elements between two windows are discarded.
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
        # The position where the oldest piece begins; pieces are read again from there.
        if self._pieces:
            return {"source": self._pieces[0][0]}
        return {"source": self._source.get_state()}

    def set_state(self, state: State) -> None:
        self._pieces.clear()
        self._held = 0
        self._source.set_state(state["source"])

    def close(self) -> None:
        self._pieces.clear()
        self._source.close()


def as_datasets(chunk: Chunk, make: Callable[[DatasetNode], Any]) -> Structure:
    """Make a dataset of each leaf of a chunk: for rows {"x": …}, a {"x": Dataset}."""
    if isinstance(chunk, Columns):
        rows = len(chunk)
        return map_leaves(lambda c: make(InMemory(Columns(c, rows))), chunk.tree)
    return map_leaves(lambda *c: make(InMemory(ElementList(c))), *chunk.items)


@dataclass(frozen=True, eq=False)
class InMemory:
    """A chunk in memory as a source; also one element of `from_tensors`."""

    chunk: Chunk
    name: str = "window"
    source = None

    @property
    def columnar(self) -> bool:
        return isinstance(self.chunk, Columns)

    def open(self, context: Context) -> Stream:
        return _InMemoryStream(self.chunk)


class _InMemoryStream:
    def __init__(self, chunk: Chunk) -> None:
        self._chunk = chunk
        self._at = 0

    def read(self, n: int) -> Chunk | None:
        start, self._at = self._at, min(self._at + n, len(self._chunk))
        return self._chunk.slice(start, self._at) if self._at > start else None

    def get_state(self) -> State:
        return {"at": self._at}

    def set_state(self, state: State) -> None:
        self._at = int(state["at"])

    def close(self) -> None:
        pass
