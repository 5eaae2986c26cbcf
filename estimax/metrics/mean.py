"""Means of a value per example, and the accuracies that are such means.

    mean(losses, weights).merge(mean(more_losses, more_weights)).compute()

State: `total` and `count`, where count sums the weights after broadcasting. No data
gives 0, not NaN.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from estimax.metrics.inputs import (
    Data,
    broadcast_weights,
    check_given,
    fit_rank,
    is_broadcastable,
    label_pair,
    times_weights,
)
from estimax.metrics.metric import (
    Accumulators,
    MetricError,
    Sums,
    from_sums,
    ratio,
    safe_div,
)


def mean(values: Data | None = None, weights: Data | None = None) -> Sums:
    """The weighted mean of all elements.

    Values with more axes than the weights can be broadcast over are first averaged
    over those axes, as keras `Mean` does.

    >>> float(mean([1.0, 100.0, 3.0], [1.0, 0.0, 1.0]).compute())
    2.0
    """
    return from_sums(_sums(_averaged(values, weights), weights), ratio)


def total(values: Data | None = None, weights: Data | None = None) -> Sums:
    """The weighted sum of all elements (keras `Sum`).

    >>> float(total([1.0, 2.0], [1.0, 0.5]).compute())
    2.0
    """
    summed = _without_surplus_axes(values, weights, jnp.sum)
    return from_sums({"total": _sums(summed, weights)["total"]}, only_total)


def mean_tensor(
    values: Data | None = None,
    weights: Data | None = None,
    *,
    shape: tuple[int, ...] | None = None,
) -> Sums:
    """The mean over batches of each element; every batch has the same shape.

    Without values, `shape` says how many means to start.

    >>> both = mean_tensor([1.0, 2.0]).merge(mean_tensor([3.0, 6.0]))
    >>> both.compute().tolist()
    [2.0, 4.0]
    """
    check_given(values=values, weights=weights)
    if values is None:
        if shape is None:
            raise MetricError("mean_tensor: without values, give shape=(...)")
        return from_sums({"total": jnp.zeros(shape), "count": jnp.zeros(shape)}, ratio)
    array = jnp.asarray(values, jnp.float32)
    weighted = broadcast_weights(weights, array.shape)
    sums = {"total": times_weights(weighted, array), "count": weighted}
    return from_sums(sums, ratio)


def accuracy(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
) -> Sums:
    """How often the prediction equals the label.

    >>> float(accuracy([0, 1, 2, 1], [0, 1, 1, 1]).compute())
    0.75
    """
    labels, predictions = label_pair(labels, predictions, weights)
    return mean(labels == predictions, weights)


def binary_accuracy(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    threshold: float = 0.5,
) -> Sums:
    """How often `prediction > threshold` (strictly) equals the label.

    >>> float(binary_accuracy([1, 0], [0.6, 0.5]).compute())
    1.0
    """
    labels, predictions = label_pair(labels, predictions, weights)
    decided = (predictions > threshold).astype(jnp.float32)
    return mean(labels.astype(jnp.float32) == decided, weights)


def accuracy_baseline(labels: Data | None = None, weights: Data | None = None) -> Sums:
    """The accuracy of always saying the more frequent of the labels 0 and 1.

    >>> float(accuracy_baseline([0, 0, 0, 1]).compute())
    0.75
    """
    return from_sums(_sums(_averaged(labels, weights), weights), _baseline)


def strict_mean(values: Data, weights: Data | None) -> Sums:
    """The weighted mean, where weights that cannot be broadcast are an error."""
    return from_sums(_sums(jnp.asarray(values), weights), ratio)


def _averaged(values: Data | None, weights: Data | None) -> jax.Array:
    """The values, averaged over the axes that the weights lack."""
    return _without_surplus_axes(values, weights, jnp.mean)


def _without_surplus_axes(
    values: Data | None,
    weights: Data | None,
    reduce: Callable[..., jax.Array],
) -> jax.Array:
    check_given(values=values, weights=weights)
    array = jnp.zeros(0) if values is None else jnp.asarray(values, jnp.float32)
    if weights is None:
        return array
    fitted = fit_rank(jnp.asarray(weights, jnp.float32), array.ndim)
    if is_broadcastable(fitted, array.shape) or fitted.ndim >= array.ndim:
        return array
    return reduce(array, axis=tuple(range(fitted.ndim, array.ndim)))


def _sums(values: jax.Array, weights: Data | None) -> dict[str, jax.Array]:
    weighted = broadcast_weights(weights, values.shape)
    return {
        "total": jnp.sum(times_weights(weighted, values)),
        "count": jnp.sum(weighted),
    }


def only_total(sums: Accumulators) -> jax.Array:
    """The result of metrics that are a sum."""
    return sums["total"]


def _baseline(sums: Accumulators) -> jax.Array:
    positive, count = sums["total"], sums["count"]
    return safe_div(jnp.maximum(positive, count - positive), count)
