"""TF 1's means, errors, accuracies and metrics at k.

    mean_squared_error(labels, predictions, weights).compute()   # [B] with weights [B]
    precision_at_k(class_ids, scores, k=3).compute()             # scores [B, K]

Errors are elementwise. Weights must broadcast to the values, else `MetricError`.
"""

import jax
import jax.numpy as jnp
import numpy as np

from estimax.metrics.inputs import Data, broadcast_weights, check_given, label_pair
from estimax.metrics.mean import strict_mean
from estimax.metrics.metric import (
    Accumulators,
    MetricError,
    Sums,
    from_sums,
    ratio,
    safe_div,
)
from estimax.metrics.multi_class import class_table
from estimax.metrics.regression import number_pair, root


def mean(values: Data | None = None, weights: Data | None = None) -> Sums:
    """Return the weighted mean of all elements.

    It is `tf.compat.v1.metrics.mean`. Unlike `metrics.mean`, it raises if the weights
    lack an axis of the values.

    Args:
      values: Numbers, [B] or any shape.
      weights: A scalar, or an array that broadcasts to the values. By default every
        value weighs 1.

    Returns:
      A `Sums` of this batch. Merge those of all batches, then call `compute` for
      sum(weights * values) / sum(weights), a scalar that is 0 if the weights sum to 0.
      Without data, the metric before any data.

    Raises:
      MetricError: The weights do not fit the values, or are given without values.

    Example:
      >>> float(mean([[1.0, 3.0]], [[2.0]]).compute())
      2.0
    """
    check_given(values=values, weights=weights)
    return strict_mean(jnp.zeros(0) if values is None else values, weights)


def accuracy(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
) -> Sums:
    """Return how often the prediction equals the label.

    It is `tf.compat.v1.metrics.accuracy`.

    Args:
      labels: True class ids, [B] or any shape.
      predictions: Predicted class ids, in the shape of the labels. They are cast to the
        dtype of the labels before the comparison.
      weights: Example weights: a scalar, or an array that broadcasts to the
        predictions, such as [B]. By default every example weighs 1.

    Returns:
      A `Sums` of this batch. Merge those of all batches, then call `compute` for a
      scalar within [0, 1]. Without data, the metric before any data.

    Raises:
      MetricError: Shapes do not fit each other, or only some of the arrays are given.

    Example:
      >>> float(accuracy(jnp.array([1, 2]), jnp.array([1.9, 3.0])).compute())
      0.5
    """
    truth, guess = label_pair(labels, predictions, weights)
    return strict_mean(truth == guess.astype(truth.dtype), weights)


def percentage_below(
    values: Data | None = None,
    weights: Data | None = None,
    *,
    threshold: float,
) -> Sums:
    """Return the share of values strictly below a threshold.

    It is `tf.compat.v1.metrics.percentage_below`.

    Args:
      values: Numbers, [B] or any shape.
      weights: A scalar, or an array that broadcasts to the values. By default every
        value weighs 1.
      threshold: The number that values are compared with.

    Returns:
      A `Sums` of this batch. Merge those of all batches, then call `compute` for a
      scalar within [0, 1]. Without data, the metric before any data.

    Raises:
      MetricError: The weights do not fit the values, or are given without values.

    Example:
      >>> float(percentage_below([0.1, 0.5, 0.9, 0.2], threshold=0.5).compute())
      0.5
    """
    check_given(values=values, weights=weights)
    array = jnp.zeros(0) if values is None else jnp.asarray(values)
    return strict_mean(array < threshold, weights)


def mean_absolute_error(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
) -> Sums:
    """Return the mean of |prediction - label| over all elements.

    It is `tf.compat.v1.metrics.mean_absolute_error`.

    Args:
      labels: True numbers, [B] or any shape.
      predictions: Predicted numbers, in the shape of the labels up to one trailing axis
        of size 1.
      weights: Example weights: a scalar, or an array that broadcasts to the
        predictions, such as [B]. By default every example weighs 1.

    Returns:
      A `Sums` of this batch. Merge those of all batches, then call `compute` for a
      scalar. Without data, the metric before any data.

    Raises:
      MetricError: Shapes do not fit each other, or only some of the arrays are given.

    Example:
      >>> float(mean_absolute_error([1.0, 2.0], [1.5, 2.0]).compute())
      0.25
    """
    truth, values = number_pair(labels, predictions, weights, no_data=(0,))
    return strict_mean(jnp.abs(values - truth), weights)


