"""The losses that a `model_fn` has computed so far, and their sum.

    ex.losses.sigmoid_cross_entropy(clicked, click_logits)
    ex.losses.sigmoid_cross_entropy(bought, purchase_logits)
    loss = ex.losses.get_total_loss()             # both, and the regularization losses

The losses belong to one call of the `model_fn` (`staging.Trace`). Outside of a
`model_fn` nothing is collected, because nothing would ever empty the collection.
"""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from estimax import staging
from estimax.core.errors import SpecError
from estimax.staging import variables
from estimax.staging.variables.declare import REGULARIZATION

LOSSES = "losses"  # the collection that TensorFlow calls tf.GraphKeys.LOSSES


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
