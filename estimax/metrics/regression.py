"""Errors between numbers, and cross entropies of probabilities.

    mean_squared_error(labels, predictions, weights).compute()

As in Keras, all but `root_mean_squared_error` and `log_loss` first reduce over the LAST
axis: [B, D] gives one value for each example, weighted by [B]. An input of shape [B] is
therefore reduced to one value for the *batch* and cannot have example weights: pass
[B, 1], or use `metrics.v1`, whose errors are elementwise.
"""

import jax
import jax.numpy as jnp
import numpy as np

from estimax.metrics.inputs import Data, label_pair
from estimax.metrics.mean import mean
from estimax.metrics.metric import Accumulators, Sums, from_sums, ratio
from estimax.metrics.multi_class import id_pair

# The margin of Keras that keeps the logarithm of 0 out.
LOG_MARGIN = 1e-7


def mean_absolute_error(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
) -> Sums:
    """Return the mean of |prediction - label|.

    Use it if large errors should not dominate. As in Keras, the mean over the last axis
    is taken first, so [B] is one example: pass [B, 1].

    Args:
      labels: True numbers, [B, D].
      predictions: Predicted numbers, [B, D].
      weights: Example weights: a scalar or an array [B]. By default every example
        weighs 1.

    Returns:
      A `Sums` of this batch. Merge those of all batches, then call `compute` for a
      scalar. Without data, the metric before any data.

    Raises:
      MetricError: Shapes do not fit each other, or only some of the arrays are given.

    Example:
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
    """Return the mean of (prediction - label)^2.

    Use it if large errors should dominate. As in Keras, the mean over the last axis is
    taken first, so [B] is one example: pass [B, 1].

    Args:
      labels: True numbers, [B, D].
      predictions: Predicted numbers, [B, D].
      weights: Example weights: a scalar or an array [B]. By default every example
        weighs 1.

    Returns:
      A `Sums` of this batch. Merge those of all batches, then call `compute` for a
      scalar. Without data, the metric before any data.

    Raises:
      MetricError: Shapes do not fit each other, or only some of the arrays are given.

    Example:
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
    """Return the root of the mean squared error over all elements.

    Use it for an error in the unit of the labels. The mean is over all elements, so any
    shape will do.

    Args:
      labels: True numbers, [B] or any shape.
      predictions: Predicted numbers, in the shape of the labels up to one trailing axis
        of size 1.
      weights: Example weights: a scalar, or an array that broadcasts to the
        predictions, such as [B]. By default every example weighs 1.

    Returns:
      A `Sums` of this batch. Merge those of all batches, then call `compute` for a
      scalar. Without data, the metric before any data.

    Raises:
      MetricError: Shapes do not fit each other, or only some of the arrays are given.

    Example:
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
    """Return the mean of log(cosh(prediction - label)).

    It is about half the squared error for small errors and the absolute error for large
    ones. As in Keras, the mean over the last axis is taken first, so [B] is one
    example: pass [B, 1].

    Args:
      labels: True numbers, [B, D].
      predictions: Predicted numbers, [B, D].
      weights: Example weights: a scalar or an array [B]. By default every example
        weighs 1.

    Returns:
      A `Sums` of this batch. Merge those of all batches, then call `compute` for a
      scalar. Without data, the metric before any data.

    Raises:
      MetricError: Shapes do not fit each other, or only some of the arrays are given.

    Example:
      >>> float(log_cosh_error([[1.0]], [[1.0]]).compute())
      0.0
    """
    truth, values = number_pair(labels, predictions, weights)
    error = values - truth
    # log(cosh(x)) = x + log(1 + exp(-2x)) - log(2); cosh(x) itself overflows at 89.
    errors = error + jax.nn.softplus(-2.0 * error) - np.float32(np.log(2.0))
    return mean_over_last_axis(errors, weights)


def poisson(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
) -> Sums:
    """Return the mean of prediction - label * log(prediction).

    Use it for counts. It is the Poisson loss without the term that depends on labels
    alone. As in Keras, the mean over the last axis is taken first, so [B] is one
    example: pass [B, 1].

    Args:
      labels: True counts, [B, D].
      predictions: Predicted rates, positive, [B, D].
      weights: Example weights: a scalar or an array [B]. By default every example
        weighs 1.

    Returns:
      A `Sums` of this batch. Merge those of all batches, then call `compute` for a
      scalar. Without data, the metric before any data.

    Raises:
      MetricError: Shapes do not fit each other, or only some of the arrays are given.

    Example:
      >>> round(float(poisson([[1.0]], [[1.0]]).compute()), 4)
      1.0
    """
    truth, values = number_pair(labels, predictions, weights)
    return mean_over_last_axis(values - truth * jnp.log(values + LOG_MARGIN), weights)


def cosine_similarity(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    axis: int = -1,
) -> Sums:
    """Return the mean cosine of the angle between label and prediction.

    Use it for embeddings: 1 is the same direction, -1 the opposite one.

    Args:
      labels: True vectors, [B, D].
      predictions: Predicted vectors, [B, D].
      weights: Example weights: a scalar or an array [B]. By default every example
        weighs 1.
      axis: The axis of the vectors' components.

    Returns:
      A `Sums` of this batch. Merge those of all batches, then call `compute` for a
      scalar within [-1, 1]. Without data, the metric before any data.

    Raises:
      MetricError: Shapes do not fit each other, or only some of the arrays are given.

    Example:
      >>> round(float(cosine_similarity([[3.0, 4.0]], [[6.0, 8.0]]).compute()), 4)
      1.0
    """
    truth, values = number_pair(labels, predictions, weights)
    cosines = jnp.sum(_unit(truth, axis) * _unit(values, axis), axis)
    return mean(cosines, weights)


def log_loss(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
) -> Sums:
    """Return the mean of -(y log(p) + (1 - y) log(1 - p)) over all elements.

    Use it for probabilities of two classes, in any shape. For [B, D] with weights [B]
    use `binary_crossentropy`.

    Args:
      labels: True labels within [0, 1], [B] or any shape.
      predictions: Probabilities within [0, 1], in the shape of the labels up to one
        trailing axis of size 1.
      weights: Example weights: a scalar, or an array that broadcasts to the
        predictions, such as [B]. By default every example weighs 1.

    Returns:
      A `Sums` of this batch. Merge those of all batches, then call `compute` for a
      scalar. Without data, the metric before any data.

    Raises:
      MetricError: Shapes do not fit each other, or only some of the arrays are given.

    Example:
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
    """Return the log loss of yes/no labels, averaged over the last axis first.

    It is `keras.metrics.BinaryCrossentropy`. For inputs [B] use `log_loss`.

    Args:
      labels: True labels within [0, 1], [B, D].
      predictions: Probabilities or logits, [B, D].
      weights: Example weights: a scalar or an array [B]. By default every example
        weighs 1.
      from_logits: Whether predictions are logits instead of probabilities.

    Returns:
      A `Sums` of this batch. Merge those of all batches, then call `compute` for a
      scalar. Without data, the metric before any data.

    Raises:
      MetricError: Shapes do not fit each other, or only some of the arrays are given.

    Example:
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
    """Return the mean of -sum(y log(p)) over K classes.

    Use it for one-hot or soft labels. Rows of probabilities are rescaled to sum to 1.
    For class ids use `sparse_categorical_crossentropy`.

    Args:
      labels: Label distributions or one-hot labels, [B, K].
      predictions: Probabilities or logits, [B, K].
      weights: Example weights: a scalar or an array [B]. By default every example
        weighs 1.
      from_logits: Whether predictions are logits instead of probabilities.

    Returns:
      A `Sums` of this batch. Merge those of all batches, then call `compute` for a
      scalar. Without data, the metric before any data.

    Raises:
      MetricError: Shapes do not fit each other, or only some of the arrays are given.

    Example:
      >>> round(float(categorical_crossentropy([[0, 1]], [[1.0, 1.0]]).compute()), 4)
      0.6931
    """
    truth, values = number_pair(labels, predictions, weights)
    if from_logits:
        log_p = jax.nn.log_softmax(values)
    else:
        rescaled = values / jnp.sum(values, axis=-1, keepdims=True)
        log_p = jnp.log(jnp.clip(rescaled, LOG_MARGIN, 1.0 - LOG_MARGIN))
    return mean(-jnp.sum(truth * log_p, axis=-1), weights)


def sparse_categorical_crossentropy(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    from_logits: bool = False,
) -> Sums:
    """Return the mean of -log(p) of the true class.

    Use it for class ids. The result is NaN if an id is out of range.

    Args:
      labels: True class ids, [B] or [B, 1].
      predictions: Probabilities or logits, [B, K].
      weights: Example weights: a scalar or an array [B]. By default every example
        weighs 1.
      from_logits: Whether predictions are logits instead of probabilities.

    Returns:
      A `Sums` of this batch. Merge those of all batches, then call `compute` for a
      scalar. Without data, the metric before any data.

    Raises:
      MetricError: Shapes do not fit each other, or only some of the arrays are given.

    Example:
      >>> round(float(sparse_categorical_crossentropy([1], [[0.5, 0.5]]).compute()), 4)
      0.6931
    """
    ids, values = id_pair(labels, predictions, weights)
    if not from_logits:
        values = jnp.log(jnp.clip(values, LOG_MARGIN, 1.0 - LOG_MARGIN))
    log_p = jax.nn.log_softmax(values.astype(jnp.float32))
    # mode="fill" makes the result NaN if an id is out of range.
    own = jnp.take_along_axis(log_p, ids[..., None], axis=-1, mode="fill")
    return mean(-own[..., 0], weights)


def kl_divergence(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
) -> Sums:
    """Return the mean Kullback-Leibler divergence, sum(y log(y / p)).

    Use it to compare distributions over K classes.

    Args:
      labels: True distributions, [B, K].
      predictions: Predicted distributions, [B, K].
      weights: Example weights: a scalar or an array [B]. By default every example
        weighs 1.

    Returns:
      A `Sums` of this batch. Merge those of all batches, then call `compute` for a
      scalar, 0 if the distributions are equal. Without data, the metric before any
      data.

    Raises:
      MetricError: Shapes do not fit each other, or only some of the arrays are given.

    Example:
      >>> float(kl_divergence([[0.5, 0.5]], [[0.5, 0.5]]).compute())
      0.0
    """
    truth, values = number_pair(labels, predictions, weights)
    truth, values = jnp.clip(truth, LOG_MARGIN, 1.0), jnp.clip(values, LOG_MARGIN, 1.0)
    return mean(jnp.sum(truth * jnp.log(truth / values), axis=-1), weights)


def number_pair(
    labels: Data | None,
    predictions: Data | None,
    weights: Data | None,
    *,
    no_data: tuple[int, ...] = (0, 1),
) -> tuple[jax.Array, jax.Array]:
    """Return labels and predictions as float32 of one shape."""
    truth, values = label_pair(labels, predictions, weights, no_data=no_data)
    return truth.astype(jnp.float32), values.astype(jnp.float32)


def mean_over_last_axis(values: jax.Array, weights: Data | None) -> Sums:
    """Return the weighted mean over examples of their means over the last axis."""
    if values.shape[-1] == 0:
        return mean()  # the mean over an axis of size 0 would be NaN
    return mean(jnp.mean(values, axis=-1), weights)


def root(sums: Accumulators) -> jax.Array:
    """Return the root of a mean."""
    return jnp.sqrt(ratio(sums))


def _unit(vectors: jax.Array, axis: int) -> jax.Array:
    """Scale vectors to length 1; as in TF, those shorter than 1e-6 stay shorter."""
    squared = jnp.sum(jnp.square(vectors), axis, keepdims=True)
    return vectors * jax.lax.rsqrt(jnp.maximum(squared, 1e-12))


def _binary(truth: jax.Array, probabilities: jax.Array) -> jax.Array:
    p = jnp.clip(probabilities, LOG_MARGIN, 1.0 - LOG_MARGIN)
    # Keras adds the margin again inside the logarithms; the results must be equal.
    return -(
        truth * jnp.log(p + LOG_MARGIN) + (1.0 - truth) * jnp.log(1.0 - p + LOG_MARGIN)
    )