def mean_squared_error(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
) -> Sums:
    """Return the mean of (prediction - label)^2 over all elements.

    It is `tf.compat.v1.metrics.mean_squared_error`.

    Args:
      labels: True numbers, [B] or any shape.
      predictions: Predicted numbers, in the shape of the labels up to one trailing axis
        of size 1.
      weights: Example weights: a scalar, or an array that broadcasts to the
        predictions, such as [B]. By default every example weighs 1.

    Returns:
      A `Sums` of this batch. Merge those of all batches, then call `compute` for a
      scalar. Without data, the metric before any data.

    Raises:
      MetricError: Shapes do not fit each other, or only some of the arrays are given.

    Example:
      >>> float(mean_squared_error([1.0, 2.0], [2.0, 2.0]).compute())
      0.5
    """
    truth, values = number_pair(labels, predictions, weights, no_data=(0,))
    return strict_mean(jnp.square(values - truth), weights)


def root_mean_squared_error(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
) -> Sums:
    """Return the root of the mean squared error over all elements.

    It is `tf.compat.v1.metrics.root_mean_squared_error`. The root is taken once, of the
    mean over all batches.

    Args:
      labels: True numbers, [B] or any shape.
      predictions: Predicted numbers, in the shape of the labels up to one trailing axis
        of size 1.
      weights: Example weights: a scalar, or an array that broadcasts to the
        predictions, such as [B]. By default every example weighs 1.

    Returns:
      A `Sums` of this batch. Merge those of all batches, then call `compute` for a
      scalar. Without data, the metric before any data.

    Raises:
      MetricError: Shapes do not fit each other, or only some of the arrays are given.

    Example:
      >>> float(root_mean_squared_error([1.0, 2.0], [3.0, 4.0]).compute())
      2.0
    """
    squares = mean_squared_error(labels, predictions, weights)
    return from_sums(squares.sums, root)


def mean_relative_error(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    normalizer: Data | None = None,
) -> Sums:
    """Return the mean of |prediction - label| / normalizer.

    It is `tf.compat.v1.metrics.mean_relative_error`. Elements whose normalizer is 0
    count as 0.

    Args:
      labels: True numbers, [B] or any shape.
      predictions: Predicted numbers, in the shape of the labels up to one trailing axis
        of size 1.
      weights: Example weights: a scalar, or an array that broadcasts to the
        predictions, such as [B]. By default every example weighs 1.
      normalizer: Divisors, in the shape of the labels; often the labels themselves.
        Needed whenever labels are given.

    Returns:
      A `Sums` of this batch. Merge those of all batches, then call `compute` for a
      scalar. Without data, the metric before any data.

    Raises:
      MetricError: Shapes do not fit each other, or only some of the arrays are given.

    Example:
      >>> float(mean_relative_error([2.0], [3.0], normalizer=[2.0]).compute())
      0.5
    """
    truth, values = number_pair(labels, predictions, weights, no_data=(0,))
    check_given(labels=labels, normalizer=normalizer)
    _, scale = label_pair(truth, truth if normalizer is None else normalizer)
    return strict_mean(safe_div(jnp.abs(truth - values), scale), weights)


def mean_cosine_distance(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    dim: int,
) -> Sums:
    """Return 1 - the mean of sum(label * prediction) along an axis.

    It is `tf.compat.v1.metrics.mean_cosine_distance`. Vectors must have length 1; they
    are not normalized.

    Args:
      labels: True unit vectors, [B, D].
      predictions: Predicted unit vectors, [B, D].
      weights: A scalar, or an array that broadcasts to the labels with size 1 at `dim`.
        By default every vector weighs 1.
      dim: The axis of the vectors' components.

    Returns:
      A `Sums` of this batch. Merge those of all batches, then call `compute` for a
      scalar within [0, 2]. Without data, the metric before any data.

    Raises:
      MetricError: Shapes do not fit each other, or only some of the arrays are given.

    Example:
      >>> float(mean_cosine_distance([[1.0, 0.0]], [[0.0, 1.0]], dim=1).compute())
      1.0
    """
    # Without data, use an empty array that has the axis `dim`.
    no_data = (0,) * (max(dim, -dim - 1) + 1)
    truth, values = number_pair(labels, predictions, weights, no_data=no_data)
    products = jnp.sum(truth * values, axis=dim, keepdims=labels is not None)
    return from_sums(strict_mean(products, weights).sums, _distance)


