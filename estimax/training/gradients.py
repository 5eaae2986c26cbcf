"""The loss of a batch and its gradients, averaged over the parts of the batch.

    found, named = compute_gradients(updates, state, batch)      # inside jit

`table_rows.py` gathers the rows of tables before, and sums their gradients after.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from estimax import optimizers
from estimax.core.state import TrainState
from estimax.core.table_stacks import by_table, stack_arrays
from estimax.staging import OUT_OF_RANGE
from estimax.staging.host_plan import AccumulatedBatch, PreparedBatch
from estimax.training.max_pooling import with_fast_max_pooling
from estimax.training.model import Applied, Variables, apply, logged_arrays, rows_of
from estimax.training.table_rows import (
    Batch,
    gather_rows,
    looked_up_ids,
    row_zeros,
    rows_by_table,
    rows_for_lookups,
    sum_equal_ids,
    sum_over_processes,
    touched_rows,
)
from estimax.training.updates import UpdateKind, UpdatePlan

Outputs = dict[str, jax.Array]  # "loss" and the values of `ex.log_value`


class Gradients(NamedTuple):
    """The loss of a batch and its gradients, before clipping and the optimizer."""

    loss: jax.Array
    whole: dict[str, Any]  # with respect to params and to whole tables
    rows: dict[str, jax.Array]  # with respect to gathered rows, by stack
    touched: dict[str, jax.Array]  # table -> [V] booleans
    model_state: Any
    # The learning rates that the model computed, by the index of the optimizer group.
    rates: dict[str, jax.Array]
    # The distinct ids of rows that were found on the device; others are in the batch.
    unique: dict[str, jax.Array] = {}  # noqa: RUF012 - never changed


def compute_gradients(
    updates: UpdatePlan, state: TrainState, batch: Batch
) -> tuple[Gradients, Outputs]:
    """Return the gradients of a batch, averaged over its parts, and named values."""
    zeros = row_zeros(
        updates,
        state,
        batch,
        lambda: apply_in_training(updates, state, batch).lookups,
    )
    trained = _arrays_with_gradient(updates, state, set(zeros))
    # Gathered once for all parts: ids are unique over the whole batch, so a row that
    # several parts use gets one gradient and one update.
    rows = gather_rows(updates, state, batch)

    def of_part(state: TrainState, part: PreparedBatch) -> tuple[Gradients, Outputs]:
        def loss_fn(trained: Any, rows: Any, zeros: Any) -> tuple[jax.Array, Any]:
            split = rows_by_table(updates, batch, rows)
            applied = _apply(updates, state, trained, (rows, split), part, zeros)
            return applied.spec.loss, (
                applied.model_state,
                named_values(applied),
                touched_rows(updates, applied.lookups, set(zeros)),
                rates_of(applied),
                {name: looked_up_ids(applied.lookups, name) for name in zeros},
            )

        loss_of = loss_fn
        if updates.has_max_pooling:
            loss_of = with_fast_max_pooling(loss_fn)
        gradient = jax.value_and_grad(loss_of, argnums=(0, 1, 2), has_aux=True)
        (loss, aux), (whole, row_grads, found_grads) = gradient(trained, rows, zeros)
        model_state, named, touched, rates, ids = aux
        unique = {}
        for name, grads in found_grads.items():
            unique[name], row_grads[name] = sum_equal_ids(ids[name], grads, state, name)
        found = Gradients(loss, whole, row_grads, touched, model_state, rates, unique)
        return found, named

    if isinstance(batch, PreparedBatch):
        found, named = of_part(state, batch)
    else:
        found, named = accumulate(of_part, state, batch.parts)
    # Summed before clipping: the norm of a gradient is the norm of the sums.
    summed, unique = sum_over_processes(updates, batch, found.rows, found.unique)
    return found._replace(rows=summed, unique=unique), named


def apply_in_training(
    updates: UpdatePlan, state: TrainState, batch: Batch, place: int = -1
) -> Applied:
    """Run the model forward as the step does, with the same random key.

    Of an accumulated batch, only the part at `place` is run.
    """
    trained = _arrays_with_gradient(updates, state)
    rows = gather_rows(updates, state, batch)
    split = rows_by_table(updates, batch, rows)
    if isinstance(batch, AccumulatedBatch):
        parts = batch.parts
        state, batch = for_part(state, place % len(parts)), parts[place]
    return _apply(updates, state, trained, (rows, split), batch)


def _apply(
    updates: UpdatePlan,
    state: TrainState,
    trained: Any,
    rows: tuple[Any, Any],  # by stack and by table
    batch: PreparedBatch,
    zeros: Any = None,
) -> Applied:
    return apply(
        updates.model,
        _replace_trained(state, trained),
        batch,
        updates.structure,
        updates.placement,
        # The key of a step depends on its number alone: a resumed run repeats it.
        key=jax.random.fold_in(state.key, state.step),
        rows=rows_for_lookups(updates, state, rows[0], batch, rows[1]),
        row_zeros=zeros,
    )


def _arrays_with_gradient(
    updates: UpdatePlan, state: TrainState, by_row: Container[str] = ()
) -> dict[str, Any]:
    """Return what the gradient is taken with respect to, besides rows of tables."""
    groups = updates.param_groups
    params = {n: v for n, v in state.params.items() if groups[n] is not None}
    whole = updates.tables_by(UpdateKind.WHOLE, UpdateKind.MASKED)
    # Only tables that are updated by row are stacked: these are alone.
    arrays = stack_arrays(state.tables)
    tables = {name: arrays[name] for name in whole if name not in by_row}
    return {"params": params, "tables": tables}


def _replace_trained(state: TrainState, trained: dict[str, Any]) -> Variables:
    return Variables(
        params=state.params | trained["params"],
        tables=by_table(state.tables) | trained["tables"],
        model_state=state.model_state,
        step=state.step,
    )


def rates_of(applied: Applied) -> dict[str, jax.Array]:
    """Return the learning rates that the model computed, by optimizer group."""
    rates = optimizers.as_train_op(applied.spec.train_op).rates
    return {index: jnp.asarray(rate, jnp.float32) for index, rate in rates.items()}


def named_values(applied: Applied) -> Outputs:
    """Return the values that every step computes; summaries are computed on request."""
    named = {n: v for n, v in applied.logged.items() if v.kind == "value"}
    return logged_arrays(named)


def accumulate(
    of_part: Callable[[TrainState, Any], tuple[Any, Any]],
    state: TrainState,
    parts: Sequence[Any],
) -> tuple[Any, Any]:
    """Average `of_part(state, part)`, gradients and named values, over all parts.

    Loss and gradients are averaged by the number of examples, `touched` is the union,
    each part starts from the `model_state` of the part before, and the named values are
    from the last part; counts are summed.
    """
    total = sum(rows_of(part) for part in parts)
    shapes = jax.eval_shape(lambda: of_part(state, parts[0])[0])
    found = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    found = found._replace(model_state=state.model_state)
    named: Any = {}
    index = 0
    # Parts of one shape run in one scan, so that compile time does not grow with them.
    for _, same in itertools.groupby(parts, key=_shapes):
        run = list(same)
        share = rows_of(run[0]) / total

        def add(found: Any, item: Any, share: float = share) -> tuple[Any, Any]:
            place, part = item
            now = replace(for_part(state, place), model_state=found.model_state)
            new, named = of_part(now, part)
            return _add_part(found, new, share), named

        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *run)
        places = jnp.arange(index, index + len(run))
        found, every_named = jax.lax.scan(add, found, (places, stacked))
        last = {n: v.sum(0) if is_count(n) else v[-1] for n, v in every_named.items()}
        named = add_counts(named, last)
        index += len(run)
    return found, named


def for_part(state: TrainState, place: Any) -> TrainState:
    """Return the state with a random key for the part at `place`."""
    return replace(state, key=jax.random.fold_in(state.key, place))


def _add_part(found: Any, new: Any, share: float) -> Any:
    def add(old: Any, leaf: Any) -> Any:
        return old + leaf * jnp.asarray(share, leaf.dtype)

    return new._replace(
        loss=add(found.loss, new.loss),
        whole=jax.tree.map(add, found.whole, new.whole),
        rows=jax.tree.map(add, found.rows, new.rows),
        touched=jax.tree.map(jnp.logical_or, found.touched, new.touched),
    )


def _shapes(part: Any) -> tuple[Any, ...]:
    leaves, treedef = jax.tree.flatten(part)
    return treedef, tuple((leaf.shape, leaf.dtype) for leaf in leaves)


def add_counts(before: Mapping[str, Any], outputs: Mapping[str, Any]) -> Outputs:
    """Return outputs, with the counts of ids out of range summed over steps.

    All other outputs come from the last step.
    """
    counts = {n: before[n] + outputs[n] for n in outputs if is_count(n) and n in before}
    return {**outputs, **counts}


def is_count(name: str) -> bool:
    """Return whether an output is a count of ids out of range."""
    return name.startswith(OUT_OF_RANGE)
