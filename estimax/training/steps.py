"""The pure core: functions from state and batch to state, built once, compiled once.

    step = make_train_step(updates)           # step(state, batch) -> (state, outputs)

Same inputs, same bits. The gradient is taken here, in `train_step`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from estimax import optimizers, parallel
from estimax.core.state import TrainState
from estimax.parallel import Placement
from estimax.staging import OUT_OF_RANGE
from estimax.staging.host_plan import AccumulatedBatch, PreparedBatch
from estimax.staging.trace import Lookup, TableRows
from estimax.training.model import (
    Applied,
    Variables,
    apply,
    logged_arrays,
    rows_of,
)
from estimax.training.model import init as init_variables
from estimax.training.recording import Recording
from estimax.training.updates import UpdateKind, UpdatePlan, group_of

Batch = PreparedBatch | AccumulatedBatch  # of one update
Outputs = dict[str, jax.Array]  # "loss" and the values of `ex.log_value`
TrainStep = Callable[[TrainState, Any], tuple[TrainState, Outputs]]
TrainLoop = Callable[[TrainState, Any, Any, Any], tuple[TrainState, Outputs]]

# The rows of a large table are updated alone if it has so many for each id of a batch.
_ROWS_PER_ID = 4


def make_train_step(updates: UpdatePlan) -> TrainStep:
    """Build step(state, batch) -> (state, outputs)."""

    def train_step(state: TrainState, batch: Batch) -> tuple[TrainState, Outputs]:
        found, named = gradients(updates, state, batch)
        state = _apply_gradients(updates, state, batch, found)
        averages = _averages(updates, state)
        new = replace(
            state, step=state.step + 1, model_state=found.model_state, averages=averages
        )
        outputs = {"loss": found.loss, **named}
        placement = updates.placement
        return placement.constrain(new), placement.replicate(outputs)

    return train_step


class Gradients(NamedTuple):
    """The loss of a batch and its gradients, before clipping and the optimizer."""

    loss: jax.Array
    whole: dict[str, Any]  # with respect to params and to whole tables
    rows: dict[str, jax.Array]  # with respect to gathered rows, by table
    touched: dict[str, jax.Array]  # table -> [V] booleans
    model_state: Any
    # The learning rates that the model computed, by the index of the optimizer group.
    rates: dict[str, jax.Array]
    # The distinct ids of rows that were found on the device; others are in the batch.
    unique: dict[str, jax.Array] = {}  # noqa: RUF012 - never changed


def gradients(
    updates: UpdatePlan, state: TrainState, batch: Batch
) -> tuple[Gradients, Outputs]:
    """Return the gradients of a batch, averaged over its parts, and named values."""
    zeros = _row_zeros(updates, state, batch)
    trained = _trained_arrays(updates, state, set(zeros))
    rows = _gather_rows(updates, state, batch)

    def of_part(state: TrainState, part: PreparedBatch) -> tuple[Gradients, Outputs]:
        def loss_fn(trained: Any, rows: Any, zeros: Any) -> tuple[jax.Array, Any]:
            applied = _apply(updates, state, trained, rows, part, zeros)
            return applied.spec.loss, (
                applied.model_state,
                _named_values(applied),
                _touched(updates, applied, set(zeros)),
                rates_of(applied),
                {name: _found_ids(applied, name) for name in zeros},
            )

        gradient = jax.value_and_grad(loss_fn, argnums=(0, 1, 2), has_aux=True)
        (loss, aux), (whole, row_grads, found_grads) = gradient(trained, rows, zeros)
        model_state, named, touched, rates, ids = aux
        unique = {}
        for name, grads in found_grads.items():
            unique[name], row_grads[name] = _summed(ids[name], grads, state, name)
        found = Gradients(loss, whole, row_grads, touched, model_state, rates, unique)
        return found, named

    if isinstance(batch, PreparedBatch):
        found, named = of_part(state, batch)
    else:
        found, named = accumulate(of_part, state, batch.parts)
    return _summed_over_processes(updates, batch, found), named


def _summed_over_processes(
    updates: UpdatePlan, batch: Batch, found: Gradients
) -> Gradients:
    """Sum the gradients of ids that several processes have; each made its own unique.

    Before clipping, because a norm is that of the sums.
    """
    if updates.placement.processes == 1:
        return found
    rows, unique = dict(found.rows), dict(found.unique)
    for name in updates.tables_by(UpdateKind.ROWS):
        unique[name], rows[name] = optimizers.sum_duplicates(
            _unique_ids(updates, batch, name), rows[name], _vocabulary(updates, name)
        )
    return found._replace(rows=rows, unique=unique)


def _vocabulary(updates: UpdatePlan, table: str) -> int:
    groups = {group.name: group.vocabulary for group in updates.plan.groups}
    return groups[str(updates.tables[table].rows)]


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
    zeros: Any = None,
) -> Applied:
    return apply(
        updates.model,
        _with_trained(state, trained),
        batch,
        updates.structure,
        updates.placement,
        key=jax.random.fold_in(state.key, state.step),
        rows=_table_rows(updates, state, rows, batch),
        row_zeros=zeros,
    )


def rates_of(applied: Applied) -> dict[str, jax.Array]:
    """Return the learning rates that the model computed, by optimizer group."""
    rates = optimizers.as_train_op(applied.spec.train_op).rates
    return {index: jnp.asarray(rate, jnp.float32) for index, rate in rates.items()}


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
    # A step is traced once for the shapes of its outputs and once for the loop. `jit`
    # remembers the first trace; `inline` makes it part of the loop, as if called.
    step = jax.jit(step, inline=True)

    def loop(
        state: TrainState, batches: Any, start: jax.Array, stop: jax.Array
    ) -> tuple[TrainState, Outputs]:
        def body(index: Any, carry: Any) -> Any:
            state, outputs = step(carry[0], batch_at(batches, index))
            return state, add_counts(carry[1], outputs)

        shapes = jax.eval_shape(lambda: step(state, batch_at(batches, 0))[1])
        outputs = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        ran: tuple[TrainState, Outputs] = jax.lax.fori_loop(
            start, stop, body, (state, outputs)
        )
        return ran

    return loop


def add_counts(before: Mapping[str, Any], outputs: Mapping[str, Any]) -> Outputs:
    """Return outputs with counts of ids out of range added to those of earlier steps.

    Other outputs are those of the last step.
    """
    counts = {n: before[n] + outputs[n] for n in outputs if is_count(n) and n in before}
    return {**outputs, **counts}


def is_count(name: str) -> bool:
    """Return whether an output is a count of ids out of range."""
    return name.startswith(OUT_OF_RANGE)


def make_init(
    updates: UpdatePlan,
) -> Callable[[jax.Array, PreparedBatch], TrainState]:
    """Build init(key, batch) -> state, the state of a model before its first step."""

    def init(key: jax.Array, batch: PreparedBatch) -> TrainState:
        init_key, run_key = jax.random.split(key)
        # Initial values are those of one device: unpadded, and then placed.
        made = init_variables(updates.model, init_key, batch, updates.structure)
        made = updates.placement.pad(made)
        state = TrainState(
            step=jnp.zeros((), jnp.int32),
            params=made.params,
            tables=made.tables,
            model_state=made.model_state,
            opt_state={},
            slots={},
            key=run_key,
            row_counts=updates.placement.row_counts,
        )
        state = replace(
            state,
            opt_state=init_groups(updates, state),
            slots={
                name: optimizers.init_slots(
                    _optimizer_of(updates, name), made.tables[name]
                )
                for name in updates.tables_by(UpdateKind.ROWS, UpdateKind.MASKED)
            },
            averages=_first_averages(updates, state),
        )
        placed: TrainState = updates.placement.constrain(state)
        return placed

    return init


def make_eval_step(
    recording: Recording, placement: Placement
) -> Callable[[Variables, PreparedBatch], dict[str, Any]]:
    """Build step(variables, batch) -> metric values of that batch, and its outputs."""

    def eval_step(variables: Variables, batch: PreparedBatch) -> dict[str, Any]:
        applied = apply(
            recording.model, variables, batch, recording.structure, placement
        )
        spec = applied.spec
        results = {
            "outputs": {"loss": spec.loss, **_named_values(applied)},
            "metrics": spec.eval_metric_ops,
        }
        replicated: dict[str, Any] = placement.replicate(results)
        return replicated

    return eval_step


def make_predict_step(
    recording: Recording, placement: Placement
) -> Callable[[Variables, PreparedBatch], Any]:
    """Build step(variables, batch) -> predictions, class names still as ids."""

    def predict_step(variables: Variables, batch: PreparedBatch) -> Any:
        applied = apply(
            recording.model, variables, batch, recording.structure, placement
        )
        return applied.spec.predictions

    return predict_step


def variables_of(state: TrainState) -> Variables:
    """Return the part of a state that evaluation and prediction need."""
    return Variables(state.params, state.tables, state.model_state)


def _trained_arrays(
    updates: UpdatePlan, state: TrainState, by_row: Container[str] = ()
) -> dict[str, Any]:
    """Return what the gradient is taken with respect to, besides rows of tables."""
    groups = updates.param_groups
    params = {n: v for n, v in state.params.items() if groups[n] is not None}
    whole = updates.tables_by(UpdateKind.WHOLE, UpdateKind.MASKED)
    tables = {name: state.tables[name] for name in whole if name not in by_row}
    return {"params": params, "tables": tables}


def _with_trained(state: TrainState, trained: dict[str, Any]) -> Variables:
    return Variables(
        params=state.params | trained["params"],
        tables=state.tables | trained["tables"],
        model_state=state.model_state,
        step=state.step,
    )


def _gather_rows(
    updates: UpdatePlan, state: TrainState, batch: Batch
) -> dict[str, jax.Array]:
    rows = {}
    placement = updates.placement
    for name in updates.tables_by(UpdateKind.ROWS):
        unique, table = _unique_ids(updates, batch, name), state.tables[name]
        if name in placement.rows:
            rows[name] = parallel.gather_rows(placement, name, table, unique)
        elif placement.processes > 1:
            # The ids of each process are sorted, but not those of all processes.
            rows[name] = jnp.take(table, unique, axis=0, mode="clip")
        else:
            rows[name] = optimizers.gather_rows(table, unique)
    return rows


def _unique_ids(updates: UpdatePlan, batch: Batch, table: str) -> jax.Array:
    """Return the distinct ids of a table's row group; on a mesh, on every device."""
    ids: jax.Array = updates.placement.replicate(
        batch.unique[str(updates.tables[table].rows)]
    )
    return ids


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


