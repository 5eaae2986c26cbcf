"""The losses of TensorFlow 1: of classes, of yes/no labels, of numbers and vectors.

    softmax_cross_entropy(one_hot, logits, weights, label_smoothing=0.1)
    huber_loss(labels, predictions, weights, delta=2.0)

The formulas are in `metrics.losses` where a head has the same loss.
"""

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from estimax.core.docstrings import complete_docstring, format_entries
from estimax.core.errors import SpecError
from estimax.heads.labels import ClassLabels, labels_for
from estimax.metrics import losses
from estimax.metrics.metric import safe_div
from estimax.v1.losses.reduction import (
    DEFAULT,
    LOSSES,
    collect,
    same_shape,
    validate_weights,
    weighted,
)

_Function = TypeVar("_Function", bound=Callable[..., Any])

# Entries of `Args:` for the parameters that a docstring below does not explain.
_ARGS = {
    "labels": "True numbers, [B, D] or any shape.",
    "predictions": "Predicted numbers, in the shape of the labels.",
    "logits": "Logits, in the shape of the labels.",
    "weights": (
        "Weights: a scalar, or an array with as many axes as the labels, where each "
        "is equal or 1, such as [B, 1]."
    ),
    "scope": "The name of the loss in the current variable scope, for `get_losses`.",
    "loss_collection": "The collection that the result is added to; None for none.",
    "reduction": (
        "A `Reduction`. By default the sum is divided by the number of weights that "
        "are not 0."
    ),
}


def document_loss(function: _Function) -> _Function:
    """Complete the docstring of a loss of labels and predictions, and return it."""
    labels, predictions = list(inspect.signature(function).parameters)[:2]
    shared = {
        "Args": format_entries(_ARGS),
        "Returns": (
            "  A float32 scalar; an array in the shape of the labels for "
            "`Reduction.NONE`."
        ),
        "Raises": format_entries(
            {
                "LabelError": f"The shapes of {labels} and {predictions} differ.",
                "SpecError": "The weights do not fit, or the reduction is unknown.",
            }
        ),
    }
    opening = f"It is `tf.compat.v1.losses.{function.__name__}`."
    return complete_docstring(function, shared, opening=opening)


@document_loss
def hinge_loss(
    labels: ArrayLike,
    logits: ArrayLike,
    weights: ArrayLike = 1.0,
    scope: str | None = None,
    loss_collection: str | None = LOSSES,
    reduction: str = DEFAULT,
) -> jax.Array:
    """Return the weighted mean of max(0, 1 - margin).

    The margin is the logit for label 1 and minus the logit for label 0.

    Args:
      labels: Labels 0 and 1, [B, D] or any shape.

    Example:
      >>> float(hinge_loss([1.0, 0.0], [0.5, 0.5]))
      1.0
    """
    same_shape("hinge_loss", labels, logits)
    values = losses.hinge(labels, logits)
    return weighted("hinge_loss", values, weights, scope, loss_collection, reduction)


@document_loss
def log_loss(
    labels: ArrayLike,
    predictions: ArrayLike,
    weights: ArrayLike = 1.0,
    epsilon: float = 1e-7,
    scope: str | None = None,
    loss_collection: str | None = LOSSES,
    reduction: str = DEFAULT,
) -> jax.Array:
    """Return the weighted mean cross entropy of probabilities.

    From logits, `sigmoid_cross_entropy` is more exact.

    Args:
      labels: Labels within [0, 1], [B, D] or any shape.
      predictions: Probabilities within [0, 1], in the shape of the labels.
      epsilon: Added to the probabilities, so that the log of 0 is finite.

    Example:
      >>> round(float(log_loss([1.0, 0.0], [0.5, 0.5])), 4)
      0.6931
    """
    same_shape("log_loss", labels, predictions)
    y, p = jnp.asarray(labels, jnp.float32), jnp.asarray(predictions, jnp.float32)
    values = -y * jnp.log(p + epsilon) - (1.0 - y) * jnp.log(1.0 - p + epsilon)
    return weighted("log_loss", values, weights, scope, loss_collection, reduction)


