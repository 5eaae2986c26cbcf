"""TF 1's precision and recall of decisions already made: anything not 0 is positive.

    precision(labels, class_ids).compute()

For scores, see `counts_at_thresholds.py`.
"""

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp

from estimax.metrics.inputs import Data, broadcast_weights, guarded, label_pair
from estimax.metrics.mean import only_total
from estimax.metrics.metric import Result, Sums, from_sums, safe_div
from estimax.metrics.thresholds import (
    EPSILON,
    confusion_at,
    count,
    ordered,
    passed_sorted,
    score_pair,
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
    return _one(labels, predictions, weights, "tp")


def false_positives(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
) -> Sums:
    """The weight of negatives predicted positive.

    >>> float(false_positives([1, 1, 0], [1, 0, 1]).compute())
    1.0
    """
    return _one(labels, predictions, weights, "fp")


def true_negatives(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
) -> Sums:
    """The weight of negatives predicted negative.

    >>> float(true_negatives([1, 1, 0], [1, 0, 1]).compute())
    0.0
    """
    return _one(labels, predictions, weights, "tn")


def false_negatives(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
) -> Sums:
    """The weight of positives predicted negative.

    >>> float(false_negatives([1, 1, 0], [1, 0, 1]).compute())
    1.0
    """
    return _one(labels, predictions, weights, "fn")


def precision(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
) -> Sums:
    """The share of positive predictions that are right, 0 when there are none.

    >>> float(precision([1, 1, 0], [1, 0, 1]).compute())
    0.5
    """
    counts = _counts(labels, predictions, weights)
    return from_sums({"tp": counts["tp"], "wrong": counts["fp"]}, _share_right)


def recall(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
) -> Sums:
    """The share of positives that were found, 0 when there are none.

    >>> float(recall([1, 1, 0], [1, 0, 1]).compute())
    0.5
    """
    counts = _counts(labels, predictions, weights)
    return from_sums({"tp": counts["tp"], "wrong": counts["fn"]}, _share_right)


def _one(
    labels: Data | None,
    predictions: Data | None,
    weights: Data | None,
    which: str,
) -> Sums:
    counts = _counts(labels, predictions, weights)
    return from_sums({"total": counts[which]}, only_total)


def _counts(
    labels: Data | None, predictions: Data | None, weights: Data | None
) -> dict[str, jax.Array]:
    truth, guess = label_pair(labels, predictions, weights)
    weighted = broadcast_weights(weights, truth.shape)
    is_true, is_guessed = truth != 0, guess != 0
    cells = {
        "tp": is_true & is_guessed,
        "fp": ~is_true & is_guessed,
        "tn": ~is_true & ~is_guessed,
        "fn": is_true & ~is_guessed,
    }
    return {
        name: jnp.sum(jnp.where(cell, weighted, 0.0)) for name, cell in cells.items()
    }


def _share_right(sums: Mapping[str, jax.Array]) -> jax.Array:
    return safe_div(sums["tp"], sums["tp"] + sums["wrong"])


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
