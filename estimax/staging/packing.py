"""Packing: many small arrays in one buffer per dtype, copied to a device at once.

    packed = pack(arrays)             # on the host: NumPy, one buffer per dtype
    many = pack_stack(arrays, 3, 8)   # three batches, in buffers [8, n]
    arrays = unpack(jax.device_put(packed))       # inside jit: slices, which fuse
    split = pack(arrays, by_row)      # for a mesh: buffers [n, m], a row per device

Copying an array to a device takes tens of microseconds even if it is small, and a batch
of a wide model has a hundred arrays. The layout is static, so each layout is compiled
once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding
from numpy.typing import NDArray

from estimax.parallel import with_sharding


@dataclass(frozen=True, eq=False)
class Layout:
    """The place of each array of a tree. Compared by identity; `pack` reuses it."""

    treedef: Any
    places: tuple[tuple[str, int, tuple[int, ...]], ...]  # buffer, start, shape
    members: dict[str, tuple[int, ...]]  # buffer -> which leaves it holds, in order
    split: Split | None = None  # then the shapes are those of a device's part


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


@dataclass(frozen=True)
class Split:
    """How the first axis of every array is split over the devices of a mesh.

    Attributes:
      parts: The number of devices of this process.
      sharding: The sharding of an array whose first axis is split.
    """

    parts: int
    sharding: NamedSharding


_layouts: dict[Any, Layout] = {}
_ALIGNMENT = 64  # bytes, of XLA


def pack(tree: Any, split: Split | None = None) -> Packed:
    """Copy a tree of NumPy arrays into one flat buffer per dtype.

    With `split`, the buffers are [parts, m]: one row for each device of this process.
    """
    if split is not None:
        packed = pack_stack(tree, 1, 1, split)
        return Packed({n: b[0] for n, b in packed.buffers.items()}, packed.layout)
    leaves, treedef = jax.tree.flatten(tree)
    leaves = [np.asarray(leaf) for leaf in leaves]
    layout = _layout_of(treedef, leaves, [leaf.shape for leaf in leaves])
    flat = [leaf.reshape(-1) for leaf in leaves]
    buffers = {}
    for name, members in layout.members.items():
        parts = [flat[i] for i in members]
        buffers[name] = _aligned((sum(map(len, parts)),), parts[0].dtype)
        np.concatenate(parts, out=buffers[name])
    return Packed(buffers, layout)


def pack_stack(
    tree: Any, count: int, capacity: int, split: Split | None = None
) -> Packed:
    """Pack `count` batches, joined along their first axis, into buffers [capacity, n].

    Each row is one batch in the layout of `pack`. Rows past the last batch are zero.
    With `split`, the buffers are [capacity, parts, m].
    """
    leaves, treedef = jax.tree.flatten(tree)
    pieces = 1 if split is None else split.parts
    shapes = [(leaf.shape[0] // (count * pieces), *leaf.shape[1:]) for leaf in leaves]
    layout = _layout_of(treedef, leaves, shapes, split)
    axes = (count,) if split is None else (count, pieces)
    flat = [leaf.reshape(*axes, -1) for leaf in leaves]
    buffers = {}
    for name, members in layout.members.items():
        parts = [flat[i] for i in members]
        width = sum(part.shape[-1] for part in parts)
        buffers[name] = _aligned((capacity, *axes[1:], width), parts[0].dtype)
        np.concatenate(parts, axis=-1, out=buffers[name][:count])
        buffers[name][count:] = 0
    return Packed(buffers, layout)


def _aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return an empty array with XLA's alignment, which a CPU device does not copy."""
    size = _size(shape) * dtype.itemsize
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


def unpack(packed: Packed) -> Any:
    """Return the tree again; inside jit its arrays are slices of the buffers."""
    if packed.layout.split is not None:
        return _unpack_split(packed, packed.layout.split)
    leaves = [
        packed.buffers[name][start : start + _size(shape)].reshape(shape)
        for name, start, shape in packed.layout.places
    ]
    return jax.tree.unflatten(packed.layout.treedef, leaves)


def _unpack_split(packed: Packed, split: Split) -> Any:
    """Join the parts of all devices: [n, m] to [n * b, …] for each array."""
    leaves = []
    for name, start, (rows, *rest) in packed.layout.places:
        buffer = packed.buffers[name]
        part = buffer[:, start : start + _size((rows, *rest))]
        leaves.append(part.reshape(buffer.shape[0] * rows, *rest))
    leaves = with_sharding(leaves, split.sharding)
    return jax.tree.unflatten(packed.layout.treedef, leaves)


def _layout_of(
    treedef: Any,
    leaves: Sequence[NDArray[Any]],
    shapes: Sequence[tuple[int, ...]],
    split: Split | None = None,
) -> Layout:
    dtypes = [leaf.dtype for leaf in leaves]
    key = (treedef, tuple(zip(dtypes, shapes, strict=True)), split)
    layout = _layouts.get(key)
    if layout is None:
        # Threads share the cache; all of them would compute the same entry.
        layout = _layouts.setdefault(key, _lay_out(treedef, dtypes, shapes, split))
    return layout


def _lay_out(
    treedef: Any,
    dtypes: Sequence[np.dtype[Any]],
    shapes: Sequence[tuple[int, ...]],
    split: Split | None,
) -> Layout:
    ends: dict[str, int] = {}
    places = []
    members: dict[str, tuple[int, ...]] = {}
    for index, (dtype, shape) in enumerate(zip(dtypes, shapes, strict=True)):
        start = ends.get(dtype.name, 0)
        places.append((dtype.name, start, shape))
        members[dtype.name] = (*members.get(dtype.name, ()), index)
        ends[dtype.name] = start + _size(shape)
    return Layout(treedef, tuple(places), members, split)


def _size(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=np.int64))
