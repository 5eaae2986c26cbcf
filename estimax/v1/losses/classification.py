"""Losses of classes and of yes/no labels, with the semantics of TensorFlow 1.

    softmax_cross_entropy(one_hot, logits, weights, label_smoothing=0.1)

The formulas are in `metrics.losses` where a head has the same loss.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from estimax.heads.labels import ClassLabels, labels_for
from estimax.metrics import losses
from estimax.v1.docstrings import document_loss
from estimax.v1.losses.collection import LOSSES
from estimax.v1.losses.weighted import DEFAULT, same_shape, weighted


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
