"""Where everything is: the mesh, variables, tables and batches of a program.

    placement = Placement(mesh, shard_above=10_000_000)   # Placement(): one device
    placement = placement.with_tables(tables)         # name -> shape and dtype
    state = placement.put(state)                      # host or one device -> mesh
    state = placement.constrain(state)                # inside jit

Variables are replicated: every device holds them. A table is replicated as well, or
sharded by row: every device then holds one contiguous block of it, of its slots and of
its averages. JAX shards evenly only, so such a table has up to n - 1 rows more than the
vocabulary. `TrainState.row_counts` holds the number of rows without those; what leaves
the devices (checkpoints, hooks, exports) is cut to it. Batches are split over the
devices by example, or whole on each of them.

A placement without a mesh is one device, the default of JAX. Its methods return what
they are given, so that a program is written once for any number of devices.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.tree_util import DictKey

from estimax.core.errors import InputError
from estimax.parallel.mesh import (
    one_at_a_time,
    process_block,
    split_sharding,
    whole_sharding,
    with_sharding,
)

# Pairs of the name of a sharded table and its number of rows; see `TrainState`.
RowCounts = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Placement:
    """The devices of a program, and what each of them holds.

    Attributes:
      mesh: The devices that share every step; None is one device.
      shard_above: Tables of this many bytes or more are sharded; None shards none.
      shard_named: Pairs of a regular expression and a decision. The first expression
        that is found in the name of a table decides, whatever its size.
      row_counts: The tables that are sharded by row, as `with_tables` decided.
    """

    mesh: Mesh | None = None
    shard_above: int | None = None
    shard_named: tuple[tuple[str, bool], ...] = ()
    # Pairs and not a dict: a placement is hashable, as part of the key of a program.
    row_counts: RowCounts = ()

    def with_tables(
        self, tables: Mapping[str, Any], unpadded: Container[str] = ()
    ) -> Placement:
        """Decide where each of these tables is: replicated, or sharded by row.

        `tables` maps names to shapes and dtypes. Tables in `unpadded` cannot have more
        rows, and are sharded only if their rows divide evenly.
        """
        if self.mesh is None:
            return self
        sharded = {
            name: form.shape[0]
            for name, form in tables.items()
            if self._is_sharded(name, form)
            and (name not in unpadded or form.shape[0] % self.size == 0)
        }
        return replace(self, row_counts=tuple(sharded.items()))

    def _is_sharded(self, name: str, form: Any) -> bool:
        if not form.shape:
            return False
        # Before the size: a name that the user gives wins, also for a small table.
        for pattern, is_sharded in self.shard_named:
            if re.search(pattern, name):
                return is_sharded
        size = math.prod(form.shape) * jnp.dtype(form.dtype).itemsize
        return self.shard_above is not None and size >= self.shard_above

    @cached_property
    def rows(self) -> dict[str, int]:
        """The number of rows of each sharded table, without padding."""
        return dict(self.row_counts)

    @property
    def is_one_device(self) -> bool:
        """Whether there is no mesh."""
        return self.mesh is None

    @property
    def size(self) -> int:
        """The number of devices."""
        return 1 if self.mesh is None else int(self.mesh.size)

    @cached_property
    def process_block(self) -> tuple[int, int]:
        """Which block of the devices is this process's, and the number of blocks."""
        return (0, 1) if self.mesh is None else process_block(self.mesh)

    @property
    def processes(self) -> int:
        """The number of processes whose devices these are."""
        return self.process_block[1]

    @property
    def replicated(self) -> NamedSharding:
        """The sharding of an array that every device of the mesh holds."""
        return whole_sharding(self._mesh)

    @property
    def by_row(self) -> NamedSharding:
        """The sharding of an array whose first axis is split over the devices."""
        return split_sharding(self._mesh)

    @property
    def _mesh(self) -> Mesh:
        assert self.mesh is not None, "one device has no shardings"
        return self.mesh

    def compile(self, function: Callable[..., Any], **options: Any) -> Any:
        """Return the function, compiled by `jax.jit` for these devices."""
        return one_at_a_time(jax.jit(function, **options), self.mesh)

    def padded_rows(self, name: str) -> int:
        """Return how many rows a sharded table has with its padding."""
        return -(-self.rows[name] // self.size) * self.size

    def shardings(self, tree: Any) -> Any:
        """Return the sharding of every array of a state or of variables."""
        return jax.tree_util.tree_map_with_path(
            lambda path, leaf: self._sharding(path, leaf), tree
        )

    def forms(self, tree: Any) -> Any:
        """Return shape, dtype and sharding of every array, with padding added."""
        if self.mesh is None:
            return tree
        form: Any = jax.ShapeDtypeStruct  # its constructor is not annotated

        def of_leaf(path: Any, leaf: Any) -> Any:
            shape = self._padded_shape(path, leaf)
            sharding = self._sharding(path, form(shape, leaf.dtype))
            return form(shape, leaf.dtype, sharding=sharding)

        return jax.tree_util.tree_map_with_path(of_leaf, tree)

    def pad(self, tree: Any) -> Any:
        """Add rows of zeros to sharded tables, inside jit."""
        if not self.rows:
            return tree

        # Zeros, and never looked up: ids are clamped to the rows of the vocabulary.

        def of_leaf(path: Any, leaf: Any) -> Any:
            shape = self._padded_shape(path, leaf)
            pairs = zip(shape, leaf.shape, strict=True)
            missing = [(0, wanted - given) for wanted, given in pairs]
            return leaf if shape == leaf.shape else jnp.pad(leaf, missing)

        return jax.tree_util.tree_map_with_path(of_leaf, tree)

    def constrain(self, tree: Any) -> Any:
        """Fix the shardings of a state or of variables, inside jit."""
        if self.mesh is None:
            return tree
        return with_sharding(tree, self.shardings(tree))

    def replicate(self, tree: Any) -> Any:
        """Make every device hold these arrays, inside jit."""
        return tree if self.mesh is None else with_sharding(tree, self.replicated)

    def put(self, tree: Any) -> Any:
        """Place a state or variables, on one device or on the host, on the mesh."""
        if self.mesh is None:
            return tree
        return jax.tree.map(
            lambda leaf, form: put_on(leaf, form.shape, form.sharding),
            tree,
            self.forms(tree),
        )

    def _sharding(self, path: Any, leaf: Any) -> NamedSharding:
        name = self._table(path)
        # By shape too: the state of an optimizer may hold arrays of other shapes under
        # the name of a table.
        is_sharded = name is not None and leaf.shape[:1] == (self.padded_rows(name),)
        return self.by_row if is_sharded else self.replicated

    def _padded_shape(self, path: Any, leaf: Any) -> tuple[int, ...]:
        shape: tuple[int, ...] = tuple(leaf.shape)
        name = self._table(path)
        if name is None or shape[:1] != (self.rows[name],):
            return shape
        return (self.padded_rows(name), *shape[1:])

    def _table(self, path: Any) -> str | None:
        """Return the sharded table that a leaf belongs to.

        Tables, slots, averages and the state of optax are all dicts by variable name.
        """
        return table_of(path, self.rows)

    @cached_property
    def batch_parts(self) -> int:
        """Into how many parts this process splits its batches: one for each device."""
        return self.size // self.processes

    @cached_property
    def batch_sharding(self) -> NamedSharding | None:
        """The sharding of an array that is split by example; None for one device."""
        return None if self.mesh is None else self.by_row

    def splits_batch(self, sizes: Iterable[int]) -> bool:
        """Return whether arrays of these lengths are split over the devices.

        A batch that does not divide evenly, such as a short last one, is whole on every
        device: all of them then compute the same, as one device would.
        Processes hold different rows, so in a cluster every batch must divide.
        """
        sizes = sorted(set(sizes))
        if self.mesh is None:
            return False
        # All arrays or none: a step joins features, ids and labels by example.
        if all(size % self.batch_parts == 0 for size in sizes):
            return True
        if self.processes > 1:
            raise InputError(
                f"a batch cannot be split over the {self.batch_parts} devices of this "
                f"process: its arrays have {sizes} rows. With several processes every "
                "batch must divide evenly: choose the batch size accordingly, and "
                "batch(..., drop_remainder=True)."
            )
        return False

    def put_batch(self, tree: Any, *, is_split: bool) -> Any:
        """Copy the buffers of a batch to the devices of the mesh.

        With `is_split`, buffers are [parts, m], or [capacity, parts, m] for a stack. In
        a cluster each process gives its own parts, which are joined in the order of the
        mesh.
        """
        # Not `device_put`: a process has its own rows alone, and no collective runs
        # here: the input thread could start it in another order than a step.
        put: Any = jax.make_array_from_process_local_data  # not annotated

        def put_buffer(buffer: Any) -> Any:
            if not is_split:
                return put(self.replicated, buffer)
            return put(split_sharding(self._mesh, buffer.ndim - 2), buffer)

        return jax.tree.map(put_buffer, tree)

    def batch_advice(self, size: int) -> str:
        """Return what to change if batches of this size cannot be split, or ""."""
        parts = self.batch_parts
        if size % parts == 0:
            return ""
        below = size // parts * parts
        near = f"{below} or {below + parts}" if below else f"{parts}"
        return (
            f"a batch of {size} examples cannot be split over {parts} devices, so "
            f"every device computes all of it. A batch size of {near} is faster."
        )


def table_of(path: Any, rows: Mapping[str, int]) -> str | None:
    """Return the first key of a path that is the name of a sharded table, or None."""
    keys = (step.key for step in path if isinstance(step, DictKey))
    return next((key for key in keys if key in rows), None)


def put_on(array: Any, shape: tuple[int, ...], sharding: NamedSharding) -> jax.Array:
    """Place an array on a mesh, with rows of zeros added up to `shape`.

    Each device gets a copy of its part alone, so that a table never has to fit on one
    device. The memory is not shared with `array`, because steps overwrite it. An array
    that is not in memory, such as one of a checkpoint, is read by part as well.
    """
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        data = jax.random.key_data(array)
        placed = put_on(data, tuple(data.shape), sharding)
        key: jax.Array = jax.random.wrap_key_data(
            placed, impl=jax.random.key_impl(array)
        )
        return key
    is_read_by_part = not isinstance(array, np.ndarray | jax.Array)
    is_sharded = not sharding.is_fully_replicated
    # A replicated array is read once and copied to each device; a sharded one is sliced
    # on the way, and never in memory as a whole.
    host = array if is_read_by_part and is_sharded else np.asarray(array)
    parts = [
        jax.device_put(_part(host, shape, index), device, may_alias=False)
        for device, index in sharding.addressable_devices_indices_map(shape).items()
    ]
    return jax.make_array_from_single_device_arrays(shape, sharding, parts)


def _part(host: Any, shape: tuple[int, ...], index: Any) -> Any:
    """Return `host[index]`, with rows of zeros where `host` is shorter than `shape`."""
    if host.shape == shape:
        return host[index]
    start, stop, _ = index[0].indices(shape[0])
    rows = host[start:stop]
    missing = stop - start - len(rows)
    return np.pad(rows, [(0, missing), *[(0, 0)] * (host.ndim - 1)])
