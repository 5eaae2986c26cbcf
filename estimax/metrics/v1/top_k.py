"""TF 1's precision, recall and average precision among the k best classes.

    precision_at_k(labels, scores, k=3).compute()

Labels are class ids, [B] or [B, L] padded with negative ids where a row has fewer; an
id given twice counts once. Scores are [B, K]; of equal ones the lower class is better.

TF accumulates these in float64. float32 suffices: the sums are weights times small
integers, exact to 2**24 and within 6e-8 of their size per merge beyond.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from estimax.metrics.inputs import Data, broadcast_weights, check_given
from estimax.metrics.mean import strict_mean
from estimax.metrics.metric import MetricError, Sums, from_sums


def precision_at_k(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    k: int,
    class_id: int | None = None,
) -> Sums:
    """The share of the k best that are labels; NaN as long as nothing was retrieved.

    `class_id`: only that class counts, among the labels and among the k best.

    >>> float(precision_at_k([[0, 2]], [[0.5, 0.3, 0.2]], k=2).compute())
    0.5
    """
    best, ids = _best_and_labels(labels, predictions, weights, k)
    retrieved = (best == class_id) if class_id is not None else best >= 0
    hits = _is_in(best, ids) & retrieved
    return _quotient(hits, retrieved, weights)


def recall_at_k(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    k: int,
    class_id: int | None = None,
) -> Sums:
    """The share of labels among the k best; NaN as long as there were no labels.

    >>> float(recall_at_k([[0, 2]], [[0.5, 0.3, 0.2]], k=2).compute())
    0.5
    """
    best, ids = _best_and_labels(labels, predictions, weights, k)
    relevant = _is_first(ids)
    if class_id is not None:
        relevant &= ids == class_id
    return _quotient(_is_in(ids, best) & relevant, relevant, weights)


def average_precision_at_k(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    k: int,
) -> Sums:
    """The mean over rows of the precision at each hit among the k best.

    Each row's sum is divided by min(k, number of labels). Ids of K or more are ignored.

    >>> float(average_precision_at_k([[0, 2]], [[0.5, 0.3, 0.4]], k=2).compute())
    1.0
    """
    best, ids = _best_and_labels(labels, predictions, weights, k)
    classes = 1 if predictions is None else np.shape(predictions)[-1]
    hits = _is_in(best, ids).astype(jnp.float32)
    precision = jnp.cumsum(hits, axis=-1) / jnp.arange(1, best.shape[-1] + 1)
    relevant = jnp.sum(_is_first(ids) & (ids < classes), axis=-1)
    possible = jnp.maximum(jnp.minimum(relevant, k), 1)
    return strict_mean(jnp.sum(precision * hits, axis=-1) / possible, weights)


def _best_and_labels(
    labels: Data | None,
    predictions: Data | None,
    weights: Data | None,
    k: int,
) -> tuple[jax.Array, jax.Array]:
    """The k best classes [..., k] and the labels [..., L]."""
    check_given(labels=labels, predictions=predictions, weights=weights)
    if labels is None or predictions is None:
        nothing = jnp.zeros((0, 1), jnp.int32)
        return nothing, nothing
    scores, ids = jnp.asarray(predictions), jnp.asarray(labels)
    if ids.ndim == scores.ndim - 1:
        ids = ids[..., None]
    if ids.shape[:-1] != scores.shape[:-1]:
        raise MetricError(
            f"labels {list(np.shape(labels))} must have a row of class ids for each "
            f"row of predictions {list(scores.shape)}"
        )
    if not 1 <= k <= scores.shape[-1]:
        raise MetricError(f"k must be from 1 to {scores.shape[-1]} (classes), got {k}")
    _, best = jax.lax.top_k(scores, k)
    return best, ids.astype(jnp.int32)


def _is_in(ids: jax.Array, others: jax.Array) -> jax.Array:
    """For each id, whether the row of others has it."""
    return jnp.any(ids[..., :, None] == others[..., None, :], axis=-1)


def _is_first(ids: jax.Array) -> jax.Array:
    """Whether an id is no padding and not a repetition within its row."""
    same = ids[..., :, None] == ids[..., None, :]
    earlier = jnp.tril(jnp.ones(2 * ids.shape[-1:], bool), -1)
    return (ids >= 0) & ~jnp.any(same & earlier, axis=-1)


def _quotient(hits: jax.Array, counted: jax.Array, weights: Data | None) -> Sums:
    per_row = jnp.sum(counted, axis=-1)
    weighted = broadcast_weights(weights, per_row.shape)
    sums = {
        "hits": jnp.sum(weighted * jnp.sum(hits, axis=-1)),
        "counted": jnp.sum(weighted * per_row),
    }
    return from_sums(sums, _plain_ratio)


def _plain_ratio(sums: Mapping[str, jax.Array]) -> jax.Array:
    return sums["hits"] / sums["counted"]
