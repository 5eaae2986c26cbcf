"""Precision, recall and the four counts behind them, at one or more thresholds.

    precision(labels, probabilities).compute()                        # p > 0.5
    recall(labels, probabilities, thresholds=[0.3, 0.6]).compute()    # [2]

A label counts as positive when it is not 0 (soft labels too), a score when it is
strictly above the threshold. An empty denominator gives 0.
"""

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from estimax.metrics.metric import MetricError, Result, Sums, from_sums, safe_div
from estimax.metrics.shapes import broadcast_weights, label_pair
from estimax.metrics.thresholds import (
    Confusion,
    check_unit_interval,
    confusion,
    count,
    is_even,
    passed_even,
    passed_sorted,
)

Thresholds = float | Sequence[float] | None

# What top_k makes of the scores outside the k best; the default threshold then, too.
_LOWEST = -1e10


def precision(
    labels: ArrayLike | None = None,
    predictions: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    *,
    thresholds: Thresholds = None,
    top_k: int | None = None,
    class_id: int | None = None,
) -> Sums:
    """The share of positive predictions that are right; threshold 0.5 by default.

    `top_k`: in each row of [B, K] only the k highest scores are positive. `class_id`:
    only that column counts. Several thresholds give a vector.

    >>> float(precision([1, 0, 1, 0], [0.9, 0.8, 0.7, 0.1], thresholds=0.75).compute())
    0.5
    """
    if top_k is not None or class_id is not None:
        labels, predictions = _selected(labels, predictions, top_k, class_id)
    default = 0.5 if top_k is None else _LOWEST
    return _counted(labels, predictions, weights, thresholds, default, _precision)


def recall(
    labels: ArrayLike | None = None,
    predictions: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    *,
    thresholds: Thresholds = None,
    top_k: int | None = None,
    class_id: int | None = None,
) -> Sums:
    """The share of positive labels that were found; arguments as for `precision`.

    >>> float(recall([1, 0, 1, 0], [0.9, 0.8, 0.7, 0.1], thresholds=0.75).compute())
    0.5
    """
    if top_k is not None or class_id is not None:
        labels, predictions = _selected(labels, predictions, top_k, class_id)
    default = 0.5 if top_k is None else _LOWEST
    return _counted(labels, predictions, weights, thresholds, default, _recall)


def true_positives(
    labels: ArrayLike | None = None,
    predictions: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    *,
    thresholds: Thresholds = None,
) -> Sums:
    """The weight of positive labels predicted positive.

    >>> float(true_positives([1, 1, 0], [0.9, 0.1, 0.9]).compute())
    1.0
    """
    return _counted(labels, predictions, weights, thresholds, 0.5, _tp)


def false_positives(
    labels: ArrayLike | None = None,
    predictions: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    *,
    thresholds: Thresholds = None,
) -> Sums:
    """The weight of negative labels predicted positive.

    >>> float(false_positives([1, 1, 0], [0.9, 0.1, 0.9]).compute())
    1.0
    """
    return _counted(labels, predictions, weights, thresholds, 0.5, _fp)


def true_negatives(
    labels: ArrayLike | None = None,
    predictions: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    *,
    thresholds: Thresholds = None,
) -> Sums:
    """The weight of negative labels predicted negative.

    >>> float(true_negatives([1, 1, 0], [0.9, 0.1, 0.9]).compute())
    0.0
    """
    return _counted(labels, predictions, weights, thresholds, 0.5, _tn)


def false_negatives(
    labels: ArrayLike | None = None,
    predictions: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    *,
    thresholds: Thresholds = None,
) -> Sums:
    """The weight of positive labels predicted negative.

    >>> float(false_negatives([1, 1, 0], [0.9, 0.1, 0.9]).compute())
    1.0
    """
    return _counted(labels, predictions, weights, thresholds, 0.5, _fn)


def _counted(
    labels: ArrayLike | None,
    predictions: ArrayLike | None,
    weights: ArrayLike | None,
    thresholds: Thresholds,
    default: float,
    result: Result,
) -> Sums:
    """Counts at the thresholds, ascending; `order` gives the user's order back."""
    asked = _as_tuple(default if thresholds is None else thresholds)
    if thresholds is not None:
        check_unit_interval("thresholds", asked)
    ascending = tuple(sorted(asked))
    truth, scores = label_pair(labels, predictions, weights)
    weighted = broadcast_weights(weights, scores.shape).ravel()
    # As in keras, the list as given decides: only an ascending one is an even grid.
    if is_even(asked):
        passed = passed_even(scores.ravel(), len(asked))
    else:
        passed = passed_sorted(scores.ravel(), ascending)
    sums = {"counts": count(truth.ravel(), passed, weighted, len(asked))}
    order = tuple(ascending.index(threshold) for threshold in asked)
    several = isinstance(thresholds, Sequence) and len(asked) > 1
    return from_sums(sums, result, order=order if several else order[0])


def _as_tuple(thresholds: float | Sequence[float]) -> tuple[float, ...]:
    values = np.atleast_1d(np.asarray(thresholds, float))
    if values.ndim != 1 or values.size == 0:
        raise MetricError(
            f"thresholds must be a number or a list of numbers, got {thresholds!r}"
        )
    return tuple(values.tolist())


def _selected(
    labels: ArrayLike | None,
    predictions: ArrayLike | None,
    top_k: int | None,
    class_id: int | None,
) -> tuple[ArrayLike | None, ArrayLike | None]:
    """Keep the k best scores of each row, then one column."""
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


def _precision(
    sums: Mapping[str, jax.Array], *, order: int | tuple[int, ...]
) -> jax.Array:
    counts = _at(sums, order)
    return safe_div(counts.tp, counts.tp + counts.fp)


def _recall(
    sums: Mapping[str, jax.Array], *, order: int | tuple[int, ...]
) -> jax.Array:
    counts = _at(sums, order)
    return safe_div(counts.tp, counts.tp + counts.fn)


def _tp(sums: Mapping[str, jax.Array], *, order: int | tuple[int, ...]) -> jax.Array:
    return _at(sums, order).tp


def _fp(sums: Mapping[str, jax.Array], *, order: int | tuple[int, ...]) -> jax.Array:
    return _at(sums, order).fp


def _tn(sums: Mapping[str, jax.Array], *, order: int | tuple[int, ...]) -> jax.Array:
    return _at(sums, order).tn


def _fn(sums: Mapping[str, jax.Array], *, order: int | tuple[int, ...]) -> jax.Array:
    return _at(sums, order).fn


def _at(sums: Mapping[str, jax.Array], order: int | tuple[int, ...]) -> Confusion:
    """The counts in the order the thresholds were given; scalars for an int."""
    index = order if isinstance(order, int) else np.asarray(order)
    return Confusion(*(values[index] for values in confusion(sums)))
