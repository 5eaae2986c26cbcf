"""The first value of a run that is not finite.

    print(ex.debug.find_nonfinite(estimator, input_fn))
    # step 7: features/age holds NaN (1 of 8 values), then layer hidden holds NaN …

`RunConfig(debug="nan")` does the same while it trains, at every step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from estimax.estimator import Estimator
from estimax.training import NonFinite


def find_nonfinite(
    estimator: Estimator,
    input_fn: Callable[..., Any],
    *,
    max_secs: float | None = None,
) -> NonFinite | None:
    """Train on from the latest checkpoint until something is NaN or infinite.

    Steps run one by one, from the place in the data that the checkpoint was saved at,
    and nothing is written. Returns the step and what was not finite in it, in the order
    in which it came about; None if the data or `max_secs` ended first.

    >>> import numpy as np, jax.numpy as jnp, estimax as ex
    >>> def model_fn(features, mode):
    ...     w = ex.get_variable("w", (1, 1), initializer=1.0)
    ...     loss = jnp.mean(features["x"] @ w)
    ...     return ex.EstimatorSpec(mode, loss=loss, train_op="SGD")
    >>> def input_fn():
    ...     x = np.array([[1.0], [2.0], [np.nan], [4.0]])
    ...     return ex.input.Dataset.from_tensor_slices({"x": x}).batch(2)
    >>> found = find_nonfinite(ex.Estimator(model_fn), input_fn)
    >>> found.step, found.first.name
    (2, 'features/x')
    """
    return estimator._replay(input_fn, max_secs)
