"""The pure core: functions from state and batch to state, built once, compiled once.

    step = make_train_step(training)           # step(state, batch) -> (state, outputs)

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
from estimax.staging.plan import PreparedBatch
from estimax.staging.recording import Lookup, TableRows
from estimax.training.model import (
    Applied,
    Model,
    Structure,
    Variables,
    logged_arrays,
    rows_of,
)
from estimax.training.updates import Training, Way

Outputs = dict[str, jax.Array]  # "loss" and what the model named by `ex.log_value`
TrainStep = Callable[[TrainState, Any], tuple[TrainState, Outputs]]
TrainLoop = Callable[[TrainState, Any, Any, Any], tuple[TrainState, Outputs]]


def make_train_step(training: Training) -> TrainStep:
    """Build step(state, batch) -> (state, outputs)."""

    def train_step(
        state: TrainState, batch: PreparedBatch
    ) -> tuple[TrainState, Outputs]:
        found, named = gradients(training, state, batch)
        state = _apply_gradients(training, state, batch, found)
        averages = _averages(training, state)
        new = replace(
            state, step=state.step + 1, model_state=found.model_state, averages=averages
        )
        return new, {"loss": found.loss, **named}

    return train_step


class Gradients(NamedTuple):
    """What a batch says about the variables, before an optimizer has its say."""

    loss: jax.Array
    whole: dict[str, Any]  # of params, and of tables as wholes
    rows: dict[str, jax.Array]
    touched: dict[str, jax.Array]  # table -> [V] booleans
    model_state: Any


def gradients(
    training: Training, state: TrainState, batch: PreparedBatch
) -> tuple[Gradients, Outputs]:
    """The gradients of a batch, or of one that comes in parts, and its named values."""
    trained = _trained_arrays(training, state)
    rows = _gather_rows(training, state, batch)

    def of_part(state: TrainState, part: PreparedBatch) -> tuple[Gradients, Outputs]:
        def loss_fn(trained: Any, rows: Any) -> tuple[jax.Array, Any]:
            applied = _apply(training, state, trained, rows, part)
            touched = _touched(training, applied)
            return applied.spec.loss, (
                applied.model_state,
                _named_values(applied),
                touched,
            )

        gradient = jax.value_and_grad(loss_fn, argnums=(0, 1), has_aux=True)
        (loss, aux), (whole, row_grads) = gradient(trained, rows)
        model_state, named, touched = aux
        return Gradients(loss, whole, row_grads, touched, model_state), named

    if "parts" not in batch:
        return of_part(state, batch)
    return accumulate(of_part, state, batch["parts"])


def apply_in_training(
    training: Training, state: TrainState, batch: PreparedBatch, place: int = -1
) -> Applied:
    """Run the model as the step does, with the same random key, and change nothing.

    Of a batch that comes in parts, the one at `place` stands for all.
    """
    trained = _trained_arrays(training, state)
    rows = _gather_rows(training, state, batch)
    if "parts" in batch:
        parts = batch["parts"]
        state, batch = for_part(state, place % len(parts)), parts[place]
    return _apply(training, state, trained, rows, batch)


def _apply(
    training: Training, state: TrainState, trained: Any, rows: Any, batch: PreparedBatch
) -> Applied:
    return training.model.apply(
        _with_trained(state, trained),
        batch,
        training.structure,
        key=jax.random.fold_in(state.key, state.step),
        rows=_table_rows(training, state, rows, batch),
    )


def _named_values(applied: Applied) -> Outputs:
    """What hooks may ask for at any step; summaries are computed when asked for."""
    named = {n: v for n, v in applied.logged.items() if v.kind == "value"}
    return logged_arrays(named)


def batch_at(batches: Any, index: Any) -> Any:
    """One batch of a stack."""
    return jax.tree.map(
        lambda leaf: jax.lax.dynamic_index_in_dim(leaf, index, keepdims=False), batches
    )


def make_loop(step: TrainStep) -> TrainLoop:
    """Build loop(state, batches, start, stop): a step for each of batches[start:stop].

    The bounds are arguments, so that one program runs every part of a stack: a step's
    bits do not depend on which others shared its call.
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
    training: Training,
) -> Callable[[jax.Array, PreparedBatch], TrainState]:
    """Build init(key, batch) -> state, the state of a model before its first step."""

    def init(key: jax.Array, batch: PreparedBatch) -> TrainState:
        init_key, run_key = jax.random.split(key)
        made = training.model.init(init_key, batch, training.structure)
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
            opt_state=_init_groups(training, state),
            slots={
                name: optimizers.init_slots(
                    _optimizer_of(training, name), made.tables[name]
                )
                for name in training.tables_by(Way.ROWS, Way.MASKED)
            },
            averages=_first_averages(training, state),
        )

    return init


def make_eval_step(
    model: Model, structure: Structure
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
    model: Model, structure: Structure
) -> Callable[[Variables, PreparedBatch], Any]:
    """Build step(variables, batch) -> predictions, words still as ids."""

    def predict_step(variables: Variables, batch: PreparedBatch) -> Any:
        return model.apply(variables, batch, structure).spec.predictions

    return predict_step


def variables_of(state: TrainState) -> Variables:
    """The part of a state that evaluation and prediction need."""
    return Variables(state.params, state.tables, state.model_state)


def _trained_arrays(training: Training, state: TrainState) -> dict[str, Any]:
    """What the gradient is taken of, besides rows: params, and tables as wholes."""
    groups = training.param_groups
    params = {n: v for n, v in state.params.items() if groups[n] is not None}
    whole = training.tables_by(Way.WHOLE, Way.MASKED)
    return {"params": params, "tables": {name: state.tables[name] for name in whole}}


