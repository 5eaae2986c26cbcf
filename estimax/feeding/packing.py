"""Packing: many small arrays in one buffer per dtype, copied to a device at once.

    packed = pack(arrays)             # on the host: NumPy, one buffer per dtype
    many = pack_stack(arrays, 3, 8)   # three batches, in buffers [8, n]
    arrays = unpack(jax.device_put(packed))       # inside jit: slices, which fuse

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
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Layout:
    """The place of each array of a tree. Compared by identity; `pack` reuses it."""

    treedef: Any
    places: tuple[tuple[str, int, tuple[int, ...]], ...]  # buffer, start, shape
    members: dict[str, tuple[int, ...]]  # buffer -> which leaves it holds, in order


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


def pack(tree: Any) -> Packed:
    """Copy a tree of NumPy arrays into one flat buffer per dtype."""
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


def pack_stack(tree: Any, count: int, capacity: int) -> Packed:
    """Pack `count` batches, joined along their first axis, into buffers [capacity, n].

    Each row is one batch in the layout of `pack`. Rows past the last batch are zero.
    """
    leaves, treedef = jax.tree.flatten(tree)
    shapes = [(leaf.shape[0] // count, *leaf.shape[1:]) for leaf in leaves]
    layout = _layout_of(treedef, leaves, shapes)
    flat = [leaf.reshape(count, -1) for leaf in leaves]
    buffers = {}
    for name, members in layout.members.items():
        parts = [flat[i] for i in members]
        width = sum(part.shape[1] for part in parts)
        buffers[name] = _aligned((capacity, width), parts[0].dtype)
        np.concatenate(parts, axis=1, out=buffers[name][:count])
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
    leaves = [
        packed.buffers[name][start : start + _size(shape)].reshape(shape)
        for name, start, shape in packed.layout.places
    ]
    return jax.tree.unflatten(packed.layout.treedef, leaves)


def _layout_of(
    treedef: Any, leaves: Sequence[NDArray[Any]], shapes: Sequence[tuple[int, ...]]
) -> Layout:
    dtypes = [leaf.dtype for leaf in leaves]
    key = (treedef, tuple(zip(dtypes, shapes, strict=True)))
    layout = _layouts.get(key)
    if layout is None:
        # Threads share the cache; all of them would compute the same entry.
        layout = _layouts.setdefault(key, _lay_out(treedef, dtypes, shapes))
    return layout


def _lay_out(
    treedef: Any, dtypes: Sequence[np.dtype[Any]], shapes: Sequence[tuple[int, ...]]
) -> Layout:
    ends: dict[str, int] = {}
    places = []
    members: dict[str, tuple[int, ...]] = {}
    for index, (dtype, shape) in enumerate(zip(dtypes, shapes, strict=True)):
        start = ends.get(dtype.name, 0)
        places.append((dtype.name, start, shape))
        members[dtype.name] = (*members.get(dtype.name, ()), index)
        ends[dtype.name] = start + _size(shape)
    return Layout(treedef, tuple(places), members)


def _size(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=np.int64))
