"""Initial values that a program draws apart, one function for many variables.

    start = apart(jax.nn.initializers.uniform(0.1))
    rows = start(key, (50, 4), jnp.float32)

XLA compiles what it is given: the initial values of 400 tables in one program are 400
times the same code. An initializer that is `apart` is a function of its own in the
trace, which `training/initial_values.py` finds by its name and compiles once for each
shape.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax

DRAWN_APART = "draw_initial_value"  # the name of the function in a trace


@functools.lru_cache(maxsize=256)
def apart(initializer: Callable[..., Any]) -> Callable[..., Any]:
    """Return an initializer that is one function in a trace, for equal arguments.

    It must be pure: it is traced once for each shape and dtype, for all variables.
    """

    def draw(key: jax.Array, shape: tuple[int, ...], dtype: Any) -> Any:
        return initializer(key, shape, dtype)

    draw.__name__ = draw.__qualname__ = DRAWN_APART
    return jax.jit(draw, static_argnums=(1, 2))


def is_pure(initializer: Callable[..., Any]) -> bool:
    """Return whether an initializer is one of JAX's or Flax's.

    One of a user may return other values in each call, whatever its key is.
    """
    module = getattr(initializer, "__module__", None) or ""
    return module.split(".")[0] in ("jax", "flax")
