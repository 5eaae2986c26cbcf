"""What is gained by acting only on the best-scored share of the examples.

    gain_at_k(labels, scores, k=0.1).compute()    # positives found in the top tenth
    lift_at_k(labels, scores, k=0.1).compute()    # relative to a random tenth

The order of all examples is only known once all were seen, so the state is a histogram
of scores within [0, 1]. Within the bucket where the share ends, examples are taken as
evenly mixed: the result is exact at bucket edges and off by at most that bucket's share
of positives. Scores crowded into a small range want more buckets.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from estimax.metrics.inputs import Data
from estimax.metrics.metric import MetricError, Sums, from_sums, safe_div
from estimax.metrics.thresholds import count, passed_even, score_pair


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


def _gain(sums: Mapping[str, jax.Array], *, k: float) -> jax.Array:
    negatives, positives = (jnp.flip(row) for row in sums["counts"])
    everyone = _from_zero(negatives + positives)
    found = _from_zero(positives)
    taken = jnp.interp(k * everyone[-1], everyone, found)
    return safe_div(taken, found[-1])


def _lift(sums: Mapping[str, jax.Array], *, k: float) -> jax.Array:
    return _gain(sums, k=k) / k


def _from_zero(buckets: jax.Array) -> jax.Array:
    """Cumulative sums, beginning before the first bucket."""
    return jnp.concatenate([jnp.zeros(1), jnp.cumsum(buckets)])