def _with_trained(state: TrainState, trained: dict[str, Any]) -> Variables:
    return Variables(
        params=state.params | trained["params"],
        tables=state.tables | trained["tables"],
        model_state=state.model_state,
    )


def _gather_rows(
    training: Training, state: TrainState, batch: PreparedBatch
) -> dict[str, jax.Array]:
    rows = {}
    for name in training.tables_by(Way.ROWS):
        unique = batch["unique"][str(training.tables[name].rows)]
        rows[name] = optimizers.gather_rows(state.tables[name], unique)
    return rows


def _table_rows(
    training: Training,
    state: TrainState,
    rows: dict[str, jax.Array],
    batch: PreparedBatch,
) -> dict[str, TableRows]:
    inverse = batch["inverse"]
    return {
        name: TableRows(
            state.tables[name], array, inverse[str(training.tables[name].rows)]
        )
        for name, array in rows.items()
    }


def _touched(training: Training, applied: Applied) -> dict[str, jax.Array]:
    """Which rows of each masked table an id named, [V] booleans."""
    masks = {}
    for name in training.tables_by(Way.MASKED):
        uses = [use for use in applied.lookups if use.table == name]
        marks = [_mark(use) for use in uses]
        masks[name] = jnp.stack(marks).any(axis=0)
    return masks


def _mark(use: Lookup) -> jax.Array:
    ids = use.ids.reshape(use.ids.shape[0], -1)
    vocabulary = use.shape[0]
    # An example without an id touches row 0, as in TensorFlow; see `core/plan.py`.
    empty = (ids < 0).all(axis=1)
    named = jnp.where(ids < 0, vocabulary, ids).reshape(-1)
    mask = jnp.zeros(vocabulary, bool).at[named].set(True, mode="drop")
    return mask.at[0].set(mask[0] | empty.any())


def _apply_gradients(
    training: Training,
    state: TrainState,
    batch: PreparedBatch,
    found: Gradients,
) -> TrainState:
    row_grads, touched = found.rows, found.touched
    params, tables = dict(state.params), dict(state.tables)
    opt_state, slots = dict(state.opt_state), dict(state.slots)
    every_grad = {**found.whole["params"], **found.whole["tables"], **row_grads}
    for index, group in enumerate(training.train_op.groups):
        mine = {n: g for n, g in every_grad.items() if _group_of(training, n) == index}
        # Clipped together: a global norm is over params and rows alike.
        mine = group.clipped(mine)
        optimizer = group.optimizer.unclipped
        held = _held_whole(training, index, state)
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
        # In the order of dicts: a set's order changes from process to process, and the
        # compilation cache would never know the program again.
        for name in [name for name in mine if name in row_grads]:
            unique = batch["unique"][str(training.tables[name].rows)]
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


def _first_averages(training: Training, state: TrainState) -> dict[str, jax.Array]:
    """Averages start at the initial values."""
    if training.average_decay is None:
        return {}
    start = optimizers.init_average(_averaged(training, state))
    averages: dict[str, jax.Array] = start.average
    return averages


def _averages(training: Training, state: TrainState) -> dict[str, jax.Array]:
    """Moving averages of the trained variables, after their update."""
    if training.average_decay is None:
        return {}
    now = optimizers.update_average(
        optimizers.MovingAverage(state.averages),
        _averaged(training, state),
        training.average_decay,
        # Counted in: the averages would otherwise cling to the initial values.
        num_updates=state.step,
    )
    averages: dict[str, jax.Array] = now.average
    return averages


def _averaged(training: Training, state: TrainState) -> dict[str, jax.Array]:
    every = {**state.params, **state.tables}
    return {n: v for n, v in every.items() if _group_of(training, n) is not None}


def _held_whole(training: Training, index: int, state: TrainState) -> dict[str, Any]:
    """The arrays that a group updates as wholes: its params and its optax tables."""
    params = {
        n: v for n, v in state.params.items() if training.param_groups[n] == index
    }
    whole = training.tables_by(Way.WHOLE)
    tables = {n: state.tables[n] for n in whole if training.tables[n].group == index}
    return params | tables


def _init_groups(training: Training, state: TrainState) -> dict[str, Any]:
    states = {}
    for index, group in enumerate(training.train_op.groups):
        held = _held_whole(training, index, state)
        if held:
            states[str(index)] = group.optimizer.unclipped.init(held)
    return states


def _group_of(training: Training, name: str) -> int | None:
    if name in training.param_groups:
        return training.param_groups[name]
    return training.tables[name].group


def _optimizer_of(training: Training, table: str) -> optimizers.Optimizer:
    group = training.tables[table].group
    assert group is not None, f"table {table} is frozen and has no slots"
    return training.optimizer(group)


def accumulate(
    of_part: Callable[[TrainState, Any], tuple[Any, Any]],
    state: TrainState,
    parts: Sequence[Any],
) -> tuple[Any, Any]:
    """Add up `of_part(state, part)`, a tuple of gradients and named values.

    Loss and gradients are averaged, `touched` joined, `model_state` handed on; named
    values are the last part's.
    """
    total = sum(rows_of(part) for part in parts)
    shapes = jax.eval_shape(lambda: of_part(state, parts[0])[0])
    found = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    found = found._replace(model_state=state.model_state)
    named: Any = {}
    index = 0
    # Parts of one shape run as a loop, which compiles once however many they are.
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
    """The state with a random key of the part's own."""
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
