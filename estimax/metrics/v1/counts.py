"""TF 1's precision and recall of decisions already made: anything not 0 is positive.

    precision(labels, class_ids).compute()

For scores, see `counts_at_thresholds.py`.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from estimax.metrics.inputs import Data, broadcast_weights, label_pair
from estimax.metrics.mean import only_total
from estimax.metrics.metric import Sums, from_sums, safe_div


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
