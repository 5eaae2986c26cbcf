"""Tables that are sharded by row: lookups and updates, inside `shard_map`.

    rows = gather_rows(placement, "emb", table, ids)         # [U], on every device
    rows = read_rows(placement, "emb", table, ids)           # [B, …], split by example
    table, slots = update_rows(placement, "emb", update, table, slots, ids, grads)

Every device owns one contiguous block of rows. For a lookup, each owner contributes the
rows that it has and zeros for the others; the sum over devices is the result. For an
update, each owner picks the ids that are in its block. Cost and communication depend on
the number of ids, never on the number of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from estimax.parallel.mesh import AXIS, BY_ROW, EVERYWHERE
from estimax.parallel.placement import Placement

_lax: Any = jax.lax  # its collectives are not annotated
Slots = dict[str, jax.Array]
# (block of the table, blocks of its slots, ids in the block, their gradients, step)
Update = Callable[[Any, Slots, Any, Any, Any], tuple[Any, Slots]]


def gather_rows(
    placement: Placement, name: str, table: jax.Array, ids: jax.Array
) -> jax.Array:
    """Return the rows of ids [U] that all devices have; padding ids get zeros."""

    def of_block(block: jax.Array, ids: jax.Array) -> Any:
        return _lax.psum(_own_rows(block, ids, placement.rows[name]), AXIS)

    gather = _on_mesh(placement, of_block, (BY_ROW, EVERYWHERE), EVERYWHERE)
    rows: jax.Array = gather(table, placement.replicate(ids))
    return rows


def read_rows(
    placement: Placement, name: str, table: jax.Array, ids: jax.Array
) -> jax.Array:
    """Look up ids [B, …] of any order in a table; return rows [B, …, D].

    The ids of all devices are gathered, and each device gets the rows of its examples.
    Ids out of range are clamped. Gradients flow to the blocks of the table.
    """
    last = placement.rows[name] - 1
    # A batch that does not divide evenly is on every device as a whole.
    is_split = ids.shape[0] % placement.size == 0

    def of_split(block: jax.Array, ids: jax.Array) -> Any:
        every = _lax.all_gather(ids, AXIS, tiled=True)
        rows = _own_rows(block, every, last + 1)
        return _lax.psum_scatter(rows, AXIS, tiled=True)

    def of_whole(block: jax.Array, ids: jax.Array) -> Any:
        return _lax.psum(_own_rows(block, ids, last + 1), AXIS)

    where = BY_ROW if is_split else EVERYWHERE
    look_up = _on_mesh(
        placement, of_split if is_split else of_whole, (BY_ROW, where), where
    )
    rows: jax.Array = look_up(table, jnp.clip(ids, 0, last))
    return rows


def update_rows(
    placement: Placement,
    name: str,
    update: Update,
    table: jax.Array,
    slots: Slots,
    ids: jax.Array,
    grads: jax.Array,
    step: jax.Array,
) -> tuple[jax.Array, Slots]:
    """Update rows by their gradients; each device updates the rows of its block.

    `ids` [U] are sorted and distinct; padding ids, of V or more, are at the end. Every
    device has them, and `grads` [U, D].
    """
    count = placement.rows[name]

    def of_block(
        block: jax.Array, slots: Slots, ids: jax.Array, grads: jax.Array, step: Any
    ) -> tuple[jax.Array, Slots]:
        size = block.shape[0]
        start = jax.lax.axis_index(AXIS) * size
        # Move this block's ids to the front. Those behind them, and those that were
        # in front, become padding, so that the ids stay sorted.
        first = jnp.searchsorted(ids, start).astype(jnp.int32)
        ids, grads = jnp.roll(ids, -first), jnp.roll(grads, -first, axis=0)
        is_own = (ids >= start) & (ids < start + size) & (ids < count)
        return update(block, slots, jnp.where(is_own, ids - start, size), grads, step)

    specs = (BY_ROW, BY_ROW, EVERYWHERE, EVERYWHERE, EVERYWHERE)
    apply = _on_mesh(placement, of_block, specs, (BY_ROW, BY_ROW))
    ids, grads = placement.replicate((ids, grads))
    updated: tuple[jax.Array, Slots] = apply(table, slots, ids, grads, step)
    return updated


def _own_rows(block: jax.Array, ids: jax.Array, count: int) -> jax.Array:
    """Return the rows of ids that are in this device's block, zeros for the others."""
    size = block.shape[0]
    local = ids - jax.lax.axis_index(AXIS) * size
    is_own = (local >= 0) & (local < size) & (ids < count)
    rows = block.at[jnp.clip(local, 0, size - 1)].get(
        mode="promise_in_bounds", wrap_negative_indices=False
    )
    own = is_own.reshape(*ids.shape, *[1] * (block.ndim - 1))
    # Select, do not multiply: a row that is not asked for may hold NaN.
    return jnp.where(own, rows, 0)


def _on_mesh(
    placement: Placement, function: Callable[..., Any], inputs: Any, outputs: Any
) -> Callable[..., Any]:
    mapped: Callable[..., Any] = jax.shard_map(
        function, mesh=placement.mesh, in_specs=inputs, out_specs=outputs
    )
    return mapped
