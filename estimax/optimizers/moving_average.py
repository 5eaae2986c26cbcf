"""Exponential moving averages of variables or tensors, as pure functions over trees.

    average = init_average(params)                       # starts at their values
    average = update_average(average, params, decay=0.999, num_updates=step)
    evaluate(average.average)

Update after the optimizer, so that the average sees the new values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class MovingAverage:
    """The averages; also their biased form and the count of updates, if debiased."""

    average: Any  # a tree of arrays
    biased: Any = None
    updates: jax.Array | None = None


def init_average(values: Any) -> MovingAverage:
    """Start at the values, as averages of variables do: no bias to remove.

    >>> float(init_average(jnp.array(2.0)).average)
    2.0
    """
    # Copied: a step donates variables and averages, which must not share memory.
    return MovingAverage(jax.tree.map(lambda v: jnp.array(v, copy=True), values))


def init_average_at_zero(values: Any, *, zero_debias: bool = False) -> MovingAverage:
    """Start at 0, as averages of plain tensors do; `zero_debias` makes up for it."""
    average = jax.tree.map(jnp.zeros_like, values)
    if not zero_debias:
        return MovingAverage(average)
    biased = jax.tree.map(jnp.zeros_like, values)
    return MovingAverage(average, biased, jnp.zeros((), jnp.int32))


def update_average(
    state: MovingAverage,
    values: Any,
    decay: ArrayLike,
    num_updates: ArrayLike | None = None,
) -> MovingAverage:
    """Move the averages towards the values by 1 - decay.

    With `num_updates` n the decay is at most (1 + n) / (10 + n), so that averages
    follow quickly at first.

    >>> state = init_average(jnp.array(0.0))
    >>> float(update_average(state, jnp.array(1.0), decay=0.75).average)
    0.25
    """
    d = jnp.asarray(decay, jnp.float32)
    if num_updates is not None:
        n = jnp.asarray(num_updates, jnp.float32)
        d = jnp.minimum(d, (1 + n) / (10 + n))
    if state.updates is None:
        return MovingAverage(_move(state.average, values, d))
    biased = _move(state.biased, values, d)
    updates = state.updates + 1
    average = jax.tree.map(lambda b: (b / (1 - d**updates)).astype(b.dtype), biased)
    return MovingAverage(average, biased, updates)


def _move(average: Any, values: Any, decay: jax.Array) -> Any:
    return jax.tree.map(
        lambda a, v: (a - (a - v) * (1 - decay)).astype(a.dtype), average, values
    )