def mean_per_class_accuracy(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    num_classes: int,
) -> Sums:
    """Return the accuracy of each class, averaged over all classes.

    It is `tf.compat.v1.metrics.mean_per_class_accuracy`. Classes without examples count
    as 0.

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
      >>> metric = mean_per_class_accuracy([0, 0, 1], [0, 1, 1], num_classes=3)
      >>> float(metric.compute())
      0.5
    """
    table = class_table(labels, predictions, weights, num_classes)
    sums = {"hits": jnp.diagonal(table), "count": jnp.sum(table, axis=1)}
    return from_sums(sums, _mean_accuracy)


def precision_at_k(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    k: int,
    class_id: int | None = None,
) -> Sums:
    """Return the share of the k highest scores that are true classes.

    It is `tf.compat.v1.metrics.precision_at_k`.

    Args:
      labels: True class ids, [B] or [B, L] for up to L classes of a row; negative ids
        are padding.
      predictions: Scores of K classes, [B, K]; logits or probabilities.
      weights: Weights of the rows: a scalar or an array [B]. By default every row
        weighs 1.
      k: How many of the highest scores are retrieved, from 1 to K.
      class_id: Count only this class, among the labels and among the k highest scores.

    Returns:
      A `Sums` of this batch. Merge those of all batches, then call `compute` for a
      scalar within [0, 1], NaN if nothing was retrieved. Without data, the metric
      before any data.

    Raises:
      MetricError: `k` is not from 1 to K, shapes do not fit each other, or only some of
        the arrays are given.

    Example:
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
    """Return the share of true classes among the k highest scores.

    It is `tf.compat.v1.metrics.recall_at_k`.

    Args:
      labels: True class ids, [B] or [B, L] for up to L classes of a row; negative ids
        are padding.
      predictions: Scores of K classes, [B, K]; logits or probabilities.
      weights: Weights of the rows: a scalar or an array [B]. By default every row
        weighs 1.
      k: How many of the highest scores are retrieved, from 1 to K.
      class_id: Count only this class, among the labels and among the k highest scores.

    Returns:
      A `Sums` of this batch. Merge those of all batches, then call `compute` for a
      scalar within [0, 1], NaN if there were no labels. Without data, the metric before
      any data.

    Raises:
      MetricError: `k` is not from 1 to K, shapes do not fit each other, or only some of
        the arrays are given.

    Example:
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
    """Return the mean over rows of the average precision at k.

    It is `tf.compat.v1.metrics.average_precision_at_k`. For a row, it is the sum of the
    precision at each true class among the k highest scores, divided by min(k, number of
    true classes). Ids of K or more are ignored.

    Args:
      labels: True class ids, [B] or [B, L] for up to L classes of a row; negative ids
        are padding.
      predictions: Scores of K classes, [B, K]; logits or probabilities.
      weights: Weights of the rows: a scalar or an array [B]. By default every row
        weighs 1.
      k: How many of the highest scores are retrieved, from 1 to K.

    Returns:
      A `Sums` of this batch. Merge those of all batches, then call `compute` for a
      scalar within [0, 1]. Without data, the metric before any data.

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
    relevant = jnp.sum(_is_first(ids) & (ids < classes), axis=-1)
    possible = jnp.maximum(jnp.minimum(relevant, k), 1)
    return strict_mean(jnp.sum(precision * hits, axis=-1) / possible, weights)


def _distance(sums: Accumulators) -> jax.Array:
    return 1.0 - ratio(sums)


def _mean_accuracy(sums: Accumulators) -> jax.Array:
    return jnp.mean(safe_div(sums["hits"], sums["count"]))


def _best_and_labels(
    labels: Data | None,
    predictions: Data | None,
    weights: Data | None,
    k: int,
) -> tuple[jax.Array, jax.Array]:
    """Return the k classes with the highest scores [..., k] and the labels [..., L]."""
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
