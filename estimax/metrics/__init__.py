"""Streaming metrics: values that merge. Read `metric.py` first.

The names here have keras' semantics, which the heads report; `metrics.v1` has those of
`tf.compat.v1.metrics`, for model functions that are ported from it.
"""

from estimax.metrics import collection
from estimax.metrics.auc import auc
from estimax.metrics.classification import (
    false_negatives,
    false_positives,
    precision,
    recall,
    true_negatives,
    true_positives,
)
from estimax.metrics.mean import (
    accuracy,
    accuracy_baseline,
    binary_accuracy,
    mean,
    mean_tensor,
    total,
)
from estimax.metrics.metric import Metric, MetricError, Sums, from_sums

__all__ = [
    "Metric",
    "MetricError",
    "Sums",
    "accuracy",
    "accuracy_baseline",
    "auc",
    "binary_accuracy",
    "collection",
    "false_negatives",
    "false_positives",
    "from_sums",
    "mean",
    "mean_tensor",
    "precision",
    "recall",
    "total",
    "true_negatives",
    "true_positives",
]
