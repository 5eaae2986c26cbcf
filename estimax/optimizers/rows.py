"""Row-wise updates: what a step costs must not grow with the vocabulary.

    slots = init_slots(optimizer, table)                     # table [V, D]
    ids, row_grads = sum_duplicates(ids, grads, vocabulary=V)
    table, slots = update_rows(optimizer, table, slots, ids, row_grads, step)

A gradient with respect to a whole table is as large as the table. Here the touched
rows and their slots are gathered, updated by the optimizer's one rule and scattered
back; donate table and slots to jit, and that happens in place.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from estimax.native import table_rows
from estimax.optimizers.optimizer import Optimizer, update_array
from estimax.optimizers.rules import Adagrad, Rule, Slots


def init_slots(optimizer: Optimizer, table: jax.Array) -> Slots:
    """The slots of a new table, each of its shape."""
    return _rule_of(optimizer).slots(table)


def update_rows(
    optimizer: Optimizer,
    table: jax.Array,
    slots: Slots,
    unique_ids: jax.Array,
    row_grads: jax.Array,
    step: jax.Array | int,
) -> tuple[jax.Array, Slots]:
    """Update the rows `unique_ids` [U] of a table [V, D] by `row_grads` [U, D].

    Ids are sorted, distinct and not negative; those of V or more are padding and
    change nothing. A listed row counts as touched even where its gradient is zero.
    Clipping is the caller's, before duplicates are summed. Optimizers without
    `has_rows` work too, but read and write the whole table as TensorFlow's do.
    """
    rule = _rule_of(optimizer)
    if not optimizer.has_rows:
        touched = jnp.zeros(table.shape[0], bool).at[unique_ids].set(True, mode="drop")
        grads = _scatter(jnp.zeros_like(table), unique_ids, row_grads)
        return update_touched(optimizer, table, slots, touched, grads, step)
    rate = optimizer.learning_rate_at(step)
    given = (table, slots, unique_ids, row_grads)
    gathered = partial(_update_gathered, rule, rate, step)
    if not isinstance(rule, Adagrad) or not _can_update_in_place(*given):
        return gathered(*given)
    in_place = partial(_update_in_place, rule, rate)
    updated: tuple[jax.Array, Slots] = jax.lax.platform_dependent(
        *given, cpu=in_place, default=gathered
    )
    return updated


def _can_update_in_place(
    table: jax.Array, slots: Slots, unique_ids: jax.Array, row_grads: jax.Array
) -> bool:
    arrays = (table, row_grads, *slots.values())
    fits = all(array.dtype == jnp.float32 and array.ndim == 2 for array in arrays)
    return fits and table_rows.can_update()


def _update_in_place(
    rule: Adagrad,
    rate: jax.Array,
    table: jax.Array,
    slots: Slots,
    unique_ids: jax.Array,
    row_grads: jax.Array,
) -> tuple[jax.Array, Slots]:
    """What `_update_gathered` does, by compiled code: a third of the time on a CPU."""
    told = (unique_ids.astype(jnp.int32), row_grads, rate, rule.epsilons)
    table, squares = table_rows.update_adagrad(table, slots["accumulator"], *told)
    return table, {"accumulator": squares}


def _update_gathered(
    rule: Rule,
    rate: jax.Array,
    step: jax.Array | int,
    table: jax.Array,
    slots: Slots,
    unique_ids: jax.Array,
    row_grads: jax.Array,
) -> tuple[jax.Array, Slots]:
    rows = gather_rows(table, unique_ids)
    row_slots = {name: gather_rows(slot, unique_ids) for name, slot in slots.items()}
    rows, row_slots = update_array(rule, row_grads, rows, row_slots, rate, step)
    new_slots = {
        name: _scatter(slot, unique_ids, row_slots[name])
        for name, slot in slots.items()
    }
    return _scatter(table, unique_ids, rows), new_slots


def update_touched(
    optimizer: Optimizer,
    table: jax.Array,
    slots: Slots,
    touched: jax.Array,
    grads: jax.Array,
    step: jax.Array | int,
) -> tuple[jax.Array, Slots]:
    """Update a table by a gradient of its own shape, as if by the rows in `touched`.

    `touched` [V] marks the rows that an id named. It reads and writes the whole table;
    for small ones that is as fast as `update_rows`, and needs no unique ids.
    """
    rule = _rule_of(optimizer)
    rate = optimizer.learning_rate_at(step)
    new, new_slots = update_array(rule, grads, table, slots, rate, step)
    named = touched.reshape(-1, *[1] * (table.ndim - 1))
    if rule.untouched != "decay":
        new = jnp.where(named, new, table)
    if rule.untouched == "keep":
        new_slots = {n: jnp.where(named, new_slots[n], slots[n]) for n in slots}
    return new, new_slots


def sum_duplicates(
    ids: jax.Array, grads: jax.Array, vocabulary: int
) -> tuple[jax.Array, jax.Array]:
    """Sum gradients [N, D] of equal ids [N]: (unique ids [N], their sums [N, D]).

    The result is sorted and padded with `vocabulary`, where ids outside the table go
    as well. On a CPU, ids made unique by the input thread are several times cheaper.
    """
    count = ids.shape[0]
    known = jnp.where((ids < 0) | (ids >= vocabulary), vocabulary, ids)
    order = jnp.argsort(known)
    ordered = known[order].astype(jnp.int32)
    starts = jnp.concatenate([jnp.ones(1, bool), ordered[1:] != ordered[:-1]])
    segment = jnp.cumsum(starts) - 1
    sums = jax.ops.segment_sum(
        grads[order], segment, num_segments=count, indices_are_sorted=True
    )
    unique = jnp.full(count, vocabulary, jnp.int32).at[segment].set(ordered)
    return unique, sums


def gather_rows(table: jax.Array, ids: jax.Array) -> jax.Array:
    """The rows of sorted ids [U]; a padding id reads the last row, for nothing."""
    return table.at[ids].get(
        mode="clip", indices_are_sorted=True, wrap_negative_indices=False
    )


def _scatter(table: jax.Array, ids: jax.Array, rows: jax.Array) -> jax.Array:
    return table.at[ids].set(
        rows.astype(table.dtype),
        mode="drop",
        indices_are_sorted=True,
        unique_indices=True,
        wrap_negative_indices=False,
    )


def _rule_of(optimizer: Optimizer) -> Rule:
    if optimizer.rule is None:
        raise ValueError(
            f"optimizer {optimizer.name!r} is a raw optax transformation, which has no "
            "row-wise update. Use an estimax optimizer (such as optimizers.Adagrad) "
            "for tables, or keep the variable dense."
        )
    return optimizer.rule
