"""Metrics of ranked lists: NDCG@k and the mean reciprocal rank.

    ndcg_at_k(relevance, scores, k=10).compute()               # both [B, L]
    mean_reciprocal_rank(relevance, scores, weights).compute()  # weights [B]

Relevance is 0 or greater; shorter lists are padded with a negative relevance. Of equal
scores the earlier item ranks first. A list without a relevant item gets weight 0.
"""

import jax
import jax.numpy as jnp

from estimax.metrics.inputs import Data, broadcast_weights, label_pair
from estimax.metrics.mean import strict_mean
from estimax.metrics.metric import MetricError, Sums


def ndcg_at_k(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    k: int = 10,
) -> Sums:
    """Return the normalized discounted cumulative gain of the k best items.

    Use it if relevance is graded. The item at rank r gains (2^relevance - 1) / log2(r +
    1); the sum is divided by the sum in the best possible order. Lists without a
    relevant item do not count.

    Args:
      labels: Relevance of items, [B, L] for B lists of L items: 0 or greater. Negative
        values are padding.
      predictions: Scores of the items, [B, L].
      weights: Weights of the lists: a scalar or an array [B]. By default every list
        weighs 1.
      k: How many of the highest scored items count.

    Returns:
      A `Sums` of this batch. Merge those of all batches, then call `compute` for the
      mean over lists, a scalar within [0, 1]. Without data, the metric before any data.

    Raises:
      MetricError: `k` is less than 1, labels have fewer than two axes, shapes do not
        fit each other, or only some of the arrays are given.

    Example:
      >>> float(ndcg_at_k([[0, 1, 0]], [[0.9, 0.1, 0.5]], k=3).compute())
      0.5
    """
    relevance, ranked = _by_score(labels, predictions, weights, k)
    gained = _discount_gains(ranked[..., :k])
    ideal = _discount_gains(-jnp.sort(-relevance, axis=-1)[..., :k])
    has_relevant = ideal > 0
    value = gained / jnp.where(has_relevant, ideal, 1.0)
    return _mean_of_lists(value, has_relevant, weights)


def mean_reciprocal_rank(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    k: int | None = None,
) -> Sums:
    """Return the mean of 1 / rank of the first relevant item.

    Use it if one good item is enough. Lists without a relevant item do not count.

    Args:
      labels: Relevance of items, [B, L] for B lists of L items: 0 or greater. Negative
        values are padding.
      predictions: Scores of the items, [B, L].
      weights: Weights of the lists: a scalar or an array [B]. By default every list
        weighs 1.
      k: A list whose first relevant item has a rank above k counts as 0. By default all
        ranks count.

    Returns:
      A `Sums` of this batch. Merge those of all batches, then call `compute` for the
      mean over lists, a scalar within [0, 1]. Without data, the metric before any data.

    Raises:
      MetricError: `k` is less than 1, labels have fewer than two axes, shapes do not
        fit each other, or only some of the arrays are given.

    Example:
      >>> float(mean_reciprocal_rank([[0, 1, 0]], [[0.9, 0.4, 0.1]]).compute())
      0.5
    """
    relevance, ranked = _by_score(labels, predictions, weights, k)
    found = ranked[..., :k] > 0
    first = jnp.argmax(found, axis=-1)
    value = jnp.where(jnp.any(found, axis=-1), 1.0 / (first + 1), 0.0)
    return _mean_of_lists(value, jnp.any(relevance > 0, axis=-1), weights)


def _by_score(
    labels: Data | None, predictions: Data | None, weights: Data | None, k: int | None
) -> tuple[jax.Array, jax.Array]:
    """Return relevance in the given order and by descending score; padding is 0."""
    if k is not None and k < 1:
        raise MetricError(f"k must be at least 1, got {k}")
    given, scores = label_pair(labels, predictions, weights, no_data=(0, 1))
    if given.ndim < 2:
        raise MetricError(f"labels {list(given.shape)} must be [lists, items]")
    relevance = jnp.maximum(given.astype(jnp.float32), 0.0)
    # Sort by (padding, -score), so that padding comes last, even after a score of -inf.
    order = jnp.lexsort((-scores, given < 0), axis=-1)
    return relevance, jnp.take_along_axis(relevance, order, axis=-1)


def _discount_gains(ranked: jax.Array) -> jax.Array:
    ranks = jnp.arange(1, ranked.shape[-1] + 1)
    return jnp.sum((jnp.exp2(ranked) - 1.0) / jnp.log2(ranks + 1.0), axis=-1)


def _mean_of_lists(
    values: jax.Array, has_relevant: jax.Array, weights: Data | None
) -> Sums:
    weighted = broadcast_weights(weights, values.shape)
    return strict_mean(values, jnp.where(has_relevant, weighted, 0.0))
