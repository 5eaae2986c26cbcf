"""The first value of a run that is not finite.

    print(ex.inspection.find_nonfinite(estimator, input_fn))
    # step 7: features/age holds NaN (1 of 8 values), then layer hidden holds NaN …

`RunConfig(debug="nan")` does the same while it trains, at every step.
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
    return estimator.replay(input_fn, max_secs)


def value(x: Any) -> Any:
    """The numbers of an array as NumPy's, for print and pdb in a `model_fn`.

    Under `RunConfig(debug=True)` every array has numbers, but while the gradient is
    taken JAX wraps them and refuses `float(x)`. In a compiled step there are none: then
    `x` itself comes back.

    >>> value(jax.numpy.ones(2)).tolist()
    [1.0, 1.0]
    >>> jax.value_and_grad(lambda x: x * float(value(x)))(3.0)[0].item()
    9.0
    """
    bare = jax.lax.stop_gradient(x)
    return bare if isinstance(bare, jax.core.Tracer) else np.asarray(bare)
