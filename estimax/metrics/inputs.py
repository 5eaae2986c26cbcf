"""Check and broadcast the labels, predictions and weights given to a metric.

Labels and predictions must have the same shape, up to one trailing axis of size 1,
which is removed. Weights are a scalar, or have the rank of the values with each axis
equal or 1, or have one axis more or less. They are broadcast, and the *broadcast*
weights are what counts.

A value can be wrong too, such as a class id out of range. Outside `jit` that raises
`MetricError`. Inside `jit` no value can be checked, so the weight of the example
becomes NaN, and with it the result.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from estimax.metrics.metric import MetricError

# What users pass. Lists may be nested to any depth, which typing cannot express.
Data = ArrayLike | Sequence[Any]

_Option = TypeVar("_Option")


def label_pair(
    labels: Data | None,
    predictions: Data | None,
    weights: Data | None = None,
    *,
    no_data: tuple[int, ...] = (0,),
) -> tuple[jax.Array, jax.Array]:
    """Return labels and predictions of one shape; arrays `no_data` if both are None."""
    check_given(labels=labels, predictions=predictions, weights=weights)
    if labels is None or predictions is None:
        return jnp.zeros(no_data), jnp.zeros(no_data)
    return same_rank(jnp.asarray(labels), jnp.asarray(predictions))


def check_given(*, weights: Data | None = None, **data: Data | None) -> None:
    """Raise `MetricError` unless all data is given, or neither data nor weights."""
    missing = [name for name, value in data.items() if value is None]
    if (missing and weights is not None) or 0 < len(missing) < len(data):
        raise MetricError(
            f"{', '.join(missing)} missing: give {', '.join(data)} together, or "
            "none of them for the metric before any data"
        )


def require(name: str, value: _Option | None) -> _Option:
    """Return an option that must be given; raise `MetricError` if it is None.

    It has a default only because TensorFlow's order puts it behind the data, which is
    left out for the metric before any data.
    """
    if value is None:
        raise MetricError(f"{name} is missing: give {name}=…")
    return value


def same_rank(labels: jax.Array, predictions: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Remove a trailing axis of 1 that only one of them has; raise if shapes differ."""
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
    """Return weights as float32 of exactly this shape; None weighs every element 1.

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
    """Add or remove one trailing axis of size 1 if the weights then have this rank."""
    if weights.ndim == rank + 1 and weights.shape[-1] == 1:
        return weights[..., 0]
    if weights.ndim and weights.ndim == rank - 1:
        return weights[..., None]
    return weights


def is_broadcastable(weights: jax.Array, shape: tuple[int, ...]) -> bool:
    """Return whether weights are a scalar, or each axis is that of the shape or 1."""
    return weights.ndim == 0 or (
        weights.ndim == len(shape)
        and all(
            have in (1, want) for have, want in zip(weights.shape, shape, strict=True)
        )
    )


def times_weights(weights: jax.Array, values: jax.Array) -> jax.Array:
    """Return the product; where the weight is 0 it is 0, even if the value is NaN."""
    # Padded rows have weight 0 and may hold anything; 0 * NaN would be NaN.
    return jnp.where(weights == 0, 0.0, weights * values.astype(jnp.float32))


def guard_weights(weights: jax.Array, valid: jax.Array, problem: str) -> jax.Array:
    """Return the weights; raise if an example with a weight is not valid (in jit: NaN).

    >>> guard_weights(jnp.array([1.0, 0.0]), jnp.array([True, False]), "wrong ids")
    Array([1., 0.], dtype=float32)
    """
    wrong = ~valid & (weights != 0)
    if not isinstance(wrong, jax.core.Tracer) and bool(jnp.any(wrong)):
        raise MetricError(problem)
    return jnp.where(wrong, jnp.nan, weights)
