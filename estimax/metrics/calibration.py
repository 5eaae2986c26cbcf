"""Calibration of probabilities, and gain and lift of the highest scores.

    expected_calibration_error(labels, probabilities).compute()      # 0 is perfect
    reliability_curve(labels, probabilities).compute()               # [bins, 3]
    lift_at_k(labels, scores, k=0.1).compute()

Probabilities are calibrated if of the examples predicted at 0.7 a share of 0.7 is
positive. They fall into bins, and the state is the weight, the sum of
predictions and the sum of labels of each bin. Gain and lift keep a histogram of scores.
"""

from typing import Literal, get_args

import jax
import jax.numpy as jnp

from estimax.core.errors import did_you_mean
from estimax.metrics.inputs import Data, times_weights
from estimax.metrics.metric import Accumulators, MetricError, Sums, from_sums, safe_div
from estimax.metrics.thresholds import count, count_passed_even, score_pair, unit_scores

Strategy = Literal["uniform", "quantile"]


def expected_calibration_error(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    num_bins: int = 10,
    strategy: Strategy = "uniform",
) -> Sums:
    """Return the mean distance between predicted and observed rates.

    Use it if probabilities are used as such, for example in bids. 0 is perfect: of the
    examples predicted at 0.7, a share of 0.7 is positive.

    Args:
      labels: True labels within [0, 1], [B] or any shape. Soft labels count with their
        value.
      predictions: Probabilities within [0, 1], in the shape of the labels up to one
        trailing axis of size 1.
      weights: Example weights: a scalar, or an array that broadcasts to the
        predictions, such as [B]. By default every example weighs 1.
      num_bins: Into how many bins the probabilities fall.
      strategy: "uniform" makes bins of equal width, and "quantile" bins of about equal
        weight, as scikit-learn's `calibration_curve` does. Use "quantile" if most
        probabilities are small, as those of clicks: with "uniform" they share one bin.

    Returns:
      A `Sums` of this batch. Merge those of all batches, then call `compute` for the
      mean over bins of |mean prediction - mean label|, weighted by the bins' weights, a
      scalar. Without data, the metric before any data.

    Raises:
      MetricError: A prediction is outside [0, 1] or NaN, `num_bins` is less than 1,
        `strategy` is unknown, shapes do not fit each other, or only some of the arrays
        are given. Inside `jit`, where values cannot be checked, the result is NaN
        instead.

    Example:
      >>> metric = expected_calibration_error([1, 0], [0.75, 0.75])
      >>> float(metric.compute())
      0.25
      >>> clicks = [1, 0, 0, 0], [0.01, 0.01, 0.02, 0.02]
      >>> metric = expected_calibration_error(*clicks, num_bins=2, strategy="quantile")
      >>> round(float(metric.compute()), 3)  # (0.49 + 0.02) / 2
      0.255
    """
    if strategy not in get_args(Strategy):
        near = did_you_mean(str(strategy), get_args(Strategy))
        raise MetricError(f"unknown strategy {strategy!r}{near}")
    if strategy == "quantile":
        _check_bins(num_bins)
        fine = _fine_sums(labels, predictions, weights)
        return from_sums(fine, _quantile_error, num_bins=num_bins)
    sums = _bin_sums(labels, predictions, weights, num_bins)
    return from_sums(sums, _error)


