"""Gradient clipping as TensorFlow does it, for single arrays and whole trees.

    clip_by_norm(g, 1.0)
    clipped, norm = clip_by_global_norm([g1, None, g2], 1.0)
    grads = Clip(norm=5.0)(grads)

For the row-wise gradient of a table pass its stored values [U, D]: norms are taken
over those, as TensorFlow does for IndexedSlices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

Tree = TypeVar("Tree")


def clip_by_value(
    values: ArrayLike, clip_value_min: ArrayLike, clip_value_max: ArrayLike
) -> jax.Array:
    """Cut every element to the range; NaN stays NaN.

    >>> clip_by_value(jnp.array([-3.0, 0.5, 3.0]), -1.0, 2.0).tolist()
    [-1.0, 0.5, 2.0]
    """
    return jnp.maximum(jnp.minimum(values, clip_value_max), clip_value_min)


def clip_by_norm(
    values: ArrayLike, clip_norm: ArrayLike, axes: Sequence[int] | None = None
) -> jax.Array:
    """Scale down to the norm if above it; along `axes` every slice has its own norm.

    >>> clip_by_norm(jnp.array([0.0, 4.0]), 1.0).tolist()
    [0.0, 1.0]
    """
    values = jnp.asarray(values)
    axis = None if axes is None else tuple(axes)
    norm = jnp.sqrt(jnp.sum(values * values, axis=axis, keepdims=True))
    return values * clip_norm / jnp.maximum(norm, clip_norm)


def clip_by_average_norm(values: ArrayLike, clip_norm: ArrayLike) -> jax.Array:
    """Scale down so that the norm divided by the number of elements is `clip_norm`."""
    values = jnp.asarray(values)
    inverse = values.size / jnp.sqrt(jnp.sum(values * values))
    return values * clip_norm * jnp.minimum(inverse, 1 / jnp.asarray(clip_norm))


def global_norm(tree: object) -> jax.Array:
    """The norm of all arrays of a list, tuple or dict together; None is skipped.

    >>> float(global_norm([jnp.array([3.0]), None, jnp.array([4.0])]))
    5.0
    """
    _check_container("global_norm", tree)
    return _norm_of(tree)


def clip_by_global_norm(
    tree: Tree, clip_norm: ArrayLike, use_norm: ArrayLike | None = None
) -> tuple[Tree, jax.Array]:
    """Scale all arrays together to the norm if above it; also return the norm.

    An infinite or NaN norm makes every output NaN, so that it cannot pass unseen.
    `use_norm` is taken in place of the norm when the caller has worked it out.
    """
    _check_container("clip_by_global_norm", tree)
    norm = _norm_of(tree) if use_norm is None else jnp.asarray(use_norm, jnp.float32)
    return _scale_to(tree, clip_norm, norm), norm


@dataclass(frozen=True)
class Clip:
    """How to clip a tree of gradients: by value, then norm, then global norm.

    `norm` is of each variable by itself. With `first_only` (the newest Keras) just
    one is applied: norm, else global norm, else value.

    >>> Clip(value=1.0)({"w": jnp.array([0.5, 9.0])})["w"].tolist()
    [0.5, 1.0]
    """

    value: float | None = None
    norm: float | None = None
    global_norm: float | None = None
    first_only: bool = False

    def __post_init__(self) -> None:
        for name in ("value", "norm", "global_norm"):
            limit = getattr(self, name)
            if limit is not None and not limit > 0:
                raise ValueError(f"Clip: {name} must be positive, got {limit}.")
        if self.norm is not None and self.global_norm is not None:
            raise ValueError(
                "Clip: norm (of each variable) and global_norm (of all together) "
                "exclude each other; give one of them."
            )

    def __call__(self, grads: Tree) -> Tree:
        """Clip a tree; give every gradient that shares a global norm in one call."""
        value, norm, together = self.value, self.norm, self.global_norm
        if self.first_only and (norm is not None or together is not None):
            value = None
        if value is not None:
            grads = jax.tree.map(lambda g: clip_by_value(g, -value, value), grads)
        if norm is not None:
            grads = jax.tree.map(lambda g: clip_by_norm(g, norm), grads)
        if together is not None:
            grads = _scale_to(grads, together, _norm_of(grads))
        return grads


def _norm_of(tree: object) -> jax.Array:
    squares = [jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(tree)]
    return jnp.sqrt(sum(squares, start=jnp.zeros((), jnp.float32)))


def _scale_to(tree: Tree, clip_norm: ArrayLike, norm: jax.Array) -> Tree:
    scale = clip_norm * jnp.minimum(1 / norm, 1 / jnp.asarray(clip_norm))
    scale = jnp.where(jnp.isfinite(norm), scale, jnp.nan)
    scaled: Tree = jax.tree.map(lambda g: (g * scale).astype(g.dtype), tree)
    return scaled


def _check_container(where: str, tree: object) -> None:
    is_tree = isinstance(tree, Sequence | Mapping) and not isinstance(tree, str | bytes)
    if not is_tree:
        raise TypeError(
            f"{where}: expected a list, tuple or dict of arrays, got "
            f"{type(tree).__name__}. For a single array use clip_by_norm."
        )


Regularizer = Callable[[ArrayLike], jax.Array]


def l1(l1: float = 0.01) -> Regularizer:
    """l1 * sum(|w|).

    >>> float(l1(0.5)(jnp.array([-1.0, 3.0])))
    2.0
    """
    return lambda w: l1 * jnp.sum(jnp.abs(jnp.asarray(w)))


def l2(l2: float = 0.01) -> Regularizer:
    """l2 * sum(w * w), without a factor 1/2.

    >>> float(l2(0.5)(jnp.array([-1.0, 3.0])))
    5.0
    """
    return lambda w: l2 * jnp.sum(jnp.square(w))


def l1_l2(l1: float = 0.0, l2: float = 0.0) -> Regularizer:
    """l1 * sum(|w|) + l2 * sum(w * w); defaults are those of Keras' L1L2 class."""

    def penalty(w: ArrayLike) -> jax.Array:
        return l1 * jnp.sum(jnp.abs(jnp.asarray(w))) + l2 * jnp.sum(jnp.square(w))

    return penalty


def l2_loss(w: ArrayLike) -> jax.Array:
    """sum(w * w) / 2.

    >>> float(l2_loss(jnp.array([1.0, 3.0])))
    5.0
    """
    return jnp.sum(jnp.square(w)) / 2
