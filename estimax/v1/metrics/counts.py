"""TF 1's precision, recall and counts, of decisions or of scores at thresholds.

precision(labels, decisions).compute()      # a decision that is not 0 is positive
precision_at_thresholds(labels, scores, thresholds=[0.3, 0.6]).compute()     # [2]
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from estimax.metrics.inputs import Data, broadcast_weights, label_pair, require
from estimax.metrics.metric import Accumulators, Result, Sums, from_sums
from estimax.metrics.thresholds import (
    EPSILON,
    Order,
    confusion_at,
    count,
    counts_at,
    false_negative_count,
    false_positive_count,
    precision_ratio,
    recall_ratio,
    sort_thresholds,
    true_negative_count,
    true_positive_count,
    unit_scores,
)
from estimax.v1.metrics.docstrings import document_metric


@document_metric("a scalar")
def true_positives(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    name: str | None = None,
) -> Sums:
    """Return the weight of positive labels predicted positive.

    Args:
      predictions: Decisions, in the shape of the labels. Any value but 0 is positive,
        so round scores first or use `true_positives_at_thresholds`.

    Example:
      >>> float(true_positives([1, 1, 0], [1, 0, 1]).compute())
      1.0
    """
    return _count_decisions(labels, predictions, weights, true_positive_count)


@document_metric("a scalar")
def false_positives(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    name: str | None = None,
) -> Sums:
    """Return the weight of negative labels predicted positive.

    Args:
      predictions: Decisions, in the shape of the labels. Any value but 0 is positive,
        so round scores first or use `false_positives_at_thresholds`.

    Example:
      >>> float(false_positives([1, 1, 0], [1, 0, 1]).compute())
      1.0
    """
    return _count_decisions(labels, predictions, weights, false_positive_count)


@document_metric("a scalar")
def true_negatives(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    name: str | None = None,
) -> Sums:
    """Return the weight of negative labels predicted negative.

    Args:
      predictions: Decisions, in the shape of the labels. Any value but 0 is positive,
        so round scores first or use `true_negatives_at_thresholds`.

    Example:
      >>> float(true_negatives([1, 1, 0], [1, 0, 1]).compute())
      0.0
    """
    return _count_decisions(labels, predictions, weights, true_negative_count)


@document_metric("a scalar")
def false_negatives(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    name: str | None = None,
) -> Sums:
    """Return the weight of positive labels predicted negative.

    Args:
      predictions: Decisions, in the shape of the labels. Any value but 0 is positive,
        so round scores first or use `false_negatives_at_thresholds`.

    Example:
      >>> float(false_negatives([1, 1, 0], [1, 0, 1]).compute())
      1.0
    """
    return _count_decisions(labels, predictions, weights, false_negative_count)


@document_metric("tp / (tp + fp), a scalar that is 0 if nothing is predicted positive")
def precision(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    name: str | None = None,
) -> Sums:
    """Return the share of positive predictions whose label is positive.

    Args:
      predictions: Decisions, in the shape of the labels. Any value but 0 is positive,
        so round scores first or use `precision_at_thresholds`.

    Example:
      >>> float(precision([1, 1, 0], [1, 0, 1]).compute())
      0.5
    """
    return _count_decisions(labels, predictions, weights, precision_ratio)


@document_metric("tp / (tp + fn), a scalar that is 0 if no label is positive")
def recall(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    name: str | None = None,
) -> Sums:
    """Return the share of positive labels that are predicted positive.

    Args:
      predictions: Decisions, in the shape of the labels. Any value but 0 is positive,
        so round scores first or use `recall_at_thresholds`.

    Example:
      >>> float(recall([1, 1, 0], [1, 0, 1]).compute())
      0.5
    """
    return _count_decisions(labels, predictions, weights, recall_ratio)


@document_metric("a vector [T]", wrong_value="A prediction is outside [0, 1] or NaN")
def true_positives_at_thresholds(
    labels: Data | None = None,
    predictions: Data | None = None,
    thresholds: Sequence[float] | None = None,
    weights: Data | None = None,
    *,
    name: str | None = None,
) -> Sums:
    """Return the weight of positive labels predicted positive at each threshold.

    Example:
      >>> limits = [0.3, 0.6]
      >>> metric = true_positives_at_thresholds([1, 1], [0.4, 0.9], thresholds=limits)
      >>> metric.compute().tolist()
      [2.0, 1.0]
    """
    return _count_at_thresholds(
        labels, predictions, weights, thresholds, true_positive_count
    )


@document_metric("a vector [T]", wrong_value="A prediction is outside [0, 1] or NaN")
def false_positives_at_thresholds(
    labels: Data | None = None,
    predictions: Data | None = None,
    thresholds: Sequence[float] | None = None,
    weights: Data | None = None,
    *,
    name: str | None = None,
) -> Sums:
    """Return the weight of negative labels predicted positive at each threshold.

    Example:
      >>> limits = [0.3, 0.6]
      >>> metric = false_positives_at_thresholds([0, 1], [0.4, 0.9], thresholds=limits)
      >>> metric.compute().tolist()
      [1.0, 0.0]
    """
    return _count_at_thresholds(
        labels, predictions, weights, thresholds, false_positive_count
    )


@document_metric("a vector [T]", wrong_value="A prediction is outside [0, 1] or NaN")
def true_negatives_at_thresholds(
    labels: Data | None = None,
    predictions: Data | None = None,
    thresholds: Sequence[float] | None = None,
    weights: Data | None = None,
    *,
    name: str | None = None,
) -> Sums:
    """Return the weight of negative labels predicted negative at each threshold.

    Example:
      >>> limits = [0.3, 0.6]
      >>> metric = true_negatives_at_thresholds([0, 1], [0.4, 0.9], thresholds=limits)
      >>> metric.compute().tolist()
      [0.0, 1.0]
    """
    return _count_at_thresholds(
        labels, predictions, weights, thresholds, true_negative_count
    )


@document_metric("a vector [T]", wrong_value="A prediction is outside [0, 1] or NaN")
def false_negatives_at_thresholds(
    labels: Data | None = None,
    predictions: Data | None = None,
    thresholds: Sequence[float] | None = None,
    weights: Data | None = None,
    *,
    name: str | None = None,
) -> Sums:
    """Return the weight of positive labels predicted negative at each threshold.

    Example:
      >>> limits = [0.3, 0.6]
      >>> metric = false_negatives_at_thresholds([1, 1], [0.4, 0.9], thresholds=limits)
      >>> metric.compute().tolist()
      [0.0, 1.0]
    """
    return _count_at_thresholds(
        labels, predictions, weights, thresholds, false_negative_count
    )


@document_metric("a vector [T]", wrong_value="A prediction is outside [0, 1] or NaN")
def precision_at_thresholds(
    labels: Data | None = None,
    predictions: Data | None = None,
    thresholds: Sequence[float] | None = None,
    weights: Data | None = None,
    *,
    name: str | None = None,
) -> Sums:
    """Return tp / (tp + fp + 1e-7) at each threshold.

    Example:
      >>> metric = precision_at_thresholds([0, 1], [0.4, 0.9], thresholds=[0.3, 0.6])
      >>> metric.compute().round(3).tolist()
      [0.5, 1.0]
    """
    return _count_at_thresholds(
        labels, predictions, weights, thresholds, _smooth_precision
    )


@document_metric("a vector [T]", wrong_value="A prediction is outside [0, 1] or NaN")
def recall_at_thresholds(
    labels: Data | None = None,
    predictions: Data | None = None,
    thresholds: Sequence[float] | None = None,
    weights: Data | None = None,
    *,
    name: str | None = None,
) -> Sums:
    """Return tp / (tp + fn + 1e-7) at each threshold.

    Example:
      >>> metric = recall_at_thresholds([1, 1], [0.4, 0.9], thresholds=[0.3, 0.6])
      >>> metric.compute().round(3).tolist()
      [1.0, 0.5]
    """
    return _count_at_thresholds(
        labels, predictions, weights, thresholds, _smooth_recall
    )


def _count_decisions(
    labels: Data | None, predictions: Data | None, weights: Data | None, result: Result
) -> Sums:
    """Return a metric of decisions: one threshold, which any value but 0 passes."""
    truth, decisions = label_pair(labels, predictions, weights)
    weighted = broadcast_weights(weights, truth.shape)
    passed = (decisions != 0).astype(jnp.int32)
    counts = count(truth.ravel(), passed.ravel(), weighted.ravel(), thresholds=1)
    return from_sums({"counts": counts}, result, order=0)


def _count_at_thresholds(
    labels: Data | None,
    predictions: Data | None,
    weights: Data | None,
    thresholds: Sequence[float] | None,
    result: Result,
) -> Sums:
    """Return a metric of scores at each threshold, in the user's order."""
    asked = sort_thresholds(require("thresholds", thresholds))
    sums = counts_at(unit_scores(labels, predictions, weights), asked.ascending)
    return from_sums(sums, result, order=asked.order)


def _smooth_precision(sums: Accumulators, *, order: Order) -> jax.Array:
    tp, fp, _, _ = confusion_at(sums, order)
    return tp / (tp + fp + EPSILON)


def _smooth_recall(sums: Accumulators, *, order: Order) -> jax.Array:
    tp, _, _, fn = confusion_at(sums, order)
    return tp / (tp + fn + EPSILON)
