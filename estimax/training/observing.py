"""Logged values, computed only at the steps at which a hook requests them.

    values = program.observe(state, batch)        # before the step itself

`observe` is a forward pass of its own. The train step does not compute these values, so
histograms of every layer cost nothing at other steps, and the bits of a step do not
depend on what is observed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import jax
import optax

from estimax.core.state import TrainState
from estimax.feeding.packing import Packed, unpack
from estimax.staging.plan import PreparedBatch
from estimax.training import steps
from estimax.training.model import BatchStructure, Model, Variables, logged_arrays
from estimax.training.updates import UpdatePlan

# (state or variables, batch or stack of batches, place in the stack) -> values
Observe = Callable[..., dict[str, Any]]


def observed_names(logged: Mapping[str, str]) -> frozenset[str]:
    """Return the names of the values that the train step does not return."""
    return frozenset(n for n, kind in logged.items() if kind != "value" and n != "loss")


def observe_training(updates: UpdatePlan, texts: Mapping[str, str]) -> Observe:
    """Build observe(state, batches, place=None) -> logged values of a batch."""

    def observe(state: TrainState, batch: steps.Batch) -> dict[str, Any]:
        applied = steps.apply_in_training(updates, state, batch)
        return learning_rates(updates, state) | logged_arrays(applied.logged)

    return _compiled(observe, texts)


def observe_evaluation(
    model: Model, structure: BatchStructure, texts: Mapping[str, str]
) -> Observe:
    """Build observe(variables, batch) -> logged values of a batch."""

    def observe(variables: Variables, batch: PreparedBatch) -> dict[str, Any]:
        return logged_arrays(model.apply(variables, batch, structure).logged)

    return _compiled(observe, texts)


def learning_rates(updates: UpdatePlan, state: TrainState) -> dict[str, Any]:
    """Return the learning rate of each optimizer for the next update, by name.

    An optax transformation is left out, unless it was made by
    `optax.inject_hyperparams`: its rate cannot be read from its state.
    """
    groups = updates.train_op.groups
    parts = _parts(updates) if len(groups) > 1 else []
    rates: dict[str, Any] = {}
    for index, group in enumerate(groups):
        rate = _rate(group.optimizer, state.opt_state.get(str(index)), state.step)
        if rate is not None:
            rates["/".join(["learning_rate", *parts[index : index + 1]])] = rate
    return rates


def _parts(updates: UpdatePlan) -> list[str]:
    """Return a name for each group from its variables: "dnn", "linear"."""
    group_of = updates.param_groups | {n: t.group for n, t in updates.tables.items()}
    names = [
        [name for name, group in group_of.items() if group == index]
        for index in range(len(updates.train_op.groups))
    ]
    firsts = [Counter(n.split("/")[0] for n in mine).most_common(1) for mine in names]
    parts = [first[0][0] if first else "nothing" for first in firsts]
    if len(set(parts)) == len(parts):
        return parts
    return [f"{part}_{index}" for index, part in enumerate(parts)]


def _rate(optimizer: Any, opt_state: Any, step: jax.Array) -> Any:
    if optimizer.learning_rate is not None:
        return optimizer.learning_rate_at(step)
    if opt_state is None:
        return None
    found = optax.tree_utils.tree_get_all_with_path(opt_state, "learning_rate")
    return found[0][1] if len(found) == 1 else None


def _compiled(function: Callable[[Any, Any], Any], texts: Mapping[str, str]) -> Observe:
    def call(first: Any, batch: Packed) -> Any:
        return function(first, unpack(batch))

    def call_at(first: Any, batches: Packed, place: jax.Array) -> Any:
        return call(first, steps.batch_at(batches, place))

    of_batch, of_stack = jax.jit(call), jax.jit(call_at)

    def observe(first: Any, batches: Packed, place: int | None = None) -> Any:
        values = (
            of_batch(first, batches)
            if place is None
            else of_stack(first, batches, place)
        )
        return {**values, **texts}

    return observe
