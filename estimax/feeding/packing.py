"""Many small arrays as one buffer per dtype, so that one copy takes them to a device.

    packed = pack(arrays)             # on the host: NumPy, one buffer per dtype
    many = pack_stack(arrays, 3, 8)   # three batches, in buffers [8, n]
    arrays = unpack(jax.device_put(packed))       # inside jit: slices, which fuse

Putting an array on a device costs tens of microseconds however small it is, and a batch
of a wide model has a hundred. The layout is static, so a layout compiles once.
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
    """Where each array of a tree lies. Compared by identity: `pack` reuses layouts."""

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


def pack_stack(tree: Any, count: int, room: int) -> Packed:
    """The same for `count` batches one under the other, into buffers [room, n].

    Each row is one batch, in the layout that `pack` gives it; rows past the last hold
    zeros.
    """
    leaves, treedef = jax.tree.flatten(tree)
    shapes = [(leaf.shape[0] // count, *leaf.shape[1:]) for leaf in leaves]
    layout = _layout_of(treedef, leaves, shapes)
    flat = [leaf.reshape(count, -1) for leaf in leaves]
    buffers = {}
    for name, members in layout.members.items():
        parts = [flat[i] for i in members]
        width = sum(part.shape[1] for part in parts)
        buffers[name] = _aligned((room, width), parts[0].dtype)
        np.concatenate(parts, axis=1, out=buffers[name][:count])
        buffers[name][count:] = 0
    return Packed(buffers, layout)


def _aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """An empty array that a CPU's device takes as it is: others it copies."""
    size = _size(shape) * dtype.itemsize
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


def unpack(packed: Packed) -> Any:
    """The tree again; inside jit its arrays are views of the buffers."""
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
        # Shared by every thread and program: an entry is a constant of its key.
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
