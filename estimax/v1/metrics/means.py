"""TF 1's means, errors and accuracies.

    mean_squared_error(labels, predictions, weights).compute()   # [B] with weights [B]
    mean_iou(class_ids, predicted_ids, num_classes).compute()

Errors are elementwise. Weights must broadcast to the values, else `MetricError`.
"""

import jax
import jax.numpy as jnp

from estimax.metrics.inputs import Data, check_given, label_pair, require
from estimax.metrics.mean import mean_tensor as keras_mean_tensor
from estimax.metrics.mean import strict_mean
from estimax.metrics.metric import (
    Accumulators,
    Sums,
    from_sums,
    ratio,
    safe_div,
)
from estimax.metrics.multi_class import class_table
from estimax.metrics.multi_class import mean_iou as keras_mean_iou
from estimax.metrics.regression import number_pair, root
from estimax.v1.metrics.docstrings import document_metric


@document_metric(
    "sum(weights * values) / sum(weights), a scalar that is 0 if the weights sum to 0"
)
def mean(
    values: Data | None = None,
    weights: Data | None = None,
    *,
    name: str | None = None,
) -> Sums:
    """Return the weighted mean of all elements.

    Unlike `metrics.mean`, it raises if the weights lack an axis of the values.

    Args:
      values: Numbers, [B] or any shape.
      weights: A scalar, or an array that broadcasts to the values. By default every
        value weighs 1.

    Raises:
      MetricError: The weights do not fit the values, or are given without values.

    Example:
      >>> float(mean([[1.0, 3.0]], [[2.0]]).compute())
      2.0
    """
    check_given(values=values, weights=weights)
    return strict_mean(jnp.zeros(0) if values is None else values, weights)


@document_metric("a scalar within [0, 1]")
def accuracy(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    name: str | None = None,
) -> Sums:
    """Return how often the prediction equals the label.

    Args:
      labels: True class ids, [B] or any shape.
      predictions: Predicted class ids, in the shape of the labels. They are cast to the
        dtype of the labels before the comparison.

    Example:
      >>> float(accuracy(jnp.array([1, 2]), jnp.array([1.9, 3.0])).compute())
      0.5
    """
    truth, guess = label_pair(labels, predictions, weights)
    return strict_mean(truth == guess.astype(truth.dtype), weights)


@document_metric("an array of means in the shape of the values")
def mean_tensor(
    values: Data | None = None,
    weights: Data | None = None,
    *,
    shape: tuple[int, ...] | None = None,
    name: str | None = None,
) -> Sums:
    """Return the mean of each element over batches of one shape.

    Args:
      values: Numbers of any shape, the same in every batch.
      weights: A scalar, or an array that broadcasts to the values. By default every
        value weighs 1.
      shape: The shape of the values. Needed only if `values` is not given.

    Raises:
      MetricError: Neither values nor `shape` is given, or the weights do not fit the
        values.

    Example:
      >>> mean_tensor([1.0, 2.0]).merge(mean_tensor([3.0, 6.0])).compute().tolist()
      [2.0, 4.0]
    """
    return keras_mean_tensor(values, weights, shape=shape)


@document_metric("a scalar within [0, 1]")
def percentage_below(
    values: Data | None = None,
    threshold: float | None = None,
    weights: Data | None = None,
    *,
    name: str | None = None,
) -> Sums:
    """Return the share of values strictly below a threshold.

    Args:
      values: Numbers, [B] or any shape.
      threshold: The number that values are compared with.
      weights: A scalar, or an array that broadcasts to the values. By default every
        value weighs 1.

    Raises:
      MetricError: The weights do not fit the values, or are given without values.

    Example:
      >>> float(percentage_below([0.1, 0.5, 0.9, 0.2], threshold=0.5).compute())
      0.5
    """
    check_given(values=values, weights=weights)
    array = jnp.zeros(0) if values is None else jnp.asarray(values)
    return strict_mean(array < require("threshold", threshold), weights)


@document_metric("a scalar")
def mean_absolute_error(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    name: str | None = None,
) -> Sums:
    """Return the mean of |prediction - label| over all elements.

    Args:
      labels: True numbers, [B] or any shape.
      predictions: Predicted numbers, in the shape of the labels up to one trailing axis
        of size 1.

    Example:
      >>> float(mean_absolute_error([1.0, 2.0], [1.5, 2.0]).compute())
      0.25
    """
    truth, values = number_pair(labels, predictions, weights, no_data=(0,))
    return strict_mean(jnp.abs(values - truth), weights)


@document_metric("a scalar")
def mean_squared_error(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    name: str | None = None,
) -> Sums:
    """Return the mean of (prediction - label)^2 over all elements.

    Args:
      labels: True numbers, [B] or any shape.
      predictions: Predicted numbers, in the shape of the labels up to one trailing axis
        of size 1.

    Example:
      >>> float(mean_squared_error([1.0, 2.0], [2.0, 2.0]).compute())
      0.5
    """
    truth, values = number_pair(labels, predictions, weights, no_data=(0,))
    return strict_mean(jnp.square(values - truth), weights)


