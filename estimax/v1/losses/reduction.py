"""The weighted reduction with which every loss ends, and the collections of losses.

    compute_weighted_loss([1.0, 3.0], weights=[0.0, 1.0])                    # 3.0
    get_total_loss()                                         # in a `model_fn`

The default reduction of TensorFlow 1 divides by the number of weights that are not 0.
`get_losses` and `get_total_loss` read the losses that were computed so far. They belong
to one call of the `model_fn` (`staging.Trace`). Outside of a `model_fn` nothing is
collected, because nothing would ever empty the collection.
"""

from enum import StrEnum

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from estimax import staging
from estimax.core.errors import LabelError, SpecError, did_you_mean
from estimax.metrics.inputs import is_broadcastable
from estimax.metrics.losses import reduce_losses
from estimax.staging import variables
from estimax.staging.variables.declare import REGULARIZATION

LOSSES = "losses"  # the collection that TensorFlow calls tf.GraphKeys.LOSSES


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
    factors = validate_weights(function, weights, values.shape)
    if reduction == Reduction.NONE:
        loss = values * factors
    else:
        loss = reduce_losses(values, factors, reduction)
    collect(loss, loss_collection, scope or function)
    return loss


def validate_weights(
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


def add_loss(loss: ArrayLike, loss_collection: str | None = LOSSES) -> None:
    """Add a loss of your own to those that `get_total_loss` sums.

    The functions of `ex.losses` add their results themselves. Outside of a `model_fn`
    the call has no effect.

    Args:
      loss: The loss, usually a scalar.
      loss_collection: The collection to add it to; None for none. Those in
        "regularization_losses" count as penalties of variables do.

    Example:
      >>> with staging.tracing(staging.Trace("train", None)):
      ...     add_loss(2.0, "auxiliary")
      ...     [float(loss) for loss in get_losses(loss_collection="auxiliary")]
      [2.0]
    """
    collect(loss, loss_collection, "")


def get_losses(
    scope: str | None = None, loss_collection: str = LOSSES
) -> list[jax.Array]:
    """Return the losses that this call of the `model_fn` has computed so far.

    Args:
      scope: Keep only losses whose name begins with it. The name of a loss is the
        variable scope in which it was computed, followed by its own `scope`.
      loss_collection: The collection to read.

    Returns:
      The losses in order. Outside of a `model_fn` the list is empty.

    Example:
      >>> with staging.tracing(staging.Trace("train", None)):
      ...     add_loss(2.0)
      ...     [float(loss) for loss in get_losses()]
      [2.0]
    """
    if loss_collection == REGULARIZATION:
        return variables.regularization_losses(scope)
    trace = staging.current()
    found = [] if trace is None else trace.losses.get(loss_collection, [])
    return [loss for name, loss in found if name.startswith(scope or "")]


def get_regularization_loss(scope: str | None = None) -> jax.Array:
    """Return the sum of all regularization losses; see `ex.regularization_losses`.

    Args:
      scope: Keep only variables, and scopes of losses, whose name begins with it.

    Returns:
      A scalar; 0 if there are none.

    Example:
      >>> float(get_regularization_loss())
      0.0
    """
    return _sum(variables.regularization_losses(scope))


def get_total_loss(
    add_regularization_losses: bool = True, *, scope: str | None = None
) -> jax.Array:
    """Return the sum of all losses of this call of the `model_fn`.

    Use it at the end of a `model_fn` that computes several losses with `ex.losses`.

    Args:
      add_regularization_losses: Whether to add the regularization losses: penalties
        of variables declared with a regularizer, and what was added to them.
      scope: Keep only losses and variables whose name begins with it.

    Returns:
      A float32 scalar.

    Raises:
      SpecError: There are no losses. Outside of a `model_fn` none are collected.

    Example:
      >>> with staging.tracing(staging.Trace("train", None)):
      ...     add_loss(2.0)
      ...     add_loss(0.5)
      ...     float(get_total_loss())
      2.5
    """
    found = get_losses(scope)
    if add_regularization_losses:
        found += variables.regularization_losses(scope)
    if not found:
        where = "" if scope is None else f" in scope {scope!r}"
        raise SpecError(
            f"get_total_loss: no loss has been computed{where}. Call it inside of a "
            "model_fn, after functions of ex.losses or ex.losses.add_loss."
        )
    return _sum(found)


def collect(loss: ArrayLike, collection: str | None, scope: str) -> None:
    """Add a loss to a collection, under its scope within the variable scope."""
    trace = staging.current()
    if trace is not None and collection:
        name = "/".join(filter(None, (variables.get_variable_scope().name, scope)))
        trace.losses.setdefault(collection, []).append((name, loss))


def _sum(losses: list[jax.Array]) -> jax.Array:
    return sum((jnp.asarray(loss, jnp.float32) for loss in losses), jnp.zeros(()))
