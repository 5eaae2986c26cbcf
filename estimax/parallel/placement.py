"""Where the arrays of a model are on a mesh: replicated, or sharded by row.

    placement = Placement.of(mesh, rule, tables)      # tables: name -> shape and dtype
    state = placement.put(state)                      # host or one device -> mesh
    state = placement.constrain(state)                # inside jit

Large tables, their slots and averages are sharded by row: every device holds one
contiguous block. JAX shards evenly only, so such a table has up to n - 1 rows more than
the vocabulary. `TrainState.row_counts` holds the number of rows without those; what
leaves the devices (checkpoints, hooks, exports) is cut to it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Container, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.tree_util import DictKey

from estimax.parallel.mesh import (
    process_block,
    split_sharding,
    whole_sharding,
    with_sharding,
)

# Pairs of the name of a sharded table and its number of rows; see `TrainState`.
RowCounts = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class TableRule:
    """Which tables are sharded by row.

    Attributes:
      above: Tables of this many bytes or more are sharded; None shards none.
      named: Pairs of a regular expression and a decision. The first expression that is
        found in the name of a table decides, whatever its size.
    """

    above: int | None = None
    named: tuple[tuple[str, bool], ...] = ()

    def shards(self, name: str, form: Any) -> bool:
        """Return whether the table of this name, shape and dtype is sharded."""
        if not form.shape:
            return False
        for pattern, is_sharded in self.named:
            if re.search(pattern, name):
                return is_sharded
        size = math.prod(form.shape) * jnp.dtype(form.dtype).itemsize
        return self.above is not None and size >= self.above


@dataclass(frozen=True)
class Placement:
    """The mesh of a program, and which tables are sharded over it by row."""

    mesh: Mesh
    row_counts: RowCounts = ()

    @classmethod
    def of(
        cls,
        mesh: Mesh,
        rule: TableRule,
        tables: Mapping[str, Any],
        unpadded: Container[str] = (),
    ) -> Placement:
        """Decide which of these tables (name to shape and dtype) are sharded.

        Those in `unpadded` cannot have more rows, and are sharded only if their rows
        divide evenly.
        """
        return cls(
            mesh,
            tuple(
                (name, form.shape[0])
                for name, form in tables.items()
                if rule.shards(name, form)
                and (name not in unpadded or form.shape[0] % mesh.size == 0)
            ),
        )

    @cached_property
    def rows(self) -> dict[str, int]:
        """The number of rows of each sharded table, without padding."""
        return dict(self.row_counts)

    @property
    def size(self) -> int:
        """The number of devices."""
        return int(self.mesh.size)

    @property
    def processes(self) -> int:
        """The number of processes whose devices these are."""
        return process_block(self.mesh)[1]

    @property
    def replicated(self) -> NamedSharding:
        """The sharding of an array that every device holds."""
        return whole_sharding(self.mesh)

    @property
    def by_row(self) -> NamedSharding:
        """The sharding of an array whose first axis is split over the devices."""
        return split_sharding(self.mesh)

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
        form: Any = jax.ShapeDtypeStruct  # its constructor is not annotated

        def of_leaf(path: Any, leaf: Any) -> Any:
            shape = self._padded_shape(path, leaf)
            sharding = self._sharding(path, form(shape, leaf.dtype))
            return form(shape, leaf.dtype, sharding=sharding)

        return jax.tree_util.tree_map_with_path(of_leaf, tree)

    def pad(self, tree: Any) -> Any:
        """Add rows of zeros to sharded tables, inside jit."""

        def of_leaf(path: Any, leaf: Any) -> Any:
            shape = self._padded_shape(path, leaf)
            pairs = zip(shape, leaf.shape, strict=True)
            missing = [(0, wanted - given) for wanted, given in pairs]
            return leaf if shape == leaf.shape else jnp.pad(leaf, missing)

        return jax.tree_util.tree_map_with_path(of_leaf, tree)

    def constrain(self, tree: Any) -> Any:
        """Fix the shardings of a state or of variables, inside jit."""
        return with_sharding(tree, self.shardings(tree))

    def replicate(self, tree: Any) -> Any:
        """Make every device hold these arrays, inside jit."""
        return with_sharding(tree, self.replicated)

    def put(self, tree: Any) -> Any:
        """Place a state or variables, on one device or on the host, on the mesh."""
        return jax.tree.map(
            lambda leaf, form: put_on(leaf, form.shape, form.sharding),
            tree,
            self.forms(tree),
        )

    def _sharding(self, path: Any, leaf: Any) -> NamedSharding:
        name = self._table(path)
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
