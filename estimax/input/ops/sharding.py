"""Whole-chain questions: the shard of one process, and the number of elements.

    shard_of_process(node, 4, 1, AutoShardPolicy.AUTO)   # for process 1 of 4
    cardinality_of(node)                                 # a count, INFINITE or UNKNOWN

`shard_of_process` divides by file if there are at least as many files as processes,
otherwise by record. It divides as early in the chain as possible without changing the
contents of an epoch: before shuffle, repeat and batch, but after a take or a zip.
Shuffles before the division get a fixed seed, because every process must divide the
same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from estimax.core.errors import InputError
from estimax.input.ops.batching import (
    Filter,
    Map,
    MapBlocks,
    PaddedBatch,
    RaggedBatch,
    Rebatch,
    SparseBatch,
    StackedBatch,
)
from estimax.input.ops.caching import Cache, Memory
from estimax.input.ops.combining import Concatenate, Enumerate, Zip
from estimax.input.ops.grouping import GroupByWindow, InMemory, Window
from estimax.input.ops.ignoring import IgnoreErrors
from estimax.input.ops.mixing import Interleave, Mix, RandomChoice
from estimax.input.ops.options import AutoShardPolicy, WithOptions
from estimax.input.ops.parallel_map import ParallelMap, Prefetch
from estimax.input.ops.selection import Repeat, Scan, Shard, Skip, Take
from estimax.input.ops.shuffle import RandomNumbers, WindowShuffle
from estimax.input.sources.arrays import Range, Slices, Table
from estimax.input.sources.file_blocks import FileBlocks
from estimax.input.streams.stream import DatasetNode, chain_of
from estimax.input.streams.structure import map_leaves, named_leaves

# Verbs that treat each element by itself: applied to the shards of a dataset, they give
# the shards of their result. The division can therefore be moved before them.
_ELEMENTWISE = (
    Filter,
    IgnoreErrors,
    Interleave,
    Map,
    MapBlocks,
    ParallelMap,
    Prefetch,
    Repeat,
    WindowShuffle,
    WithOptions,
)
BATCHING = (
    GroupByWindow,
    PaddedBatch,
    RaggedBatch,
    Rebatch,
    SparseBatch,
    StackedBatch,
    Window,
)


def shard_of_process(
    node: DatasetNode, num: int, index: int, policy: AutoShardPolicy
) -> DatasetNode:
    """Return a node for the part of the input that process `index` of `num` reads."""
    if policy is AutoShardPolicy.OFF:
        return node
    chain = chain_of(node)
    last = _last_barrier(chain)
    by_file = policy is not AutoShardPolicy.DATA
    first = chain[last]
    if by_file and isinstance(first, FileBlocks) and len(first.paths) >= num:
        Shard(first, num, index)  # raises if `num` or `index` is invalid
        mine = replace(first, paths=first.paths[index::num])
        return rebuild_chain(mine, chain[last + 1 :])
    opened = [i for i in _before_batch(chain) if isinstance(chain[i], Interleave)]
    opened = [i for i in opened if i > last]
    if opened and not (by_file and cardinality_of(first) >= num):
        # Too few files for the processes: divide the records that are read from them.
        last = opened[-1]
    elif policy is AutoShardPolicy.FILE and not opened:
        raise InputError(
            f"auto_shard: the policy is FILE, and there are fewer files than the {num} "
            "processes, or no files at all. Use AutoShardPolicy.AUTO or DATA."
        )
    head = rebuild_chain(
        _with_seeds(chain[0]), [_with_seeds(n) for n in chain[1 : last + 1]]
    )
    return rebuild_chain(Shard(head, num, index), chain[last + 1 :])


def rebuild_chain(source: DatasetNode, rest: Sequence[DatasetNode]) -> DatasetNode:
    """Return the chain of `rest` over another source."""
    for node in rest:
        # Every node that has a source is a dataclass with that field.
        source = replace(node, source=source)  # type: ignore[type-var]
    return source


def _before_batch(chain: list[DatasetNode]) -> range:
    """Return the indices of the nodes before the first one that makes batches."""
    stops = [i for i, node in enumerate(chain) if isinstance(node, BATCHING)]
    return range(stops[0] if stops else len(chain))


def _last_barrier(chain: list[DatasetNode]) -> int:
    """Return the index of the last node before batch that needs all elements."""
    barriers = [i for i in _before_batch(chain)[1:] if not _is_elementwise(chain[i])]
    return max(barriers, default=0)


def _is_elementwise(node: DatasetNode) -> bool:
    if isinstance(node, Cache):
        # Processes share cache files of one name, so the files must hold all elements.
        return isinstance(node.store, Memory)
    return isinstance(node, _ELEMENTWISE)


def _with_seeds(node: Any) -> Any:  # Any: a node, returned with the same type
    """Set seed 0 where a shuffle has none, so that all processes use one order."""
    if isinstance(node, WindowShuffle) and node.seed is None:
        return replace(node, seed=0)
    if isinstance(node, Zip):
        return Zip(map_leaves(_chain_with_seeds, node.nodes))
    if isinstance(node, Concatenate):
        return Concatenate(
            _chain_with_seeds(node.first), _chain_with_seeds(node.second)
        )
    if isinstance(node, Mix):
        choice = node.choice
        if getattr(choice, "seed", 0) is None:
            choice = replace(choice, seed=0)  # type: ignore[type-var]
        nodes = tuple(map(_chain_with_seeds, node.nodes))
        return replace(node, nodes=nodes, choice=choice)
    return node


def _chain_with_seeds(node: DatasetNode) -> DatasetNode:
    chain = [_with_seeds(one) for one in chain_of(node)]
    return rebuild_chain(chain[0], chain[1:])


# Cardinality: tf.data's values for a count that is not a number.
INFINITE = -1
UNKNOWN = -2

# Verbs that return as many elements as they read.
_SAME_COUNT = (
    Cache,
    Enumerate,
    Map,
    MapBlocks,
    ParallelMap,
    Prefetch,
    Scan,
    WindowShuffle,
    WithOptions,
)


def cardinality_of(node: DatasetNode) -> int:
    """Return the number of elements, `INFINITE` or `UNKNOWN`, without reading data."""
    match node:
        case Range(endless=True) | RandomNumbers():
            return INFINITE
        case Range():
            return len(node.numbers)
        case Slices():
            return len(node.block)
        case Table():
            return len(node.table)
        case InMemory():
            return len(node.chunk)
        case Zip():
            return _shortest(
                [cardinality_of(one) for _, one in named_leaves(node.nodes)]
            )
        case Concatenate():
            return _sum([cardinality_of(node.first), cardinality_of(node.second)])
        case Mix(choice=RandomChoice(), stop_on_empty=False):
            return _sum([cardinality_of(one) for one in node.nodes])
        case Repeat():
            return _count_repeats(cardinality_of(node.source), node.count)
    if node.source is None:
        return UNKNOWN
    count = cardinality_of(node.source)
    if isinstance(node, _SAME_COUNT):
        return count
    return _count_after_verb(node, count)


def _count_repeats(once: int, count: int | None) -> int:
    if once == 0 or count == 0:
        return 0
    if count in (None, -1):
        return INFINITE
    assert count is not None
    return once * count if once > 0 else once


def _count_after_verb(node: DatasetNode, count: int) -> int:
    """Return how many of `count` elements a verb leaves or makes."""
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
            return len(range(node.index, count, node.num_shards))
        case SparseBatch() if count >= 0:
            return -(-count // node.batch_size)
        case StackedBatch() | PaddedBatch() | RaggedBatch() if count >= 0:
            up = 0 if node.drop_remainder else node.batch_size - 1
            return (count + up) // node.batch_size
        case Window() if count >= 0:
            reach = (node.size - 1) * node.stride + 1
            starts = count - reach + 1 if node.drop_remainder else count
            return max(0, -(-starts // node.shift))
        case Shard() | StackedBatch() | PaddedBatch() | Window():
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
