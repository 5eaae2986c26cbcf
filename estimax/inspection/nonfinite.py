"""Find the first value of a run that is not finite; read values in a `model_fn`.

    print(ex.inspection.find_nonfinite(estimator, input_fn))
    # step 7: features/age holds NaN (1 of 8 values), then layer hidden holds NaN …

`RunConfig(debug="nan")` makes the same check at every step of `train`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from estimax.estimator import Estimator
from estimax.training import NonFinite


def find_nonfinite(
    estimator: Estimator,
    input_fn: Callable[..., Any],
    *,
    max_secs: float | None = None,
) -> NonFinite | None:
    """Train from the latest checkpoint until a value is NaN or infinite.

    Use it after a run has failed with NanLossError. Steps run one by one, from the
    position in the data at which the checkpoint was saved. Nothing is written.

    Args:
      estimator: The Estimator to train.
      input_fn: Function that returns the training data.
      max_secs: Seconds after which the search ends; None has no limit.

    Returns:
      The step, and its values that are not finite in the order of their computation.
      None if the data or `max_secs` ended first.

    Example:
      >>> import jax.numpy as jnp
      >>> import numpy as np
      >>> import estimax as ex
      >>> def model_fn(features, mode):
      ...     w = ex.get_variable("w", (1, 1), initializer=1.0)
      ...     loss = jnp.mean(features["x"] @ w)
      ...     return ex.EstimatorSpec(mode, loss=loss, train_op="SGD")
      >>> def input_fn():
      ...     x = np.array([[1.0], [2.0], [np.nan], [4.0]])
      ...     return ex.input.Dataset.from_tensor_slices({"x": x}).batch(2)
      >>> found = ex.inspection.find_nonfinite(ex.Estimator(model_fn), input_fn)
      >>> found.step, found.first.name
      (2, 'features/x')
    """
    return estimator.replay(input_fn, max_secs)


def value(x: Any) -> Any:
    """Return the values of an array in a `model_fn`, for print and pdb.

    Use it with `RunConfig(debug=True)`, which runs the `model_fn` without jit. While
    JAX takes a gradient, arrays are traced, and `float(x)` or `np.asarray(x)` raises an
    error; this function returns the values.

    Args:
      x: An array.

    Returns:
      The values as a NumPy array. In a compiled step there are none; then `x` itself.

    Example:
      >>> import jax
      >>> import estimax as ex
      >>> def square(x):
      ...     print("x is", ex.inspection.value(x))
      ...     return x * x
      >>> jax.grad(square)(3.0).item()
      x is 3.0
      6.0
    """
    bare = jax.lax.stop_gradient(x)
    return bare if isinstance(bare, jax.core.Tracer) else np.asarray(bare)
