"""A faster gradient of max pooling on a CPU, with the same bits.

    loss_fn = with_fast_max_pooling(loss_fn)
    jax.grad(loss_fn)(params)

XLA computes the gradient of `nn.max_pool` by select-and-scatter, which visits windows
one by one on a CPU: 36 ms for windows of 2x2 in [64, 28, 28, 32]. Comparing the places
of all windows at once takes 0.6 ms. The program of a loss is rewritten, so a `model_fn`
stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import jaxpr_as_fun

# The maximum of each window, in a jaxpr.
PRIMITIVE = "reduce_window_max"
# Larger windows are faster with select-and-scatter: its time does not grow with them.
# Windows that overlap cost more for each place, and only float32 gained.
_MOST_PLACES = 16
_MOST_PLACES_OVERLAPPING = 9


def with_fast_max_pooling(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function with the same results, whose max pooling has a fast gradient.

    The function is traced at each call. Pooling inside loops and recomputed layers
    (`nn.scan`, `nn.remat`) keeps the gradient of XLA.
    """

    def call(*args: Any) -> Any:
        closed: Any  # jax leaves its methods without types
        closed, outputs = jax.make_jaxpr(function, return_shape=True)(*args)
        rewritten = closed.replace(jaxpr=_rewrite(closed.jaxpr))
        results = jaxpr_as_fun(rewritten)(*jax.tree.leaves(args))
        return jax.tree.unflatten(jax.tree.structure(outputs), results)

    return call


def _rewrite(jaxpr: Any) -> Any:
    return jaxpr.replace(eqns=[_rewrite_equation(e) for e in jaxpr.eqns])


def _rewrite_equation(equation: Any) -> Any:
    if equation.primitive.name in ("jit", "pjit"):
        inner = equation.params["jaxpr"]
        rewritten = inner.replace(jaxpr=_rewrite(inner.jaxpr))
        return equation.replace(params=equation.params | {"jaxpr": rewritten})
    if equation.primitive.name != PRIMITIVE or not _is_faster(equation):
        return equation
    windows = _Windows(
        equation.params["window_dimensions"],
        equation.params["window_strides"],
        equation.params["padding"],
    )
    aval = equation.invars[0].aval
    form: Any = jax.ShapeDtypeStruct  # jax leaves it without types
    trace = jax.make_jaxpr(lambda x: _pool(windows, x))
    (pooling,) = trace(form(aval.shape, aval.dtype)).jaxpr.eqns
    return pooling.replace(
        invars=equation.invars,
        outvars=equation.outvars,
        source_info=equation.source_info,
    )


def _is_faster(equation: Any) -> bool:
    """Return whether the gradient can be computed by places, and faster."""
    params = equation.params
    dtype = equation.invars[0].aval.dtype
    if any(n != 1 for n in (*params["base_dilation"], *params["window_dilation"])):
        return False
    places = int(np.prod(params["window_dimensions"]))
    if params["window_dimensions"] == params["window_strides"]:
        return jnp.issubdtype(dtype, jnp.floating) and places <= _MOST_PLACES
    return bool(dtype == jnp.float32) and places <= _MOST_PLACES_OVERLAPPING


