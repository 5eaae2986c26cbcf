"""The best value of one rate while another rate is at least a given value.

    sensitivity_at_specificity(labels, scores, specificity=0.9).compute()

The semantics are those of Keras: the maximum over the thresholds that satisfy the
constraint, 0 if none does. `metrics.v1` has TF 1's nearest threshold instead, which
differs on small data.
"""

import jax
import jax.numpy as jnp

from estimax.metrics.inputs import Data, label_pair
from estimax.metrics.metric import Accumulators, MetricError, Sums, from_sums, safe_div
from estimax.metrics.thresholds import (
    check_unit_interval,
    confusion,
    counts_at,
    counts_on_grid,
    score_pair,
)


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
    return from_sums(sums, _best_sensitivity, least=specificity)


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
    return from_sums(sums, _best_specificity, least=sensitivity)


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
    return from_sums(sums, _best_precision, least=recall)


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
    return from_sums(sums, _best_recall, least=precision)


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


def _best(wanted: jax.Array, held: jax.Array, least: float) -> jax.Array:
    """Return the highest `wanted` where `held` is at least `least`, else 0."""
    return jnp.max(jnp.where(held >= jnp.float32(least), wanted, 0.0))


def _rates(sums: Accumulators) -> dict[str, jax.Array]:
    tp, fp, tn, fn = confusion(sums)
    return {
        "sensitivity": safe_div(tp, tp + fn),
        "specificity": safe_div(tn, tn + fp),
        "precision": safe_div(tp, tp + fp),
    }


def _best_sensitivity(sums: Accumulators, *, least: float) -> jax.Array:
    rates = _rates(sums)
    return _best(rates["sensitivity"], rates["specificity"], least)


def _best_specificity(sums: Accumulators, *, least: float) -> jax.Array:
    rates = _rates(sums)
    return _best(rates["specificity"], rates["sensitivity"], least)


def _best_precision(sums: Accumulators, *, least: float) -> jax.Array:
    rates = _rates(sums)
    return _best(rates["precision"], rates["sensitivity"], least)


def _best_recall(sums: Accumulators, *, least: float) -> jax.Array:
    rates = _rates(sums)
    return _best(rates["sensitivity"], rates["precision"], least)