def _row_zeros(
    updates: UpdatePlan, state: TrainState, batch: Batch
) -> dict[str, list[jax.Array]]:
    """Return zeros of the shape of the rows of each lookup, for some masked tables.

    Adding them to the rows gives the gradient of the rows alone, [N, D], where that of
    the table is [V, D]. Equal ids must then be summed, which takes a sort. Tables that
    are not much larger than N are left out, because a mask is cheaper for them.
    """
    masked = updates.tables_by(UpdateKind.MASKED)
    if not masked or updates.model.eager or isinstance(batch, AccumulatedBatch):
        return {}

    def ids_of_lookups() -> dict[str, list[jax.Array]]:
        applied = apply_in_training(updates, state, batch)
        return {
            name: [use.ids for use in applied.lookups if use.table == name]
            for name in masked
        }

    zeros = {}
    for name, ids in jax.eval_shape(ids_of_lookups).items():
        table = state.tables[name]
        if table.shape[0] >= _ROWS_PER_ID * sum(each.size for each in ids):
            shapes = [(*each.shape, *table.shape[1:]) for each in ids]
            zeros[name] = [jnp.zeros(shape, table.dtype) for shape in shapes]
    return zeros


def _found_ids(applied: Applied, table: str) -> jax.Array:
    """Return the ids of all lookups in a table, [N]; negative where there is none."""
    uses = [use for use in applied.lookups if use.table == table]
    return jnp.concatenate([_with_row_0(use.ids).reshape(-1) for use in uses])


