"""How improbable the labels were under the predictions, in nats.

    log_loss(labels, probabilities, weights).compute()       # any shape, elementwise
    binary_crossentropy(labels, probabilities).compute()     # mean over last axis
    sparse_categorical_crossentropy(class_ids, logits, from_logits=True).compute()

The keras functions reduce over the last axis first, see `regression.py`. Probabilities
are kept 1e-7 away from 0 and 1, so one certain mistake costs 16 nats and not infinity.
"""

import jax
import jax.numpy as jnp

from estimax.metrics.inputs import Data
from estimax.metrics.mean import mean
from estimax.metrics.metric import Sums
from estimax.metrics.multi_class import id_pair
from estimax.metrics.regression import EPSILON, mean_over_last_axis, number_pair


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
