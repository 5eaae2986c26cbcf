"""Accuracies and intersection over union for K classes.

    sparse_categorical_accuracy(class_ids, scores).compute()           # ids [B]
    top_k_categorical_accuracy(one_hot, scores, k=3).compute()         # one-hot [B, K]

Of equal scores the first counts as the highest. Scores that tie for the k-th place are
all among the k highest, as in TF's `in_top_k`.
"""

import jax
import jax.numpy as jnp
import numpy as np

from estimax.metrics.inputs import (
    Data,
    broadcast_weights,
    check_given,
    guard_weights,
    label_pair,
)
from estimax.metrics.mean import mean
from estimax.metrics.metric import Accumulators, MetricError, Sums, from_sums, safe_div


def categorical_accuracy(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
) -> Sums:
    """Return how often the highest score and the highest label coincide.

    Use it for one-hot labels. For class ids use `sparse_categorical_accuracy`.

    Args:
      labels: Label distributions or one-hot labels, [B, K].
      predictions: Scores of K classes, [B, K]; logits or probabilities.
      weights: Weights of the rows: a scalar or an array [B]. By default every row
        weighs 1.

    Returns:
      A `Sums` of this batch. Merge those of all batches, then call `compute` for a
      scalar within [0, 1]. Without data, the metric before any data.

    Raises:
      MetricError: Shapes do not fit each other, or only some of the arrays are given.

    Example:
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
    """Return how often the highest score is that of the true class.

    Use it for class ids. For one-hot labels use `categorical_accuracy`.

    Args:
      labels: True class ids, [B] or [B, 1].
      predictions: Scores of K classes, [B, K]; logits or probabilities.
      weights: Weights of the rows: a scalar or an array [B]. By default every row
        weighs 1.

    Returns:
      A `Sums` of this batch. Merge those of all batches, then call `compute` for a
      scalar within [0, 1]. Without data, the metric before any data.

    Raises:
      MetricError: Shapes do not fit each other, or only some of the arrays are given.

    Example:
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
    """Return how often the true class is among the k highest scores.

    Use it for one-hot labels. Scores that tie for the k-th place are all among the k
    highest.

    Args:
      labels: Label distributions or one-hot labels, [B, K].
      predictions: Scores of K classes, [B, K]; logits or probabilities.
      weights: Weights of the rows: a scalar or an array [B]. By default every row
        weighs 1.
      k: How many of the highest scores count.

    Returns:
      A `Sums` of this batch. Merge those of all batches, then call `compute` for a
      scalar within [0, 1]. Without data, the metric before any data.

    Raises:
      MetricError: Shapes do not fit each other, or only some of the arrays are given.

    Example:
      >>> metric = top_k_categorical_accuracy([[0, 0, 1]], [[0.2, 0.3, 0.5]], k=1)
      >>> float(metric.compute())
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
    """Return how often the true class is among the k highest scores.

    Use it for class ids. Scores that tie for the k-th place are all among the k
    highest.

    Args:
      labels: True class ids, [B] or [B, 1].
      predictions: Scores of K classes, [B, K]; logits or probabilities.
      weights: Weights of the rows: a scalar or an array [B]. By default every row
        weighs 1.
      k: How many of the highest scores count.

    Returns:
      A `Sums` of this batch. Merge those of all batches, then call `compute` for a
      scalar within [0, 1]. Without data, the metric before any data.

    Raises:
      MetricError: Shapes do not fit each other, or only some of the arrays are given.

    Example:
      >>> metric = sparse_top_k_categorical_accuracy([1], [[0.2, 0.3, 0.5]], k=2)
      >>> float(metric.compute())
      1.0
    """
    ids, scores = id_pair(labels, predictions, weights)
    return mean(_in_top_k(ids, scores, k), weights)


def mean_iou(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    num_classes: int,
) -> Sums:
    """Return intersection over union, averaged over the classes that occur.

    Use it for segmentation. For one class, it is tp / (tp + fp + fn).

    Args:
      labels: True class ids from 0 to `num_classes` - 1, any shape.
      predictions: Predicted class ids, in the shape of the labels.
      weights: Example weights: a scalar, or an array that broadcasts to the
        predictions, such as [B]. By default every example weighs 1.
      num_classes: The number of classes.

    Returns:
      A `Sums` of this batch. Merge those of all batches, then call `compute` for a
      scalar within [0, 1]. Without data, the metric before any data.

    Raises:
      MetricError: A class id is out of range, `num_classes` is less than 1, shapes do
        not fit each other, or only some of the arrays are given. Inside `jit`, where
        values cannot be checked, the result is NaN instead.

    Example:
      >>> round(float(mean_iou([0, 0, 1, 1], [0, 1, 1, 1], num_classes=3).compute()), 4)
      0.5833
    """
    table = class_table(labels, predictions, weights, num_classes)
    return from_sums({"table": table}, _mean_iou)


def id_pair(
    labels: Data | None, predictions: Data | None, weights: Data | None
) -> tuple[jax.Array, jax.Array]:
    """Return class ids [...] and scores [..., K]; empty arrays if both are None."""
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
    # mode="fill" scores an id out of range NaN, which is not finite and so not counted.
    own = jnp.take_along_axis(
        scores.astype(jnp.float32), ids[..., None], axis=-1, mode="fill"
    )
    better = jnp.sum(scores > own, axis=-1)
    return jnp.isfinite(own[..., 0]) & (better < k)


def class_table(
    labels: Data | None,
    predictions: Data | None,
    weights: Data | None,
    num_classes: int,
) -> jax.Array:
    """Return the confusion matrix [label, prediction], the summed weights."""
    if num_classes < 1:
        raise MetricError(f"num_classes must be at least 1, got {num_classes}")
    truth, guess = label_pair(labels, predictions, weights)
    truth, guess = truth.astype(jnp.int32), guess.astype(jnp.int32)
    weighted = broadcast_weights(weights, truth.shape)
    inside = (jnp.minimum(truth, guess) >= 0) & (
        jnp.maximum(truth, guess) < num_classes
    )
    problem = f"labels and predictions must be class ids below {num_classes}"
    weighted = guard_weights(weighted, inside, problem)
    cell = jnp.where(inside, truth * num_classes + guess, 0)
    flat = jax.ops.segment_sum(weighted.ravel(), cell.ravel(), num_classes**2)
    return flat.reshape(num_classes, num_classes)


def _mean_iou(sums: Accumulators) -> jax.Array:
    table = sums["table"]
    hits = jnp.diagonal(table)
    union = jnp.sum(table, 0) + jnp.sum(table, 1) - hits
    # Classes without labels and predictions are left out of the mean, not counted as 0.
    occurred = jnp.sum((union != 0).astype(jnp.float32))
    return safe_div(jnp.sum(safe_div(hits, union)), occurred)