def _with_row_0(ids: jax.Array) -> jax.Array:
    """Return ids [B, L], with 0 as the first id of an example without any.

    Such an example touches row 0, as in TensorFlow; see `staging/plan.py`.
    """
    ids = ids.reshape(ids.shape[0], -1)
    return ids.at[:, 0].set(jnp.where((ids < 0).all(axis=1), 0, ids[:, 0]))


def _summed(
    ids: jax.Array, grads: Sequence[jax.Array], state: TrainState, name: str
) -> tuple[jax.Array, jax.Array]:
    """Return the distinct ids of all lookups in a table, and a gradient for each."""
    table = state.tables[name]
    flat = jnp.concatenate([each.reshape(-1, *table.shape[1:]) for each in grads])
    return optimizers.sum_duplicates(ids, flat, table.shape[0])


def _touched(
    updates: UpdatePlan, applied: Applied, by_row: Container[str] = ()
) -> dict[str, jax.Array]:
    """Return which rows of each masked table were looked up, [V] booleans."""
    masks = {}
    for name in updates.tables_by(UpdateKind.MASKED):
        if name in by_row:
            continue
        uses = [use for use in applied.lookups if use.table == name]
        marks = [_mark(use) for use in uses]
        masks[name] = jnp.stack(marks).any(axis=0)
    return masks


