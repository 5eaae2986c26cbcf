"""Counts of true and false positives at T thresholds, in a state of fixed size.

    sums = counts_at(score_pair(labels, scores, weights), [0.3, 0.6])
    tp, fp, tn, fn = confusion(sums)          # each [T]

The state is a histogram, not the four vectors of counts: bin j of `counts[label]` holds
the weight of the examples whose score passes exactly j of the T ascending thresholds.
One scatter per batch replaces a [T, B] comparison, and cumulative sums over the bins
give all four counts. Every metric of this package that depends on thresholds, including
the metrics of `metrics.v1`, uses this state.

A label is positive if it is not 0; a score passes a threshold if it is greater.

The public metrics here give the best value of one rate while another is at least a
given value. They are defined as in Keras: the maximum over the thresholds that
satisfy the constraint, 0 if none does. `metrics.v1` has TF 1's nearest threshold
instead, which differs on small data.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from estimax.metrics.inputs import Data, broadcast_weights, guard_weights, label_pair
from estimax.metrics.metric import Accumulators, MetricError, Sums, from_sums, safe_div

# The margin that Keras and TF put around [0, 1], so that 0 passes the first threshold.
EPSILON = 1e-7

# Labels, scores and weights of one shape.
WeightedScores = tuple[jax.Array, jax.Array, jax.Array]
Order = int | tuple[int, ...]  # one threshold by its index, or several


def score_pair(
    labels: Data | None,
    predictions: Data | None,
    weights: Data | None,
    *,
    no_data: tuple[int, ...] = (0,),
) -> WeightedScores:
    """Return labels, scores and weights of one shape; raise if a score is NaN."""
    truth, scores = label_pair(labels, predictions, weights, no_data=no_data)
    weighted = broadcast_weights(weights, scores.shape)
    return (
        truth,
        scores,
        guard_weights(weighted, ~jnp.isnan(scores), "a prediction is NaN"),
    )


def unit_scores(
    labels: Data | None, predictions: Data | None, weights: Data | None
) -> WeightedScores:
    """Return labels, scores and weights, flat; raise if a score is not in [0, 1]."""
    truth, scores, weighted = score_pair(labels, predictions, weights)
    inside = (scores >= 0) & (scores <= 1)
    weighted = guard_weights(weighted, inside, "predictions must be within [0, 1]")
    return truth.ravel(), scores.ravel(), weighted.ravel()


def counts_at(
    batch: WeightedScores, ascending: Sequence[float]
) -> dict[str, jax.Array]:
    """Return the state of one batch for these thresholds, in ascending order."""
    labels, scores, weights = (array.ravel() for array in batch)
    passed = count_passed_sorted(scores, ascending)
    return {"counts": count(labels, passed, weights, len(ascending))}


def counts_on_grid(batch: WeightedScores, thresholds: int) -> dict[str, jax.Array]:
    """Return the state of one batch for the thresholds 0, 1/(T-1), ..., 1."""
    labels, scores, weights = (array.ravel() for array in batch)
    passed = count_passed_even(scores, thresholds)
    return {"counts": count(labels, passed, weights, thresholds)}


def count(
    labels: jax.Array, passed: jax.Array, weights: jax.Array, thresholds: int
) -> jax.Array:
    """Return the histogram [2, T + 1, ...] of `passed` by `label != 0`.

    `passed` holds how many of the T thresholds each score passes. Inputs are [N], or
    [N, L] for a histogram of each of L columns.
    """
    bins = thresholds + 1
    columns = passed.shape[1:]
    rows = (labels != 0).astype(jnp.int32) * bins + passed
    # The histograms of the columns are interleaved, so one scatter serves all of them.
    width = int(np.prod(columns, dtype=int))
    index = rows.reshape(-1, width) * width + jnp.arange(width)
    flat = jax.ops.segment_sum(weights.ravel(), index.ravel(), 2 * bins * width)
    return flat.reshape(2, bins, *columns)


def count_passed_even(predictions: jax.Array, thresholds: int) -> jax.Array:
    """Return how many of 0, 1/(T-1), ..., 1 each score passes, by arithmetic."""
    # Keras computes the same float32 product: it may round a score that equals a
    # threshold bit for bit into the next bin, and evaluation must report what Keras
    # reports.
    clipped = jnp.clip(predictions, 0.0, 1.0).astype(jnp.float32)
    passed = jnp.ceil(clipped * jnp.float32(thresholds - 1))
    return jnp.nan_to_num(passed).astype(jnp.int32)


def count_passed_sorted(
    predictions: jax.Array, thresholds: Sequence[float]
) -> jax.Array:
    """Return how many of these ascending thresholds each score passes."""
    limits = jnp.asarray(np.asarray(thresholds, np.float32))
    # side="left": a score equal to a threshold does not pass it.
    found = jnp.searchsorted(limits, predictions.astype(jnp.float32), side="left")
    return found.astype(jnp.int32)


def is_even(thresholds: Sequence[float]) -> bool:
    """Return whether Keras treats these as the grid 0, 1/(T-1), ..., 1."""
    if len(thresholds) < 3:
        return False
    even = np.arange(len(thresholds), dtype=np.float32) / (len(thresholds) - 1)
    return bool(np.allclose(thresholds, even, atol=EPSILON))


class SortedThresholds(NamedTuple):
    """Thresholds in ascending order, and the index of each in the user's order."""

    ascending: tuple[float, ...]
    order: tuple[int, ...]