@document_metric("a scalar")
def root_mean_squared_error(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    name: str | None = None,
) -> Sums:
    """Return the root of the mean squared error over all elements.

    The root is taken once, of the mean over all batches.

    Args:
      labels: True numbers, [B] or any shape.
      predictions: Predicted numbers, in the shape of the labels up to one trailing axis
        of size 1.

    Example:
      >>> float(root_mean_squared_error([1.0, 2.0], [3.0, 4.0]).compute())
      2.0
    """
    squares = mean_squared_error(labels, predictions, weights)
    return from_sums(squares.sums, root)


@document_metric("a scalar")
def mean_relative_error(
    labels: Data | None = None,
    predictions: Data | None = None,
    normalizer: Data | None = None,
    weights: Data | None = None,
    *,
    name: str | None = None,
) -> Sums:
    """Return the mean of |prediction - label| / normalizer.

    Elements whose normalizer is 0 count as 0.

    Args:
      labels: True numbers, [B] or any shape.
      predictions: Predicted numbers, in the shape of the labels up to one trailing axis
        of size 1.
      normalizer: Divisors, in the shape of the labels; often the labels themselves.
        Needed whenever labels are given.

    Example:
      >>> float(mean_relative_error([2.0], [3.0], normalizer=[2.0]).compute())
      0.5
    """
    truth, values = number_pair(labels, predictions, weights, no_data=(0,))
    check_given(labels=labels, normalizer=normalizer)
    _, scale = label_pair(truth, truth if normalizer is None else normalizer)
    return strict_mean(safe_div(jnp.abs(truth - values), scale), weights)


@document_metric("a scalar within [0, 2]")
def mean_cosine_distance(
    labels: Data | None = None,
    predictions: Data | None = None,
    dim: int | None = None,
    weights: Data | None = None,
    *,
    name: str | None = None,
) -> Sums:
    """Return 1 - the mean of sum(label * prediction) along an axis.

    Vectors must have length 1; they are not normalized.

    Args:
      labels: True unit vectors, [B, D].
      predictions: Predicted unit vectors, [B, D].
      dim: The axis of the vectors' components.
      weights: A scalar, or an array that broadcasts to the labels with size 1 at `dim`.
        By default every vector weighs 1.

    Example:
      >>> float(mean_cosine_distance([[1.0, 0.0]], [[0.0, 1.0]], dim=1).compute())
      1.0
    """
    # Without data, use an empty array that has the axis `dim`.
    axis = require("dim", dim)
    no_data = (0,) * (max(axis, -axis - 1) + 1)
    truth, values = number_pair(labels, predictions, weights, no_data=no_data)
    products = jnp.sum(truth * values, axis=axis, keepdims=labels is not None)
    return from_sums(strict_mean(products, weights).sums, _distance)


@document_metric(
    "a scalar within [0, 1]",
    wrong_value="A class id is out of range, `num_classes` is less than 1",
)
def mean_per_class_accuracy(
    labels: Data | None = None,
    predictions: Data | None = None,
    num_classes: int | None = None,
    weights: Data | None = None,
    *,
    name: str | None = None,
) -> Sums:
    """Return the accuracy of each class, averaged over all classes.

    Classes without examples count as 0.

    Args:
      labels: True class ids from 0 to `num_classes` - 1, any shape.
      predictions: Predicted class ids, in the shape of the labels.
      num_classes: The number of classes.

    Example:
      >>> metric = mean_per_class_accuracy([0, 0, 1], [0, 1, 1], num_classes=3)
      >>> float(metric.compute())
      0.5
    """
    classes = require("num_classes", num_classes)
    table = class_table(labels, predictions, weights, classes)
    sums = {"hits": jnp.diagonal(table), "count": jnp.sum(table, axis=1)}
    return from_sums(sums, _mean_accuracy)


@document_metric(
    "a scalar within [0, 1]",
    wrong_value="A class id is out of range, `num_classes` is less than 1",
)
def mean_iou(
    labels: Data | None = None,
    predictions: Data | None = None,
    num_classes: int | None = None,
    weights: Data | None = None,
    *,
    name: str | None = None,
) -> Sums:
    """Return intersection over union, averaged over the classes that occur.

    It differs from `metrics.mean_iou` in the order of its arguments only.

    Args:
      labels: True class ids from 0 to `num_classes` - 1, any shape.
      predictions: Predicted class ids, in the shape of the labels.
      num_classes: The number of classes.

    Example:
      >>> round(float(mean_iou([0, 0, 1, 1], [0, 1, 1, 1], 3).compute()), 4)
      0.5833
    """
    classes = require("num_classes", num_classes)
    return keras_mean_iou(labels, predictions, weights, num_classes=classes)


def _distance(sums: Accumulators) -> jax.Array:
    return 1.0 - ratio(sums)


def _mean_accuracy(sums: Accumulators) -> jax.Array:
    return jnp.mean(safe_div(sums["hits"], sums["count"]))
