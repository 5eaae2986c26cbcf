"""Batches on a mesh: split over its devices, or copied to all of them.

    placing = BatchPlacing(mesh)                   # None: one device
    packed = placing.put(placing.pack(prepared))

The first axis of every array is split, so each device gets its share of the examples. A
batch that does not divide evenly, such as a short last one, is copied to every device
instead: all devices then compute the same, and the result is that of one device.

With several processes, each gives its own part of the batch, and the parts are joined
in the order of the mesh. All parts must have the same shapes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
from jax.sharding import Mesh

from estimax.core.errors import InputError
from estimax.parallel import process_block, split_sharding, whole_sharding
from estimax.staging.host_plan import AccumulatedBatch, PreparedBatch
from estimax.staging.packing import Packed, Split, pack, pack_stack

# Up to this size a compiled identity function takes less time than `device_put`. Above,
# `device_put` is faster on a CPU, where it does not copy.
_SMALL_BYTES = 256 * 1024


@dataclass(frozen=True)
class BatchPlacing:
    """Packs batches and copies them to one device, or to those of a mesh."""

    mesh: Mesh | None = None

    @property
    def parts(self) -> int:
        """Into how many parts this process splits its batches."""
        return 1 if self._split is None else self._split.parts

    def advice(self, size: int) -> str:
        """Return what to change if batches of this size cannot be split, or ""."""
        if size % self.parts == 0:
            return ""
        below = size // self.parts * self.parts
        near = f"{below} or {below + self.parts}" if below else f"{self.parts}"
        return (
            f"a batch of {size} examples cannot be split over {self.parts} devices, so "
            f"every device computes all of it. A batch size of {near} is faster."
        )

    def pack(self, batch: PreparedBatch | AccumulatedBatch) -> Packed:
        """Pack a batch, split over the devices if it divides evenly."""
        return pack(self._with_offsets(batch, 1), self._split_of(batch, 1))

    def pack_stack(self, batches: PreparedBatch, count: int, capacity: int) -> Packed:
        """Pack `count` batches, joined along their first axis, as `pack` does."""
        split = self._split_of(batches, count)
        return pack_stack(self._with_offsets(batches, count), count, capacity, split)

    def put(self, packed: Packed) -> Packed:
        """Copy a packed batch, or a stack of them, to the devices."""
        if self.mesh is None:
            put = _copied if packed.nbytes <= _SMALL_BYTES else jax.device_put
            placed: Packed = put(packed)
            return placed
        mesh, is_split = self.mesh, packed.layout.split is not None
        put_local: Any = jax.make_array_from_process_local_data  # not annotated

        def of_buffer(buffer: Any) -> Any:
            if not is_split:
                return put_local(whole_sharding(mesh), buffer)
            # [parts, m], or [capacity, parts, m]
            return put_local(split_sharding(mesh, buffer.ndim - 2), buffer)

        on_mesh: Packed = jax.tree.map(of_buffer, packed)
        return on_mesh

    @cached_property
    def _block(self) -> tuple[int, int]:
        return (0, 1) if self.mesh is None else process_block(self.mesh)

    @cached_property
    def _split(self) -> Split | None:
        if self.mesh is None:
            return None
        parts = self.mesh.size // self._block[1]
        return Split(parts, split_sharding(self.mesh))

    def _split_of(self, tree: Any, count: int) -> Split | None:
        """Return how to split the arrays of `count` batches; None copies them."""
        if self._split is None:
            return None
        sizes = {leaf.shape[0] if leaf.ndim else 1 for leaf in jax.tree.leaves(tree)}
        if all(size % (count * self._split.parts) == 0 for size in sizes):
            return self._split
        if self._block[1] > 1:
            raise InputError(
                f"a batch cannot be split over the {self._split.parts} devices of this "
                f"process: its arrays have {sorted(sizes)} rows. With several "
                "processes every batch must divide evenly: choose the batch size "
                f"accordingly, and batch(..., drop_remainder=True)."
            )
        return None

    def _with_offsets(self, batch: Any, count: int) -> Any:
        """Let the places of ids count over the distinct ids of all processes."""
        block, blocks = self._block
        if blocks == 1 or not batch.unique:
            return batch
        offsets = {
            name: block * (len(unique) // count)
            for name, unique in batch.unique.items()
        }

        def moved(part: PreparedBatch) -> PreparedBatch:
            return part._replace(
                inverse={
                    name: {call: places + offsets[name] for call, places in of.items()}
                    for name, of in part.inverse.items()
                }
            )

        if isinstance(batch, AccumulatedBatch):
            return batch._replace(parts=tuple(moved(part) for part in batch.parts))
        return moved(batch)


@jax.jit
def _copied(packed: Packed) -> Packed:
    return packed
