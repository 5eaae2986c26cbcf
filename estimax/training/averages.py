"""Moving averages of the trained variables, kept beside them in the state."""

from __future__ import annotations

import jax

from estimax import optimizers
from estimax.core.state import TrainState
from estimax.training.updates import UpdatePlan, group_of


def first_averages(updates: UpdatePlan, state: TrainState) -> dict[str, jax.Array]:
    """Return moving averages equal to the initial values."""
    if updates.average_decay is None:
        return {}
    start = optimizers.init_average(_trained_variables(updates, state))
    averages: dict[str, jax.Array] = start.average
    return averages


def update_averages(updates: UpdatePlan, state: TrainState) -> dict[str, jax.Array]:
    """Return the moving averages of the trained variables after an update."""
    if updates.average_decay is None:
        return {}
    now = optimizers.update_average(
        optimizers.MovingAverage(state.averages),
        _trained_variables(updates, state),
        updates.average_decay,
        # Early updates get a smaller decay, so that initial values fade quickly. This
        # update counts, as in TensorFlow, where averages are moved after the step.
        num_updates=state.step + 1,
    )
    averages: dict[str, jax.Array] = now.average
    return averages


def _trained_variables(updates: UpdatePlan, state: TrainState) -> dict[str, jax.Array]:
    every = {**state.params, **state.tables}
    return {n: v for n, v in every.items() if group_of(updates, n) is not None}
