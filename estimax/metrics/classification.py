"""Precision, recall and the four counts behind them, at one or more thresholds.

    precision(labels, probabilities).compute()                        # p > 0.5
    recall(labels, probabilities, thresholds=[0.3, 0.6]).compute()    # [2]

A label counts as positive when it is not 0 (soft labels too), a score when it is
strictly above the threshold. An empty denominator gives 0.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from estimax.metrics.inputs import Data, label_pair
from estimax.metrics.metric import Result, Sums, from_sums
from estimax.metrics.thresholds import (
    check_unit_interval,
    counts_at,
    counts_on_grid,
    false_negative_count,
    false_positive_count,
    is_even,
    precision_ratio,
    recall_ratio,
    score_pair,
    sort_thresholds,
    true_negative_count,
    true_positive_count,
)

Thresholds = float | Sequence[float] | None

# top_k replaces the scores outside the k highest by this value, which is also its
# default threshold; Keras has the same value.
_LOWEST = -1e10


def precision(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    thresholds: Thresholds = None,
    top_k: int | None = None,
    class_id: int | None = None,
) -> Sums:
    """Return the share of positive predictions whose label is positive.

    Use it if false alarms are costly. It is `keras.metrics.Precision`.

    Args:
      labels: True labels, [B] or any shape. A label that is not 0 is positive.
      predictions: Scores, in the shape of the labels up to one trailing axis of size 1.
      weights: Example weights: a scalar, or an array that broadcasts to the
        predictions, such as [B]. By default every example weighs 1.
      thresholds: A number or a list of numbers within [0, 1]. A score is positive if it
        is strictly greater. By default 0.5; with `top_k`, every score that it keeps is
        positive. A list gives a vector of results.
      top_k: In each row of predictions [B, K], only the k highest scores can be
        positive.
      class_id: Count only this column of labels and predictions [B, K].

    Returns:
      A `Sums` of this batch. Merge those of all batches, then call `compute` for tp /
      (tp + fp), a scalar or a vector [T] for T thresholds, 0 if nothing is predicted
      positive. Without data, the metric before any data.

    Raises:
      MetricError: Shapes do not fit each other, only some of the arrays are given, a
        threshold is outside [0, 1], or a prediction is NaN. Inside `jit`, where values
        cannot be checked, the result is NaN instead.

    Example:
      >>> metric = precision([1, 0, 1, 0], [0.9, 0.8, 0.7, 0.1], thresholds=0.75)
      >>> float(metric.compute())
      0.5
    """
    return _count_at_thresholds(
        labels, predictions, weights, thresholds, precision_ratio, top_k, class_id
    )


def recall(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    thresholds: Thresholds = None,
    top_k: int | None = None,
    class_id: int | None = None,
) -> Sums:
    """Return the share of positive labels that are predicted positive.

    Use it if misses are costly. It is `keras.metrics.Recall`.

    Args:
      labels: True labels, [B] or any shape. A label that is not 0 is positive.
      predictions: Scores, in the shape of the labels up to one trailing axis of size 1.
      weights: Example weights: a scalar, or an array that broadcasts to the
        predictions, such as [B]. By default every example weighs 1.
      thresholds: A number or a list of numbers within [0, 1]. A score is positive if it
        is strictly greater. By default 0.5; with `top_k`, every score that it keeps is
        positive. A list gives a vector of results.
      top_k: In each row of predictions [B, K], only the k highest scores can be
        positive.
      class_id: Count only this column of labels and predictions [B, K].

    Returns:
      A `Sums` of this batch. Merge those of all batches, then call `compute` for tp /
      (tp + fn), a scalar or a vector [T] for T thresholds, 0 if no label is positive.
      Without data, the metric before any data.

    Raises:
      MetricError: Shapes do not fit each other, only some of the arrays are given, a
        threshold is outside [0, 1], or a prediction is NaN. Inside `jit`, where values
        cannot be checked, the result is NaN instead.

    Example:
      >>> float(recall([1, 0, 1, 0], [0.9, 0.8, 0.7, 0.1], thresholds=0.75).compute())
      0.5
    """
    return _count_at_thresholds(
        labels, predictions, weights, thresholds, recall_ratio, top_k, class_id
    )


def true_positives(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    thresholds: Thresholds = None,
) -> Sums:
    """Return the weight of positive labels predicted positive.

    Without weights this is a count. It is `keras.metrics.TruePositives`.

    Args:
      labels: True labels, [B] or any shape. A label that is not 0 is positive.
      predictions: Scores, in the shape of the labels up to one trailing axis of size 1.
      weights: Example weights: a scalar, or an array that broadcasts to the
        predictions, such as [B]. By default every example weighs 1.
      thresholds: A number or a list of numbers within [0, 1]. A score is positive if it
        is strictly greater. By default 0.5. A list gives a vector of results.

    Returns:
      A `Sums` of this batch. Merge those of all batches, then call `compute` for a
      scalar, or a vector [T] for T thresholds. Without data, the metric before any
      data.

    Raises:
      MetricError: Shapes do not fit each other, only some of the arrays are given, a
        threshold is outside [0, 1], or a prediction is NaN. Inside `jit`, where values
        cannot be checked, the result is NaN instead.

    Example:
      >>> float(true_positives([1, 1, 0], [0.9, 0.1, 0.9]).compute())
      1.0
    """
    return _count_at_thresholds(
        labels, predictions, weights, thresholds, true_positive_count
    )


def false_positives(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    thresholds: Thresholds = None,
) -> Sums:
    """Return the weight of negative labels predicted positive.

    Without weights this is a count. It is `keras.metrics.FalsePositives`.

    Args:
      labels: True labels, [B] or any shape. A label that is not 0 is positive.
      predictions: Scores, in the shape of the labels up to one trailing axis of size 1.
      weights: Example weights: a scalar, or an array that broadcasts to the
        predictions, such as [B]. By default every example weighs 1.
      thresholds: A number or a list of numbers within [0, 1]. A score is positive if it
        is strictly greater. By default 0.5. A list gives a vector of results.

    Returns:
      A `Sums` of this batch. Merge those of all batches, then call `compute` for a
      scalar, or a vector [T] for T thresholds. Without data, the metric before any
      data.

    Raises:
      MetricError: Shapes do not fit each other, only some of the arrays are given, a
        threshold is outside [0, 1], or a prediction is NaN. Inside `jit`, where values
        cannot be checked, the result is NaN instead.

    Example:
      >>> float(false_positives([1, 1, 0], [0.9, 0.1, 0.9]).compute())
      1.0
    """
    return _count_at_thresholds(
        labels, predictions, weights, thresholds, false_positive_count
    )


def true_negatives(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    thresholds: Thresholds = None,
) -> Sums:
    """Return the weight of negative labels predicted negative.

    Without weights this is a count. It is `keras.metrics.TrueNegatives`.

    Args:
      labels: True labels, [B] or any shape. A label that is not 0 is positive.
      predictions: Scores, in the shape of the labels up to one trailing axis of size 1.
      weights: Example weights: a scalar, or an array that broadcasts to the
        predictions, such as [B]. By default every example weighs 1.
      thresholds: A number or a list of numbers within [0, 1]. A score is positive if it
        is strictly greater. By default 0.5. A list gives a vector of results.

    Returns:
      A `Sums` of this batch. Merge those of all batches, then call `compute` for a
      scalar, or a vector [T] for T thresholds. Without data, the metric before any
      data.

    Raises:
      MetricError: Shapes do not fit each other, only some of the arrays are given, a
        threshold is outside [0, 1], or a prediction is NaN. Inside `jit`, where values
        cannot be checked, the result is NaN instead.

    Example:
      >>> float(true_negatives([1, 1, 0], [0.9, 0.1, 0.9]).compute())
      0.0
    """
    return _count_at_thresholds(
        labels, predictions, weights, thresholds, true_negative_count
    )


def false_negatives(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    thresholds: Thresholds = None,
) -> Sums:
    """Return the weight of positive labels predicted negative.

    Without weights this is a count. It is `keras.metrics.FalseNegatives`.

    Args:
      labels: True labels, [B] or any shape. A label that is not 0 is positive.
      predictions: Scores, in the shape of the labels up to one trailing axis of size 1.
      weights: Example weights: a scalar, or an array that broadcasts to the
        predictions, such as [B]. By default every example weighs 1.
      thresholds: A number or a list of numbers within [0, 1]. A score is positive if it
        is strictly greater. By default 0.5. A list gives a vector of results.

    Returns:
      A `Sums` of this batch. Merge those of all batches, then call `compute` for a
      scalar, or a vector [T] for T thresholds. Without data, the metric before any
      data.

    Raises:
      MetricError: Shapes do not fit each other, only some of the arrays are given, a
        threshold is outside [0, 1], or a prediction is NaN. Inside `jit`, where values
        cannot be checked, the result is NaN instead.

    Example:
      >>> float(false_negatives([1, 1, 0], [0.9, 0.1, 0.9]).compute())
      1.0
    """
    return _count_at_thresholds(
        labels, predictions, weights, thresholds, false_negative_count
    )


def _count_at_thresholds(
    labels: Data | None,
    predictions: Data | None,
    weights: Data | None,
    thresholds: Thresholds,
    result: Result,
    top_k: int | None = None,
    class_id: int | None = None,
) -> Sums:
    """Return a metric of the counts at the thresholds, in the user's order."""
    if top_k is not None or class_id is not None:
        labels, predictions = _select_scores(labels, predictions, top_k, class_id)
    default = 0.5 if top_k is None else _LOWEST
    asked = sort_thresholds(default if thresholds is None else thresholds)
    if thresholds is not None:
        check_unit_interval("thresholds", asked.ascending)
    batch = score_pair(labels, predictions, weights)
    # As in Keras, only a list that is given in ascending order can be an even grid.
    if is_even([asked.ascending[index] for index in asked.order]):
        sums = counts_on_grid(batch, len(asked.order))
    else:
        sums = counts_at(batch, asked.ascending)
    # One threshold gives a scalar and not a vector of length 1.
    order = asked.order if len(asked.order) > 1 else asked.order[0]
    return from_sums(sums, result, order=order)


def _select_scores(
    labels: Data | None,
    predictions: Data | None,
    top_k: int | None,
    class_id: int | None,
) -> tuple[Data | None, Data | None]:
    """Keep the k highest scores of each row, then one column."""
    if labels is None or predictions is None:
        return labels, predictions
    truth, scores = label_pair(labels, predictions)
    if top_k is not None:
        _, best = jax.lax.top_k(scores, top_k)
        kept = jnp.any(jax.nn.one_hot(best, scores.shape[-1], dtype=bool), axis=-2)
        scores = jnp.where(kept, scores, _LOWEST)
    if class_id is not None:
        truth, scores = truth[..., class_id, None], scores[..., class_id, None]
    return truth, scores
