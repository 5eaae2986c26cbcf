"""Penalties on weights, to be added to a loss (a head's `regularization_losses`).

    penalty = l2(0.01)
    loss = loss + penalty(kernel)

They are Keras': `l2` has no factor 1/2, which TF 1's l2_regularizer had through
`l2_loss`. A penalty is added once a batch, whatever the loss reduction.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

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
