"""Losses of predicted numbers and vectors, with the semantics of TensorFlow 1.

    huber_loss(labels, predictions, weights, delta=2.0)

Labels and predictions have the same shape. The formulas are in `metrics.losses`
where a head has the same loss.
"""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from estimax.core.errors import SpecError
from estimax.metrics import losses
from estimax.metrics.metric import safe_div
from estimax.v1.docstrings import document_loss
from estimax.v1.losses.collection import LOSSES, collect
from estimax.v1.losses.weighted import DEFAULT, checked_weights, same_shape, weighted


@document_loss
def absolute_difference(
    labels: ArrayLike,
    predictions: ArrayLike,
    weights: ArrayLike = 1.0,
    scope: str | None = None,
    loss_collection: str | None = LOSSES,
    reduction: str = DEFAULT,
) -> jax.Array:
    """Return the weighted mean of |prediction - label|.

    Example:
      >>> float(absolute_difference([1.0, 2.0], [1.5, 2.0]))
      0.25
    """
    same_shape("absolute_difference", labels, predictions)
    values = losses.absolute_error(labels, predictions)
    return weighted(
        "absolute_difference", values, weights, scope, loss_collection, reduction
    )


@document_loss
def mean_squared_error(
    labels: ArrayLike,
    predictions: ArrayLike,
    weights: ArrayLike = 1.0,
    scope: str | None = None,
    loss_collection: str | None = LOSSES,
    reduction: str = DEFAULT,
) -> jax.Array:
    """Return the weighted mean of (prediction - label)^2.

    Example:
      >>> float(mean_squared_error([1.0, 2.0], [3.0, 2.0], weights=[1.0, 0.0]))
      4.0
    """
    same_shape("mean_squared_error", labels, predictions)
    values = losses.squared_error(labels, predictions)
    return weighted(
        "mean_squared_error", values, weights, scope, loss_collection, reduction
    )


@document_loss
def huber_loss(
    labels: ArrayLike,
    predictions: ArrayLike,
    weights: ArrayLike = 1.0,
    delta: float = 1.0,
    scope: str | None = None,
    loss_collection: str | None = LOSSES,
    reduction: str = DEFAULT,
) -> jax.Array:
    """Return half the squared error for small errors, linear beyond.

    Use it if some labels are outliers.

    Args:
      delta: The error from which on the loss is linear.

    Example:
      >>> float(huber_loss([0.0, 0.0], [0.5, 3.0]))
      1.3125
    """
    same_shape("huber_loss", labels, predictions)
    values = losses.huber(labels, predictions, delta=delta)
    return weighted("huber_loss", values, weights, scope, loss_collection, reduction)


@document_loss
def cosine_distance(
    labels: ArrayLike,
    predictions: ArrayLike,
    axis: int | None = None,
    weights: ArrayLike = 1.0,
    scope: str | None = None,
    loss_collection: str | None = LOSSES,
    reduction: str = DEFAULT,
    dim: int | None = None,
) -> jax.Array:
    """Return the weighted mean of 1 - sum(label * prediction) along an axis.

    Vectors must have length 1; they are not normalized.

    Args:
      labels: True unit vectors, [B, D] or any shape.
      predictions: Predicted unit vectors, in the shape of the labels.
      axis: The axis of the components of the vectors. It must be given.
      weights: Weights: a scalar, or an array with as many axes as the losses, where
        each is equal or 1, such as [B, 1].
      dim: The name of `axis` in old versions of TensorFlow.

    Returns:
      A float32 scalar; losses with size 1 at `axis` for `Reduction.NONE`.

    Raises:
      LabelError: The shapes of labels and predictions differ.
      SpecError: The axis is missing, the weights do not fit, or the reduction is
        unknown.

    Example:
      >>> round(float(cosine_distance([[1.0, 0.0]], [[0.6, 0.8]], axis=1)), 4)
      0.4
    """
    same_shape("cosine_distance", labels, predictions)
    along = dim if axis is None else axis
    if along is None:
        raise SpecError("cosine_distance: give the axis of the vectors' components.")
    products = jnp.asarray(labels, jnp.float32) * jnp.asarray(predictions, jnp.float32)
    values = 1.0 - jnp.sum(products, axis=along, keepdims=True)
    return weighted(
        "cosine_distance", values, weights, scope, loss_collection, reduction
    )


@document_loss
def mean_pairwise_squared_error(
    labels: ArrayLike,
    predictions: ArrayLike,
    weights: ArrayLike = 1.0,
    scope: str | None = None,
    loss_collection: str | None = LOSSES,
) -> jax.Array:
    """Return the squared error of the differences between pairs of elements.

    Use it if the elements of an example should keep their distances, whatever their
    offset. The losses of the examples are summed.

    Args:
      labels: True numbers, [B, D] or any shape with at least two axes.

    Returns:
      A float32 scalar.

    Raises:
      LabelError: The shapes of labels and predictions differ.
      SpecError: The weights do not fit.

    Example:
      >>> float(mean_pairwise_squared_error([[1.0, 2.0]], [[4.0, 5.0]]))  # shifted
      0.0
      >>> float(mean_pairwise_squared_error([[1.0, 2.0]], [[4.0, 7.0]]))
      4.0
    """
    function = "mean_pairwise_squared_error"
    same_shape(function, labels, predictions)
    errors = jnp.asarray(predictions, jnp.float32) - jnp.asarray(labels, jnp.float32)
    factors = checked_weights(function, weights, errors.shape)
    axes = tuple(range(1, errors.ndim))
    present = jnp.broadcast_to(factors != 0, errors.shape)
    count = jnp.sum(present, axis=axes, keepdims=True, dtype=jnp.float32)
    squares = jnp.sum(jnp.square(errors), axis=axes, keepdims=True)
    square_of_sum = jnp.square(jnp.sum(errors, axis=axes, keepdims=True))
    pairs = jnp.maximum(count - 1, 0)
    per_example = 2.0 * safe_div(squares, pairs)
    per_example -= 2.0 * safe_div(square_of_sum, count * pairs)
    loss = jnp.sum(per_example * factors)
    collect(loss, loss_collection, scope or function)
    return loss
