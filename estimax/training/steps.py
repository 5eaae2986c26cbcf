"""The pure core: functions from state and batch to state, built once, compiled once.

    step = make_train_step(updates)           # step(state, batch) -> (state, outputs)

Same inputs, same bits. The gradient is taken here, in `train_step`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from estimax import optimizers
from estimax.core.state import TrainState
from estimax.staging.plan import AccumulatedBatch, PreparedBatch
from estimax.staging.recording import Lookup, TableRows
from estimax.training.model import (
    Applied,
    BatchStructure,
    Model,
    Variables,
    logged_arrays,
    rows_of,
)
from estimax.training.updates import UpdateKind, UpdatePlan

Batch = PreparedBatch | AccumulatedBatch  # of one update
Outputs = dict[str, jax.Array]  # "loss" and the values of `ex.log_value`
TrainStep = Callable[[TrainState, Any], tuple[TrainState, Outputs]]
TrainLoop = Callable[[TrainState, Any, Any, Any], tuple[TrainState, Outputs]]


def make_train_step(updates: UpdatePlan) -> TrainStep:
    """Build step(state, batch) -> (state, outputs)."""

    def train_step(state: TrainState, batch: Batch) -> tuple[TrainState, Outputs]:
        found, named = gradients(updates, state, batch)
        state = _apply_gradients(updates, state, batch, found)
        averages = _averages(updates, state)
        new = replace(
            state, step=state.step + 1, model_state=found.model_state, averages=averages
        )
        return new, {"loss": found.loss, **named}

    return train_step


class Gradients(NamedTuple):
    """The loss of a batch and its gradients, before clipping and the optimizer."""

    loss: jax.Array
    whole: dict[str, Any]  # with respect to params and to whole tables
    rows: dict[str, jax.Array]  # with respect to gathered rows, by table
    touched: dict[str, jax.Array]  # table -> [V] booleans
    model_state: Any


def gradients(
    updates: UpdatePlan, state: TrainState, batch: Batch
) -> tuple[Gradients, Outputs]:
    """Return the gradients of a batch, averaged over its parts, and named values."""
    trained = _trained_arrays(updates, state)
    rows = _gather_rows(updates, state, batch)

    def of_part(state: TrainState, part: PreparedBatch) -> tuple[Gradients, Outputs]:
        def loss_fn(trained: Any, rows: Any) -> tuple[jax.Array, Any]:
            applied = _apply(updates, state, trained, rows, part)
            touched = _touched(updates, applied)
            return applied.spec.loss, (
                applied.model_state,
                _named_values(applied),
                touched,
            )

        gradient = jax.value_and_grad(loss_fn, argnums=(0, 1), has_aux=True)
        (loss, aux), (whole, row_grads) = gradient(trained, rows)
        model_state, named, touched = aux
        return Gradients(loss, whole, row_grads, touched, model_state), named

    if isinstance(batch, PreparedBatch):
        return of_part(state, batch)
    return accumulate(of_part, state, batch.parts)


def apply_in_training(
    updates: UpdatePlan, state: TrainState, batch: Batch, place: int = -1
) -> Applied:
    """Run the model forward as the step does, with the same random key.

    Of an accumulated batch, only the part at `place` is run.
    """
    trained = _trained_arrays(updates, state)
    rows = _gather_rows(updates, state, batch)
    if isinstance(batch, AccumulatedBatch):
        parts = batch.parts
        state, batch = for_part(state, place % len(parts)), parts[place]
    return _apply(updates, state, trained, rows, batch)


def _apply(
    updates: UpdatePlan,
    state: TrainState,
    trained: Any,
    rows: Any,
    batch: PreparedBatch,
) -> Applied:
    return updates.model.apply(
        _with_trained(state, trained),
        batch,
        updates.structure,
        key=jax.random.fold_in(state.key, state.step),
        rows=_table_rows(updates, state, rows, batch),
    )


def _named_values(applied: Applied) -> Outputs:
    """Return the values that every step computes; summaries are computed on request."""
    named = {n: v for n, v in applied.logged.items() if v.kind == "value"}
    return logged_arrays(named)


def batch_at(batches: Any, index: Any) -> Any:
    """Return one batch of a stack."""
    return jax.tree.map(
        lambda leaf: jax.lax.dynamic_index_in_dim(leaf, index, keepdims=False), batches
    )


def make_loop(step: TrainStep) -> TrainLoop:
    """Build loop(state, batches, start, stop): a step for each of batches[start:stop].

    The bounds are arguments, so that one compiled program runs any part of a stack. The
    bits of a step then do not depend on the steps that share its call.
    """

    def loop(
        state: TrainState, batches: Any, start: jax.Array, stop: jax.Array
    ) -> tuple[TrainState, Outputs]:
        def body(index: Any, carry: Any) -> Any:
            return step(carry[0], batch_at(batches, index))

        shapes = jax.eval_shape(lambda: step(state, batch_at(batches, 0))[1])
        outputs = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        ran: tuple[TrainState, Outputs] = jax.lax.fori_loop(
            start, stop, body, (state, outputs)
        )
        return ran

    return loop


def make_init(
    updates: UpdatePlan,
) -> Callable[[jax.Array, PreparedBatch], TrainState]:
    """Build init(key, batch) -> state, the state of a model before its first step."""

    def init(key: jax.Array, batch: PreparedBatch) -> TrainState:
        init_key, run_key = jax.random.split(key)
        made = updates.model.init(init_key, batch, updates.structure)
        state = TrainState(
            step=jnp.zeros((), jnp.int32),
            params=made.params,
            tables=made.tables,
            model_state=made.model_state,
            opt_state={},
            slots={},
            key=run_key,
        )
        return replace(
            state,
            opt_state=_init_groups(updates, state),
            slots={
                name: optimizers.init_slots(
                    _optimizer_of(updates, name), made.tables[name]
                )
                for name in updates.tables_by(UpdateKind.ROWS, UpdateKind.MASKED)
            },
            averages=_first_averages(updates, state),
        )

    return init


def make_eval_step(
    model: Model, structure: BatchStructure
) -> Callable[[Variables, PreparedBatch], dict[str, Any]]:
    """Build step(variables, batch) -> metric values of that batch, and its outputs."""

    def eval_step(variables: Variables, batch: PreparedBatch) -> dict[str, Any]:
        applied = model.apply(variables, batch, structure)
        spec = applied.spec
        return {
            "outputs": {"loss": spec.loss, **_named_values(applied)},
            "metrics": spec.eval_metric_ops,
        }

    return eval_step


def make_predict_step(
    model: Model, structure: BatchStructure
) -> Callable[[Variables, PreparedBatch], Any]:
    """Build step(variables, batch) -> predictions, class names still as ids."""

    def predict_step(variables: Variables, batch: PreparedBatch) -> Any:
        return model.apply(variables, batch, structure).spec.predictions

    return predict_step


def variables_of(state: TrainState) -> Variables:
    """Return the part of a state that evaluation and prediction need."""
    return Variables(state.params, state.tables, state.model_state)


def _trained_arrays(updates: UpdatePlan, state: TrainState) -> dict[str, Any]:
    """Return what the gradient is taken with respect to, besides gathered rows."""
    groups = updates.param_groups
    params = {n: v for n, v in state.params.items() if groups[n] is not None}
    whole = updates.tables_by(UpdateKind.WHOLE, UpdateKind.MASKED)
    return {"params": params, "tables": {name: state.tables[name] for name in whole}}


def _with_trained(state: TrainState, trained: dict[str, Any]) -> Variables:
    return Variables(
        params=state.params | trained["params"],
        tables=state.tables | trained["tables"],
        model_state=state.model_state,
    )


def _gather_rows(
    updates: UpdatePlan, state: TrainState, batch: Batch
) -> dict[str, jax.Array]:
    rows = {}
    for name in updates.tables_by(UpdateKind.ROWS):
        unique = batch.unique[str(updates.tables[name].rows)]
        rows[name] = optimizers.gather_rows(state.tables[name], unique)
    return rows


def _table_rows(
    updates: UpdatePlan,
    state: TrainState,
    rows: dict[str, jax.Array],
    batch: PreparedBatch,
) -> dict[str, TableRows]:
    return {
        name: TableRows(
            state.tables[name], array, batch.inverse[str(updates.tables[name].rows)]
        )
        for name, array in rows.items()
    }


def _touched(updates: UpdatePlan, applied: Applied) -> dict[str, jax.Array]:
    """Return which rows of each masked table were looked up, [V] booleans."""
    masks = {}
    for name in updates.tables_by(UpdateKind.MASKED):
        uses = [use for use in applied.lookups if use.table == name]
        marks = [_mark(use) for use in uses]
        masks[name] = jnp.stack(marks).any(axis=0)
    return masks


def _mark(use: Lookup) -> jax.Array:
    ids = use.ids.reshape(use.ids.shape[0], -1)
    vocabulary = use.shape[0]
    # An example without an id touches row 0, as in TensorFlow; see `staging/plan.py`.
    empty = (ids < 0).all(axis=1)
    named = jnp.where(ids < 0, vocabulary, ids).reshape(-1)
    mask = jnp.zeros(vocabulary, bool).at[named].set(True, mode="drop")
    return mask.at[0].set(mask[0] | empty.any())


def _apply_gradients(
    updates: UpdatePlan,
    state: TrainState,
    batch: Batch,
    found: Gradients,
) -> TrainState:
    row_grads, touched = found.rows, found.touched
    params, tables = dict(state.params), dict(state.tables)
    opt_state, slots = dict(state.opt_state), dict(state.slots)
    every_grad = {**found.whole["params"], **found.whole["tables"], **row_grads}
    for index, group in enumerate(updates.train_op.groups):
        mine = {n: g for n, g in every_grad.items() if _group_of(updates, n) == index}
        # Clip params and rows together: a global norm is over all of them.
        mine = group.clipped(mine)
        optimizer = group.optimizer.unclipped
        held = _held_whole(updates, index, state)
        if held:
            held_grads = {name: mine[name] for name in held}
            new, opt_state[str(index)] = optimizer.apply(
                held_grads,
                state.opt_state[str(index)],
                held,
                step=state.step,
                loss=found.loss,
            )
            params |= {n: v for n, v in new.items() if n in params}
            tables |= {n: v for n, v in new.items() if n in tables}
        # Iterate in the order of the dict. The order of a set differs between
        # processes, so the compilation cache would never hit.
        for name in [name for name in mine if name in row_grads]:
            unique = batch.unique[str(updates.tables[name].rows)]
            tables[name], slots[name] = optimizers.update_rows(
                optimizer, tables[name], slots[name], unique, mine[name], state.step
            )
        for name in [name for name in mine if name in touched]:
            tables[name], slots[name] = optimizers.update_touched(
                optimizer,
                tables[name],
                slots[name],
                touched[name],
                mine[name],
                state.step,
            )
    return replace(
        state, params=params, tables=tables, opt_state=opt_state, slots=slots
    )


def _first_averages(updates: UpdatePlan, state: TrainState) -> dict[str, jax.Array]:
    """Return moving averages equal to the initial values."""
    if updates.average_decay is None:
        return {}
    start = optimizers.init_average(_averaged(updates, state))
    averages: dict[str, jax.Array] = start.average
    return averages


def _averages(updates: UpdatePlan, state: TrainState) -> dict[str, jax.Array]:
    """Return the moving averages of the trained variables after an update."""
    if updates.average_decay is None:
        return {}
    now = optimizers.update_average(
        optimizers.MovingAverage(state.averages),
        _averaged(updates, state),
        updates.average_decay,
        # Early updates get a smaller decay, so that initial values fade quickly.
        num_updates=state.step,
    )
    averages: dict[str, jax.Array] = now.average
    return averages


def _averaged(updates: UpdatePlan, state: TrainState) -> dict[str, jax.Array]:
    every = {**state.params, **state.tables}
    return {n: v for n, v in every.items() if _group_of(updates, n) is not None}


def _held_whole(updates: UpdatePlan, index: int, state: TrainState) -> dict[str, Any]:
    """Return the arrays that a group updates whole: its params and its optax tables."""
    params = {n: v for n, v in state.params.items() if updates.param_groups[n] == index}
    whole = updates.tables_by(UpdateKind.WHOLE)
    tables = {n: state.tables[n] for n in whole if updates.tables[n].group == index}
    return params | tables


def _init_groups(updates: UpdatePlan, state: TrainState) -> dict[str, Any]:
    states = {}
    for index, group in enumerate(updates.train_op.groups):
        held = _held_whole(updates, index, state)
        if held:
            states[str(index)] = group.optimizer.unclipped.init(held)
    return states


def _group_of(updates: UpdatePlan, name: str) -> int | None:
    if name in updates.param_groups:
        return updates.param_groups[name]
    return updates.tables[name].group


def _optimizer_of(updates: UpdatePlan, table: str) -> optimizers.Optimizer:
    group = updates.tables[table].group
    assert group is not None, f"table {table} is frozen and has no slots"
    return updates.optimizer(group)


def accumulate(
    of_part: Callable[[TrainState, Any], tuple[Any, Any]],
    state: TrainState,
    parts: Sequence[Any],
) -> tuple[Any, Any]:
    """Average `of_part(state, part)`, gradients and named values, over all parts.

    Loss and gradients are averaged by the number of examples, `touched` is the union,
    each part starts from the `model_state` of the one before, and the named values are
    those of the last part.
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
            return _sum(found, new, share), named

        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *run)
        places = jnp.arange(index, index + len(run))
        found, every_named = jax.lax.scan(add, found, (places, stacked))
        named = jax.tree.map(lambda leaf: leaf[-1], every_named)
        index += len(run)
    return found, named


def for_part(state: TrainState, place: Any) -> TrainState:
    """Return the state with a random key for the part at `place`."""
    return replace(state, key=jax.random.fold_in(state.key, place))


def _sum(found: Any, new: Any, share: float) -> Any:
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
