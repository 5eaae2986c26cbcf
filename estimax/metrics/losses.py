"""Losses of single examples, and their reduction to a scalar.

    per_example = losses.sigmoid_cross_entropy(labels, logits)       # [B, 1]
    loss = losses.reduce_losses(per_example, weights, "sum_over_batch_size")

Every loss takes `(labels, logits)` and keeps the number of axes: elementwise losses
return the shape of the logits, the others `[..., 1]`. So each can be passed to a head
as `loss_fn`, with options bound by `functools.partial(losses.huber, delta=2.0)`.
Everything is float32.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from estimax.core.errors import SpecError, did_you_mean


def sigmoid_cross_entropy(labels: ArrayLike, logits: ArrayLike) -> jax.Array:
    """Return the cross entropy of independent yes/no labels, elementwise.

    It is the default loss of `BinaryClassHead` and `LogisticRegressionHead`.

    Args:
      labels: Labels within [0, 1], [..., D].
      logits: Logits, [..., D].

    Returns:
      Losses in the shape of the logits, float32.

    Example:
      >>> round(float(sigmoid_cross_entropy([[1.0]], [[0.0]])[0, 0]), 4)
      0.6931
    """
    x, z = _floats(logits), _floats(labels)
    # softplus(x) - x*z and not max(x, 0) - x*z + log1p(exp(-|x|)): the values are the
    # same, but max and |x| have kinks at x == 0, where the gradient would be wrong. A
    # linear model whose weights are initialised to 0 starts there.
    return jax.nn.softplus(x) - x * z


def weighted_cross_entropy(
    labels: ArrayLike, logits: ArrayLike, *, pos_weight: float = 1.0
) -> jax.Array:
    """Return sigmoid cross entropy with another weight for positive labels.

    Use it if positives are rare or missing one is costly.

    Args:
      labels: Labels within [0, 1], [..., D].
      logits: Logits, [..., D].
      pos_weight: Factor of the loss of positive labels; 1 is plain cross entropy.

    Returns:
      Losses in the shape of the logits, float32.

    Example:
      >>> losses = weighted_cross_entropy([[1.0]], [[0.0]], pos_weight=3.0)
      >>> round(float(losses[0, 0]), 4)
      2.0794
    """
    x, z = _floats(logits), _floats(labels)
    return pos_weight * z * jax.nn.softplus(-x) + (1.0 - z) * jax.nn.softplus(x)


def focal_cross_entropy(
    labels: ArrayLike,
    logits: ArrayLike,
    *,
    alpha: float | None = 0.25,
    gamma: float = 2.0,
) -> jax.Array:
    """Return sigmoid cross entropy that is small for well classified examples.

    Use it if most examples are easy and would dominate the loss (Lin et al., 2017).

    Args:
      labels: Labels within [0, 1], [..., D].
      logits: Logits, [..., D].
      alpha: Weight of positive labels; negative ones have 1 - alpha. None weighs both
        1.
      gamma: How fast the loss falls as the prediction improves: the loss is multiplied
        by (1 - p)^gamma, with p the probability of the label. 0 is plain cross entropy.

    Returns:
      Losses in the shape of the logits, float32.

    Example:
      >>> easy, hard = focal_cross_entropy([[1.0], [1.0]], [[4.0], [-4.0]])
      >>> bool(hard[0] > 1000 * easy[0])
      True
    """
    x, z = _floats(logits), _floats(labels)
    positive, negative = (1.0, 1.0) if alpha is None else (alpha, 1.0 - alpha)
    # With p = sigmoid(x), (1 - p)^gamma is exp(-gamma * softplus(x)). As a power it
    # would have no finite gradient at p == 1 for gamma < 1.
    miss_factor = jnp.exp(-gamma * jax.nn.softplus(x))
    false_alarm_factor = jnp.exp(-gamma * jax.nn.softplus(-x))
    positives = positive * z * miss_factor * jax.nn.softplus(-x)
    negatives = negative * (1.0 - z) * false_alarm_factor * jax.nn.softplus(x)
    return positives + negatives


def softmax_cross_entropy(labels: ArrayLike, logits: ArrayLike) -> jax.Array:
    """Return the cross entropy of label distributions over K classes.

    Use it for one-hot or soft labels. For class ids use `sparse_softmax_cross_entropy`.

    Args:
      labels: Probabilities of the classes, [..., K].
      logits: Logits, [..., K].

    Returns:
      Losses, float32 [..., 1].

    Example:
      >>> round(float(softmax_cross_entropy([[0.0, 1.0]], [[0.0, 0.0]])[0, 0]), 4)
      0.6931
    """
    log_probabilities = jax.nn.log_softmax(_floats(logits), axis=-1)
    return -jnp.sum(_floats(labels) * log_probabilities, axis=-1, keepdims=True)


def sparse_softmax_cross_entropy(labels: ArrayLike, logits: ArrayLike) -> jax.Array:
    """Return the cross entropy of class ids.

    It is the default loss of `MultiClassHead`.

    Args:
      labels: Class ids from 0 to K - 1, [..., 1].
      logits: Logits, [..., K].

    Returns:
      Losses, float32 [..., 1]; NaN for an id out of range.

    Example:
      >>> round(float(sparse_softmax_cross_entropy([[2]], [[0.0, 0.0, 0.0]])[0, 0]), 4)
      1.0986
    """
    x = _floats(logits)
    ids = jnp.asarray(labels, jnp.int32)
    chosen = jnp.take_along_axis(x, ids, axis=-1)  # NaN for ids of K or more
    # Without this, -1 would count from the end and be the last class.
    chosen = jnp.where(ids < 0, jnp.nan, chosen)
    return jax.nn.logsumexp(x, axis=-1, keepdims=True) - chosen


def sparse_focal_cross_entropy(
    labels: ArrayLike, logits: ArrayLike, *, gamma: float = 2.0
) -> jax.Array:
    """Return the cross entropy of class ids, small for well classified examples.

    Use it if most examples are easy and would dominate the loss (Lin et al., 2017).

    Args:
      labels: Class ids from 0 to K - 1, [..., 1].
      logits: Logits, [..., K].
      gamma: How fast the loss falls as the prediction improves: the loss is multiplied
        by (1 - p)^gamma, with p the probability of the label. 0 is plain cross entropy.

    Returns:
      Losses, float32 [..., 1]; NaN for an id out of range.

    Example:
      >>> logits = [[4.0, 0.0, 0.0], [0.0, 4.0, 0.0]]
      >>> easy, hard = sparse_focal_cross_entropy([[0], [0]], logits)
      >>> bool(hard[0] > 1000 * easy[0])
      True
    """
    x = _floats(logits)
    ids = jnp.asarray(labels, jnp.int32)
    # The logarithm of 1 - p, exact also where p rounds to 1.
    others = jnp.where(ids == jnp.arange(x.shape[-1]), -jnp.inf, x)
    log_miss = jax.nn.logsumexp(others, axis=-1, keepdims=True)
    log_miss -= jax.nn.logsumexp(x, axis=-1, keepdims=True)
    return jnp.exp(gamma * log_miss) * sparse_softmax_cross_entropy(ids, x)


def multi_label_cross_entropy(labels: ArrayLike, logits: ArrayLike) -> jax.Array:
    """Return sigmoid cross entropy averaged over the K classes of an example.

    It is the default loss of `MultiLabelHead`.

    Args:
      labels: Indicators within [0, 1], [..., K].
      logits: Logits, [..., K].

    Returns:
      Losses, float32 [..., 1].

    Example:
      >>> round(float(multi_label_cross_entropy([[1.0, 0.0]], [[0.0, 0.0]])[0, 0]), 4)
      0.6931
    """
    return jnp.mean(sigmoid_cross_entropy(labels, logits), axis=-1, keepdims=True)


def kl_divergence(labels: ArrayLike, logits: ArrayLike) -> jax.Array:
    """Return the Kullback-Leibler divergence of softmax(logits) from labels.

    Use it for soft labels, as in distillation. It is softmax cross entropy minus the
    entropy of the labels, and 0 if the distributions are equal.

    Args:
      labels: Probabilities of the classes, [..., K].
      logits: Logits, [..., K].

    Returns:
      Losses, float32 [..., 1].

    Example:
      >>> round(float(kl_divergence([[0.5, 0.5]], [[0.0, 0.0]])[0, 0]), 4)
      0.0
    """
    p = _floats(labels)
    # xlogy(0, 0) is 0: a class of probability 0 contributes 0 and not 0 * -inf = NaN.
    entropy = jnp.sum(jax.scipy.special.xlogy(p, p), axis=-1, keepdims=True)
    return entropy + softmax_cross_entropy(p, logits)


def squared_error(labels: ArrayLike, logits: ArrayLike) -> jax.Array:
    """Return (logits - labels)^2, elementwise.

    It is the default loss of `RegressionHead`.

    Args:
      labels: Numbers, [..., D].
      logits: Predicted numbers, [..., D].

    Returns:
      Losses in the shape of the logits, float32.

    Example:
      >>> squared_error([[1.0]], [[3.0]]).tolist()
      [[4.0]]
    """
    return jnp.square(_floats(logits) - _floats(labels))


def absolute_error(labels: ArrayLike, logits: ArrayLike) -> jax.Array:
    """Return |logits - labels|, elementwise.

    Use it if large errors should not dominate. Its gradient is 0 where the error is 0.

    Args:
      labels: Numbers, [..., D].
      logits: Predicted numbers, [..., D].

    Returns:
      Losses in the shape of the logits, float32.

    Example:
      >>> absolute_error([[1.0]], [[3.0]]).tolist()
      [[2.0]]
    """
    error = _floats(logits) - _floats(labels)
    # JAX's gradient of abs at 0 is 1; it has to be 0 where there is no error.
    return jnp.where(error == 0, 0.0, jnp.abs(error))


def huber(labels: ArrayLike, logits: ArrayLike, *, delta: float = 1.0) -> jax.Array:
    """Return half the squared error for small errors, linear beyond, elementwise.

    Use it if some labels are outliers.

    Args:
      labels: Numbers, [..., D].
      logits: Predicted numbers, [..., D].
      delta: The error from which on the loss is linear.

    Returns:
      Losses in the shape of the logits, float32.

    Example:
      >>> huber([[0.0], [0.0]], [[0.5], [3.0]]).tolist()
      [[0.125], [2.5]]
    """
    error = absolute_error(labels, logits)
    near = jnp.minimum(error, delta)
    return 0.5 * jnp.square(near) + delta * (error - near)


def poisson(
    labels: ArrayLike, logits: ArrayLike, *, compute_full_loss: bool = True
) -> jax.Array:
    """Return the negative log likelihood of counts, elementwise.

    It is the loss of `PoissonRegressionHead`.

    Args:
      labels: Counts, [..., D].
      logits: Logs of the predicted rates, [..., D].
      compute_full_loss: Whether to add Stirling's approximation of log(label!), which
        does not depend on the logits. Nothing is added for labels within [0, 1].

    Returns:
      Losses in the shape of the logits, float32.

    Example:
      >>> poisson([[1.0]], [[0.0]]).tolist()
      [[1.0]]
    """
    x, y = _floats(logits), _floats(labels)
    loss = jnp.exp(x) - x * y
    if not compute_full_loss:
        return loss
    is_small = (y >= 0) & (y <= 1)
    count = jnp.where(is_small, 1.0, y)  # keeps log(0) out of the branch not taken
    stirling = count * jnp.log(count) - count + 0.5 * jnp.log(2 * math.pi * count)
    return loss + jnp.where(is_small, 0.0, stirling)


def hinge(labels: ArrayLike, logits: ArrayLike) -> jax.Array:
    """Return max(0, 1 - margin), elementwise.

    Use it with `BinaryClassHead` for a maximum-margin classifier. The margin is the
    logit for label 1 and minus the logit for label 0.

    Args:
      labels: Labels 0 and 1, [..., D].
      logits: Logits, [..., D].

    Returns:
      Losses in the shape of the logits, float32.

    Example:
      >>> hinge([[1.0], [0.0]], [[0.5], [0.5]]).tolist()
      [[0.5], [1.5]]
    """
    side = 2.0 * _floats(labels) - 1.0
    return jax.nn.relu(1.0 - side * _floats(logits))


def pairwise_ranking(labels: ArrayLike, logits: ArrayLike) -> jax.Array:
    """Return the logistic loss over the ordered pairs of items in each list.

    Use it to train a ranker. It is the mean of softplus(x_j - x_i) over pairs (i, j)
    whose label i is higher, and 0 for a list without such a pair.

    Args:
      labels: Relevance of the items, [..., L]. Negative values are padding.
      logits: Scores of the items, [..., L].

    Returns:
      One loss for each list, float32 [..., 1].

    Example:
      >>> right_order = pairwise_ranking([[1.0, 0.0, -1.0]], [[5.0, -5.0, 99.0]])
      >>> bool(right_order[0, 0] < 1e-4)
      True
    """
    x, y = _floats(logits), _floats(labels)
    ordered = (y[..., :, None] > y[..., None, :]) & (y[..., None, :] >= 0)
    pairs = jax.nn.softplus(x[..., None, :] - x[..., :, None])  # [..., i, j]
    total = jnp.sum(jnp.where(ordered, pairs, 0.0), axis=(-2, -1))
    count = jnp.sum(ordered, axis=(-2, -1), dtype=jnp.float32)
    return (total / jnp.maximum(count, 1.0))[..., None]


REDUCTIONS = (
    "sum_over_batch_size",
    "sum",
    "auto",
    "mean",
    "sum_over_nonzero_weights",
)


def reduce_losses(
    losses: ArrayLike,
    weights: ArrayLike | None = None,
    reduction: str = "sum_over_batch_size",
) -> jax.Array:
    """Reduce the losses of examples to a scalar.

    With l the losses and w the weights, broadcast to the shape of l:

    - "sum": SUM(w*l)
    - "sum_over_batch_size", "auto": SUM(w*l) / number of elements. The divisor does not
      depend on the weights.
    - "mean": SUM(w*l) / SUM(w)
    - "sum_over_nonzero_weights": SUM(w*l) / number of weights that are not 0

    The `loss_reduction` of a head is one of the first three.

    Args:
      losses: Losses of the examples, [B, D] or any shape.
      weights: Weights that broadcast to the losses, such as [B, 1]. By default 1.
      reduction: One of the names above.

    Returns:
      A float32 scalar; 0 if there are no losses.

    Raises:
      SpecError: The reduction is unknown.

    Example:
      >>> float(reduce_losses([[1.0], [3.0]], [[0.0], [1.0]]))
      1.5
      >>> float(reduce_losses([[1.0], [3.0]], [[0.0], [1.0]], "mean"))
      3.0
    """
    if reduction not in REDUCTIONS:
        near = did_you_mean(reduction, REDUCTIONS)
        raise SpecError(f"reduce_losses: unknown reduction {reduction!r}{near}")
    values = _floats(losses)
    w = jnp.ones(()) if weights is None else _floats(weights)
    total = jnp.sum(values * w)
    if reduction == "sum":
        return total
    if reduction in ("sum_over_batch_size", "auto"):
        return total / max(values.size, 1)
    spread = jnp.broadcast_to(w, values.shape)
    if reduction == "sum_over_nonzero_weights":
        spread = (spread != 0).astype(jnp.float32)
    count = jnp.sum(spread)
    return jnp.where(count == 0, 0.0, total / jnp.where(count == 0, 1.0, count))


def _floats(values: ArrayLike) -> jax.Array:
    return jnp.asarray(values, jnp.float32)
