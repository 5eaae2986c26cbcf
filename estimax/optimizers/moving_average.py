"""Exponential moving averages of variables or tensors, as pure functions of trees.

    average = init_average(params)                       # starts at their values
    average = update_average(average, params, decay=0.999, num_updates=step)
    evaluate(average.average)

Update the average after the optimizer, so that it includes the new values.
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
    """The state of an exponential moving average. It is a JAX pytree.

    Args:
      average: The averages, a tree of arrays.
      biased: With debiasing, the averages before the correction. None otherwise.
      updates: With debiasing, the number of updates, an int32 scalar. None otherwise.
    """

    average: Any  # a tree of arrays
    biased: Any = None
    updates: jax.Array | None = None


def init_average(values: Any) -> MovingAverage:
    """Return an average that starts at the given values.

    Use it for variables, whose first values are meaningful.

    Args:
      values: A tree of arrays.

    Returns:
      A `MovingAverage` of copies of `values`.

    Example:
      >>> float(init_average(jnp.array(2.0)).average)
      2.0
    """
    # Copied: a training step donates the buffers of variables and of averages, so the
    # two must not share memory.
    return MovingAverage(jax.tree.map(lambda v: jnp.array(v, copy=True), values))


def init_average_at_zero(values: Any, *, zero_debias: bool = False) -> MovingAverage:
    """Return an average that starts at 0.

    Use it for tensors such as losses, which have no first value yet.

    Args:
      values: A tree of arrays; only shapes and dtypes matter.
      zero_debias: Whether to correct the bias towards 0, as Adam does for its moments.

    Returns:
      A `MovingAverage` of zeros.

    Example:
      >>> state = init_average_at_zero(jnp.array(0.0), zero_debias=True)
      >>> float(update_average(state, jnp.array(3.0), decay=0.75).average)
      3.0
    """
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
    """Return the average moved towards the values by 1 - decay.

    Args:
      state: The average so far.
      values: The new values, a tree like that of the average.
      decay: Weight of the old average, in [0, 1).
      num_updates: The number of updates so far, n. If given, the decay is at most
        (1 + n) / (10 + n), so that the average follows quickly at first.

    Returns:
      The new `MovingAverage`.

    Example:
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
    # TensorFlow's form. It is exact when value and average are equal.
    return jax.tree.map(
        lambda a, v: (a - (a - v) * (1 - decay)).astype(a.dtype), average, values
    )
