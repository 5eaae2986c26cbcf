"""What a model logs, computed only at the steps at which a hook asks for it.

    values = program.observe(state, batch)        # before the step itself

A forward pass of its own. The step neither computes nor carries these values, so that
histograms of every layer cost nothing at the other steps, and a step's bits do not
depend on whether anybody looks.
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
from estimax.training.model import Model, Structure, Variables, logged_arrays
from estimax.training.updates import Training

# (state or variables, batch or stack of batches, place in the stack) -> values
Observe = Callable[..., dict[str, Any]]


def observed_names(logged: Mapping[str, str]) -> frozenset[str]:
    """The names of values that a step does not tell by itself."""
    return frozenset(n for n, kind in logged.items() if kind != "value" and n != "loss")


def observe_training(training: Training, texts: Mapping[str, str]) -> Observe:
    """Build observe(state, batches, place=None) -> what the model logs of a batch."""

    def observe(state: TrainState, batch: PreparedBatch) -> dict[str, Any]:
        applied = steps.apply_in_training(training, state, batch)
        return learning_rates(training, state) | logged_arrays(applied.logged)

    return _compiled(observe, texts)


def observe_evaluation(
    model: Model, structure: Structure, texts: Mapping[str, str]
) -> Observe:
    """Build observe(variables, batch) -> what the model logs of a batch."""

    def observe(variables: Variables, batch: PreparedBatch) -> dict[str, Any]:
        return logged_arrays(model.apply(variables, batch, structure).logged)

    return _compiled(observe, texts)


def learning_rates(training: Training, state: TrainState) -> dict[str, Any]:
    """The rate of every optimizer whose rate can be known, for the coming update.

    A raw optax transformation keeps its rate to itself, unless it was made by
    `optax.inject_hyperparams`.
    """
    groups = training.train_op.groups
    parts = _parts(training) if len(groups) > 1 else []
    rates: dict[str, Any] = {}
    for index, group in enumerate(groups):
        rate = _rate(group.optimizer, state.opt_state.get(str(index)), state.step)
        if rate is not None:
            rates["/".join(["learning_rate", *parts[index : index + 1]])] = rate
    return rates


def _parts(training: Training) -> list[str]:
    """What every group trains, by the names of its variables: "dnn", "linear"."""
    group_of = training.param_groups | {n: t.group for n, t in training.tables.items()}
    names = [
        [name for name, group in group_of.items() if group == index]
        for index in range(len(training.train_op.groups))
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