def reliability_curve(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    num_bins: int = 10,
) -> Sums:
    """Return the mean prediction and the mean label of each bin.

    Use it to plot predicted against observed rates.

    Args:
      labels: True labels within [0, 1], [B] or any shape. Soft labels count with their
        value.
      predictions: Probabilities within [0, 1], in the shape of the labels up to one
        trailing axis of size 1.
      weights: Example weights: a scalar, or an array that broadcasts to the
        predictions, such as [B]. By default every example weighs 1.
      num_bins: Into how many bins of equal width the probabilities fall.

    Returns:
      A `Sums` of this batch. Merge those of all batches, then call `compute` for an
      array [num_bins, 3] of mean prediction, mean label and weight; rows of empty bins
      are 0. Without data, the metric before any data.

    Raises:
      MetricError: A prediction is outside [0, 1] or NaN, `num_bins` is less than 1,
        shapes do not fit each other, or only some of the arrays are given. Inside
        `jit`, where values cannot be checked, the result is NaN instead.

    Example:
      >>> metric = reliability_curve([1, 0, 1], [0.25, 0.25, 0.75], num_bins=2)
      >>> metric.compute().tolist()
      [[0.25, 0.5, 2.0], [0.75, 1.0, 1.0]]
    """
    sums = _bin_sums(labels, predictions, weights, num_bins)
    return from_sums(sums, _curve)


def gain_at_k(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    k: float = 0.1,
    num_buckets: int = 1000,
) -> Sums:
    """Return the share of positives found among the highest scores.

    Use it if only the best part of the examples is acted on: with k=0.1, which share of
    all buyers is in the top tenth?

    Args:
      labels: True labels, [B] or any shape. A label that is not 0 is positive.
      predictions: Scores within [0, 1], in the shape of the labels up to one trailing
        axis of size 1.
      weights: Example weights: a scalar, or an array that broadcasts to the
        predictions, such as [B]. By default every example weighs 1.
      k: Which share of the examples is taken, 0 < k <= 1.
      num_buckets: Into how many buckets the scores fall. Within a bucket, positives
        count as evenly spread.

    Returns:
      A `Sums` of this batch. Merge those of all batches, then call `compute` for a
      scalar within [0, 1]. Without data, the metric before any data.

    Raises:
      MetricError: `k` is outside (0, 1], `num_buckets` is less than 1, shapes do not
        fit each other, only some of the arrays are given, or a prediction is NaN.
        Inside `jit`, where values cannot be checked, the result is NaN instead.

    Example:
      >>> float(gain_at_k([1, 0, 1, 0], [0.9, 0.2, 0.6, 0.1], k=0.25).compute())
      0.5
    """
    sums = _histogram(labels, predictions, weights, k, num_buckets)
    return from_sums(sums, _gain, k=k)


def lift_at_k(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    k: float = 0.1,
    num_buckets: int = 1000,
) -> Sums:
    """Return the positive rate among the highest scores relative to the rate of all.

    It is `gain_at_k` divided by k: 1 means that the scores do not help.

    Args:
      labels: True labels, [B] or any shape. A label that is not 0 is positive.
      predictions: Scores within [0, 1], in the shape of the labels up to one trailing
        axis of size 1.
      weights: Example weights: a scalar, or an array that broadcasts to the
        predictions, such as [B]. By default every example weighs 1.
      k: Which share of the examples is taken, 0 < k <= 1.
      num_buckets: Into how many buckets the scores fall. Within a bucket, positives
        count as evenly spread.

    Returns:
      A `Sums` of this batch. Merge those of all batches, then call `compute` for a
      scalar from 0 to 1/k. Without data, the metric before any data.

    Raises:
      MetricError: `k` is outside (0, 1], `num_buckets` is less than 1, shapes do not
        fit each other, only some of the arrays are given, or a prediction is NaN.
        Inside `jit`, where values cannot be checked, the result is NaN instead.

    Example:
      >>> float(lift_at_k([1, 0, 1, 0], [0.9, 0.2, 0.6, 0.1], k=0.25).compute())
      2.0
    """
    sums = _histogram(labels, predictions, weights, k, num_buckets)
    return from_sums(sums, _lift, k=k)


def _bin_sums(
    labels: Data | None, predictions: Data | None, weights: Data | None, num_bins: int
) -> dict[str, jax.Array]:
    _check_bins(num_bins)
    truth, scores, weighted = unit_scores(labels, predictions, weights)
    bins = jnp.floor(scores.astype(jnp.float32) * num_bins)
    # The last bin includes 1. A NaN goes to bin 0; its weight is NaN already.
    index = jnp.clip(jnp.nan_to_num(bins), 0, num_bins - 1).astype(jnp.int32)
    return _sums_by_bin(truth, scores, weighted, index, num_bins)