@document_loss
def sigmoid_cross_entropy(
    multi_class_labels: ArrayLike,
    logits: ArrayLike,
    weights: ArrayLike = 1.0,
    label_smoothing: float = 0.0,
    scope: str | None = None,
    loss_collection: str | None = LOSSES,
    reduction: str = DEFAULT,
) -> jax.Array:
    """Return the weighted mean cross entropy of independent yes/no labels.

    Args:
      multi_class_labels: Labels within [0, 1], [B, K] or any shape.
      label_smoothing: Moves every label this far towards 1/2; 0.2 makes 0.9 of 1.

    Example:
      >>> round(float(sigmoid_cross_entropy([[1, 0]], [[0.0, 0.0]])), 4)
      0.6931
    """
    same_shape("sigmoid_cross_entropy", multi_class_labels, logits)
    labels = jnp.asarray(multi_class_labels, jnp.float32)
    if label_smoothing > 0:
        labels = labels * (1.0 - label_smoothing) + 0.5 * label_smoothing
    values = losses.sigmoid_cross_entropy(labels, logits)
    return weighted(
        "sigmoid_cross_entropy", values, weights, scope, loss_collection, reduction
    )


@document_loss
def softmax_cross_entropy(
    onehot_labels: ArrayLike,
    logits: ArrayLike,
    weights: ArrayLike = 1.0,
    label_smoothing: float = 0.0,
    scope: str | None = None,
    loss_collection: str | None = LOSSES,
    reduction: str = DEFAULT,
) -> jax.Array:
    """Return the weighted mean cross entropy of one-hot or soft labels.

    For class ids use `sparse_softmax_cross_entropy`.

    Args:
      onehot_labels: Probabilities of the K classes, [..., K]. No gradient flows through
        them.
      logits: Logits, [..., K].
      weights: Weights: a scalar, or an array with as many axes as the losses, where
        each is equal or 1, such as [B].
      label_smoothing: The share of each label that is spread over all classes.

    Returns:
      A float32 scalar; losses [...] for `Reduction.NONE`.

    Example:
      >>> round(float(softmax_cross_entropy([[0, 1]], [[0.0, 0.0]])), 4)
      0.6931
    """
    same_shape("softmax_cross_entropy", onehot_labels, logits)
    labels = jnp.asarray(onehot_labels, jnp.float32)
    if label_smoothing > 0:
        spread = label_smoothing / labels.shape[-1]
        labels = labels * (1.0 - label_smoothing) + spread
    values = losses.softmax_cross_entropy(jax.lax.stop_gradient(labels), logits)[..., 0]
    return weighted(
        "softmax_cross_entropy", values, weights, scope, loss_collection, reduction
    )


@document_loss
def sparse_softmax_cross_entropy(
    labels: ArrayLike,
    logits: ArrayLike,
    weights: ArrayLike = 1.0,
    scope: str | None = None,
    loss_collection: str | None = LOSSES,
    reduction: str = DEFAULT,
) -> jax.Array:
    """Return the weighted mean cross entropy of class ids.

    Args:
      labels: Class ids from 0 to K - 1, [...] or [..., 1], integers.
      logits: Logits, [..., K].
      weights: Weights: a scalar, or an array with as many axes as the losses, where
        each is equal or 1, such as [B], or
        one axis of size 1 more.

    Returns:
      A float32 scalar; losses [...] for `Reduction.NONE`.

    Raises:
      LabelError: The labels do not fit the logits, or are not class ids from 0 to
        K - 1. The values of labels that the model computed cannot be checked; the loss
        is then NaN.
      SpecError: The weights do not fit, or the reduction is unknown.

    Example:
      >>> round(float(sparse_softmax_cross_entropy([1], [[0.0, 0.0]])), 4)
      0.6931
    """
    function = "sparse_softmax_cross_entropy"
    scores = jnp.asarray(logits, jnp.float32)
    ids = labels_for(ClassLabels(function, scores.shape[-1]), labels, scores, width=1)
    values = losses.sparse_softmax_cross_entropy(ids, scores)[..., 0]
    if np.ndim(weights) == scores.ndim and np.shape(weights)[-1] == 1:
        weights = jnp.asarray(weights)[..., 0]
    return weighted(function, values, weights, scope, loss_collection, reduction)


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
    factors = validate_weights(function, weights, errors.shape)
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
