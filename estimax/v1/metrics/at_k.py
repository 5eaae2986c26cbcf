"""TF 1's precision and recall among the k highest scores.

    precision_at_k(class_ids, scores, 3).compute()               # scores [B, K]
    precision_at_top_k(class_ids, best_ids).compute()            # ids [B, k]

Class ids are [B, L], padded with negative ids where a row has fewer than L labels.
"""

import jax
import jax.numpy as jnp
import numpy as np

from estimax.metrics.inputs import Data, broadcast_weights, check_given, require
from estimax.metrics.mean import strict_mean
from estimax.metrics.metric import Accumulators, MetricError, Sums, from_sums
from estimax.v1.metrics.docstrings import document_metric


@document_metric("a scalar within [0, 1], NaN if nothing was retrieved")
def precision_at_k(
    labels: Data | None = None,
    predictions: Data | None = None,
    k: int | None = None,
    class_id: int | None = None,
    weights: Data | None = None,
    *,
    name: str | None = None,
) -> Sums:
    """Return the share of the k highest scores that are true classes.

    Args:
      labels: True class ids, [B] or [B, L] for up to L classes of a row; negative ids
        are padding.
      predictions: Scores of K classes, [B, K]; logits or probabilities.
      k: How many of the highest scores are retrieved, from 1 to K.
      class_id: Count only this class, among the labels and among the k highest scores.
      weights: Weights of the rows: a scalar or an array [B]. By default every row
        weighs 1.

    Raises:
      MetricError: `k` is not from 1 to K, shapes do not fit each other, or only some of
        the arrays are given.

    Example:
      >>> float(precision_at_k([[0, 2]], [[0.5, 0.3, 0.2]], k=2).compute())
      0.5
    """
    best, ids = _best_and_labels(labels, predictions, weights, k)
    return _precision(best, ids, class_id, weights)


@document_metric("a scalar within [0, 1], NaN if there were no labels")
def recall_at_k(
    labels: Data | None = None,
    predictions: Data | None = None,
    k: int | None = None,
    class_id: int | None = None,
    weights: Data | None = None,
    *,
    name: str | None = None,
) -> Sums:
    """Return the share of true classes among the k highest scores.

    Args:
      labels: True class ids, [B] or [B, L] for up to L classes of a row; negative ids
        are padding.
      predictions: Scores of K classes, [B, K]; logits or probabilities.
      k: How many of the highest scores are retrieved, from 1 to K.
      class_id: Count only this class, among the labels and among the k highest scores.
      weights: Weights of the rows: a scalar or an array [B]. By default every row
        weighs 1.

    Raises:
      MetricError: `k` is not from 1 to K, shapes do not fit each other, or only some of
        the arrays are given.

    Example:
      >>> float(recall_at_k([[0, 2]], [[0.5, 0.3, 0.2]], k=2).compute())
      0.5
    """
    best, ids = _best_and_labels(labels, predictions, weights, k)
    return _recall(best, ids, class_id, weights)


@document_metric("a scalar within [0, 1]")
def average_precision_at_k(
    labels: Data | None = None,
    predictions: Data | None = None,
    k: int | None = None,
    weights: Data | None = None,
    *,
    name: str | None = None,
) -> Sums:
    """Return the mean over rows of the average precision at k.

    For a row, it is the sum of the precision at each true class among the k highest
    scores, divided by min(k, number of labels). Ids of K or more are ignored.

    Args:
      labels: True class ids, [B] or [B, L] for up to L classes of a row; negative ids
        are padding.
      predictions: Scores of K classes, [B, K]; logits or probabilities.
      k: How many of the highest scores are retrieved, from 1 to K.
      weights: Weights of the rows: a scalar or an array [B]. By default every row
        weighs 1.

    Raises:
      MetricError: `k` is not from 1 to K, shapes do not fit each other, or only some of
        the arrays are given.

    Example:
      >>> float(average_precision_at_k([[0, 2]], [[0.5, 0.3, 0.4]], k=2).compute())
      1.0
    """
    best, ids = _best_and_labels(labels, predictions, weights, k)
    classes = 1 if predictions is None else np.shape(predictions)[-1]
    hits = _is_in(best, ids).astype(jnp.float32)
    precision = jnp.cumsum(hits, axis=-1) / jnp.arange(1, best.shape[-1] + 1)
    # As in TensorFlow, a repeated label counts each time here, unlike in recall_at_k.
    relevant = jnp.sum((ids >= 0) & (ids < classes), axis=-1)
    possible = jnp.maximum(jnp.minimum(relevant, best.shape[-1]), 1)
    return strict_mean(jnp.sum(precision * hits, axis=-1) / possible, weights)


