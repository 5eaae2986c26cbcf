"""What heads keep in their metrics beside the reported number: baselines, confusion.

    loss = average_loss(losses, labels, weights, baseline="entropy")
    constant_loss(loss)     # of always answering the mean of the labels
    accuracy = accuracy_with_table(labels, class_ids, weights, classes=3)
    table_of(accuracy)      # [label, prediction]

A model whose loss is not below the loss of a constant answer has learned nothing from
the features. The sums of the labels are kept in the metric "average_loss" and the
confusion matrix in "accuracy", so that no second pass over the data and no further
metric is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from estimax import metrics
from estimax.metrics.metric import Accumulators, Sums, ratio
from estimax.metrics.multi_class import class_table

Baseline = Literal["variance", "entropy", "class_entropy"]


def average_loss(
    losses: jax.Array,
    labels: jax.Array,
    weights: jax.Array | None,
    *,
    baseline: Baseline,
    classes: int = 0,
) -> Sums:
    """Return the mean loss as a metric that also holds the sums of the labels.

    Args:
      losses: The loss of every example, [B, N].
      labels: Checked labels: numbers [B, D], or class ids [B, 1].
      weights: Example weights, [B, 1] or [B, D]; None if every example weighs 1.
      baseline: The loss of the best constant answer: "variance" for the squared error,
        "entropy" for the cross entropy of labels within [0, 1], "class_entropy" for
        that of class ids.
      classes: Number of classes K of "class_entropy".
    """
    if weights is None:
        weighted = jnp.ones_like(labels, jnp.float32)
    else:
        weighted = jnp.broadcast_to(weights, labels.shape).astype(jnp.float32)
    leading = tuple(range(labels.ndim - 1))
    if baseline == "class_entropy":
        ids = jnp.clip(labels.reshape(-1), 0, classes - 1)
        counted = jnp.zeros(classes).at[ids].add(weighted.reshape(-1))
        seen = {"label_weight": counted}
    else:
        seen = {
            "label_weight": jnp.sum(weighted, leading),
            "label_total": jnp.sum(weighted * labels, leading),
            "label_squares": jnp.sum(weighted * jnp.square(labels), leading),
        }
    sums = {**metrics.mean(losses, weights).sums, **seen}
    return metrics.from_sums(sums, _mean_of_losses, baseline=baseline)


def _mean_of_losses(sums: Accumulators, *, baseline: str) -> jax.Array:
    return ratio(sums)


def constant_loss(metric: object) -> float | None:
    """Return the loss of always answering the mean label; None if it is not known.

    >>> losses, labels = jnp.zeros((2, 1)), jnp.array([[-1.0], [1.0]])
    >>> constant_loss(average_loss(losses, labels, None, baseline="variance"))
    1.0
    """
    if not isinstance(metric, Sums):
        return None
    compute = _CONSTANT.get(dict(metric.options).get("baseline"))
    sums = {
        name: np.asarray(value, np.float64)
        for name, value in metric.sums.items()
        if name.startswith("label_")
    }
    if compute is None or not np.sum(sums["label_weight"]) > 0:
        return None
    return compute(**{name.removeprefix("label_"): v for name, v in sums.items()})


def _variance(weight: Any, total: Any, squares: Any) -> float:
    mean = total / weight
    # The squares were summed in float32: an error of their size is not a variance.
    rounding = 1e-5 * np.square(mean)
    variance = np.maximum(squares / weight - np.square(mean), 0.0) + rounding
    return float(np.average(variance, weights=weight))


def _entropy(weight: Any, total: Any, squares: Any) -> float:
    mean = total / weight
    return float(np.average(_entropies([mean, 1.0 - mean]), weights=weight))


def _class_entropy(weight: Any) -> float:
    return float(_entropies(weight / np.sum(weight)))


def _entropies(shares: Any) -> Any:
    p = np.clip(np.asarray(shares), 1e-12, 1.0)
    return -np.sum(p * np.log(p), axis=0)


_CONSTANT: dict[Any, Callable[..., float]] = {
    "variance": _variance,
    "entropy": _entropy,
    "class_entropy": _class_entropy,
}


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
