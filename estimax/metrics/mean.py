"""Means and sums of a value for each example, and accuracies that are such means.

    mean(losses, weights).merge(mean(more_losses, more_weights)).compute()

State: `total` and `count`, the sum of the weights after broadcasting. The result
without data is 0, not NaN.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from estimax.metrics.inputs import (
    Data,
    broadcast_weights,
    check_given,
    fit_rank,
    is_broadcastable,
    label_pair,
    times_weights,
)
from estimax.metrics.metric import (
    Accumulators,
    MetricError,
    Sums,
    from_sums,
    ratio,
    safe_div,
)


def mean(values: Data | None = None, weights: Data | None = None) -> Sums:
    """Return the weighted mean of all elements.

    Use it for losses and any value that is averaged over examples. Values with more
    axes than the weights broadcast over are first averaged over those axes, as
    `keras.metrics.Mean` does.

    Args:
      values: Numbers, [B] or any shape.
      weights: A scalar, or an array that broadcasts to the values. It may lack trailing
        axes of the values. By default every value weighs 1.

    Returns:
      A `Sums` of this batch. Merge those of all batches, then call `compute` for
      sum(weights * values) / sum(weights), a scalar that is 0 if the weights sum to 0.
      Without data, the metric before any data.

    Raises:
      MetricError: The weights do not fit the values, or are given without values.

    Example:
      >>> float(mean([1.0, 100.0, 3.0], [1.0, 0.0, 1.0]).compute())
      2.0
    """
    return from_sums(_sums(_average_missing_axes(values, weights), weights), ratio)


def total(values: Data | None = None, weights: Data | None = None) -> Sums:
    """Return the weighted sum of all elements.

    Use it for counts and amounts, such as revenue. It is `keras.metrics.Sum`.

    Args:
      values: Numbers, [B] or any shape.
      weights: A scalar, or an array that broadcasts to the values. It may lack trailing
        axes of the values. By default every value weighs 1.

    Returns:
      A `Sums` of this batch. Merge those of all batches, then call `compute` for
      sum(weights * values), a scalar. Without data, the metric before any data.

    Raises:
      MetricError: The weights do not fit the values, or are given without values.

    Example:
      >>> float(total([1.0, 2.0], [1.0, 0.5]).compute())
      2.0
    """
    summed = _without_surplus_axes(values, weights, jnp.sum)
    return from_sums({"total": _sums(summed, weights)["total"]}, only_total)


def mean_tensor(
    values: Data | None = None,
    weights: Data | None = None,
    *,
    shape: tuple[int, ...] | None = None,
) -> Sums:
    """Return the mean of each element over batches of one shape.

    Use it for values that keep their meaning from batch to batch, such as the rows of a
    weight matrix. It is `keras.metrics.MeanTensor`.

    Args:
      values: Numbers of any shape, the same in every batch.
      weights: A scalar, or an array that broadcasts to the values. By default every
        value weighs 1.
      shape: The shape of the values. Needed only if `values` is not given.

    Returns:
      A `Sums` of this batch. Merge those of all batches, then call `compute` for an
      array of means in the shape of the values. Without data, the metric before any
      data.

    Raises:
      MetricError: Neither values nor `shape` is given, or the weights do not fit the
        values.

    Example:
      >>> both = mean_tensor([1.0, 2.0]).merge(mean_tensor([3.0, 6.0]))
      >>> both.compute().tolist()
      [2.0, 4.0]
    """
    check_given(values=values, weights=weights)
    if values is None:
        if shape is None:
            raise MetricError("mean_tensor: without values, give shape=(...)")
        return from_sums({"total": jnp.zeros(shape), "count": jnp.zeros(shape)}, ratio)
    array = jnp.asarray(values, jnp.float32)
    weighted = broadcast_weights(weights, array.shape)
    sums = {"total": times_weights(weighted, array), "count": weighted}
    return from_sums(sums, ratio)


def accuracy(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
) -> Sums:
    """Return how often the prediction equals the label.

    Use it for class ids. For scores use `binary_accuracy` or
    `sparse_categorical_accuracy`.

    Args:
      labels: True class ids, [B] or any shape.
      predictions: Predicted class ids, in the shape of the labels up to one trailing
        axis of size 1.
      weights: Example weights: a scalar, or an array that broadcasts to the
        predictions, such as [B]. By default every example weighs 1.

    Returns:
      A `Sums` of this batch. Merge those of all batches, then call `compute` for a
      scalar within [0, 1]. Without data, the metric before any data.

    Raises:
      MetricError: Shapes do not fit each other, or only some of the arrays are given.

    Example:
      >>> float(accuracy([0, 1, 2, 1], [0, 1, 1, 1]).compute())
      0.75
    """
    labels, predictions = label_pair(labels, predictions, weights)
    return mean(labels == predictions, weights)


def binary_accuracy(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    threshold: float = 0.5,
) -> Sums:
    """Return how often `prediction > threshold` equals the label 0 or 1.

    Use it for scores of two classes.

    Args:
      labels: True labels 0 and 1, [B] or any shape.
      predictions: Scores, in the shape of the labels up to one trailing axis of size 1.
      weights: Example weights: a scalar, or an array that broadcasts to the
        predictions, such as [B]. By default every example weighs 1.
      threshold: A score is taken as class 1 if it is strictly greater.

    Returns:
      A `Sums` of this batch. Merge those of all batches, then call `compute` for a
      scalar within [0, 1]. Without data, the metric before any data.

    Raises:
      MetricError: Shapes do not fit each other, or only some of the arrays are given.

    Example:
      >>> float(binary_accuracy([1, 0], [0.6, 0.5]).compute())
      1.0
    """
    labels, predictions = label_pair(labels, predictions, weights)
    decided = (predictions > threshold).astype(jnp.float32)
    return mean(labels.astype(jnp.float32) == decided, weights)


def accuracy_baseline(labels: Data | None = None, weights: Data | None = None) -> Sums:
    """Return the accuracy of always predicting the more frequent label.

    Compare it with `accuracy`: a model that is not better has learned nothing.

    Args:
      labels: True labels 0 and 1, [B] or any shape.
      weights: A scalar, or an array that broadcasts to the labels. By default every
        label weighs 1.

    Returns:
      A `Sums` of this batch. Merge those of all batches, then call `compute` for
      max(mean label, 1 - mean label), a scalar. Without data, the metric before any
      data.

    Raises:
      MetricError: The weights do not fit the labels, or are given without labels.

    Example:
      >>> float(accuracy_baseline([0, 0, 0, 1]).compute())
      0.75
    """
    return from_sums(_sums(_average_missing_axes(labels, weights), weights), _baseline)


def strict_mean(values: Data, weights: Data | None) -> Sums:
    """Return the weighted mean; raise if the weights do not broadcast to the values."""
    return from_sums(_sums(jnp.asarray(values), weights), ratio)


def _average_missing_axes(values: Data | None, weights: Data | None) -> jax.Array:
    """Return the values, averaged over the axes that the weights lack."""
    return _without_surplus_axes(values, weights, jnp.mean)


def _without_surplus_axes(
    values: Data | None,
    weights: Data | None,
    reduce: Callable[..., jax.Array],
) -> jax.Array:
    check_given(values=values, weights=weights)
    array = jnp.zeros(0) if values is None else jnp.asarray(values, jnp.float32)
    if weights is None:
        return array
    fitted = fit_rank(jnp.asarray(weights, jnp.float32), array.ndim)
    if is_broadcastable(fitted, array.shape) or fitted.ndim >= array.ndim:
        return array
    return reduce(array, axis=tuple(range(fitted.ndim, array.ndim)))


def _sums(values: jax.Array, weights: Data | None) -> dict[str, jax.Array]:
    weighted = broadcast_weights(weights, values.shape)
    return {
        "total": jnp.sum(times_weights(weighted, values)),
        "count": jnp.sum(weighted),
    }


def only_total(sums: Accumulators) -> jax.Array:
    """Return the result of a metric that is a sum."""
    return sums["total"]


def _baseline(sums: Accumulators) -> jax.Array:
    positive, count = sums["total"], sums["count"]
    return safe_div(jnp.maximum(positive, count - positive), count)
