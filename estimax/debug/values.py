"""The numbers behind a value, while a `model_fn` runs without jit."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np


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
