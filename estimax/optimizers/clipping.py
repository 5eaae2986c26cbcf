"""Gradient clipping and weight penalties, with TensorFlow's formulas.

    clip_by_norm(g, 1.0)
    clipped, norm = clip_by_global_norm([g1, None, g2], 1.0)
    grads = Clip(norm=5.0)(grads)
    penalty = l2(0.01)(w)

To clip the row-wise gradient of a table, pass its rows [U, D]: the norm is taken over
those rows, as TensorFlow does for IndexedSlices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from estimax.optimizers.rules import check_positive

Tree = TypeVar("Tree")
Regularizer = Callable[[ArrayLike], jax.Array]


def clip_by_value(
    values: ArrayLike, clip_value_min: ArrayLike, clip_value_max: ArrayLike
) -> jax.Array:
    """Clip every element to a range. NaN stays NaN.

    Args:
      values: The array to clip.
      clip_value_min: The smallest value, a number or an array that broadcasts.
      clip_value_max: The largest value, a number or an array that broadcasts.

    Returns:
      An array of the shape of `values`.

    Example:
      >>> clip_by_value(jnp.array([-3.0, 0.5, 3.0]), -1.0, 2.0).tolist()
      [-1.0, 0.5, 2.0]
    """
    return jnp.maximum(jnp.minimum(values, clip_value_max), clip_value_min)


def clip_by_norm(
    values: ArrayLike, clip_norm: ArrayLike, axes: Sequence[int] | None = None
) -> jax.Array:
    """Scale an array down so that its l2 norm is at most `clip_norm`.

    Args:
      values: The array to clip.
      clip_norm: The largest norm, positive.
      axes: The axes over which norms are taken; each slice along the other axes is
        clipped by itself. None: one norm of all elements.

    Returns:
      An array of the shape of `values`.

    Example:
      >>> clip_by_norm(jnp.array([0.0, 4.0]), 1.0).tolist()
      [0.0, 1.0]
    """
    values = jnp.asarray(values)
    axis = None if axes is None else tuple(axes)
    norm = jnp.sqrt(jnp.sum(values * values, axis=axis, keepdims=True))
    return values * clip_norm / jnp.maximum(norm, clip_norm)


def clip_by_average_norm(values: ArrayLike, clip_norm: ArrayLike) -> jax.Array:
    """Scale an array down so that its l2 norm per element is at most `clip_norm`.

    Args:
      values: The array to clip.
      clip_norm: The largest value of (l2 norm / number of elements), positive.

    Returns:
      An array of the shape of `values`.

    Example:
      >>> clip_by_average_norm(jnp.array([0.0, 8.0]), 1.0).tolist()
      [0.0, 2.0]
    """
    values = jnp.asarray(values)
    inverse = values.size / jnp.sqrt(jnp.sum(values * values))
    return values * clip_norm * jnp.minimum(inverse, 1 / jnp.asarray(clip_norm))


def global_norm(tree: object) -> jax.Array:
    """Return the l2 norm of all arrays together.

    Args:
      tree: A list, tuple or dict of arrays. None entries are skipped.

    Returns:
      A float32 scalar.

    Raises:
      TypeError: `tree` is a single array.

    Example:
      >>> float(global_norm([jnp.array([3.0]), None, jnp.array([4.0])]))
      5.0
    """
    _check_container("global_norm", tree)
    return _norm_of(tree)


def clip_by_global_norm(
    tree: Tree, clip_norm: ArrayLike, use_norm: ArrayLike | None = None
) -> tuple[Tree, jax.Array]:
    """Scale all arrays by one factor so that their global norm is at most `clip_norm`.

    This keeps the direction of the whole gradient. If the norm is infinite or NaN,
    every result is NaN, so that the training loss becomes NaN and the error is noticed.

    Args:
      tree: A list, tuple or dict of arrays. None entries are kept.
      clip_norm: The largest norm, positive.
      use_norm: The norm, if the caller has computed it already.

    Returns:
      The scaled arrays, in the structure of `tree`, and the norm before scaling.

    Raises:
      TypeError: `tree` is a single array.

    Example:
      >>> clipped, norm = clip_by_global_norm([jnp.array([3.0]), jnp.array([4.0])], 1.0)
      >>> [round(float(x[0]), 3) for x in clipped], float(norm)
      ([0.6, 0.8], 5.0)
    """
    _check_container("clip_by_global_norm", tree)
    norm = _norm_of(tree) if use_norm is None else jnp.asarray(use_norm, jnp.float32)
    return _scale_to(tree, clip_norm, norm), norm


@dataclass(frozen=True, repr=False)
class Clip:
    """How to clip gradients: by value, then by norm, then by global norm.

    Pass it to `minimize(clip=...)` to clip all gradients of a group together, or call
    it on a tree of gradients.

    Args:
      value: Clip every element to [-value, value]. None: do not.
      norm: Scale each variable's gradient to at most this norm. None: do not.
      global_norm: Scale all gradients by one factor so that their norm together is at
        most this. None: do not. Excludes `norm`.
      first_only: Apply only one of the three, as Keras 2.11 does: `norm` if given, else
        `global_norm`, else `value`.

    Raises:
      ValueError: A limit is not positive, or both `norm` and `global_norm` are given.

    Example:
      >>> clip = Clip(value=1.0)
      >>> clip({"w": jnp.array([0.5, 9.0])})["w"].tolist()
      [0.5, 1.0]
      >>> clip
      Clip(value=1.0)
    """

    value: float | None = None
    norm: float | None = None
    global_norm: float | None = None
    first_only: bool = False

    def __post_init__(self) -> None:
        for name in ("value", "norm", "global_norm"):
            if getattr(self, name) is not None:
                check_positive("Clip: ", **{name: getattr(self, name)})
        if self.norm is not None and self.global_norm is not None:
            raise ValueError(
                "Clip: norm (of each variable) and global_norm (of all together) "
                "exclude each other; give one of them."
            )

    def __repr__(self) -> str:
        given = (f"{name}={value}" for name, value in vars(self).items() if value)
        return f"Clip({', '.join(given)})"

    def __call__(self, grads: Tree) -> Tree:
        """Clip a tree of gradients.

        Args:
          grads: All gradients that share a global norm.

        Returns:
          The clipped gradients, in the same structure.
        """
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


def l1(l1: float = 0.01) -> Regularizer:
    """Return the penalty function w -> l1 * sum(|w|).

    Pass it as the `regularizer` of `ex.get_variable`, or add its value to the loss.

    Args:
      l1: The weight of the penalty.

    Returns:
      A function from an array to a scalar.

    Example:
      >>> float(l1(0.5)(jnp.array([-1.0, 3.0])))
      2.0
    """
    return lambda w: l1 * jnp.sum(jnp.abs(jnp.asarray(w)))


def l2(l2: float = 0.01) -> Regularizer:
    """Return the penalty function w -> l2 * sum(w * w), without a factor 1/2.

    Pass it as the `regularizer` of `ex.get_variable`, or add its value to the loss.

    Args:
      l2: The weight of the penalty.

    Returns:
      A function from an array to a scalar.

    Example:
      >>> float(l2(0.5)(jnp.array([-1.0, 3.0])))
      5.0
    """
    return lambda w: l2 * jnp.sum(jnp.square(w))


def l1_l2(l1: float = 0.0, l2: float = 0.0) -> Regularizer:
    """Return the penalty function w -> l1 * sum(|w|) + l2 * sum(w * w).

    Args:
      l1: The weight of the absolute values. Default 0, as in Keras' class `L1L2`.
      l2: The weight of the squares. Default 0, as in Keras' class `L1L2`.

    Returns:
      A function from an array to a scalar.

    Example:
      >>> float(l1_l2(l1=0.5, l2=0.5)(jnp.array([-1.0, 3.0])))
      7.0
    """

    def penalty(w: ArrayLike) -> jax.Array:
        return l1 * jnp.sum(jnp.abs(jnp.asarray(w))) + l2 * jnp.sum(jnp.square(w))

    return penalty


def l2_loss(w: ArrayLike) -> jax.Array:
    """Return sum(w * w) / 2, as `tf.nn.l2_loss` does.

    Args:
      w: An array.

    Returns:
      A scalar.

    Example:
      >>> float(l2_loss(jnp.array([1.0, 3.0])))
      5.0
    """
    return jnp.sum(jnp.square(w)) / 2


def _norm_of(tree: object) -> jax.Array:
    squares = [jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(tree)]
    return jnp.sqrt(sum(squares, start=jnp.zeros((), jnp.float32)))


def _scale_to(tree: Tree, clip_norm: ArrayLike, norm: jax.Array) -> Tree:
    # The form of TensorFlow; clip_norm / max(norm, clip_norm) would round differently.
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