class _Windows(NamedTuple):
    """Windows over an array: sizes, strides, and padding before and after each axis."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]


def _by_xla(windows: _Windows, x: jax.Array) -> jax.Array:
    lowest = np.array(-np.inf, x.dtype)
    pooled: jax.Array = lax.reduce_window(x, lowest, lax.max, *windows)
    return pooled


_pool = jax.custom_vjp(_by_xla, nondiff_argnums=(0,))


def _forward(windows: _Windows, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    return _by_xla(windows, x), x


def _backward(windows: _Windows, x: jax.Array, grads: jax.Array) -> tuple[jax.Array]:
    def by_places(x: jax.Array, grads: jax.Array) -> jax.Array:
        return _gradient_by_places(windows, x, grads)

    def by_xla(x: jax.Array, grads: jax.Array) -> jax.Array:
        found: jax.Array = jax.vjp(lambda x: _by_xla(windows, x), x)[1](grads)[0]
        return found

    # Other devices have a fast select-and-scatter.
    return (lax.platform_dependent(x, grads, cpu=by_places, default=by_xla),)


_pool.defvjp(_forward, _backward)


def _gradient_by_places(windows: _Windows, x: jax.Array, grads: jax.Array) -> jax.Array:
    """Return the gradient of the input: each window's goes to its first maximum."""
    padding = [(low, high, 0) for low, high in windows.padding]
    padded = lax.pad(x, np.array(-np.inf, x.dtype), padding)
    chosen = _chosen_places(windows, padded, grads.shape)
    # Select-and-scatter adds to zero, which makes -0.0 positive; XLA removes a `+ 0`.
    grads = jnp.where(grads == 0, 0, grads)
    if windows.sizes == windows.strides:
        whole = _spread(windows, chosen, grads, padded.shape)
    else:
        whole = _add_places(windows, chosen, grads, padded.shape)
    starts = [low for low, _ in windows.padding]
    ends = [low + n for low, n in zip(starts, x.shape, strict=True)]
    return lax.slice(whole, starts, ends)


def _chosen_places(
    windows: _Windows, padded: jax.Array, shape: tuple[int, ...]
) -> jax.Array:
    """Return the place within its window that each window's gradient goes to.

    The comparisons of select-and-scatter in their order: they decide what happens with
    equal numbers, with NaN and with padding.
    """
    best: Any = None
    chosen = jnp.zeros(shape, jnp.int8)
    for number, place in enumerate(np.ndindex(*windows.sizes)):
        ends = [p + (n - 1) * s + 1 for p, n, s in _axes(place, shape, windows.strides)]
        here = lax.slice(padded, place, ends, windows.strides)
        if best is None:
            best = here
            continue
        stays = best >= here
        best = jnp.where(stays, best, here)
        chosen = jnp.where(stays, chosen, jnp.int8(number))
    return chosen


def _spread(
    windows: _Windows, chosen: jax.Array, grads: jax.Array, shape: tuple[int, ...]
) -> jax.Array:
    """Return the gradient of windows that do not overlap."""
    rank = len(shape)
    both = [n for pair in zip(grads.shape, windows.sizes, strict=True) for n in pair]
    of_window, of_place = range(0, 2 * rank, 2), range(1, 2 * rank, 2)
    numbers = np.arange(np.prod(windows.sizes), dtype=np.int8).reshape(windows.sizes)
    is_chosen = lax.broadcast_in_dim(chosen, both, of_window) == lax.broadcast_in_dim(
        jnp.asarray(numbers), both, of_place
    )
    spread = jnp.where(is_chosen, lax.broadcast_in_dim(grads, both, of_window), 0)
    covered = np.multiply(grads.shape, windows.sizes)
    whole = spread.reshape(covered)
    rest = [(0, int(n - m), 0) for n, m in zip(shape, covered, strict=True)]
    return lax.pad(whole, np.zeros((), grads.dtype), rest)


def _add_places(
    windows: _Windows, chosen: jax.Array, grads: jax.Array, shape: tuple[int, ...]
) -> jax.Array:
    """Return the gradient of any windows, summed over the places in a window."""
    total = jnp.zeros(shape, grads.dtype)
    places = list(enumerate(np.ndindex(*windows.sizes)))
    # From the last place to the first: each number then gets the gradients of its
    # windows from the first window to the last, the order of select-and-scatter.
    for number, place in reversed(places):
        config = [
            (p, size - p - (n - 1) * s - 1, s - 1)
            for (p, n, s), size in zip(
                _axes(place, grads.shape, windows.strides), shape, strict=True
            )
        ]
        mine = jnp.where(chosen == number, grads, 0)
        total = total + lax.pad(mine, np.zeros((), grads.dtype), config)
    return total


def _axes(
    place: Sequence[int], counts: Sequence[int], strides: Sequence[int]
) -> list[tuple[int, int, int]]:
    """Return for each axis the place in a window, the windows, and their stride."""
    return list(zip(place, counts, strides, strict=True))
