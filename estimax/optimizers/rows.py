"""Row-wise updates of tables, whose cost does not grow with the vocabulary.

    slots = init_slots(optimizer, table)                     # table [V, D]
    ids, row_grads = sum_duplicates(ids, grads, vocabulary=V)
    table, slots = update_rows(optimizer, table, slots, ids, row_grads, step)

The gradient with respect to a whole table is as large as the table. These functions
gather the touched rows and their slots, update them by the optimizer's rule and scatter
them back. Donate table and slots to `jax.jit`, so that the update happens in place.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp

from estimax.native import table_rows
from estimax.optimizers.optimizer import Optimizer, update_array
from estimax.optimizers.rules import (
    AdagradRule,
    AdamRule,
    GradientDescentRule,
    Rule,
    Slots,
)


def keeps_other_rows(optimizer: Optimizer) -> bool:
    """Return whether an update of a whole variable changes no row without a gradient.

    Then `update_rows` gives the same result. `Optimizer.has_rows` is less strict: it
    says that rows of a *table* are left alone, as `LazyAdam` and `Ftrl` do. As an
    update of a whole variable, these change every row.

    Args:
      optimizer: An estimax optimizer.

    Example:
      >>> from estimax.optimizers import SGD, LazyAdam
      >>> keeps_other_rows(SGD(0.1)), keeps_other_rows(SGD(0.1, momentum=0.9))
      (True, False)
      >>> keeps_other_rows(LazyAdam(0.1))
      False
    """
    # The types themselves: a subclass may do more.
    return type(optimizer.rule) in (GradientDescentRule, AdagradRule)


def has_stock_rule(optimizer: Optimizer) -> bool:
    """Return whether an optimizer updates every number by itself, by a rule of ours.

    Then tables may be updated as parts of one array. A rule that a user wrote may
    depend on the shape of the table.

    Args:
      optimizer: An estimax optimizer.

    Example:
      >>> from estimax.optimizers import Adagrad
      >>> has_stock_rule(Adagrad(0.1))
      True
    """
    return type(optimizer.rule).__module__ == Rule.__module__


def init_slots(optimizer: Optimizer, table: jax.Array) -> Slots:
    """Return the initial slots of a table.

    Args:
      optimizer: An estimax optimizer.
      table: The table [V, D].

    Returns:
      Slot name to an array of the shape of the table.

    Raises:
      ValueError: The optimizer is a raw optax transformation, which has no row rule.

    Example:
      >>> from estimax.optimizers import Adagrad
      >>> {n: s.shape for n, s in init_slots(Adagrad(0.1), jnp.zeros((5, 2))).items()}
      {'accumulator': (5, 2)}
    """
    return _rule_of(optimizer).slots(table)


def update_rows(
    optimizer: Optimizer,
    table: jax.Array,
    slots: Slots,
    unique_ids: jax.Array,
    row_grads: jax.Array,
    step: jax.Array | int,
    *,
    in_place: bool = True,
    is_sorted: bool = True,
) -> tuple[jax.Array, Slots]:
    """Update some rows of a table by their gradients.

    Optimizers without `has_rows` are accepted too, but read and write the whole table,
    as in TensorFlow. Clipping is not applied: clip the gradients before duplicates are
    summed.

    Args:
      optimizer: An estimax optimizer.
      table: The table [V, D].
      slots: Its slots, each [V, D].
      unique_ids: The rows to update [U]: sorted, distinct and not negative. Ids of V or
        more are padding and change nothing.
      row_grads: The gradients of these rows [U, D]. A row with a zero gradient counts
        as touched.
      step: The number of updates before this one.
      in_place: Whether a native kernel may be used, which exists for Adagrad and Adam
        on a CPU and knows one device only.
      is_sorted: Whether the ids are sorted. If not, those of rows still ascend, with
        padding in between.

    Returns:
      The new table and slots.

    Raises:
      ValueError: The optimizer is a raw optax transformation, which has no row rule.

    Example:
      >>> from estimax.optimizers import SGD
      >>> ids, grads = jnp.array([1, 3]), jnp.ones((2, 1))  # 3 is padding
      >>> table, slots = update_rows(SGD(0.5), jnp.zeros((3, 1)), {}, ids, grads, 0)
      >>> table.tolist()
      [[0.0], [-0.5], [0.0]]
    """
    rule = _rule_of(optimizer)
    rate = optimizer.learning_rate_at(step)
    given = (table, slots, unique_ids, row_grads)
    by_xla = (
        partial(_update_gathered, rule, rate, step, is_sorted)
        if optimizer.has_rows
        else partial(_update_scattered, optimizer, step, is_sorted)
    )
    by_kernel = _kernel_for(rule, rate, step, *given) if in_place else None
    if by_kernel is None:
        return by_xla(*given)
    # Chosen when the program is lowered, since it may be lowered for another device.
    updated: tuple[jax.Array, Slots] = jax.lax.platform_dependent(
        *given, cpu=by_kernel, default=by_xla
    )
    return updated


def update_touched(
    optimizer: Optimizer,
    table: jax.Array,
    slots: Slots,
    touched: jax.Array,
    grads: jax.Array,
    step: jax.Array | int,
) -> tuple[jax.Array, Slots]:
    """Update a table by a gradient of its own shape, as if by its touched rows alone.

    It reads and writes the whole table. For small tables this is as fast as
    `update_rows`, and it needs no unique ids.

    Args:
      optimizer: An estimax optimizer.
      table: The table [V, D].
      slots: Its slots, each [V, D].
      touched: Which rows were looked up [V], boolean.
      grads: The gradient [V, D], 0 in rows that are not touched.
      step: The number of updates before this one.

    Returns:
      The new table and slots.

    Raises:
      ValueError: The optimizer is a raw optax transformation, which has no row rule.

    Example:
      >>> from estimax.optimizers import SGD
      >>> touched, grads = jnp.array([True, False]), jnp.array([[1.0], [0.0]])
      >>> table, _ = update_touched(SGD(0.5), jnp.ones((2, 1)), {}, touched, grads, 0)
      >>> table.tolist()
      [[0.5], [1.0]]
    """
    rule = _rule_of(optimizer)
    rate = optimizer.learning_rate_at(step)
    new, new_slots = update_array(rule, grads, table, slots, rate, step)
    # The rule has updated every row. Restore the rows that it should leave alone.
    named = touched.reshape(-1, *[1] * (table.ndim - 1))
    if rule.rows_without_gradient != "decay":
        new = jnp.where(named, new, table)
    if rule.rows_without_gradient == "keep":
        new_slots = {n: jnp.where(named, new_slots[n], slots[n]) for n in slots}
    return new, new_slots


def sum_duplicates(
    ids: jax.Array, grads: jax.Array, vocabulary: int
) -> tuple[jax.Array, jax.Array]:
    """Sum the gradients of equal ids, on the device.

    On a CPU it is several times cheaper to make ids unique on the host, in the input
    thread.

    Args:
      ids: The ids [N], in any order.
      grads: Their gradients [N, D].
      vocabulary: The number of rows of the table. Ids outside [0, vocabulary) count as
        padding.

    Returns:
      The distinct ids [N], sorted and padded with `vocabulary`, and the sums [N, D].

    Example:
      >>> ids, grads = jnp.array([7, 2, 7]), jnp.ones((3, 1))
      >>> ids, sums = sum_duplicates(ids, grads, vocabulary=9)
      >>> ids.tolist(), sums.tolist()
      ([2, 7, 9], [[1.0], [2.0], [0.0]])
    """
    count = ids.shape[0]
    known = jnp.where((ids < 0) | (ids >= vocabulary), vocabulary, ids)
    order = jnp.argsort(known)
    ordered = known[order].astype(jnp.int32)
    # Every run of equal ids is a segment. N is kept as the number of segments, because
    # shapes inside jit are fixed; the unused ones are padding.
    starts = jnp.concatenate([jnp.ones(1, bool), ordered[1:] != ordered[:-1]])
    segment = jnp.cumsum(starts) - 1
    sums = jax.ops.segment_sum(
        grads[order], segment, num_segments=count, indices_are_sorted=True
    )
    unique = jnp.full(count, vocabulary, jnp.int32).at[segment].set(ordered)
    return unique, sums


def gather_rows(
    table: jax.Array, ids: jax.Array, *, is_sorted: bool = True
) -> jax.Array:
    """Return the rows of a table for distinct ids.

    Args:
      table: The table [V, D].
      ids: Sorted ids [U], not negative. Padding ids of V or more read the last row,
        which the caller must ignore.
      is_sorted: Whether the ids are sorted, which some devices make use of.

    Returns:
      The rows [U, D].

    Example:
      >>> gather_rows(jnp.array([[1.0], [2.0]]), jnp.array([0, 2])).tolist()
      [[1.0], [2.0]]
    """
    return table.at[ids].get(
        mode="clip", indices_are_sorted=is_sorted, wrap_negative_indices=False
    )


def _update_gathered(
    rule: Rule,
    rate: jax.Array,
    step: jax.Array | int,
    is_sorted: bool,
    table: jax.Array,
    slots: Slots,
    unique_ids: jax.Array,
    row_grads: jax.Array,
) -> tuple[jax.Array, Slots]:
    gather = partial(gather_rows, ids=unique_ids, is_sorted=is_sorted)
    scatter = partial(_scatter, ids=unique_ids, is_sorted=is_sorted)
    rows = gather(table)
    row_slots = {name: gather(slot) for name, slot in slots.items()}
    rows, row_slots = update_array(rule, row_grads, rows, row_slots, rate, step)
    new_slots = {n: scatter(slot, rows=row_slots[n]) for n, slot in slots.items()}
    return scatter(table, rows=rows), new_slots


def _update_scattered(
    optimizer: Optimizer,
    step: jax.Array | int,
    is_sorted: bool,
    table: jax.Array,
    slots: Slots,
    unique_ids: jax.Array,
    row_grads: jax.Array,
) -> tuple[jax.Array, Slots]:
    touched = jnp.zeros(table.shape[0], bool).at[unique_ids].set(True, mode="drop")
    grads = _scatter(jnp.zeros_like(table), unique_ids, row_grads, is_sorted)
    return update_touched(optimizer, table, slots, touched, grads, step)


def _kernel_for(
    rule: Rule,
    rate: jax.Array,
    step: jax.Array | int,
    table: jax.Array,
    slots: Slots,
    unique_ids: jax.Array,
    row_grads: jax.Array,
) -> Callable[..., tuple[jax.Array, Slots]] | None:
    """Return the native update of these arrays; None if there is none."""
    arrays = (table, row_grads, *slots.values())
    if any(array.dtype != jnp.float32 or array.ndim != 2 for array in arrays):
        return None
    if isinstance(rule, AdagradRule) and table_rows.has_update_kernel():
        return partial(_update_adagrad, rule, rate)
    if not isinstance(rule, AdamRule) or rule.lazy or rule.amsgrad:
        return None
    if not table_rows.has_adam_kernel():
        return None
    return partial(_update_adam, rule, rate, step)


def _update_adagrad(
    rule: AdagradRule,
    rate: jax.Array,
    table: jax.Array,
    slots: Slots,
    unique_ids: jax.Array,
    row_grads: jax.Array,
) -> tuple[jax.Array, Slots]:
    """Do what `_update_gathered` does in a native kernel, in a third of the time."""
    table, squares = table_rows.update_adagrad(
        table,
        slots["accumulator"],
        unique_ids.astype(jnp.int32),
        row_grads,
        rate,
        rule.epsilons,
    )
    return table, {"accumulator": squares}


def _update_adam(
    rule: AdamRule,
    rate: jax.Array,
    step: jax.Array | int,
    table: jax.Array,
    slots: Slots,
    unique_ids: jax.Array,
    row_grads: jax.Array,
) -> tuple[jax.Array, Slots]:
    """Do what `_update_scattered` does in a native kernel, in one pass over memory."""
    rest_1, rest_2 = rule.rests
    numbers = table_rows.AdamNumbers(
        beta_1=rule.beta_1,
        rest_1=rest_1,
        beta_2=rule.beta_2,
        rest_2=rest_2,
        rate=rule.corrected_rate(rate, jnp.asarray(step, jnp.int32)),
        epsilon=rule.epsilon,
        shrinkage=rate * rule.weight_decay,
    )
    ids = unique_ids.astype(jnp.int32)
    table, m, v = table_rows.update_adam(
        table, slots["m"], slots["v"], ids, row_grads, numbers
    )
    return table, {"m": m, "v": v}


def _scatter(
    table: jax.Array, ids: jax.Array, rows: jax.Array, is_sorted: bool = True
) -> jax.Array:
    return table.at[ids].set(
        rows.astype(table.dtype),
        mode="drop",
        indices_are_sorted=is_sorted,
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
