"""What a model has: its variables by name, TensorFlow's collections, and its step.

weights = ex.trainable_variables("tower")                 # {"tower/w": array, …}
train_op = ex.minimize(optimizer, var_list=weights)
rate = 0.1 * 0.99 ** ex.get_global_step()
"""

from __future__ import annotations

import re
from typing import Any

import jax

from estimax import staging
from estimax.core.errors import SpecError
from estimax.staging.variables.declare import model_top, regularization_losses


class GraphKeys:
    """The names of TensorFlow's collections that `get_collection` knows.

    Use them to port `tf.get_collection(tf.GraphKeys.…)` as it is written.

    Example:
      >>> GraphKeys.TRAINABLE_VARIABLES
      'trainable_variables'
    """

    GLOBAL_VARIABLES = "variables"
    LOSSES = "losses"
    REGULARIZATION_LOSSES = "regularization_losses"
    TRAINABLE_VARIABLES = "trainable_variables"
    UPDATE_OPS = "update_ops"


def trainable_variables(scope: str | None = None) -> list[jax.Array]:
    """Return the variables that optimizers train, of layers and of `get_variable`.

    Use it in a `model_fn`, after its last layer: for a penalty over all weights, or as
    the `var_list` of `ex.minimize`. `variables_by_name` tells their names as well.

    Args:
      scope: A regular expression, matched at the start of names, as in TensorFlow. By
        default all variables.

    Returns:
      The values, sorted by name.

    Raises:
      SpecError: There is no `model_fn` around the call.

    Example:
      >>> import jax.numpy as jnp, numpy as np
      >>> import estimax as ex
      >>> def model_fn(features, labels, mode):
      ...     w = ex.get_variable("w", (1,), initializer=2.0)
      ...     b = ex.get_variable("b", (1,), initializer=3.0)
      ...     loss = sum(jnp.sum(v) for v in ex.trainable_variables())
      ...     return ex.EstimatorSpec(mode, loss=loss, train_op=ex.optimizers.SGD(1.0))
      >>> model = ex.Estimator(model_fn).train(lambda: [({"x": np.ones(1)}, None)])
      >>> model.get_variable_value("w").tolist(), model.get_variable_value("b").tolist()
      ([1.0], [2.0])
    """
    named = _variables("trainable_variables", scope, staging.TRAINED_COLLECTIONS)
    return list(named.values())


def variables_by_name(scope: str | None = None) -> dict[str, jax.Array]:
    """Return the variables that optimizers train, by name.

    Use it in a `model_fn`, after its last layer, in place of the `name` that
    TensorFlow's variables have.

    Args:
      scope: A regular expression, matched at the start of names. By default all
        variables.

    Returns:
      Name to value, sorted by name.

    Raises:
      SpecError: There is no `model_fn` around the call.

    Example:
      >>> import jax.numpy as jnp, numpy as np
      >>> import estimax as ex
      >>> def model_fn(features, labels, mode):
      ...     w = ex.get_variable("w", (1,), initializer=2.0)
      ...     b = ex.get_variable("b", (1,), initializer=3.0)
      ...     weights = [v for name, v in ex.variables_by_name().items() if name != "b"]
      ...     loss = sum(jnp.sum(v) for v in weights)
      ...     return ex.EstimatorSpec(mode, loss=loss, train_op=ex.optimizers.SGD(1.0))
      >>> model = ex.Estimator(model_fn).train(lambda: [({"x": np.ones(1)}, None)])
      >>> model.get_variable_value("w").tolist(), model.get_variable_value("b").tolist()
      ([1.0], [3.0])
    """
    return _variables("variables_by_name", scope, staging.TRAINED_COLLECTIONS)


