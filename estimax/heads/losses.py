"""Losses of single examples, and the ways to reduce them to one number.

    per_example = losses.sigmoid_cross_entropy(labels, logits)       # [B, 1]
    loss = losses.reduce_losses(per_example, weights, "sum_over_batch_size")

Every loss takes `(labels, logits)` and keeps the last axis: elementwise losses return
the shape of the logits, the others `[..., 1]`. So each can be given to a head as its
`loss_fn`, options bound with `functools.partial(losses.focal_cross_entropy, gamma=1)`.
Everything is float32.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from estimax.core.errors import SpecError, did_you_mean


def sigmoid_cross_entropy(labels: ArrayLike, logits: ArrayLike) -> jax.Array:
    """Cross entropy of independent yes/no labels in [0, 1], elementwise.

    >>> round(float(sigmoid_cross_entropy([[1.0]], [[0.0]])[0, 0]), 4)
    0.6931
    """
    x, z = _floats(logits), _floats(labels)
    # softplus(x) - x*z and not max(x, 0) - x*z + log1p(exp(-|x|)): the value is the
    # same, but the kinks of the second spoil its gradient at x == 0, which is where a
    # zero-initialised linear model starts.
    return jax.nn.softplus(x) - x * z


def weighted_cross_entropy(
    labels: ArrayLike, logits: ArrayLike, *, pos_weight: float = 1.0
) -> jax.Array:
    """Sigmoid cross entropy whose positive part counts `pos_weight` times.

    >>> round(float(weighted_cross_entropy([[1.0]], [[0.0]], pos_weight=3.0)[0, 0]), 4)
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
    """Sigmoid cross entropy that fades out for examples already answered well.

    `alpha` weighs positives (and 1 - alpha negatives; None weighs neither), `gamma` is
    how fast a good answer fades: 0 is plain cross entropy.

    >>> easy, hard = focal_cross_entropy([[1.0], [1.0]], [[4.0], [-4.0]])
    >>> bool(hard[0] > 1000 * easy[0])
    True
    """
    x, z = _floats(logits), _floats(labels)
    positive, negative = (1.0, 1.0) if alpha is None else (alpha, 1.0 - alpha)
    # (1 - p)^gamma as an exponential: a power of 0 has no gradient for gamma < 1.
    miss = jnp.exp(-gamma * jax.nn.softplus(x))
    false_alarm = jnp.exp(-gamma * jax.nn.softplus(-x))
    of_positives = positive * z * miss * jax.nn.softplus(-x)
    return of_positives + negative * (1.0 - z) * false_alarm * jax.nn.softplus(x)


def softmax_cross_entropy(labels: ArrayLike, logits: ArrayLike) -> jax.Array:
    """Cross entropy of class probabilities [..., K] (one-hot or soft): [..., 1].

    >>> round(float(softmax_cross_entropy([[0.0, 1.0]], [[0.0, 0.0]])[0, 0]), 4)
    0.6931
    """
    log_probabilities = jax.nn.log_softmax(_floats(logits), axis=-1)
    return -jnp.sum(_floats(labels) * log_probabilities, axis=-1, keepdims=True)


def sparse_softmax_cross_entropy(labels: ArrayLike, logits: ArrayLike) -> jax.Array:
    """Cross entropy of class ids [..., 1] under logits [..., K]: [..., 1].

    >>> round(float(sparse_softmax_cross_entropy([[2]], [[0.0, 0.0, 0.0]])[0, 0]), 4)
    1.0986
    """
    x = _floats(logits)
    ids = jnp.asarray(labels, jnp.int32)
    chosen = jnp.take_along_axis(x, ids, axis=-1)
    return jax.nn.logsumexp(x, axis=-1, keepdims=True) - chosen


def multi_label_cross_entropy(labels: ArrayLike, logits: ArrayLike) -> jax.Array:
    """Sigmoid cross entropy averaged over the K classes of an example: [..., 1].

    >>> round(float(multi_label_cross_entropy([[1.0, 0.0]], [[0.0, 0.0]])[0, 0]), 4)
    0.6931
    """
    return jnp.mean(sigmoid_cross_entropy(labels, logits), axis=-1, keepdims=True)


def kl_divergence(labels: ArrayLike, logits: ArrayLike) -> jax.Array:
    """How far softmax(logits) is from the distribution `labels` [..., K]: [..., 1].

    >>> round(float(kl_divergence([[0.5, 0.5]], [[0.0, 0.0]])[0, 0]), 4)
    0.0
    """
    p = _floats(labels)
    # xlogy: a class of probability 0 contributes 0 and not 0 * -inf.
    entropy = jnp.sum(jax.scipy.special.xlogy(p, p), axis=-1, keepdims=True)
    return entropy + softmax_cross_entropy(p, logits)


def squared_error(labels: ArrayLike, logits: ArrayLike) -> jax.Array:
    """(logits - labels)², elementwise.

    >>> squared_error([[1.0]], [[3.0]]).tolist()
    [[4.0]]
    """
    return jnp.square(_floats(logits) - _floats(labels))


def absolute_error(labels: ArrayLike, logits: ArrayLike) -> jax.Array:
    """|logits - labels|, elementwise.

    >>> absolute_error([[1.0]], [[3.0]]).tolist()
    [[2.0]]
    """
    error = _floats(logits) - _floats(labels)
    # JAX takes the slope of |x| at 0 to be 1; a perfect answer must not be moved.
    return jnp.where(error == 0, 0.0, jnp.abs(error))


def huber(labels: ArrayLike, logits: ArrayLike, *, delta: float = 1.0) -> jax.Array:
    """Half the squared error up to `delta`, linear beyond it; elementwise.

    >>> huber([[0.0], [0.0]], [[0.5], [3.0]]).tolist()
    [[0.125], [2.5]]
    """
    error = absolute_error(labels, logits)
    near = jnp.minimum(error, delta)
    return 0.5 * jnp.square(near) + delta * (error - near)


def poisson(
    labels: ArrayLike, logits: ArrayLike, *, compute_full_loss: bool = True
) -> jax.Array:
    """Negative log likelihood of counts with log rate `logits`; elementwise.

    The full loss adds Stirling's approximation of log(labels!), which does not depend
    on the logits; it is left out for labels in [0, 1].

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
    """max(0, 1 - margin) for labels 0 and 1, elementwise.

    >>> hinge([[1.0], [0.0]], [[0.5], [0.5]]).tolist()
    [[0.5], [1.5]]
    """
    side = 2.0 * _floats(labels) - 1.0
    return jax.nn.relu(1.0 - side * _floats(logits))


def pairwise_ranking(labels: ArrayLike, logits: ArrayLike) -> jax.Array:
    """Logistic loss over the pairs of each list [..., L] that labels order: [..., 1].

    The mean over pairs (i, j) with label i above label j of softplus(x_j - x_i); 0 for
    a list without such a pair. Items with a negative label are padding.

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
    """One number out of the losses of examples.

    With l the losses and w the weights (1 by default), broadcast to the shape of l:

    - "sum": SUM(w*l)
    - "sum_over_batch_size", "auto": SUM(w*l) / number of elements, whatever the weights
    - "mean": SUM(w*l) / SUM(w)
    - "sum_over_nonzero_weights": SUM(w*l) / number of weights that are not 0

    A head's loss_reduction is one of the first three. No elements give 0.

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
