"""Streaming metrics: values that merge over batches and devices.

    seen = metrics.mean([1.0, 3.0]).merge(metrics.mean([5.0]))
    seen.compute()                                            # 3.0

The functions here have the semantics of Keras, and heads report them. `metrics.v1` has
those of `tf.compat.v1.metrics`, for a `model_fn` ported from TF 1. Called without data,
each function returns the metric before any data. Read `metric.py` first.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from estimax.core import migration
from estimax.metrics.auc import auc, batch_group_auc, group_auc
from estimax.metrics.calibration import (
    expected_calibration_error,
    gain_at_k,
    lift_at_k,
    reliability_curve,
)
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
from estimax.metrics.multi_class import (
    categorical_accuracy,
    mean_iou,
    sparse_categorical_accuracy,
    sparse_top_k_categorical_accuracy,
    top_k_categorical_accuracy,
)
from estimax.metrics.ranking import mean_reciprocal_rank, ndcg_at_k
from estimax.metrics.regression import (
    binary_crossentropy,
    categorical_crossentropy,
    cosine_similarity,
    kl_divergence,
    log_cosh_error,
    log_loss,
    mean_absolute_error,
    mean_squared_error,
    poisson,
    root_mean_squared_error,
    sparse_categorical_crossentropy,
)
from estimax.metrics.thresholds import (
    precision_at_recall,
    recall_at_precision,
    sensitivity_at_specificity,
    specificity_at_sensitivity,
)

__all__ = [
    "Metric",
    "MetricError",
    "Sums",
    "accuracy",
    "accuracy_baseline",
    "auc",
    "batch_group_auc",
    "binary_accuracy",
    "binary_crossentropy",
    "categorical_accuracy",
    "categorical_crossentropy",
    "cosine_similarity",
    "expected_calibration_error",
    "false_negatives",
    "false_positives",
    "from_sums",
    "gain_at_k",
    "group_auc",
    "kl_divergence",
    "lift_at_k",
    "log_cosh_error",
    "log_loss",
    "mean",
    "mean_absolute_error",
    "mean_iou",
    "mean_reciprocal_rank",
    "mean_squared_error",
    "mean_tensor",
    "ndcg_at_k",
    "poisson",
    "precision",
    "precision_at_recall",
    "recall",
    "recall_at_precision",
    "reliability_curve",
    "root_mean_squared_error",
    "sensitivity_at_specificity",
    "sparse_categorical_accuracy",
    "sparse_categorical_crossentropy",
    "sparse_top_k_categorical_accuracy",
    "specificity_at_sensitivity",
    "top_k_categorical_accuracy",
    "total",
    "true_negatives",
    "true_positives",
    "v1",
]


if TYPE_CHECKING:
    from estimax.v1 import metrics as v1
else:  # a type checker must report a name that does not exist

    def __getattr__(name: str) -> Any:
        if name == "v1":  # by name: its package is above this one
            return import_module("estimax.v1.metrics")
        migration.missing("estimax.metrics", name, __all__)
