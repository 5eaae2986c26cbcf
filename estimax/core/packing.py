"""Many small arrays as one buffer per dtype, so that one copy takes them to a device.

    packed = pack(arrays)             # on the host: NumPy, one buffer per dtype
    many = stack([packed, packed], 8) # several of one layout: buffers [8, n]
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


def pack(tree: Any) -> Packed:
    """Copy a tree of NumPy arrays into one flat buffer per dtype."""
    leaves, treedef = jax.tree.flatten(tree)
    leaves = [np.asarray(leaf) for leaf in leaves]
    key = (treedef, tuple((leaf.dtype, leaf.shape) for leaf in leaves))
    layout = _layouts.get(key)
    if layout is None:
        # Shared by every thread and program: an entry is a constant of its key.
        layout = _layouts.setdefault(key, _lay_out(treedef, leaves))
    by_dtype: dict[np.dtype[Any], list[NDArray[Any]]] = {}
    for leaf in leaves:
        # By the dtype, not its name: NumPy works a name out anew, in microseconds.
        by_dtype.setdefault(leaf.dtype, []).append(leaf.reshape(-1))
    buffers = {dt.name: np.concatenate(parts) for dt, parts in by_dtype.items()}
    return Packed(buffers, layout)


def unpack(packed: Packed) -> Any:
    """The tree again; inside jit its arrays are views of the buffers."""
    leaves = [
        packed.buffers[name][start : start + _size(shape)].reshape(shape)
        for name, start, shape in packed.layout.places
    ]
    return jax.tree.unflatten(packed.layout.treedef, leaves)


def stack(batches: Sequence[Packed], length: int) -> Packed:
    """Put packed trees of one layout under each other, with room for `length`.

    Rows past the last tree hold nothing that means anything.
    """
    first = batches[0]
    buffers = {}
    for name, example in first.buffers.items():
        rows = np.empty((length, example.size), example.dtype)
        for row, batch in zip(rows, batches, strict=False):
            row[:] = batch.buffers[name]
        # What is never read must still be something: it crosses to the device.
        rows[len(batches) :] = 0
        buffers[name] = rows
    return Packed(buffers, first.layout)


def _lay_out(treedef: Any, leaves: list[NDArray[Any]]) -> Layout:
    ends: dict[str, int] = {}
    places = []
    for leaf in leaves:
        name = leaf.dtype.name
        start = ends.get(name, 0)
        places.append((name, start, leaf.shape))
        ends[name] = start + leaf.size
    return Layout(treedef, tuple(places))


def _size(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=np.int64))