def sort_thresholds(thresholds: Data) -> SortedThresholds:
    """Sort a threshold or a list of them.

    >>> sort_thresholds([0.6, 0.3])
    SortedThresholds(ascending=(0.3, 0.6), order=(1, 0))
    """
    values = np.atleast_1d(np.asarray(thresholds, float))
    if values.ndim != 1 or values.size == 0:
        raise MetricError(
            f"thresholds must be a number or a list of numbers, got {thresholds!r}"
        )
    ascending = sorted(values.tolist())
    order = tuple(map(ascending.index, values.tolist()))
    return SortedThresholds(tuple(ascending), order)


def check_unit_interval(name: str, values: Sequence[float]) -> None:
    """Raise `MetricError` unless every value is within [0, 1]."""
    outside = [value for value in values if not 0 <= value <= 1]
    if outside:
        raise MetricError(f"{name} must be within [0, 1], got {outside}")


class Confusion(NamedTuple):
    """Weighted counts at each threshold: [T], or [T, L] for L columns."""

    tp: jax.Array
    fp: jax.Array
    tn: jax.Array
    fn: jax.Array


def confusion(sums: Accumulators) -> Confusion:
    """Return the four counts at each threshold, ascending, from the histogram."""
    negatives, positives = sums["counts"]
    return Confusion(
        tp=_sum_above(positives),
        fp=_sum_above(negatives),
        tn=_sum_up_to(negatives),
        fn=_sum_up_to(positives),
    )


def confusion_at(sums: Accumulators, order: Order) -> Confusion:
    """Return the counts at the thresholds in this order; scalars for one index."""
    index = order if isinstance(order, int) else np.asarray(order)
    return Confusion(*(values[index] for values in confusion(sums)))


# What is reported from the counts: functions for `from_sums`, with the option `order`.


def true_positive_count(sums: Accumulators, *, order: Order) -> jax.Array:
    """Return the weight of positive labels predicted positive."""
    return confusion_at(sums, order).tp


def false_positive_count(sums: Accumulators, *, order: Order) -> jax.Array:
    """Return the weight of negative labels predicted positive."""
    return confusion_at(sums, order).fp


def true_negative_count(sums: Accumulators, *, order: Order) -> jax.Array:
    """Return the weight of negative labels predicted negative."""
    return confusion_at(sums, order).tn


def false_negative_count(sums: Accumulators, *, order: Order) -> jax.Array:
    """Return the weight of positive labels predicted negative."""
    return confusion_at(sums, order).fn


def precision_ratio(sums: Accumulators, *, order: Order) -> jax.Array:
    """Return tp / (tp + fp), and 0 where nothing is predicted positive."""
    counts = confusion_at(sums, order)
    return safe_div(counts.tp, counts.tp + counts.fp)


def recall_ratio(sums: Accumulators, *, order: Order) -> jax.Array:
    """Return tp / (tp + fn), and 0 where no label is positive."""
    counts = confusion_at(sums, order)
    return safe_div(counts.tp, counts.tp + counts.fn)


def _sum_above(histogram: jax.Array) -> jax.Array:
    """Return for threshold i the sum over bins j > i."""
    return jnp.flip(jnp.cumsum(jnp.flip(histogram[1:], 0), axis=0), 0)


