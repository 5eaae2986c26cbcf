"""Accuracies over K classes: is the right class the best, or among the k best?

    sparse_categorical_accuracy(class_ids, scores).compute()           # ids [B]
    top_k_categorical_accuracy(one_hot, scores, k=3).compute()         # one-hot [B, K]

Of equal scores the first is the best one; all that tie for the k-th place are among
the k best, as in TF's `in_top_k`.
"""

import jax
import jax.numpy as jnp
import numpy as np

from estimax.metrics.inputs import (
    Data,
    broadcast_weights,
    check_given,
    guarded,
    label_pair,
)
from estimax.metrics.mean import mean
from estimax.metrics.metric import Accumulators, MetricError, Sums, from_sums, safe_div


def categorical_accuracy(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
) -> Sums:
    """How often the highest score is where the highest label is; both [B, K].

    >>> scores = [[0.2, 0.8], [0.4, 0.6]]
    >>> float(categorical_accuracy([[0, 1], [1, 0]], scores).compute())
    0.5
    """
    truth, scores = label_pair(labels, predictions, weights, no_data=(0, 1))
    return mean(jnp.argmax(truth, -1) == jnp.argmax(scores, -1), weights)


def sparse_categorical_accuracy(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
) -> Sums:
    """How often the highest score is the labelled class's; labels [B] or [B, 1].

    >>> float(sparse_categorical_accuracy([1, 0], [[0.2, 0.8], [0.4, 0.6]]).compute())
    0.5
    """
    ids, scores = id_pair(labels, predictions, weights)
    return mean(ids == jnp.argmax(scores, -1), weights)


def top_k_categorical_accuracy(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    k: int = 5,
) -> Sums:
    """How often the class of the highest label is among the k best; both [B, K].

    >>> float(top_k_categorical_accuracy([[0, 0, 1]], [[0.2, 0.3, 0.5]], k=1).compute())
    1.0
    """
    truth, scores = label_pair(labels, predictions, weights, no_data=(0, 1))
    return mean(_in_top_k(jnp.argmax(truth, -1), scores, k), weights)


def sparse_top_k_categorical_accuracy(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    k: int = 5,
) -> Sums:
    """How often the labelled class is among the k best; labels [B] or [B, 1].

    >>> float(sparse_top_k_categorical_accuracy([1], [[0.2, 0.3, 0.5]], k=2).compute())
    1.0
    """
    ids, scores = id_pair(labels, predictions, weights)
    return mean(_in_top_k(ids, scores, k), weights)


def id_pair(
    labels: Data | None, predictions: Data | None, weights: Data | None
) -> tuple[jax.Array, jax.Array]:
    """Class ids [...] and scores [..., K]; no examples when both are left out."""
    check_given(labels=labels, predictions=predictions, weights=weights)
    if labels is None or predictions is None:
        return jnp.zeros(0, jnp.int32), jnp.zeros((0, 1))
    ids, scores = jnp.asarray(labels), jnp.asarray(predictions)
    if ids.ndim == scores.ndim and ids.shape[-1] == 1:
        ids = ids[..., 0]
    if scores.ndim == 0 or ids.shape != scores.shape[:-1]:
        raise MetricError(
            f"labels {list(np.shape(labels))} must be class ids, one for each row of "
            f"predictions {list(scores.shape)}"
        )
    return ids.astype(jnp.int32), scores


def _in_top_k(ids: jax.Array, scores: jax.Array, k: int) -> jax.Array:
    # An id out of range scores NaN, which no comparison finds.
    own = jnp.take_along_axis(
        scores.astype(jnp.float32), ids[..., None], axis=-1, mode="fill"
    )
    better = jnp.sum(scores > own, axis=-1)
    return jnp.isfinite(own[..., 0]) & (better < k)


def mean_iou(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    num_classes: int,
) -> Sums:
    """Intersection over union, averaged over the classes that occurred.

    >>> round(float(mean_iou([0, 0, 1, 1], [0, 1, 1, 1], num_classes=3).compute()), 4)
    0.5833
    """
    table = class_table(labels, predictions, weights, num_classes)
    return from_sums({"table": table}, _mean_iou)


def class_table(
    labels: Data | None,
    predictions: Data | None,
    weights: Data | None,
    num_classes: int,
) -> jax.Array:
    """Weights summed by [label, prediction], for class ids of any one shape."""
    if num_classes < 1:
        raise MetricError(f"num_classes must be at least 1, got {num_classes}")
    truth, guess = label_pair(labels, predictions, weights)
    truth, guess = truth.astype(jnp.int32), guess.astype(jnp.int32)
    weighted = broadcast_weights(weights, truth.shape)
    inside = (jnp.minimum(truth, guess) >= 0) & (
        jnp.maximum(truth, guess) < num_classes
    )
    problem = f"labels and predictions must be class ids below {num_classes}"
    weighted = guarded(weighted, inside, problem)
    cell = jnp.where(inside, truth * num_classes + guess, 0)
    flat = jax.ops.segment_sum(weighted.ravel(), cell.ravel(), num_classes**2)
    return flat.reshape(num_classes, num_classes)


def _mean_iou(sums: Accumulators) -> jax.Array:
    table = sums["table"]
    hits = jnp.diagonal(table)
    union = jnp.sum(table, 0) + jnp.sum(table, 1) - hits
    # A class that never occurred has no IoU; a 0 in its place would lower the mean.
    occurred = jnp.sum((union != 0).astype(jnp.float32))
    return safe_div(jnp.sum(safe_div(hits, union)), occurred)