def _check_bins(num_bins: int) -> None:
    if num_bins < 1:
        raise MetricError(f"num_bins must be at least 1, got {num_bins}")


# Fine bins of the logit, merged into bins of equal weight when all data is seen. The
# smallest ones are as fine, relative to the probability, as those in the middle.
_FINE_BINS, _LARGEST_LOGIT = 4096, 16.0


def _fine_sums(
    labels: Data | None, predictions: Data | None, weights: Data | None
) -> dict[str, jax.Array]:
    truth, scores, weighted = unit_scores(labels, predictions, weights)
    logits = jnp.nan_to_num(jax.scipy.special.logit(scores.astype(jnp.float32)))
    place = (logits / _LARGEST_LOGIT + 1) * (_FINE_BINS / 2)
    index = jnp.clip(place, 0, _FINE_BINS - 1).astype(jnp.int32)
    return _sums_by_bin(truth, scores, weighted, index, _FINE_BINS)


def _quantile_error(sums: Accumulators, *, num_bins: int) -> jax.Array:
    weight = sums["weight"]
    total = jnp.sum(weight)
    middle = safe_div(jnp.cumsum(weight) - weight / 2, total)
    index = jnp.clip(jnp.nan_to_num(middle) * num_bins, 0, num_bins - 1)
    merged = {
        name: jax.ops.segment_sum(values, index.astype(jnp.int32), num_bins)
        for name, values in sums.items()
    }
    return _error(merged)


def _sums_by_bin(
    truth: jax.Array,
    scores: jax.Array,
    weighted: jax.Array,
    index: jax.Array,
    num_bins: int,
) -> dict[str, jax.Array]:
    per_example = {
        "weight": weighted,
        "prediction": times_weights(weighted, scores),
        "label": times_weights(weighted, truth),
    }
    return {
        name: jax.ops.segment_sum(values, index, num_bins)
        for name, values in per_example.items()
    }


def _error(sums: Accumulators) -> jax.Array:
    # weight * |p / weight - y / weight| is |p - y|: no division is needed.
    gaps = jnp.abs(sums["prediction"] - sums["label"])
    return safe_div(jnp.sum(gaps), jnp.sum(sums["weight"]))


def _curve(sums: Accumulators) -> jax.Array:
    prediction = safe_div(sums["prediction"], sums["weight"])
    label = safe_div(sums["label"], sums["weight"])
    return jnp.stack([prediction, label, sums["weight"]], axis=-1)


def _histogram(
    labels: Data | None,
    predictions: Data | None,
    weights: Data | None,
    k: float,
    num_buckets: int,
) -> dict[str, jax.Array]:
    if not 0 < k <= 1:
        raise MetricError(f"k is a share of the examples, 0 < k <= 1; got {k}")
    if num_buckets < 1:
        raise MetricError(f"num_buckets must be at least 1, got {num_buckets}")
    truth, scores, weighted = score_pair(labels, predictions, weights)
    passed = count_passed_even(scores.ravel(), num_buckets + 1)
    return {"counts": count(truth.ravel(), passed, weighted.ravel(), num_buckets)}


def _gain(sums: Accumulators, *, k: float) -> jax.Array:
    negatives, positives = (jnp.flip(row) for row in sums["counts"])
    everyone = _from_zero(negatives + positives)
    found = _from_zero(positives)
    taken = jnp.interp(k * everyone[-1], everyone, found)
    return safe_div(taken, found[-1])


def _lift(sums: Accumulators, *, k: float) -> jax.Array:
    return _gain(sums, k=k) / k


def _from_zero(buckets: jax.Array) -> jax.Array:
    """Return the cumulative sums with a 0 in front."""
    return jnp.concatenate([jnp.zeros(1), jnp.cumsum(buckets)])