def _sum_up_to(histogram: jax.Array) -> jax.Array:
    """Return for threshold i the sum over bins j <= i."""
    # Summed, not total minus the rest, which rounding could make negative.
    return jnp.cumsum(histogram[:-1], axis=0)


def sensitivity_at_specificity(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    specificity: float,
    num_thresholds: int = 200,
    class_id: int | None = None,
) -> Sums:
    """Return the highest sensitivity at which the specificity is large enough.

    Use it if the specificity is fixed by a requirement. It is
    `keras.metrics.SensitivityAtSpecificity`: the maximum over thresholds. `metrics.v1`
    has the nearest threshold instead, where it has the metric.

    Args:
      labels: True labels, [B] or any shape. A label that is not 0 is positive.
      predictions: Scores within [0, 1], in the shape of the labels up to one trailing
        axis of size 1.
      weights: Example weights: a scalar, or an array that broadcasts to the
        predictions, such as [B]. By default every example weighs 1.
      specificity: The least specificity (true negative rate), within [0, 1].
      num_thresholds: How many thresholds are tried, evenly spaced from 0 to 1.
      class_id: Count only this column of labels and predictions [B, K].

    Returns:
      A `Sums` of this batch. Merge those of all batches, then call `compute` for a
      scalar, 0 if no threshold reaches that specificity. Without data, the metric
      before any data.

    Raises:
      MetricError: `specificity` is outside [0, 1], `num_thresholds` is less than 1,
        shapes do not fit each other, only some of the arrays are given, or a prediction
        is NaN. Inside `jit`, where values cannot be checked, the result is NaN instead.

    Example:
      >>> metric = sensitivity_at_specificity([0, 0, 1, 1], [0.1, 0.6, 0.4, 0.9],
      ...                                     specificity=1.0)
      >>> float(metric.compute())
      0.5
    """
    check_unit_interval("specificity", [specificity])
    sums = _counts(labels, predictions, weights, num_thresholds, class_id)
    return from_sums(
        sums, _best_rate, of="sensitivity", at="specificity", least=specificity
    )


def specificity_at_sensitivity(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    sensitivity: float,
    num_thresholds: int = 200,
    class_id: int | None = None,
) -> Sums:
    """Return the highest specificity at which the sensitivity is large enough.

    Use it if the sensitivity is fixed by a requirement. It is
    `keras.metrics.SpecificityAtSensitivity`: the maximum over thresholds. `metrics.v1`
    has the nearest threshold instead, where it has the metric.

    Args:
      labels: True labels, [B] or any shape. A label that is not 0 is positive.
      predictions: Scores within [0, 1], in the shape of the labels up to one trailing
        axis of size 1.
      weights: Example weights: a scalar, or an array that broadcasts to the
        predictions, such as [B]. By default every example weighs 1.
      sensitivity: The least sensitivity (true positive rate), within [0, 1].
      num_thresholds: How many thresholds are tried, evenly spaced from 0 to 1.
      class_id: Count only this column of labels and predictions [B, K].

    Returns:
      A `Sums` of this batch. Merge those of all batches, then call `compute` for a
      scalar, 0 if no threshold reaches that sensitivity. Without data, the metric
      before any data.

    Raises:
      MetricError: `sensitivity` is outside [0, 1], `num_thresholds` is less than 1,
        shapes do not fit each other, only some of the arrays are given, or a prediction
        is NaN. Inside `jit`, where values cannot be checked, the result is NaN instead.

    Example:
      >>> metric = specificity_at_sensitivity([0, 0, 1, 1], [0.1, 0.6, 0.4, 0.9],
      ...                                     sensitivity=1.0)
      >>> float(metric.compute())
      0.5
    """
    check_unit_interval("sensitivity", [sensitivity])
    sums = _counts(labels, predictions, weights, num_thresholds, class_id)
    return from_sums(
        sums, _best_rate, of="specificity", at="sensitivity", least=sensitivity
    )