def get_collection(key: str, scope: str | None = None) -> list[Any]:
    """Return what TensorFlow keeps in a collection, as far as estimax has it.

    Use it to port a `model_fn`. New programs call `trainable_variables`,
    `regularization_losses` and `ex.losses.get_losses`.

    Args:
      key: A name of `GraphKeys`, or the name of a collection that `ex.losses.add_loss`
        was given. `UPDATE_OPS` is empty: batch statistics update themselves.
      scope: A regular expression, matched at the start of names. By default all.

    Returns:
      Variables sorted by name, or losses in the order in which they were added.

    Raises:
      SpecError: There is no such collection, or no `model_fn` around the call.

    Example:
      >>> from estimax import staging
      >>> with staging.tracing(staging.Trace("train", None)):
      ...     get_collection(GraphKeys.UPDATE_OPS)
      []
    """
    trace = _trace("get_collection")
    if key == GraphKeys.UPDATE_OPS:
        return []
    if key == GraphKeys.TRAINABLE_VARIABLES:
        return trainable_variables(scope)
    if key == GraphKeys.GLOBAL_VARIABLES:
        return list(_variables("get_collection", scope, None).values())
    added = trace.losses.get(key, [])
    losses = [loss for name, loss in added if re.match(scope or "", name)]
    if key == GraphKeys.REGULARIZATION_LOSSES:
        penalties = regularization_losses(scope)
        return penalties + [x for x in losses if all(x is not y for y in penalties)]
    if key != GraphKeys.LOSSES and key not in trace.losses:
        known = ", ".join(
            f"ex.GraphKeys.{name}" for name in vars(GraphKeys) if name.isupper()
        )
        raise SpecError(
            f"get_collection: there is no collection {key!r}; expected {known}, or one "
            "that ex.losses.add_loss(loss, collection) was given."
        )
    return losses


def get_global_step() -> jax.Array:
    """Return the number of training steps done before this one.

    Use it in a `model_fn` for what depends on the step, such as a learning rate or the
    weight of a loss. In evaluation, prediction and an exported bundle it is the step of
    the checkpoint. The Estimator counts the steps: there is nothing to increment.

    Returns:
      An int32 scalar.

    Raises:
      SpecError: There is no `model_fn` around the call.

    Example:
      >>> import jax.numpy as jnp, numpy as np
      >>> import estimax as ex
      >>> def model_fn(features, labels, mode):
      ...     w = ex.get_variable("w", (1,), initializer=10.0)
      ...     rate = 1.0 * 0.5 ** ex.get_global_step()
      ...     train_op = ex.optimizers.SGD(rate)
      ...     return ex.EstimatorSpec(mode, loss=jnp.sum(w), train_op=train_op)
      >>> model = ex.Estimator(model_fn).train(lambda: [({"x": np.ones(1)}, None)] * 3)
      >>> model.get_variable_value("w").tolist()  # 10 - 1 - 1/2 - 1/4
      [8.25]
    """
    trace = staging.current()
    if trace is None or trace.step is None:
        raise SpecError(
            "get_global_step was called outside of a model_fn. The Estimator counts "
            "the steps: a hook reads context.step, a learning rate schedule receives "
            "the step, and estimator.get_variable_value('global_step') reads the "
            "latest checkpoint."
        )
    trace.reads_step = True
    step: jax.Array = trace.step
    return step


get_or_create_global_step = get_global_step


def _variables(
    asker: str, scope: str | None, collections: tuple[str, ...] | None
) -> dict[str, jax.Array]:
    trace = _trace(asker)
    frozen = {use.table for use in trace.lookups if not use.trainable}
    top = model_top()
    return {
        name: leaf
        for name, leaf in sorted(
            (
                pair
                for collection, tree in trace.variables().items()
                if collections is None or collection in collections
                for pair in staging.named_leaves(tree)
            ),
            key=lambda pair: pair[0],
        )
        if (collections is None or name not in frozen)
        and name.startswith(f"{top}/" if top else "")
        and re.match(scope or "", name)
    }


def _trace(asker: str) -> staging.Trace:
    trace = staging.current()
    if trace is None:
        raise SpecError(
            f"{asker} was called outside of a model_fn. The variables of a trained "
            "model are estimator.get_variable_names() and get_variable_value(name)."
        )
    return trace
