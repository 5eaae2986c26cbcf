"""The rows of tables that a batch needs: gathered for a step, and their gradients.

How a table is updated (`updates.py`) decides which of two ways its rows take:

- ROWS: the host has made the ids of the batch unique. `gather_rows` reads those rows
  before the model runs, and the gradient is taken with respect to them. Tables of one
  stack are read, and updated, as one array: see `updates.py`.
- MASKED: the model computes the ids. The gradient is as large as the table, with a mask
  of the rows that were looked up (`touched_rows`); or, for a large table, zeros are
  added to the rows of each lookup (`row_zeros`), whose gradient has the size of the
  batch, and `sum_equal_ids` sums the gradients of equal ids.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence

import jax
import jax.numpy as jnp

from estimax import optimizers, parallel
from estimax.core.state import TrainState
from estimax.core.table_stacks import stack_arrays
from estimax.staging.host_plan import AccumulatedBatch, PreparedBatch
from estimax.staging.row_stacks import ids_of
from estimax.staging.trace import Lookup, StackedRows, TableRows
from estimax.training.updates import TableStack, UpdateKind, UpdatePlan

Batch = PreparedBatch | AccumulatedBatch  # of one update

# The rows of a large table are updated alone if it has so many for each id of a batch.
_ROWS_PER_ID = 4


def gather_rows(
    updates: UpdatePlan, state: TrainState, batch: Batch
) -> dict[str, jax.Array]:
    """Return the rows of the batch's distinct ids, for each stack updated by row."""
    rows = {}
    placement = updates.placement
    arrays = stack_arrays(state.tables)
    for stack in updates.stacks:
        unique, table = unique_ids(updates, batch, stack), arrays[stack.name]
        if stack.name in placement.rows:
            rows[stack.name] = parallel.gather_rows(
                placement, stack.name, table, unique
            )
        elif placement.processes > 1:
            # Every process has sorted its own ids, but their concatenation is not
            # sorted, as `optimizers.gather_rows` promises XLA.
            rows[stack.name] = jnp.take(table, unique, axis=0, mode="clip")
        else:
            # Of a stack, padding stands between the ids of its tables.
            rows[stack.name] = optimizers.gather_rows(
                table, unique, is_sorted=stack.is_single
            )
    return rows


def unique_ids(updates: UpdatePlan, batch: Batch, stack: TableStack) -> jax.Array:
    """Return the distinct ids of a stack of tables; on a mesh, on every device."""
    ids: jax.Array = updates.placement.replicate(batch.unique[stack.unique])
    return ids


def rows_for_lookups(
    updates: UpdatePlan,
    state: TrainState,
    rows: dict[str, jax.Array],
    batch: PreparedBatch,
    by_table: Mapping[str, jax.Array],
) -> dict[str, TableRows]:
    """Return what lookups read: gathered rows, and the place of each id in them.

    `rows` are those of each stack, and `by_table` the same rows by table.
    """
    found = {}
    arrays = stack_arrays(state.tables)
    for stack in updates.stacks:
        place = 0
        lines = _lines_of(updates, stack, batch)
        for name in stack.tables:
            mine = by_table[name]
            inverse = batch.inverse.get(str(updates.tables[name].rows), {})
            of_stack = None
            if not stack.is_single:
                assert updates.layout is not None
                of_stack = StackedRows(
                    stack.name,
                    name,
                    rows[stack.name],
                    updates.layout[name].start,
                    place,
                    batch.reads.get(stack.unique),
                    lines.get(name, {}),
                )
            found[name] = TableRows(arrays[stack.name], mine, inverse, of_stack)
            place += mine.shape[0]
    return found


def _lines_of(
    updates: UpdatePlan, stack: TableStack, batch: PreparedBatch
) -> dict[str, dict[str, int]]:
    """Return the lines in the `StackReads` of a batch: table -> call -> line."""
    found: dict[str, dict[str, int]] = {}
    if stack.unique in batch.reads:
        (plan,) = (one for one in updates.plan.stacks if one.name == stack.unique)
        for line, (member, call) in enumerate(plan.lines or ()):
            found.setdefault(stack.tables[member], {})[call] = line
    return found


def rows_by_table(
    updates: UpdatePlan, batch: Batch, rows: Mapping[str, jax.Array]
) -> dict[str, jax.Array]:
    """Return gathered rows, or their gradients, of each table: those of stacks split.

    What is in `rows` and is no stack of `updates` is returned as it is.
    """
    split = dict(rows)
    for stack in updates.stacks:
        if not stack.is_single and stack.name in split:
            sizes = segment_lengths(updates, batch, stack)
            parts = jax.lax.split(split.pop(stack.name), sizes)
            split |= dict(zip(stack.tables, parts, strict=True))
    return split


def segment_lengths(updates: UpdatePlan, batch: Batch, stack: TableStack) -> list[int]:
    """Return how many of a stack's gathered rows belong to each of its tables."""
    return [_count_distinct(updates, batch, name) for name in stack.tables]


def _count_distinct(updates: UpdatePlan, batch: Batch, table: str) -> int:
    """Return the length of a table's segment in the distinct ids of its stack."""
    name = str(updates.tables[table].rows)
    parts = batch.parts if isinstance(batch, AccumulatedBatch) else (batch,)
    (calls,) = (group.calls for group in updates.plan.groups if group.name == name)
    ids = sum(ids_of(part.staged[call]).size for part in parts for call in calls)
    # The bounds of `make_unique`.
    return min(ids, _vocabulary(updates, table))


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
    arrays = stack_arrays(state.tables)
    # Only the shapes are needed: XLA never sees this run of the model. Steps and norms
    # need the same ones.
    leaves, form = jax.tree.flatten(batch)
    key = form, tuple(leaf.shape for leaf in leaves)
    if key not in updates.lookup_shapes:
        updates.lookup_shapes[key] = jax.eval_shape(ids_of_lookups)
    for name, ids in updates.lookup_shapes[key].items():
        table = arrays[name]  # masked tables are in no stack
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
    table = stack_arrays(state.tables)[name]
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
    for stack in updates.stacks:
        # On a mesh each table is alone.
        name = stack.name
        unique[name], rows[name] = optimizers.sum_duplicates(
            unique_ids(updates, batch, stack),
            rows[name],
            _vocabulary(updates, stack.tables[0]),
        )
    return rows, unique


def _vocabulary(updates: UpdatePlan, table: str) -> int:
    groups = {group.name: group.vocabulary for group in updates.plan.groups}
    return groups[str(updates.tables[table].rows)]
