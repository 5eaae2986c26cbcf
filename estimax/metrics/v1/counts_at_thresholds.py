"""TF 1's counts, precision and recall at a list of thresholds: always vectors.

    precision_at_thresholds(labels, scores, weights, thresholds=[0.3, 0.6]).compute()

Scores must be within [0, 1]. A score is positive when strictly above the threshold.
"""

from collections.abc import Mapping, Sequence

import jax

from estimax.metrics.inputs import Data, guarded
from estimax.metrics.metric import Result, Sums, from_sums
from estimax.metrics.thresholds import (
    EPSILON,
    confusion_at,
    count,
    ordered,
    passed_sorted,
    score_pair,
)


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
    return _counted(labels, predictions, weights, thresholds, _tp)


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
    return _counted(labels, predictions, weights, thresholds, _fp)


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
    return _counted(labels, predictions, weights, thresholds, _tn)


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
    return _counted(labels, predictions, weights, thresholds, _fn)


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
    return _counted(labels, predictions, weights, thresholds, _precision)


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
    return _counted(labels, predictions, weights, thresholds, _recall)


def unit_scores(
    labels: Data | None, predictions: Data | None, weights: Data | None
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Labels, scores and weights, flat; scores outside [0, 1] are refused."""
    truth, scores, weighted = score_pair(labels, predictions, weights)
    inside = (scores >= 0) & (scores <= 1)
    weighted = guarded(weighted, inside, "predictions must be within [0, 1]")
    return truth.ravel(), scores.ravel(), weighted.ravel()


def _counted(
    labels: Data | None,
    predictions: Data | None,
    weights: Data | None,
    thresholds: Sequence[float],
    result: Result,
) -> Sums:
    asked = ordered(thresholds)
    truth, scores, weighted = unit_scores(labels, predictions, weights)
    passed = passed_sorted(scores, asked.ascending)
    counts = count(truth, passed, weighted, len(asked.order))
    return from_sums({"counts": counts}, result, order=asked.order)


def _tp(sums: Mapping[str, jax.Array], *, order: tuple[int, ...]) -> jax.Array:
    return confusion_at(sums, order).tp


def _fp(sums: Mapping[str, jax.Array], *, order: tuple[int, ...]) -> jax.Array:
    return confusion_at(sums, order).fp


def _tn(sums: Mapping[str, jax.Array], *, order: tuple[int, ...]) -> jax.Array:
    return confusion_at(sums, order).tn


def _fn(sums: Mapping[str, jax.Array], *, order: tuple[int, ...]) -> jax.Array:
    return confusion_at(sums, order).fn


def _precision(sums: Mapping[str, jax.Array], *, order: tuple[int, ...]) -> jax.Array:
    tp, fp, _, _ = confusion_at(sums, order)
    return tp / (tp + fp + EPSILON)


def _recall(sums: Mapping[str, jax.Array], *, order: tuple[int, ...]) -> jax.Array:
    tp, _, _, fn = confusion_at(sums, order)
    return tp / (tp + fn + EPSILON)
