"""How many elements a dataset has, where that is known without reading it."""

from __future__ import annotations

from collections.abc import Sequence

from estimax.input.sources.arrays import Range, Slices
from estimax.input.sources.tables import Table
from estimax.input.streams.stream import Node
from estimax.input.streams.structure import named_leaves
from estimax.input.verbs.batching import Batch, Map, MapBlocks
from estimax.input.verbs.caching import Cache
from estimax.input.verbs.combining import Concatenate, Enumerate, Zip
from estimax.input.verbs.mixing import Mix, RandomChoice
from estimax.input.verbs.options import WithOptions
from estimax.input.verbs.ordering import Repeat, Shard, Skip, Take
from estimax.input.verbs.padding import PaddedBatch
from estimax.input.verbs.parallel_map import ParallelMap
from estimax.input.verbs.prefetching import Prefetch
from estimax.input.verbs.scanning import Scan
from estimax.input.verbs.shuffle import Shuffle
from estimax.input.verbs.windows import InMemory, Window

INFINITE = -1
UNKNOWN = -2

_SAME = (
    Cache,
    Enumerate,
    Map,
    MapBlocks,
    ParallelMap,
    Prefetch,
    Scan,
    Shuffle,
    WithOptions,
)


def of(node: Node) -> int:
    """The number of elements, or INFINITE, or UNKNOWN."""
    match node:
        case Range():
            return len(node.numbers)
        case Slices():
            return len(node.block)
        case Table():
            return len(node.table)
        case InMemory():
            return len(node.chunk)
        case Zip():
            return _shortest([of(one) for _, one in named_leaves(node.nodes)])
        case Concatenate():
            return _sum([of(node.first), of(node.second)])
        case Mix(choice=RandomChoice(), stop_on_empty=False):
            return _sum([of(one) for one in node.nodes])
        case Repeat():
            return _repeated(of(node.source), node.count)
    if node.source is None:
        return UNKNOWN
    count = of(node.source)
    if isinstance(node, _SAME):
        return count
    return _fewer(node, count)


def _repeated(once: int, count: int | None) -> int:
    if once == 0 or count == 0:
        return 0
    if count in (None, -1):
        return INFINITE
    assert count is not None
    return once * count if once > 0 else once


def _fewer(node: Node, count: int) -> int:
    match node:
        case Take():
            if node.count < 0 or 0 <= count <= node.count:
                return count
            return UNKNOWN if count == UNKNOWN else node.count
        case Skip():
            if node.count < 0:
                return 0
            return max(0, count - node.count) if count >= 0 else count
        case Shard() if count >= 0:
            return len(range(node.index, count, node.num))
        case Batch() | PaddedBatch() if count >= 0:
            up = 0 if node.drop_remainder else node.size - 1
            return (count + up) // node.size
        case Window() if count >= 0:
            reach = (node.size - 1) * node.stride + 1
            starts = count - reach + 1 if node.drop_remainder else count
            return max(0, -(-starts // node.shift))
        case Shard() | Batch() | PaddedBatch() | Window():
            return count
    return UNKNOWN


def _shortest(counts: Sequence[int]) -> int:
    finite = [count for count in counts if count != INFINITE]
    if UNKNOWN in counts:
        return 0 if 0 in counts else UNKNOWN
    return min(finite) if finite else INFINITE


def _sum(counts: Sequence[int]) -> int:
    if INFINITE in counts:
        return INFINITE
    return UNKNOWN if UNKNOWN in counts else sum(counts)
