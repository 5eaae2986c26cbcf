"""Packing: many small arrays in one buffer per dtype, copied to the devices at once.

    packed = pack(batch, placement)   # on the host: NumPy, one buffer per dtype
    many = pack_stack(batches, 3, 8, placement)      # three batches, in buffers [8, n]
    batch = unpack(put(packed, placement))           # inside jit: slices, which fuse

Copying an array to a device takes tens of microseconds even if it is small, and a batch
of a wide model has a hundred arrays. The layout is static, so each layout is compiled
once.

On a mesh the first axis of every array is split, and the buffers are [n, m], a row for
each device. A batch that does not divide evenly is copied to every device instead; see
`Placement.splits_batch`. In a cluster each process packs its own part of the batch, and
all parts must have the same shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding
from numpy.typing import NDArray

from estimax.parallel import Placement, with_sharding
from estimax.staging.host_plan import AccumulatedBatch, PreparedBatch

ONE_DEVICE = Placement()

# Up to this size a compiled identity function takes less time than `device_put`. Above,
# `device_put` is faster on a CPU, where it does not copy.
_SMALL_BYTES = 256 * 1024


@dataclass(frozen=True, eq=False)
class Layout:
    """The place of each array of a tree. Compared by identity; `pack` reuses it."""

    treedef: Any
    places: tuple[tuple[str, int, tuple[int, ...]], ...]  # buffer, start, shape
    members: dict[str, tuple[int, ...]]  # buffer -> which leaves it holds, in order
    # How arrays are split over a mesh; the shapes are then of the part of one device.
    sharding: NamedSharding | None = None


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Packed:
    """A tree of arrays in a few buffers."""

    buffers: dict[str, Any]  # dtype name -> [n]
    layout: Layout = field(metadata={"static": True})

    @property
    def nbytes(self) -> int:
        """The size of all buffers."""
        return sum(int(buffer.nbytes) for buffer in self.buffers.values())


_layouts: dict[Any, Layout] = {}
_ALIGNMENT = 64  # bytes, of XLA


def pack(tree: Any, placement: Placement = ONE_DEVICE) -> Packed:
    """Copy a batch, or any tree of NumPy arrays, into one flat buffer per dtype.

    If the placement splits it, the buffers are [parts, m]: one row for each device of
    this process.
    """
    if not placement.is_one_device:
        tree = _offset_places(tree, 1, placement)
        if placement.splits_batch(_lengths(tree, 1)):
            packed = _pack_rows(tree, 1, 1, placement)
            buffers = {n: b[0] for n, b in packed.buffers.items()}
            return Packed(buffers, packed.layout)
    leaves, treedef = jax.tree.flatten(tree)
    leaves = [np.asarray(leaf) for leaf in leaves]
    layout = _layout_of(treedef, leaves, [leaf.shape for leaf in leaves])
    flat = [leaf.reshape(-1) for leaf in leaves]
    buffers = {}
    for name, members in layout.members.items():
        parts = [flat[i] for i in members]
        buffers[name] = _make_aligned((sum(map(len, parts)),), parts[0].dtype)
        np.concatenate(parts, out=buffers[name])
    return Packed(buffers, layout)


def pack_stack(
    tree: Any, count: int, capacity: int, placement: Placement = ONE_DEVICE
) -> Packed:
    """Pack `count` batches, joined along their first axis, into buffers [capacity, n].

    Each row is one batch in the layout of `pack`. Rows past the last batch are zero.
    If the placement splits the batches, the buffers are [capacity, parts, m].
    """
    if placement.is_one_device:
        return _pack_rows(tree, count, capacity, None)
    tree = _offset_places(tree, count, placement)
    is_split = placement.splits_batch(_lengths(tree, count))
    return _pack_rows(tree, count, capacity, placement if is_split else None)


def _pack_rows(tree: Any, count: int, capacity: int, split: Placement | None) -> Packed:
    leaves, treedef = jax.tree.flatten(tree)
    pieces = 1 if split is None else split.batch_parts
    sharding = None if split is None else split.batch_sharding
    shapes = [(leaf.shape[0] // (count * pieces), *leaf.shape[1:]) for leaf in leaves]
    layout = _layout_of(treedef, leaves, shapes, sharding)
    axes = (count,) if split is None else (count, pieces)
    flat = [leaf.reshape(*axes, -1) for leaf in leaves]
    buffers = {}
    for name, members in layout.members.items():
        parts = [flat[i] for i in members]
        width = sum(part.shape[-1] for part in parts)
        buffers[name] = _make_aligned((capacity, *axes[1:], width), parts[0].dtype)
        np.concatenate(parts, axis=-1, out=buffers[name][:count])
        # No loop runs them, but a stack must not hold what was in memory before.
        buffers[name][count:] = 0
    return Packed(buffers, layout)


def put(packed: Packed, placement: Placement = ONE_DEVICE) -> Packed:
    """Copy a packed batch, or a stack of them, to the devices."""
    if placement.is_one_device:
        copy = _copy if packed.nbytes <= _SMALL_BYTES else jax.device_put
        placed: Packed = copy(packed)
        return placed
    # The layout knows: whether a batch divides was decided when it was packed.
    is_split = packed.layout.sharding is not None
    on_mesh: Packed = placement.put_batch(packed, is_split=is_split)
    return on_mesh


@jax.jit
def _copy(packed: Packed) -> Packed:
    return packed


def _lengths(tree: Any, count: int) -> set[int]:
    """Return how many rows the arrays of one of `count` batches have."""
    leaves = jax.tree.leaves(tree)
    return {(leaf.shape[0] if leaf.ndim else 1) // count for leaf in leaves}


def _offset_places(batch: Any, count: int, placement: Placement) -> Any:
    """Let the places of ids count over the distinct ids of all processes.

    On the mesh the distinct ids of all processes are one array, in the order of the
    processes. Each process has made its own ids unique, and knows only their places.
    """
    block, blocks = placement.process_block
    if blocks == 1 or not batch.unique:
        return batch
    offsets = {
        name: block * (len(unique) // count) for name, unique in batch.unique.items()
    }

    def move(part: PreparedBatch) -> PreparedBatch:
        return part._replace(
            inverse={
                name: {call: places + offsets[name] for call, places in of.items()}
                for name, of in part.inverse.items()
            }
        )

    if isinstance(batch, AccumulatedBatch):
        return batch._replace(parts=tuple(move(part) for part in batch.parts))
    return move(batch)


def _make_aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return an empty array with XLA's alignment, which a CPU device does not copy."""
    size = _size(shape) * dtype.itemsize
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


