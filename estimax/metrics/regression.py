"""Errors between numbers: absolute, squared, log-cosh, Poisson, cosine.

    mean_squared_error(labels, predictions, weights).compute()

As in keras, all but `root_mean_squared_error` first reduce over the LAST axis: [B, D]
gives one value per example, to be weighted by [B]. An input of shape [B] therefore
collapses to one value per *batch* and takes no weights per example: pass [B, 1], or use
`metrics.v1`, whose errors are elementwise.
"""

import jax
import jax.numpy as jnp
import numpy as np

from estimax.metrics.inputs import Data, label_pair
from estimax.metrics.mean import mean
from estimax.metrics.metric import Accumulators, Sums, from_sums, ratio
from estimax.metrics.multi_class import id_pair

# keras' guard against the logarithm of 0.
EPSILON = 1e-7


def mean_absolute_error(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
) -> Sums:
    """The mean of |prediction - label|.

    >>> float(mean_absolute_error([[1.0], [2.0]], [[1.5], [2.0]]).compute())
    0.25
    """
    truth, values = number_pair(labels, predictions, weights)
    return mean_over_last_axis(jnp.abs(values - truth), weights)


def mean_squared_error(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
) -> Sums:
    """The mean of (prediction - label)^2.

    >>> float(mean_squared_error([[1.0], [2.0]], [[2.0], [2.0]]).compute())
    0.5
    """
    truth, values = number_pair(labels, predictions, weights)
    return mean_over_last_axis(jnp.square(values - truth), weights)


def root_mean_squared_error(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
) -> Sums:
    """The root of the mean squared error of all elements, whatever their rank.

    >>> float(root_mean_squared_error([1.0, 2.0], [3.0, 4.0]).compute())
    2.0
    """
    truth, values = number_pair(labels, predictions, weights, no_data=(0,))
    squares = mean(jnp.square(values - truth), weights)
    return from_sums(squares.sums, root)


def log_cosh_error(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
) -> Sums:
    """The mean of log(cosh(prediction - label)): squared when small, then linear.

    >>> float(log_cosh_error([[1.0]], [[1.0]]).compute())
    0.0
    """
    truth, values = number_pair(labels, predictions, weights)
    error = values - truth
    # log(cosh(x)) without the overflow of cosh.
    errors = error + jax.nn.softplus(-2.0 * error) - np.float32(np.log(2.0))
    return mean_over_last_axis(errors, weights)


def poisson(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
) -> Sums:
    """The mean of `p - y log(p)`: the Poisson loss without its constant.

    >>> round(float(poisson([[1.0]], [[1.0]]).compute()), 4)
    1.0
    """
    truth, values = number_pair(labels, predictions, weights)
    return mean_over_last_axis(values - truth * jnp.log(values + EPSILON), weights)


def cosine_similarity(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    axis: int = -1,
) -> Sums:
    """The mean cosine of the angle between label and prediction: 1 is the same way.

    >>> round(float(cosine_similarity([[3.0, 4.0]], [[6.0, 8.0]]).compute()), 4)
    1.0
    """
    truth, values = number_pair(labels, predictions, weights)
    cosines = jnp.sum(_unit(truth, axis) * _unit(values, axis), axis)
    return mean(cosines, weights)


def number_pair(
    labels: Data | None,
    predictions: Data | None,
    weights: Data | None,
    *,
    no_data: tuple[int, ...] = (0, 1),
) -> tuple[jax.Array, jax.Array]:
    """Labels and predictions as float32 of one shape."""
    truth, values = label_pair(labels, predictions, weights, no_data=no_data)
    return truth.astype(jnp.float32), values.astype(jnp.float32)


def mean_over_last_axis(values: jax.Array, weights: Data | None) -> Sums:
    """Reduce each example to its mean, then stream the weighted mean of those."""
    if values.shape[-1] == 0:
        return mean()  # an empty batch changes nothing; its mean would be NaN
    return mean(jnp.mean(values, axis=-1), weights)


def root(sums: Accumulators) -> jax.Array:
    """The result of a mean of squares, as a root."""
    return jnp.sqrt(ratio(sums))


def _unit(vectors: jax.Array, axis: int) -> jax.Array:
    """Vectors of length 1; those shorter than 1e-6 are left short, as in TF."""
    squared = jnp.sum(jnp.square(vectors), axis, keepdims=True)
    return vectors * jax.lax.rsqrt(jnp.maximum(squared, 1e-12))


def log_loss(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
) -> Sums:
    """The mean of -(y log(p) + (1-y) log(1-p)) over all elements.

    >>> round(float(log_loss([1, 0], [0.5, 0.5]).compute()), 4)
    0.6931
    """
    truth, values = number_pair(labels, predictions, weights, no_data=(0,))
    return mean(_binary(truth, values), weights)


def binary_crossentropy(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    from_logits: bool = False,
) -> Sums:
    """The log loss of probabilities (or logits), averaged over the last axis first.

    >>> metric = binary_crossentropy([[1.0]], [[0.0]], from_logits=True)
    >>> round(float(metric.compute()), 4)
    0.6931
    """
    truth, values = number_pair(labels, predictions, weights)
    if from_logits:
        losses = jax.nn.softplus(values) - values * truth
    else:
        losses = _binary(truth, values)
    return mean_over_last_axis(losses, weights)


def categorical_crossentropy(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    from_logits: bool = False,
) -> Sums:
    """-sum(y log(p)) for label distributions [B, K]; rows of p are rescaled to sum 1.

    >>> round(float(categorical_crossentropy([[0, 1]], [[1.0, 1.0]]).compute()), 4)
    0.6931
    """
    truth, values = number_pair(labels, predictions, weights)
    if from_logits:
        log_p = jax.nn.log_softmax(values)
    else:
        rescaled = values / jnp.sum(values, axis=-1, keepdims=True)
        log_p = jnp.log(jnp.clip(rescaled, EPSILON, 1.0 - EPSILON))
    return mean(-jnp.sum(truth * log_p, axis=-1), weights)


def sparse_categorical_crossentropy(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    from_logits: bool = False,
) -> Sums:
    """-log(p) of the labelled class; ids [B] or [B, 1], predictions [B, K].

    >>> round(float(sparse_categorical_crossentropy([1], [[0.5, 0.5]]).compute()), 4)
    0.6931
    """
    ids, values = id_pair(labels, predictions, weights)
    if not from_logits:
        values = jnp.log(jnp.clip(values, EPSILON, 1.0 - EPSILON))
    log_p = jax.nn.log_softmax(values.astype(jnp.float32))
    # An id out of range makes the result NaN instead of counting another class.
    own = jnp.take_along_axis(log_p, ids[..., None], axis=-1, mode="fill")
    return mean(-own[..., 0], weights)


def kl_divergence(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
) -> Sums:
    """sum(y log(y / p)) for distributions [B, K].

    >>> float(kl_divergence([[0.5, 0.5]], [[0.5, 0.5]]).compute())
    0.0
    """
    truth, values = number_pair(labels, predictions, weights)
    truth, values = jnp.clip(truth, EPSILON, 1.0), jnp.clip(values, EPSILON, 1.0)
    return mean(jnp.sum(truth * jnp.log(truth / values), axis=-1), weights)


def _binary(truth: jax.Array, probabilities: jax.Array) -> jax.Array:
    p = jnp.clip(probabilities, EPSILON, 1.0 - EPSILON)
    # keras adds the margin once more inside the logarithms; its figures are the target.
    return -(truth * jnp.log(p + EPSILON) + (1.0 - truth) * jnp.log(1.0 - p + EPSILON))
