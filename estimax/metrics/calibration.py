"""Do probabilities mean what they say? Of 100 examples at 0.7, do 70 come true?

    expected_calibration_error(labels, probabilities).compute()      # 0 is perfect
    reliability_curve(labels, probabilities).compute()               # [bins, 3]

Probabilities fall into bins of equal width. Both metrics keep each bin's weight, sum of
predictions and sum of labels; soft labels count with their value.
"""

import jax
import jax.numpy as jnp

from estimax.metrics.inputs import Data, times_weights
from estimax.metrics.metric import Accumulators, MetricError, Sums, from_sums, safe_div
from estimax.metrics.thresholds import count, passed_even, score_pair, unit_scores


def expected_calibration_error(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    num_bins: int = 10,
) -> Sums:
    """The mean over bins, by weight, of |mean prediction - mean label|.

    >>> metric = expected_calibration_error([1, 0], [0.75, 0.75])
    >>> float(metric.compute())
    0.25
    """
    sums = _bin_sums(labels, predictions, weights, num_bins)
    return from_sums(sums, _error)


def reliability_curve(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    num_bins: int = 10,
) -> Sums:
    """For each bin: mean prediction, mean label, weight. Empty bins are all 0.

    >>> reliability_curve([1, 0, 1], [0.25, 0.25, 0.75], num_bins=2).compute().tolist()
    [[0.25, 0.5, 2.0], [0.75, 1.0, 1.0]]
    """
    sums = _bin_sums(labels, predictions, weights, num_bins)
    return from_sums(sums, _curve)


def _bin_sums(
    labels: Data | None, predictions: Data | None, weights: Data | None, num_bins: int
) -> dict[str, jax.Array]:
    if num_bins < 1:
        raise MetricError(f"num_bins must be at least 1, got {num_bins}")
    truth, scores, weighted = unit_scores(labels, predictions, weights)
    bins = jnp.floor(scores.astype(jnp.float32) * num_bins)
    # The last bin includes 1. NaN has to go somewhere; its weight is NaN already.
    index = jnp.clip(jnp.nan_to_num(bins), 0, num_bins - 1).astype(jnp.int32)
    per_example = {
        "weight": weighted,
        "prediction": times_weights(weighted, scores),
        "label": times_weights(weighted, truth),
    }
    return {
        name: jax.ops.segment_sum(values, index, num_bins)
        for name, values in per_example.items()
    }


def _error(sums: Accumulators) -> jax.Array:
    # weight * |p/weight - y/weight| without the divisions
    gaps = jnp.abs(sums["prediction"] - sums["label"])
    return safe_div(jnp.sum(gaps), jnp.sum(sums["weight"]))


def _curve(sums: Accumulators) -> jax.Array:
    prediction = safe_div(sums["prediction"], sums["weight"])
    label = safe_div(sums["label"], sums["weight"])
    return jnp.stack([prediction, label, sums["weight"]], axis=-1)


def gain_at_k(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    k: float = 0.1,
    num_buckets: int = 1000,
) -> Sums:
    """The share of positives among the k highest scored; k is a share, 0 < k <= 1.

    >>> float(gain_at_k([1, 0, 1, 0], [0.9, 0.2, 0.6, 0.1], k=0.25).compute())
    0.5
    """
    sums = _histogram(labels, predictions, weights, k, num_buckets)
    return from_sums(sums, _gain, k=k)


def lift_at_k(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    k: float = 0.1,
    num_buckets: int = 1000,
) -> Sums:
    """The positive rate among the k highest scored, relative to that of all.

    >>> float(lift_at_k([1, 0, 1, 0], [0.9, 0.2, 0.6, 0.1], k=0.25).compute())
    2.0
    """
    sums = _histogram(labels, predictions, weights, k, num_buckets)
    return from_sums(sums, _lift, k=k)


def _histogram(
    labels: Data | None,
    predictions: Data | None,
    weights: Data | None,
    k: float,
    num_buckets: int,
) -> dict[str, jax.Array]:
    if not 0 < k <= 1:
        raise MetricError(f"k is a share of the examples, 0 < k <= 1; got {k}")
    if num_buckets < 1:
        raise MetricError(f"num_buckets must be at least 1, got {num_buckets}")
    truth, scores, weighted = score_pair(labels, predictions, weights)
    passed = passed_even(scores.ravel(), num_buckets + 1)
    return {"counts": count(truth.ravel(), passed, weighted.ravel(), num_buckets)}


def _gain(sums: Accumulators, *, k: float) -> jax.Array:
    negatives, positives = (jnp.flip(row) for row in sums["counts"])
    everyone = _from_zero(negatives + positives)
    found = _from_zero(positives)
    taken = jnp.interp(k * everyone[-1], everyone, found)
    return safe_div(taken, found[-1])


def _lift(sums: Accumulators, *, k: float) -> jax.Array:
    return _gain(sums, k=k) / k


def _from_zero(buckets: jax.Array) -> jax.Array:
    """Cumulative sums, beginning before the first bucket."""
    return jnp.concatenate([jnp.zeros(1), jnp.cumsum(buckets)])