def unpack(packed: Packed) -> Any:
    """Return the tree again; inside jit its arrays are slices of the buffers."""
    if packed.layout.sharding is not None:
        return _unpack_split(packed, packed.layout.sharding)
    leaves = [
        packed.buffers[name][start : start + _size(shape)].reshape(shape)
        for name, start, shape in packed.layout.places
    ]
    return jax.tree.unflatten(packed.layout.treedef, leaves)


def _unpack_split(packed: Packed, sharding: NamedSharding) -> Any:
    """Join the parts of all devices: [n, m] to [n * b, …] for each array."""
    leaves = []
    for name, start, (rows, *rest) in packed.layout.places:
        buffer = packed.buffers[name]
        part = buffer[:, start : start + _size((rows, *rest))]
        leaves.append(part.reshape(buffer.shape[0] * rows, *rest))
    leaves = with_sharding(leaves, sharding)
    return jax.tree.unflatten(packed.layout.treedef, leaves)


def _layout_of(
    treedef: Any,
    leaves: Sequence[NDArray[Any]],
    shapes: Sequence[tuple[int, ...]],
    sharding: NamedSharding | None = None,
) -> Layout:
    dtypes = [leaf.dtype for leaf in leaves]
    key = (treedef, tuple(zip(dtypes, shapes, strict=True)), sharding)
    layout = _layouts.get(key)
    if layout is None:
        # Threads share the cache; all of them would compute the same entry.
        layout = _layouts.setdefault(key, _lay_out(treedef, dtypes, shapes, sharding))
    return layout


def _lay_out(
    treedef: Any,
    dtypes: Sequence[np.dtype[Any]],
    shapes: Sequence[tuple[int, ...]],
    sharding: NamedSharding | None,
) -> Layout:
    ends: dict[str, int] = {}
    places = []
    members: dict[str, tuple[int, ...]] = {}
    for index, (dtype, shape) in enumerate(zip(dtypes, shapes, strict=True)):
        start = ends.get(dtype.name, 0)
        places.append((dtype.name, start, shape))
        members[dtype.name] = (*members.get(dtype.name, ()), index)
        ends[dtype.name] = start + _size(shape)
    return Layout(treedef, tuple(places), members, sharding)


def _size(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=np.int64))