def _mark(use: Lookup) -> jax.Array:
    vocabulary = use.shape[0]
    ids = _with_row_0(use.ids).reshape(-1)
    named = jnp.where(ids < 0, vocabulary, ids)
    return jnp.zeros(vocabulary, bool).at[named].set(True, mode="drop")


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
    step = _after(found.loss, state.step)
    train_op = updates.train_op.with_rates(found.rates)
    for index, group in enumerate(train_op.groups):
        mine = {n: g for n, g in every_grad.items() if group_of(updates, n) == index}
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
                step=step,
                loss=found.loss,
            )
            params |= {n: v for n, v in new.items() if n in params}
            tables |= {n: v for n, v in new.items() if n in tables}
        # Iterate in the order of the dict. The order of a set differs between
        # processes, so the compilation cache would never hit.
        for name in [name for name in mine if name in row_grads]:
            unique = (
                found.unique[name]
                if name in found.unique
                else _unique_ids(updates, batch, name)
            )
            tables[name], slots[name] = _update_rows(
                updates.placement,
                name,
                optimizer,
                (tables[name], slots[name], unique, mine[name], state.step),
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


def _after(loss: jax.Array, step: jax.Array) -> jax.Array:
    """Return the step, such that XLA computes the loss before whatever uses it.

    XLA updates a variable in place if all reads of its old value come before, and
    copies it otherwise. A penalty over a whole table reads it for the loss, which no
    update uses. Without this order, Adam copied a table of 15 MB in every step, which
    took 8 % of its CPU time.
    """
    # The added number is zero, but XLA does not know that. An optimization barrier does
    # not help: XLA removes it before it decides about copies.
    bits = jax.lax.bitcast_convert_type(loss.astype(jnp.float32), jnp.uint32)
    return step + ((bits >> 31) >> 1).astype(step.dtype)


def _update_rows(
    placement: Placement,
    name: str,
    optimizer: optimizers.Optimizer,
    arguments: tuple[Any, ...],
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Call `optimizers.update_rows`: once, or on each device for its block."""
    # XLA cannot partition the native kernels that update rows in place.
    in_place = placement.is_one_device
    update = partial(optimizers.update_rows, optimizer, in_place=in_place)
    if name in placement.rows:
        return parallel.update_rows(placement, name, update, *arguments)
    return update(*arguments)


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
        # Early updates get a smaller decay, so that initial values fade quickly. This
        # update counts, as in TensorFlow, where averages are moved after the step.
        num_updates=state.step + 1,
    )
    averages: dict[str, jax.Array] = now.average
    return averages


def _averaged(updates: UpdatePlan, state: TrainState) -> dict[str, jax.Array]:
    every = {**state.params, **state.tables}
    return {n: v for n, v in every.items() if group_of(updates, n) is not None}


def _held_whole(
    updates: UpdatePlan, index: int, state: TrainState | Variables
) -> dict[str, Any]:
    """Return the arrays that a group updates whole: its params and its optax tables."""
    params = {n: v for n, v in state.params.items() if updates.param_groups[n] == index}
    whole = updates.tables_by(UpdateKind.WHOLE)
    tables = {n: state.tables[n] for n in whole if updates.tables[n].group == index}
    return params | tables


def init_groups(updates: UpdatePlan, state: TrainState | Variables) -> dict[str, Any]:
    """Return the first state of each optimizer that updates whole arrays."""
    states = {}
    for index, group in enumerate(updates.train_op.groups):
        held = _held_whole(updates, index, state)
        if held:
            states[str(index)] = group.optimizer.unclipped.init(held)
    return states


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
    those of the last part; counts are summed.
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
        last = {n: v.sum(0) if is_count(n) else v[-1] for n, v in every_named.items()}
        named = add_counts(named, last)
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
