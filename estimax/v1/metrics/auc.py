"""TF 1's AUC and operating points, smoothed by small constants.

    auc(labels, scores, weights).compute()
    auc(labels, scores, curve="PR", summation_method="careful_interpolation").compute()

The default PR area uses trapezoids, which is too optimistic but is what TF 1 reports.
If all labels are negative, the ROC area is near 1, where that of Keras is 0.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from estimax.metrics.auc import (
    check_choice,
    inner_thresholds,
    interpolated_pr_area,
    step_areas,
)
from estimax.metrics.inputs import Data, require
from estimax.metrics.metric import Accumulators, MetricError, Sums, from_sums
from estimax.metrics.thresholds import (
    EPSILON,
    check_unit_interval,
    confusion,
    counts_at,
    unit_scores,
)
from estimax.v1.metrics.docstrings import document_metric

# TF 1 adds this to the rates of the AUC, and EPSILON to those of operating points.
_SMOOTHING = 1e-6


@document_metric(
    "the area, a scalar",
    wrong_value="`curve`, `summation_method`, `num_thresholds` or `thresholds` is not "
    "as described. A prediction is outside [0, 1] or NaN",
)
def auc(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    num_thresholds: int = 200,
    *,
    curve: str = "ROC",
    thresholds: Sequence[float] | None = None,
    summation_method: str = "trapezoidal",
    name: str | None = None,
) -> Sums:
    """Return the smoothed area under the ROC or the precision-recall curve.

    Use it to reproduce the figures of TF 1; otherwise `metrics.auc` is the better
    approximation. Small constants are added to the rates, so that labels that are all
    negative give a ROC area near 1.

    Args:
      num_thresholds: How many thresholds approximate the curve, evenly spaced.
      curve: "ROC" or "PR" (precision-recall).
      thresholds: Thresholds within [0, 1] instead of the even ones. One below 0 and one
        above 1 are added.
      summation_method: "trapezoidal" (too optimistic for PR), "minoring" (lower bound),
        "majoring" (upper bound), or, for PR only, "careful_interpolation".

    Example:
      >>> metric = auc([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])
      >>> round(float(metric.compute()), 4)
      0.75
    """
    curve = check_choice("curve", curve, ("ROC", "PR"))
    methods = ("trapezoidal", "minoring", "majoring", "careful_interpolation")
    method = check_choice("summation_method", summation_method, methods)
    if curve == "ROC" and method == "careful_interpolation":
        raise MetricError("auc: careful_interpolation is for curve='PR' only")
    inner = inner_thresholds(num_thresholds, thresholds)
    grid = [-EPSILON, *inner, 1 + EPSILON]
    sums = counts_at(unit_scores(labels, predictions, weights), grid)
    return from_sums(sums, _smooth_area, curve=curve, method=method)


@document_metric(
    "a scalar within [0, 1]",
    wrong_value="`specificity` is missing or outside [0, 1]. "
    "A prediction is outside [0, 1] or NaN",
)
def sensitivity_at_specificity(
    labels: Data | None = None,
    predictions: Data | None = None,
    specificity: float | None = None,
    weights: Data | None = None,
    num_thresholds: int = 200,
    *,
    name: str | None = None,
) -> Sums:
    """Return the sensitivity where the specificity is nearest to a value.

    `metrics.sensitivity_at_specificity` takes the best threshold instead of the
    nearest.

    Args:
      specificity: The wanted specificity (true negative rate), within [0, 1].
      num_thresholds: How many thresholds are tried, evenly spaced.

    Example:
      >>> metric = sensitivity_at_specificity([0, 1], [0.2, 0.8], specificity=1.0)
      >>> round(float(metric.compute()), 4)
      1.0
    """
    target = require("specificity", specificity)
    check_unit_interval("specificity", [target])
    inner = inner_thresholds(num_thresholds, None)
    grid = [-EPSILON, *inner, 1 + EPSILON]
    sums = counts_at(unit_scores(labels, predictions, weights), grid)
    return from_sums(sums, _nearest_sensitivity, target=target)


@document_metric(
    "a scalar within [0, 1]",
    wrong_value="`sensitivity` is missing or outside [0, 1]. "
    "A prediction is outside [0, 1] or NaN",
)
def specificity_at_sensitivity(
    labels: Data | None = None,
    predictions: Data | None = None,
    sensitivity: float | None = None,
    weights: Data | None = None,
    num_thresholds: int = 200,
    *,
    name: str | None = None,
) -> Sums:
    """Return the specificity where the sensitivity is nearest to a value.

    `metrics.specificity_at_sensitivity` takes the best threshold instead of the
    nearest.

    Args:
      sensitivity: The wanted sensitivity (true positive rate), within [0, 1].
      num_thresholds: How many thresholds are tried, evenly spaced.

    Example:
      >>> metric = specificity_at_sensitivity([0, 1], [0.2, 0.8], sensitivity=1.0)
      >>> round(float(metric.compute()), 4)
      1.0
    """
    target = require("sensitivity", sensitivity)
    check_unit_interval("sensitivity", [target])
    inner = inner_thresholds(num_thresholds, None)
    # The last threshold lies below 1, as in TF 1: a score of 1 passes all thresholds.
    grid = [-EPSILON, *inner, 1 - EPSILON]
    sums = counts_at(unit_scores(labels, predictions, weights), grid)
    return from_sums(sums, _nearest_specificity, target=target)


def _smooth_area(sums: Accumulators, *, curve: str, method: str) -> jax.Array:
    counts = confusion(sums)
    if method == "careful_interpolation":
        return interpolated_pr_area(counts)
    tp, fp, tn, fn = counts
    tpr = (tp + _SMOOTHING) / (tp + fn + _SMOOTHING)
    if curve == "ROC":
        return step_areas(fp / (fp + tn + _SMOOTHING), tpr, method)
    return step_areas(tpr, (tp + _SMOOTHING) / (tp + fp + _SMOOTHING), method)


def _nearest_sensitivity(sums: Accumulators, *, target: float) -> jax.Array:
    tp, fp, tn, fn = confusion(sums)
    held = tn / (tn + fp + EPSILON)
    nearest = jnp.argmin(jnp.abs(held - target))  # the first of equals
    return (tp / (tp + fn + EPSILON))[nearest]


def _nearest_specificity(sums: Accumulators, *, target: float) -> jax.Array:
    tp, fp, tn, fn = confusion(sums)
    held = tp / (tp + fn + EPSILON)
    distance = jnp.abs(held - target)
    nearest = distance.size - 1 - jnp.argmin(jnp.flip(distance))  # the last of equals
    return (tn / (tn + fp + EPSILON))[nearest]
