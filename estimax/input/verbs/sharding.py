"""Dividing the input between processes: by file where there are enough, else by record.

    sharded(node, num_shards=4, index=1)

The division is put as early in the chain as it can be without changing what an epoch
holds: before shuffle, repeat and batch, behind a take or a zip. Shuffles that come
before it get a seed, as every process must divide the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from estimax.core.errors import InputError
from estimax.input.sources.arrays import Range, Slices, Table
from estimax.input.sources.file_blocks import FileBlocks
from estimax.input.streams.stream import Node, chain_of
from estimax.input.streams.structure import map_leaves, named_leaves
from estimax.input.verbs.batching import Batch, Filter, Map, MapBlocks, PaddedBatch
from estimax.input.verbs.caching import Cache, Memory
from estimax.input.verbs.combining import Concatenate, Enumerate, Zip
from estimax.input.verbs.grouping import GroupByWindow, InMemory, Window
from estimax.input.verbs.ignoring import IgnoreErrors
from estimax.input.verbs.mixing import Interleave, Mix, RandomChoice
from estimax.input.verbs.options import AutoShardPolicy, WithOptions
from estimax.input.verbs.ordering import Repeat, Shard, Skip, Take
from estimax.input.verbs.parallel_map import ParallelMap, Prefetch
from estimax.input.verbs.scanning import Scan
from estimax.input.verbs.shuffle import Shuffle

# Of a part of the elements these make a part of the result, and of the whole the whole.
_ELEMENTWISE = (
    Filter,
    IgnoreErrors,
    Interleave,
    Map,
    MapBlocks,
    ParallelMap,
    Prefetch,
    Repeat,
    Shuffle,
    WithOptions,
)
_BATCHING = (Batch, GroupByWindow, PaddedBatch, Window)


def rebuilt(source: Node, rest: Sequence[Node]) -> Node:
    """The same chain over another source."""
    for node in rest:
        # Every node that has a source is a dataclass with that field.
        source = replace(node, source=source)  # type: ignore[type-var]
    return source


def sharded(node: Node, num: int, index: int, policy: AutoShardPolicy) -> Node:
    """The part of the input of process `index` of `num`."""
    if policy is AutoShardPolicy.OFF:
        return node
    chain = chain_of(node)
    last = _last_barrier(chain)
    by_file = policy is not AutoShardPolicy.DATA
    first = chain[last]
    if by_file and isinstance(first, FileBlocks) and len(first.paths) >= num:
        Shard(first, num, index)  # checks the numbers
        mine = replace(first, paths=first.paths[index::num])
        return rebuilt(mine, chain[last + 1 :])
    opened = [i for i in _before_batch(chain) if isinstance(chain[i], Interleave)]
    opened = [i for i in opened if i > last]
    if opened and not (by_file and of(first) >= num):
        last = opened[-1]
    elif policy is AutoShardPolicy.FILE and not opened:
        raise InputError(
            f"auto_shard: the policy is FILE, and there are fewer files than the {num} "
            "processes, or no files at all. Use AutoShardPolicy.AUTO or DATA."
        )
    head = rebuilt(_with_seeds(chain[0]), [_with_seeds(n) for n in chain[1 : last + 1]])
    return rebuilt(Shard(head, num, index), chain[last + 1 :])


def _before_batch(chain: list[Node]) -> range:
    stops = [i for i, node in enumerate(chain) if isinstance(node, _BATCHING)]
    return range(stops[0] if stops else len(chain))


def _last_barrier(chain: list[Node]) -> int:
    """The last node before batch that must see all elements: a take, a zip, …"""
    barriers = [i for i in _before_batch(chain)[1:] if not _is_elementwise(chain[i])]
    return max(barriers, default=0)


def _is_elementwise(node: Node) -> bool:
    if isinstance(node, Cache):
        # Cache files of one name are shared by the processes, so hold everything.
        return isinstance(node.store, Memory)
    return isinstance(node, _ELEMENTWISE)


def _with_seeds(node: Any) -> Any:  # a Node, of the same type as it was
    """Fix the seeds of shuffles, so that all processes see one order."""
    if isinstance(node, Shuffle) and node.seed is None:
        return replace(node, seed=0)
    if isinstance(node, Zip):
        return Zip(map_leaves(_whole, node.nodes))
    if isinstance(node, Concatenate):
        return Concatenate(_whole(node.first), _whole(node.second))
    if isinstance(node, Mix):
        choice = node.choice
        if getattr(choice, "seed", 0) is None:
            choice = replace(choice, seed=0)  # type: ignore[type-var]
        return replace(node, nodes=tuple(map(_whole, node.nodes)), choice=choice)
    return node


def _whole(node: Node) -> Node:
    chain = [_with_seeds(one) for one in chain_of(node)]
    return rebuilt(chain[0], chain[1:])


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
