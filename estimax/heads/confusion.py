"""The confusion matrix of a classifier, kept in the metric "accuracy".

    accuracy = accuracy_with_table(labels, class_ids, weights, classes=3)
    table_of(accuracy)      # [label, prediction]

As with `baselines.py`, no second pass over the data and no further metric is needed.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from estimax import metrics
from estimax.metrics.metric import Sums, ratio
from estimax.metrics.multi_class import class_table

# The matrix of more classes cannot be read, and takes memory that grows as the square.
_MOST_CLASSES = 100


def accuracy_with_table(
    labels: jax.Array, class_ids: jax.Array, weights: jax.Array | None, *, classes: int
) -> Sums:
    """Return the accuracy as a metric that also holds the confusion matrix.

    Args:
      labels: Checked class ids, [..., 1].
      class_ids: Predicted class ids, [..., 1].
      weights: Example weights, [..., 1]; None if every example weighs 1.
      classes: Number of classes K. Above 100, only the accuracy is kept.
    """
    accuracy = metrics.accuracy(labels, class_ids, weights)
    if classes > _MOST_CLASSES:
        return accuracy
    table = class_table(labels, class_ids, weights, classes)
    return metrics.from_sums({**accuracy.sums, "table": table}, ratio)


def table_of(metric: object) -> NDArray[Any] | None:
    """Return the confusion matrix [label, prediction]; None if there is none.

    >>> import jax.numpy as jnp
    >>> labels, guesses = jnp.array([[0], [1]]), jnp.array([[0], [2]])
    >>> table_of(accuracy_with_table(labels, guesses, None, classes=3)).tolist()
    [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    """
    if not isinstance(metric, Sums) or "table" not in metric.sums:
        return None
    return np.asarray(metric.sums["table"])
