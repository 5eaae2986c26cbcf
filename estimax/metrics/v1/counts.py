"""TF 1's precision and recall of decisions already made: anything not 0 is positive.

    precision(labels, class_ids).compute()

For scores, see `counts_at_thresholds.py`.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from estimax.metrics.inputs import Data, broadcast_weights, label_pair
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


def true_positives(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
) -> Sums:
    """The weight of positives predicted positive.

    >>> float(true_positives([1, 1, 0], [1, 0, 1]).compute())
    1.0
    """
    return _decided(labels, predictions, weights, true_positive_count)


def false_positives(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
) -> Sums:
    """The weight of negatives predicted positive.

    >>> float(false_positives([1, 1, 0], [1, 0, 1]).compute())
    1.0
    """
    return _decided(labels, predictions, weights, false_positive_count)


def true_negatives(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
) -> Sums:
    """The weight of negatives predicted negative.

    >>> float(true_negatives([1, 1, 0], [1, 0, 1]).compute())
    0.0
    """
    return _decided(labels, predictions, weights, true_negative_count)


def false_negatives(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
) -> Sums:
    """The weight of positives predicted negative.

    >>> float(false_negatives([1, 1, 0], [1, 0, 1]).compute())
    1.0
    """
    return _decided(labels, predictions, weights, false_negative_count)


def precision(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
) -> Sums:
    """The share of positive predictions that are right, 0 when there are none.

    >>> float(precision([1, 1, 0], [1, 0, 1]).compute())
    0.5
    """
    return _decided(labels, predictions, weights, precision_ratio)


def recall(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
) -> Sums:
    """The share of positives that were found, 0 when there are none.

    >>> float(recall([1, 1, 0], [1, 0, 1]).compute())
    0.5
    """
    return _decided(labels, predictions, weights, recall_ratio)


def true_positives_at_thresholds(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    thresholds: Sequence[float],
) -> Sums:
    """The weight of positives above each threshold.

    >>> metric = true_positives_at_thresholds([1, 1], [0.4, 0.9], thresholds=[0.3, 0.6])
    >>> metric.compute().tolist()
    [2.0, 1.0]
    """
    return _counted(labels, predictions, weights, thresholds, true_positive_count)


def false_positives_at_thresholds(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    thresholds: Sequence[float],
) -> Sums:
    """The weight of negatives above each threshold.

    >>> limits = [0.3, 0.6]
    >>> metric = false_positives_at_thresholds([0, 1], [0.4, 0.9], thresholds=limits)
    >>> metric.compute().tolist()
    [1.0, 0.0]
    """
    return _counted(labels, predictions, weights, thresholds, false_positive_count)


def true_negatives_at_thresholds(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    thresholds: Sequence[float],
) -> Sums:
    """The weight of negatives not above each threshold.

    >>> metric = true_negatives_at_thresholds([0, 1], [0.4, 0.9], thresholds=[0.3, 0.6])
    >>> metric.compute().tolist()
    [0.0, 1.0]
    """
    return _counted(labels, predictions, weights, thresholds, true_negative_count)


def false_negatives_at_thresholds(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    thresholds: Sequence[float],
) -> Sums:
    """The weight of positives not above each threshold.

    >>> limits = [0.3, 0.6]
    >>> metric = false_negatives_at_thresholds([1, 1], [0.4, 0.9], thresholds=limits)
    >>> metric.compute().tolist()
    [0.0, 1.0]
    """
    return _counted(labels, predictions, weights, thresholds, false_negative_count)


def precision_at_thresholds(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    thresholds: Sequence[float],
) -> Sums:
    """tp / (tp + fp + 1e-7) at each threshold.

    >>> metric = precision_at_thresholds([0, 1], [0.4, 0.9], thresholds=[0.3, 0.6])
    >>> metric.compute().round(3).tolist()
    [0.5, 1.0]
    """
    return _counted(labels, predictions, weights, thresholds, _smoothed_precision)


def recall_at_thresholds(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    thresholds: Sequence[float],
) -> Sums:
    """tp / (tp + fn + 1e-7) at each threshold.

    >>> metric = recall_at_thresholds([1, 1], [0.4, 0.9], thresholds=[0.3, 0.6])
    >>> metric.compute().round(3).tolist()
    [1.0, 0.5]
    """
    return _counted(labels, predictions, weights, thresholds, _smoothed_recall)


def _decided(
    labels: Data | None, predictions: Data | None, weights: Data | None, result: Result
) -> Sums:
    """Return a metric of decisions: one threshold, which any value but 0 passes."""
    truth, decisions = label_pair(labels, predictions, weights)
    weighted = broadcast_weights(weights, truth.shape)
    passed = (decisions != 0).astype(jnp.int32)
    counts = count(truth.ravel(), passed.ravel(), weighted.ravel(), thresholds=1)
    return from_sums({"counts": counts}, result, order=0)


def _counted(
    labels: Data | None,
    predictions: Data | None,
    weights: Data | None,
    thresholds: Sequence[float],
    result: Result,
) -> Sums:
    """Return a metric of scores at each threshold, in the user's order."""
    asked = sort_thresholds(thresholds)
    sums = counts_at(unit_scores(labels, predictions, weights), asked.ascending)
    return from_sums(sums, result, order=asked.order)


def _smoothed_precision(sums: Accumulators, *, order: Order) -> jax.Array:
    tp, fp, _, _ = confusion_at(sums, order)
    return tp / (tp + fp + EPSILON)


def _smoothed_recall(sums: Accumulators, *, order: Order) -> jax.Array:
    tp, _, _, fn = confusion_at(sums, order)
    return tp / (tp + fn + EPSILON)
