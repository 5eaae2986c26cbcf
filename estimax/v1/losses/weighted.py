"""The weighted reduction of losses, with which every loss of this package ends.

    compute_weighted_loss([1.0, 3.0], weights=[0.0, 1.0])                    # 3.0

The default reduction of TensorFlow 1 divides by the number of weights that are not 0.
"""

from enum import StrEnum

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from estimax.core.errors import LabelError, SpecError, did_you_mean
from estimax.metrics.inputs import is_broadcastable
from estimax.metrics.losses import reduce_losses
from estimax.v1.losses.collection import LOSSES, collect


class Reduction(StrEnum):
    """How the losses of a batch become one number; each is also a plain string.

    With l the losses and w the weights, broadcast to the shape of l:

    - `NONE`: w*l, not reduced
    - `SUM`: SUM(w*l)
    - `SUM_OVER_BATCH_SIZE`: SUM(w*l) / number of elements
    - `MEAN`: SUM(w*l) / SUM(w)
    - `SUM_BY_NONZERO_WEIGHTS`, the default of TensorFlow 1, and
      `SUM_OVER_NONZERO_WEIGHTS`: SUM(w*l) / number of weights that are not 0

    A quotient whose divisor is 0 is 0. The `loss_reduction` of a head may be `SUM` or
    `SUM_OVER_BATCH_SIZE`.

    Example:
      >>> Reduction.SUM == "sum"
      True
      >>> losses, weights = [1.0, 3.0], [0.0, 2.0]
      >>> for r in (Reduction.SUM, Reduction.SUM_OVER_BATCH_SIZE, Reduction.MEAN):
      ...     float(compute_weighted_loss(losses, weights, reduction=r))
      6.0
      3.0
      3.0
    """

    NONE = "none"
    SUM = "sum"
    SUM_OVER_BATCH_SIZE = "sum_over_batch_size"
    MEAN = "mean"
    SUM_OVER_NONZERO_WEIGHTS = "sum_over_nonzero_weights"
    SUM_BY_NONZERO_WEIGHTS = "sum_over_nonzero_weights"


DEFAULT = Reduction.SUM_BY_NONZERO_WEIGHTS


def compute_weighted_loss(
    losses: ArrayLike,
    weights: ArrayLike = 1.0,
    scope: str | None = None,
    loss_collection: str | None = LOSSES,
    reduction: str = DEFAULT,
) -> jax.Array:
    """Return losses of your own, weighted and reduced to a scalar.

    It is `tf.compat.v1.losses.compute_weighted_loss`. The other functions of
    `ex.losses` end with it.

    Args:
      losses: Losses, [B] or any shape.
      weights: Weights: a scalar, or an array with as many axes as the losses, where
        each is equal or 1. Gradients flow through them too.
      scope: The name of the loss in the current variable scope, for `get_losses`.
      loss_collection: The collection that the result is added to; None for none.
      reduction: A `Reduction`. By default the sum is divided by the number of weights
        that are not 0.

    Returns:
      A float32 scalar; the weighted losses for `Reduction.NONE`.

    Raises:
      SpecError: The weights are None or do not fit the losses, or the reduction is
        unknown.

    Example:
      >>> float(compute_weighted_loss([[1.0, 2.0], [3.0, 4.0]], [[1.0], [0.0]]))
      1.5
    """
    return weighted(
        "compute_weighted_loss", losses, weights, scope, loss_collection, reduction
    )


def weighted(
    function: str,
    losses: ArrayLike,
    weights: ArrayLike,
    scope: str | None,
    loss_collection: str | None,
    reduction: str,
) -> jax.Array:
    """Check, weigh, reduce and collect; errors name the function."""
    if reduction not in list(Reduction):
        near = did_you_mean(str(reduction), [str(name) for name in Reduction])
        raise SpecError(f"{function}: unknown reduction {reduction!r}{near}")
    values = jnp.asarray(losses, jnp.float32)
    factors = checked_weights(function, weights, values.shape)
    if reduction == Reduction.NONE:
        loss = values * factors
    else:
        loss = reduce_losses(values, factors, reduction)
    collect(loss, loss_collection, scope or function)
    return loss


def checked_weights(
    function: str, weights: ArrayLike | None, shape: tuple[int, ...]
) -> jax.Array:
    """Return weights as float32; raise unless they broadcast to the shape."""
    if weights is None:
        raise SpecError(
            f"{function}: weights are None. Leave them out to weigh every loss 1."
        )
    factors = jnp.asarray(weights, jnp.float32)
    if not is_broadcastable(factors, shape):
        raise SpecError(
            f"{function}: weights {list(factors.shape)} do not fit losses "
            f"{list(shape)}: expected a scalar, or as many axes as the losses, each of "
            "the same size or 1."
        )
    return factors


def same_shape(
    function: str, labels: ArrayLike | None, values: ArrayLike | None
) -> None:
    """Raise `LabelError` unless labels and predictions are given and equal in shape."""
    if labels is None or values is None:
        which = "labels" if labels is None else "predictions or logits"
        raise LabelError(f"{function}: {which} are None.")
    if np.shape(labels) != np.shape(values):
        raise LabelError(
            f"{function}: labels {list(np.shape(labels))} and predictions or logits "
            f"{list(np.shape(values))} must have the same shape."
        )