@document_metric("a scalar within [0, 1], NaN if nothing was retrieved")
def precision_at_top_k(
    labels: Data | None = None,
    predictions_idx: Data | None = None,
    k: int | None = None,
    class_id: int | None = None,
    weights: Data | None = None,
    *,
    name: str | None = None,
) -> Sums:
    """Return the share of retrieved class ids that are true classes.

    Use it if the model has ranked the classes already.

    Args:
      labels: True class ids, [B] or [B, L] for up to L classes of a row; negative ids
        are padding.
      predictions_idx: The retrieved class ids, [B, k], best first.
      k: Not used: all given ids count. Accepted as in TensorFlow.
      class_id: Count only this class, among the labels and among the ids.
      weights: Weights of the rows: a scalar or an array [B]. By default every row
        weighs 1.

    Example:
      >>> float(precision_at_top_k([[0, 2]], [[0, 1]]).compute())
      0.5
    """
    best, ids = _align_ids(labels, predictions_idx, weights)
    return _precision(best, ids, class_id, weights)


@document_metric("a scalar within [0, 1], NaN if there were no labels")
def recall_at_top_k(
    labels: Data | None = None,
    predictions_idx: Data | None = None,
    k: int | None = None,
    class_id: int | None = None,
    weights: Data | None = None,
    *,
    name: str | None = None,
) -> Sums:
    """Return the share of true classes among retrieved class ids.

    Use it if the model has ranked the classes already.

    Args:
      labels: True class ids, [B] or [B, L] for up to L classes of a row; negative ids
        are padding.
      predictions_idx: The retrieved class ids, [B, k], best first.
      k: Not used: all given ids count. Accepted as in TensorFlow.
      class_id: Count only this class, among the labels and among the ids.
      weights: Weights of the rows: a scalar or an array [B]. By default every row
        weighs 1.

    Example:
      >>> float(recall_at_top_k([[0, 2]], [[0, 1]]).compute())
      0.5
    """
    best, ids = _align_ids(labels, predictions_idx, weights)
    return _recall(best, ids, class_id, weights)


# The old names in TensorFlow.
sparse_precision_at_k = precision_at_k
sparse_average_precision_at_k = average_precision_at_k


def _best_and_labels(
    labels: Data | None,
    predictions: Data | None,
    weights: Data | None,
    k: int | None,
) -> tuple[jax.Array, jax.Array]:
    """Return the k classes with the highest scores [..., k] and the labels [..., L]."""
    size = require("k", k)
    if predictions is None:
        return _align_ids(labels, None, weights)
    scores = jnp.asarray(predictions)
    if not 1 <= size <= scores.shape[-1]:
        raise MetricError(
            f"k must be from 1 to {scores.shape[-1]} (classes), got {size}"
        )
    _, best = jax.lax.top_k(scores, size)
    return _align_ids(labels, best, weights)


def _align_ids(
    labels: Data | None, retrieved: Data | None, weights: Data | None
) -> tuple[jax.Array, jax.Array]:
    """Return the retrieved ids [..., k] and the labels [..., L]."""
    check_given(labels=labels, predictions=retrieved, weights=weights)
    if labels is None or retrieved is None:
        nothing = jnp.zeros((0, 1), jnp.int32)
        return nothing, nothing
    best, ids = jnp.asarray(retrieved), jnp.asarray(labels)
    if ids.ndim == best.ndim - 1:
        ids = ids[..., None]
    if best.ndim == 0 or ids.shape[:-1] != best.shape[:-1]:
        raise MetricError(
            f"labels {list(np.shape(labels))} must have a row of class ids for each "
            f"row of predictions {list(best.shape[:-1])}"
        )
    return best.astype(jnp.int32), ids.astype(jnp.int32)


def _precision(
    best: jax.Array, ids: jax.Array, class_id: int | None, weights: Data | None
) -> Sums:
    retrieved = (best == class_id) if class_id is not None else best >= 0
    hits = _is_in(best, ids) & retrieved
    return _quotient(hits, retrieved, weights)


def _recall(
    best: jax.Array, ids: jax.Array, class_id: int | None, weights: Data | None
) -> Sums:
    relevant = _is_first(ids)
    if class_id is not None:
        relevant &= ids == class_id
    return _quotient(_is_in(ids, best) & relevant, relevant, weights)


def _is_in(ids: jax.Array, others: jax.Array) -> jax.Array:
    """Return for each id whether the same row of the others contains it."""
    return jnp.any(ids[..., :, None] == others[..., None, :], axis=-1)


def _is_first(ids: jax.Array) -> jax.Array:
    """Return whether an id is neither padding nor a repetition within its row."""
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


def _plain_ratio(sums: Accumulators) -> jax.Array:
    return sums["hits"] / sums["counted"]
