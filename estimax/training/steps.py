"""The pure core: functions from state and batch to state, built once, compiled once.

    step = make_train_step(updates)           # step(state, batch) -> (state, outputs)

Same inputs, same bits. The gradient is taken in `gradients.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from estimax.core.state import TrainState
from estimax.core.table_stacks import by_table, stacked
from estimax.parallel import Placement
from estimax.staging.host_plan import PreparedBatch
from estimax.training.apply_updates import apply_gradients, init_groups, init_slots
from estimax.training.averages import first_averages, update_averages
from estimax.training.gradients import (
    Outputs,
    add_counts,
    compute_gradients,
    named_values,
)
from estimax.training.model import Variables, apply
from estimax.training.model import init as init_variables
from estimax.training.recording import Recording
from estimax.training.table_rows import Batch
from estimax.training.updates import UpdatePlan

TrainStep = Callable[[TrainState, Any], tuple[TrainState, Outputs]]
TrainLoop = Callable[[TrainState, Any, Any, Any], tuple[TrainState, Outputs]]


def make_train_step(updates: UpdatePlan) -> TrainStep:
    """Build step(state, batch) -> (state, outputs)."""

    def train_step(state: TrainState, batch: Batch) -> tuple[TrainState, Outputs]:
        found, named = compute_gradients(updates, state, batch)
        state = apply_gradients(updates, state, batch, found)
        # After the update, and before the step is counted: averages are of new values.
        averages = update_averages(updates, state)
        new = replace(
            state, step=state.step + 1, model_state=found.model_state, averages=averages
        )
        outputs = {"loss": found.loss, **named}
        placement = updates.placement
        # Without the constraint XLA may choose other shardings for the new state than
        # the old state had, and would compile the next step again.
        return placement.constrain(new), placement.replicate(outputs)

    return train_step


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


def batch_at(batches: Any, index: Any) -> Any:
    """Return one batch of a stack."""
    return jax.tree.map(
        lambda leaf: jax.lax.dynamic_index_in_dim(leaf, index, keepdims=False), batches
    )


def make_init(
    updates: UpdatePlan,
) -> Callable[[jax.Array, PreparedBatch], TrainState]:
    """Build init(key, batch) -> state, the state of a model before its first step."""

    def init(key: jax.Array, batch: PreparedBatch) -> TrainState:
        # Two keys: dropout in the first step must not repeat the initial values.
        init_key, run_key = jax.random.split(key)
        # Made as on one device, then padded and placed: any mesh gives the same values.
        made = init_variables(updates.model, init_key, batch, updates.structure)
        made = updates.placement.pad(made)
        tables = stacked(made.tables, updates.layout)
        state = TrainState(
            step=jnp.zeros((), jnp.int32),
            params=made.params,
            tables=tables,
            model_state=made.model_state,
            opt_state={},
            slots={},
            key=run_key,
            row_counts=updates.placement.row_counts,
        )
        state = replace(
            state,
            opt_state=init_groups(updates, state),
            slots=init_slots(updates, tables),
            averages=first_averages(updates, state),
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
            "outputs": {"loss": spec.loss, **named_values(applied)},
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
    return Variables(state.params, by_table(state.tables), state.model_state)
