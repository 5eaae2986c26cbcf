"""Layers that compute in bfloat16 while their variables stay float32.

    with computing_in(jnp.bfloat16):
        spec = module.apply(variables, features)

A Flax layer has a `dtype`, the type it computes in. It is None by default: the layer
then follows its inputs. Inside the block, such a layer computes in the given type: it
casts inputs and variables itself, keeps batch statistics in float32, and its gradient
passes back through the casts in float32. Nothing else changes, so features are scaled
and the rows of tables are summed at full precision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
from flax import linen as nn


@contextmanager
def computing_in(dtype: Any) -> Iterator[None]:
    """Give layers without a `dtype` this one; None changes nothing.

    >>> import jax, jax.numpy as jnp
    >>> layer, x = nn.Dense(2), jnp.ones((1, 3))
    >>> with computing_in(jnp.bfloat16):
    ...     y, made = layer.init_with_output(jax.random.key(0), x)
    >>> y.dtype.name, made["params"]["kernel"].dtype.name
    ('bfloat16', 'float32')
    """
    if dtype is None:
        yield
        return

    def call_in_dtype(
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        context: nn.module.InterceptorContext,
    ) -> Any:
        module = context.module
        has_none = getattr(module, "dtype", dtype) is None
        # Modules are frozen, but this one is Flax's own copy for this call.
        if has_none:
            object.__setattr__(module, "dtype", dtype)
        try:
            result = function(*args, **kwargs)
        finally:
            if has_none:
                object.__setattr__(module, "dtype", None)
        if isinstance(module, nn.RNNCellBase) and context.method_name == "__call__":
            return _keep_carry_dtypes(args[0], result)
        return result

    with nn.intercept_methods(call_in_dtype):
        yield


def _keep_carry_dtypes(carry: Any, result: Any) -> Any:
    """Cast the new carry of a cell back to its type, which a loop must not change."""
    new, output = result
    return jax.tree.map(lambda a, b: a.astype(b.dtype), new, carry), output
