"""The rows of tables that a batch needs: gathered for a step, and their gradients.

How a table is updated (`updates.py`) decides which of two ways its rows take:

- ROWS: the host has made the ids of the batch unique. `gather_rows` reads those rows
  before the model runs, and the gradient is taken with respect to them.
- MASKED: the model computes the ids. The gradient is as large as the table, with a mask
  of the rows that were looked up (`touched_rows`); or, for a large table, zeros are
  added to the rows of each lookup (`row_zeros`), whose gradient has the size of the
  batch, and `sum_equal_ids` sums the gradients of equal ids.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence

import jax
import jax.numpy as jnp

from estimax import optimizers, parallel
from estimax.core.state import TrainState
from estimax.staging.host_plan import AccumulatedBatch, PreparedBatch
from estimax.staging.trace import Lookup, TableRows
from estimax.training.updates import UpdateKind, UpdatePlan

Batch = PreparedBatch | AccumulatedBatch  # of one update

# The rows of a large table are updated alone if it has so many for each id of a batch.
_ROWS_PER_ID = 4


def gather_rows(
    updates: UpdatePlan, state: TrainState, batch: Batch
) -> dict[str, jax.Array]:
    """Return the rows of the batch's distinct ids, for each table updated by row."""
    rows = {}
    placement = updates.placement
    for name in updates.tables_by(UpdateKind.ROWS):
        unique, table = unique_ids(updates, batch, name), state.tables[name]
        if name in placement.rows:
            rows[name] = parallel.gather_rows(placement, name, table, unique)
        elif placement.processes > 1:
            # Every process has sorted its own ids, but their concatenation is not
            # sorted, as `optimizers.gather_rows` promises XLA.
            rows[name] = jnp.take(table, unique, axis=0, mode="clip")
        else:
            rows[name] = optimizers.gather_rows(table, unique)
    return rows


def unique_ids(updates: UpdatePlan, batch: Batch, table: str) -> jax.Array:
    """Return the distinct ids of a table's row group; on a mesh, on every device."""
    ids: jax.Array = updates.placement.replicate(
        batch.unique[str(updates.tables[table].rows)]
    )
    return ids


def rows_for_lookups(
    updates: UpdatePlan,
    state: TrainState,
    rows: dict[str, jax.Array],
    batch: PreparedBatch,
) -> dict[str, TableRows]:
    """Return what lookups read: gathered rows, and the place of each id in them."""
    return {
        name: TableRows(
            state.tables[name], array, batch.inverse[str(updates.tables[name].rows)]
        )
        for name, array in rows.items()
    }


def row_zeros(
    updates: UpdatePlan,
    state: TrainState,
    batch: Batch,
    lookups_of: Callable[[], Iterable[Lookup]],
) -> dict[str, list[jax.Array]]:
    """Return zeros of the shape of the rows of each lookup, for some masked tables.

    Adding them to the rows gives the gradient of the rows alone, [N, D]; the gradient
    of the table is [V, D]. Equal ids must then be summed, which takes a sort. Tables
    that are not much larger than N are left out, because a mask is cheaper for them.
    `lookups_of` runs the model forward.
    """
    masked = updates.tables_by(UpdateKind.MASKED)
    # The parts of an accumulated batch have ids of their own, whose gradients could not
    # be added row by row. An eager model cannot be traced for the shapes of its ids.
    if not masked or updates.model.eager or isinstance(batch, AccumulatedBatch):
        return {}

    def ids_of_lookups() -> dict[str, list[jax.Array]]:
        lookups = tuple(lookups_of())
        return {
            name: [use.ids for use in lookups if use.table == name] for name in masked
        }

    zeros = {}
    # Only the shapes are needed: XLA never sees this run of the model.
    for name, ids in jax.eval_shape(ids_of_lookups).items():
        table = state.tables[name]
        if table.shape[0] >= _ROWS_PER_ID * sum(each.size for each in ids):
            shapes = [(*each.shape, *table.shape[1:]) for each in ids]
            zeros[name] = [jnp.zeros(shape, table.dtype) for shape in shapes]
    return zeros


def looked_up_ids(lookups: Iterable[Lookup], table: str) -> jax.Array:
    """Return the ids of all lookups in a table, [N]; negative where there is none."""
    ids = [_empty_rows_touch_row_0(use.ids) for use in lookups if use.table == table]
    return jnp.concatenate([each.reshape(-1) for each in ids])


def touched_rows(
    updates: UpdatePlan, lookups: Iterable[Lookup], by_row: Container[str] = ()
) -> dict[str, jax.Array]:
    """Return which rows of each masked table were looked up, [V] booleans.

    Tables in `by_row` have zeros added to their lookups, and need no mask.
    """
    masks = {}
    for name in updates.tables_by(UpdateKind.MASKED):
        if name in by_row:
            continue
        marks = [_looked_up_mask(use) for use in lookups if use.table == name]
        masks[name] = jnp.stack(marks).any(axis=0)
    return masks


def _looked_up_mask(use: Lookup) -> jax.Array:
    vocabulary = use.shape[0]
    ids = _empty_rows_touch_row_0(use.ids).reshape(-1)
    # Negative ids would count from the end; V is out of range, and is dropped.
    named = jnp.where(ids < 0, vocabulary, ids)
    return jnp.zeros(vocabulary, bool).at[named].set(True, mode="drop")


def _empty_rows_touch_row_0(ids: jax.Array) -> jax.Array:
    """Return ids [B, L], with 0 as the first id of an example without any.

    Such an example touches row 0, as in TensorFlow; see `make_unique` in
    `staging/host_plan.py`.
    """
    ids = ids.reshape(ids.shape[0], -1)
    return ids.at[:, 0].set(jnp.where((ids < 0).all(axis=1), 0, ids[:, 0]))


def sum_equal_ids(
    ids: jax.Array, grads: Sequence[jax.Array], state: TrainState, name: str
) -> tuple[jax.Array, jax.Array]:
    """Return the distinct ids of all lookups in a table, and a gradient for each."""
    table = state.tables[name]
    flat = jnp.concatenate([each.reshape(-1, *table.shape[1:]) for each in grads])
    return optimizers.sum_duplicates(ids, flat, table.shape[0])


def sum_over_processes(
    updates: UpdatePlan,
    batch: Batch,
    rows: dict[str, jax.Array],
    unique: dict[str, jax.Array],
) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
    """Sum the gradients of ids that several processes have; each made its own unique.

    Return the gradients of rows, and their ids, by table.
    """
    if updates.placement.processes == 1:
        return rows, unique
    rows, unique = dict(rows), dict(unique)
    for name in updates.tables_by(UpdateKind.ROWS):
        unique[name], rows[name] = optimizers.sum_duplicates(
            unique_ids(updates, batch, name), rows[name], _vocabulary(updates, name)
        )
    return rows, unique


def _vocabulary(updates: UpdatePlan, table: str) -> int:
    groups = {group.name: group.vocabulary for group in updates.plan.groups}
    return groups[str(updates.tables[table].rows)]
