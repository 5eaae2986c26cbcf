"""How labels, predictions and weights are made to fit each other.

Labels and predictions whose ranks differ by one lose the extra trailing axis of size
1. Weights are a scalar, of the same rank with each axis equal or 1, or one rank lower
or higher; they are then broadcast, and the *broadcast* weights are what is summed.

Values can be wrong as well (a class id out of range). Outside `jit` that raises; inside
it no value can be looked at, so the example's weight, and with it the result, is NaN.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from estimax.metrics.metric import MetricError

# What users hand in. Lists are welcome, of any depth, which typing cannot say.
Data = ArrayLike | Sequence[Any]


def label_pair(
    labels: Data | None,
    predictions: Data | None,
    weights: Data | None = None,
    *,
    no_data: tuple[int, ...] = (0,),
) -> tuple[jax.Array, jax.Array]:
    """Labels and predictions of one shape; no examples when both are left out."""
    check_given(labels=labels, predictions=predictions, weights=weights)
    if labels is None or predictions is None:
        return jnp.zeros(no_data), jnp.zeros(no_data)
    return same_rank(jnp.asarray(labels), jnp.asarray(predictions))


def check_given(*, weights: Data | None = None, **data: Data | None) -> None:
    """Raise unless all data are given, or none and no weights (an empty metric)."""
    missing = [name for name, value in data.items() if value is None]
    if (missing and weights is not None) or 0 < len(missing) < len(data):
        raise MetricError(
            f"{', '.join(missing)} missing: give {', '.join(data)} together, or "
            "nothing at all for the metric before any data"
        )


def same_rank(labels: jax.Array, predictions: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Squeeze the longer one's trailing axis of 1; raise unless shapes then agree."""
    given = labels.shape, predictions.shape
    if labels.ndim == predictions.ndim + 1 and labels.shape[-1] == 1:
        labels = labels[..., 0]
    elif predictions.ndim == labels.ndim + 1 and predictions.shape[-1] == 1:
        predictions = predictions[..., 0]
    if labels.shape != predictions.shape:
        raise MetricError(
            f"labels {list(given[0])} and predictions {list(given[1])} must have the "
            "same shape (up to one trailing axis of size 1)"
        )
    return labels, predictions


def broadcast_weights(weights: Data | None, shape: tuple[int, ...]) -> jax.Array:
    """Weights as float32 of exactly this shape; None weighs every element 1.

    >>> broadcast_weights(jnp.array([1.0, 2.0]), (2, 3)).tolist()
    [[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]]
    """
    if weights is None:
        return jnp.ones(shape, jnp.float32)
    fitted = fit_rank(jnp.asarray(weights, jnp.float32), len(shape))
    if not is_broadcastable(fitted, shape):
        raise MetricError(
            f"weights {list(np.shape(weights))} do not fit values {list(shape)}: "
            "expected a scalar, or for each axis of the values the same size or 1"
        )
    return jnp.broadcast_to(fitted, shape)


def fit_rank(weights: jax.Array, rank: int) -> jax.Array:
    """Add or remove one trailing axis of size 1 where that gives the rank."""
    if weights.ndim == rank + 1 and weights.shape[-1] == 1:
        return weights[..., 0]
    if weights.ndim and weights.ndim == rank - 1:
        return weights[..., None]
    return weights


def is_broadcastable(weights: jax.Array, shape: tuple[int, ...]) -> bool:
    """Whether weights are a scalar or have each axis of shape, or 1 in its place."""
    return weights.ndim == 0 or (
        weights.ndim == len(shape)
        and all(
            have in (1, want) for have, want in zip(weights.shape, shape, strict=True)
        )
    )


def times_weights(weights: jax.Array, values: jax.Array) -> jax.Array:
    """The product, 0 wherever the weight is 0 whatever the value."""
    # Padded rows weigh 0 and may hold anything; 0 * nan would be nan.
    return jnp.where(weights == 0, 0.0, weights * values.astype(jnp.float32))


def guarded(weights: jax.Array, valid: jax.Array, problem: str) -> jax.Array:
    """The weights, where examples that count are valid; else an error, or NaN in jit.

    >>> guarded(jnp.array([1.0, 0.0]), jnp.array([True, False]), "ids out of range")
    Array([1., 0.], dtype=float32)
    """
    wrong = ~valid & (weights != 0)
    if not isinstance(wrong, jax.core.Tracer) and bool(jnp.any(wrong)):
        raise MetricError(problem)
    return jnp.where(wrong, jnp.nan, weights)
