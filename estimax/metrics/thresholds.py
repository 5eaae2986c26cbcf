"""Counts of true and false positives at many thresholds, in a state of fixed size.

The state is a histogram, not the four count vectors: bin j of `counts[label]` holds the
weight of the examples whose score passed exactly j of the T ascending thresholds. One
scatter per batch replaces a [T, B] comparison; cumulative sums give all four counts.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from estimax.metrics.inputs import Data, broadcast_weights, guarded, label_pair
from estimax.metrics.metric import MetricError

# The margin keras and TF put around [0, 1], so that 0 passes the first threshold.
EPSILON = 1e-7


class Confusion(NamedTuple):
    """Weighted counts, each [T] (or [T, L] for L labels); positive means score > t."""

    tp: jax.Array
    fp: jax.Array
    tn: jax.Array
    fn: jax.Array


class Ordered(NamedTuple):
    """Thresholds ascending, and the place of each where the user gave it."""

    ascending: tuple[float, ...]
    order: tuple[int, ...]


def ordered(thresholds: Data) -> Ordered:
    """Sort thresholds, a number or a list of them.

    >>> ordered([0.6, 0.3])
    Ordered(ascending=(0.3, 0.6), order=(1, 0))
    """
    values = np.atleast_1d(np.asarray(thresholds, float))
    if values.ndim != 1 or values.size == 0:
        raise MetricError(
            f"thresholds must be a number or a list of numbers, got {thresholds!r}"
        )
    ascending = sorted(values.tolist())
    return Ordered(tuple(ascending), tuple(map(ascending.index, values.tolist())))


def confusion_at(
    sums: Mapping[str, jax.Array], order: int | tuple[int, ...]
) -> Confusion:
    """The counts at the thresholds in this order, or scalars at a single one."""
    index = order if isinstance(order, int) else np.asarray(order)
    return Confusion(*(values[index] for values in confusion(sums)))


def confusion(sums: Mapping[str, jax.Array]) -> Confusion:
    """The four counts at each threshold, ascending, from the histogram."""
    negatives, positives = sums["counts"]
    return Confusion(
        tp=_sum_above(positives),
        fp=_sum_above(negatives),
        tn=_sum_up_to(negatives),
        fn=_sum_up_to(positives),
    )


def count(
    labels: jax.Array, passed: jax.Array, weights: jax.Array, thresholds: int
) -> jax.Array:
    """The histogram [2, T+1, ...] of `passed` (how many thresholds), by label != 0.

    Inputs are [N], or [N, L] for a histogram per column.
    """
    bins = thresholds + 1
    columns = passed.shape[1:]
    rows = (labels != 0).astype(jnp.int32) * bins + passed
    # Columns are laid side by side, so that one scatter serves them all.
    width = int(np.prod(columns, dtype=int))
    index = rows.reshape(-1, width) * width + jnp.arange(width)
    flat = jax.ops.segment_sum(weights.ravel(), index.ravel(), 2 * bins * width)
    return flat.reshape(2, bins, *columns)


def passed_even(predictions: jax.Array, thresholds: int) -> jax.Array:
    """How many of 0, 1/(T-1), ..., 1 each score passes, found by arithmetic."""
    # The float32 product is keras' own: scores that equal a threshold bit for bit may
    # be rounded into the next bin, and evaluation must report what keras reports.
    clipped = jnp.clip(predictions, 0.0, 1.0).astype(jnp.float32)
    passed = jnp.ceil(clipped * jnp.float32(thresholds - 1))
    return jnp.nan_to_num(passed).astype(jnp.int32)


def passed_sorted(predictions: jax.Array, thresholds: Sequence[float]) -> jax.Array:
    """How many of these ascending thresholds each score passes (strictly)."""
    limits = jnp.asarray(np.asarray(thresholds, np.float32))
    found = jnp.searchsorted(limits, predictions.astype(jnp.float32), side="left")
    return found.astype(jnp.int32)


def is_even(thresholds: Sequence[float]) -> bool:
    """Whether keras takes these for 0, 1/(T-1), ..., 1 and finds bins by arithmetic."""
    if len(thresholds) < 3:
        return False
    even = np.arange(len(thresholds), dtype=np.float32) / (len(thresholds) - 1)
    return bool(np.allclose(thresholds, even, atol=EPSILON))


def score_pair(
    labels: Data | None,
    predictions: Data | None,
    weights: Data | None,
    *,
    no_data: tuple[int, ...] = (0,),
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Labels, scores and weights of one shape; a score of NaN is not let through."""
    truth, scores = label_pair(labels, predictions, weights, no_data=no_data)
    weighted = broadcast_weights(weights, scores.shape)
    return truth, scores, guarded(weighted, ~jnp.isnan(scores), "a prediction is NaN")


def check_unit_interval(name: str, values: Sequence[float]) -> None:
    """Raise unless every value is within [0, 1]."""
    outside = [value for value in values if not 0 <= value <= 1]
    if outside:
        raise MetricError(f"{name} must be within [0, 1], got {outside}")


def _sum_above(histogram: jax.Array) -> jax.Array:
    """For threshold i, the sum over bins j > i."""
    return jnp.flip(jnp.cumsum(jnp.flip(histogram[1:], 0), axis=0), 0)


def _sum_up_to(histogram: jax.Array) -> jax.Array:
    """For threshold i, the sum over bins j <= i."""
    # Summed, not total minus the rest: no rounding below zero.
    return jnp.cumsum(histogram[:-1], axis=0)
