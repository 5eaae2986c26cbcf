"""Optimizers applied to gradients: whole arrays, rows of tables, masked tables."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from estimax import optimizers, parallel
from estimax.core.state import TrainState
from estimax.core.table_stacks import (
    StackLayout,
    Tables,
    TableStacks,
    stack_arrays,
    with_stack_arrays,
)
from estimax.parallel import Placement
from estimax.training.gradients import Gradients
from estimax.training.model import Variables
from estimax.training.table_rows import (
    Batch,
    unique_ids,
)
from estimax.training.updates import UpdateKind, UpdatePlan, group_of


def apply_gradients(
    updates: UpdatePlan,
    state: TrainState,
    batch: Batch,
    found: Gradients,
) -> TrainState:
    """Return the state with updated variables, optimizer states and slots."""
    row_grads, touched = found.rows, found.touched
    params, tables = dict(state.params), stack_arrays(state.tables)
    opt_state, slots = dict(state.opt_state), stack_arrays(state.slots)
    stacks = {stack.name: stack for stack in updates.stacks}
    every_grad = {**found.whole["params"], **found.whole["tables"], **row_grads}
    step = _step_after_loss(found.loss, state.step)
    train_op = updates.train_op.with_rates(found.rates)
    for index, group in enumerate(train_op.groups):
        mine = {n: g for n, g in every_grad.items() if group_of(updates, n) == index}
        # Clip params and rows together: a global norm is over all of them.
        mine = group.clipped(mine)
        optimizer = group.optimizer.unclipped
        held = _arrays_updated_whole(updates, index, state)
        if held:
            held_grads = {name: mine[name] for name in held}
            new, opt_state[str(index)] = optimizer.apply(
                held_grads,
                state.opt_state[str(index)],
                held,
                step=step,
                loss=found.loss,
            )
            # Tables that are updated whole go with the params, so that optax sees all
            # arrays of an optimizer at once.
            params |= {n: v for n, v in new.items() if n in params}
            tables |= {n: v for n, v in new.items() if n in tables}
        # Iterate in the order of the dict. The order of a set differs between
        # processes, so the compilation cache would never hit.
        for name in [name for name in mine if name in row_grads]:
            unique = (
                found.unique[name]
                if name in found.unique
                else unique_ids(updates, batch, stacks[name])
            )
            tables[name], slots[name] = _update_rows(
                updates.placement,
                name,
                optimizer,
                (tables[name], slots[name], unique, mine[name], state.step),
                is_sorted=name not in stacks or stacks[name].is_single,
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
        state,
        params=params,
        tables=with_stack_arrays(state.tables, tables),
        opt_state=opt_state,
        slots=with_stack_arrays(state.slots, slots),
    )


def _step_after_loss(loss: jax.Array, step: jax.Array) -> jax.Array:
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
    *,
    is_sorted: bool,
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Call `optimizers.update_rows`: once, or on each device for its block."""
    # XLA cannot partition the native kernels that update rows in place.
    in_place = placement.is_one_device
    update = partial(
        optimizers.update_rows, optimizer, in_place=in_place, is_sorted=is_sorted
    )
    if name in placement.rows:
        return parallel.update_rows(placement, name, update, *arguments)
    return update(*arguments)


def init_groups(updates: UpdatePlan, state: TrainState | Variables) -> dict[str, Any]:
    """Return the first state of each optimizer that updates whole arrays."""
    states = {}
    for index, group in enumerate(updates.train_op.groups):
        held = _arrays_updated_whole(updates, index, state)
        if held:
            states[str(index)] = group.optimizer.unclipped.init(held)
    return states


def init_slots(updates: UpdatePlan, tables: Tables) -> Tables:
    """Return the first slots of the tables that are updated by row."""
    arrays = stack_arrays(tables)
    slots = {
        stack.name: optimizers.init_slots(
            updates.optimizer(stack.group), arrays[stack.name]
        )
        for stack in updates.stacks
    }
    slots |= {
        name: optimizers.init_slots(_optimizer_of(updates, name), arrays[name])
        for name in updates.tables_by(UpdateKind.MASKED)
    }
    if updates.layout is None:
        return slots
    ranges = {n: mine for n, mine in updates.layout.items() if mine.stack in slots}
    return TableStacks(slots, StackLayout(ranges))


def _arrays_updated_whole(
    updates: UpdatePlan, index: int, state: TrainState | Variables
) -> dict[str, Any]:
    """Return the arrays that a group updates whole: its params and its optax tables."""
    params = {n: v for n, v in state.params.items() if updates.param_groups[n] == index}
    whole = updates.tables_by(UpdateKind.WHOLE)
    arrays = stack_arrays(state.tables)  # these tables are in no stack
    tables = {n: arrays[n] for n in whole if updates.tables[n].group == index}
    return params | tables


def _optimizer_of(updates: UpdatePlan, table: str) -> optimizers.Optimizer:
    group = updates.tables[table].group
    assert group is not None, f"table {table} is frozen and has no slots"
    return updates.optimizer(group)