def precision_at_recall(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    recall: float,
    num_thresholds: int = 200,
    class_id: int | None = None,
) -> Sums:
    """Return the highest precision at which the recall is large enough.

    Use it if the recall is fixed by a requirement. It is
    `keras.metrics.PrecisionAtRecall`.

    Args:
      labels: True labels, [B] or any shape. A label that is not 0 is positive.
      predictions: Scores within [0, 1], in the shape of the labels up to one trailing
        axis of size 1.
      weights: Example weights: a scalar, or an array that broadcasts to the
        predictions, such as [B]. By default every example weighs 1.
      recall: The least recall, within [0, 1].
      num_thresholds: How many thresholds are tried, evenly spaced from 0 to 1.
      class_id: Count only this column of labels and predictions [B, K].

    Returns:
      A `Sums` of this batch. Merge those of all batches, then call `compute` for a
      scalar, 0 if no threshold reaches that recall. Without data, the metric before any
      data.

    Raises:
      MetricError: `recall` is outside [0, 1], `num_thresholds` is less than 1, shapes
        do not fit each other, only some of the arrays are given, or a prediction is
        NaN. Inside `jit`, where values cannot be checked, the result is NaN instead.

    Example:
      >>> metric = precision_at_recall([0, 1, 1], [0.2, 0.3, 0.9], recall=1.0)
      >>> float(metric.compute())
      1.0
    """
    check_unit_interval("recall", [recall])
    sums = _counts(labels, predictions, weights, num_thresholds, class_id)
    return from_sums(sums, _best_rate, of="precision", at="recall", least=recall)


def recall_at_precision(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    precision: float,
    num_thresholds: int = 200,
    class_id: int | None = None,
) -> Sums:
    """Return the highest recall at which the precision is large enough.

    Use it if the precision is fixed by a requirement. It is
    `keras.metrics.RecallAtPrecision`.

    Args:
      labels: True labels, [B] or any shape. A label that is not 0 is positive.
      predictions: Scores within [0, 1], in the shape of the labels up to one trailing
        axis of size 1.
      weights: Example weights: a scalar, or an array that broadcasts to the
        predictions, such as [B]. By default every example weighs 1.
      precision: The least precision, within [0, 1].
      num_thresholds: How many thresholds are tried, evenly spaced from 0 to 1.
      class_id: Count only this column of labels and predictions [B, K].

    Returns:
      A `Sums` of this batch. Merge those of all batches, then call `compute` for a
      scalar, 0 if no threshold reaches that precision. Without data, the metric before
      any data.

    Raises:
      MetricError: `precision` is outside [0, 1], `num_thresholds` is less than 1,
        shapes do not fit each other, only some of the arrays are given, or a prediction
        is NaN. Inside `jit`, where values cannot be checked, the result is NaN instead.

    Example:
      >>> metric = recall_at_precision([0, 1, 1], [0.5, 0.3, 0.9], precision=1.0)
      >>> float(metric.compute())
      0.5
    """
    check_unit_interval("precision", [precision])
    sums = _counts(labels, predictions, weights, num_thresholds, class_id)
    return from_sums(sums, _best_rate, of="recall", at="precision", least=precision)


def _counts(
    labels: Data | None,
    predictions: Data | None,
    weights: Data | None,
    num_thresholds: int,
    class_id: int | None,
) -> dict[str, jax.Array]:
    """Return the counts at 0, 1/(T-1), ..., 1, or at 0.5 for a single threshold.

    There is no threshold below 0, so a score of 0 is never positive.
    """
    if num_thresholds < 1:
        raise MetricError(f"num_thresholds must be at least 1, got {num_thresholds}")
    if class_id is not None and labels is not None and predictions is not None:
        truth, scores = label_pair(labels, predictions)
        labels, predictions = truth[..., class_id, None], scores[..., class_id, None]
    batch = score_pair(labels, predictions, weights)
    if num_thresholds == 1:
        return counts_at(batch, [0.5])
    return counts_on_grid(batch, num_thresholds)


def _best_rate(sums: Accumulators, *, of: str, at: str, least: float) -> jax.Array:
    """Return the highest rate `of` where the rate `at` is at least `least`, else 0."""
    tp, fp, tn, fn = confusion(sums)
    rates = {
        "sensitivity": safe_div(tp, tp + fn),
        "recall": safe_div(tp, tp + fn),
        "specificity": safe_div(tn, tn + fp),
        "precision": safe_div(tp, tp + fp),
    }
    return jnp.max(jnp.where(rates[at] >= jnp.float32(least), rates[of], 0.0))
