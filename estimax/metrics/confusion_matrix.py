"""Metrics of the K x K table of labels against predictions.

    mean_iou(class_ids, predicted_ids, num_classes=4).compute()

TF keeps this table in float64. float32 is enough here: cells are sums of weights, exact
to 2**24 unweighted examples a cell and within 6e-8 of their size per merge beyond, far
below what an evaluation set resolves; and float64 would need a global jax setting.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from estimax.metrics.inputs import Data, broadcast_weights, guarded, label_pair
from estimax.metrics.metric import MetricError, Sums, from_sums, safe_div


def mean_iou(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    num_classes: int,
) -> Sums:
    """Intersection over union, averaged over the classes that occurred.

    >>> round(float(mean_iou([0, 0, 1, 1], [0, 1, 1, 1], num_classes=3).compute()), 4)
    0.5833
    """
    table = class_table(labels, predictions, weights, num_classes)
    return from_sums({"table": table}, _mean_iou)


def class_table(
    labels: Data | None,
    predictions: Data | None,
    weights: Data | None,
    num_classes: int,
) -> jax.Array:
    """Weights summed by [label, prediction], for class ids of any one shape."""
    if num_classes < 1:
        raise MetricError(f"num_classes must be at least 1, got {num_classes}")
    truth, guess = label_pair(labels, predictions, weights)
    truth, guess = truth.astype(jnp.int32), guess.astype(jnp.int32)
    weighted = broadcast_weights(weights, truth.shape)
    inside = (jnp.minimum(truth, guess) >= 0) & (
        jnp.maximum(truth, guess) < num_classes
    )
    problem = f"labels and predictions must be class ids below {num_classes}"
    weighted = guarded(weighted, inside, problem)
    cell = jnp.where(inside, truth * num_classes + guess, 0)
    flat = jax.ops.segment_sum(weighted.ravel(), cell.ravel(), num_classes**2)
    return flat.reshape(num_classes, num_classes)


def _mean_iou(sums: Mapping[str, jax.Array]) -> jax.Array:
    table = sums["table"]
    hits = jnp.diagonal(table)
    union = jnp.sum(table, 0) + jnp.sum(table, 1) - hits
    # A class that never occurred has no IoU; a 0 in its place would lower the mean.
    occurred = jnp.sum((union != 0).astype(jnp.float32))
    return safe_div(jnp.sum(safe_div(hits, union)), occurred)
