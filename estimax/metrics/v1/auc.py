"""TF 1's AUC and operating points: smoothed by small constants, compared exactly.

    auc(labels, scores, weights).compute()
    auc(labels, scores, curve="PR", summation_method="careful_interpolation").compute()

The default PR area is the trapezoid, which is optimistic but is what TF 1 heads print.
Labels all negative give a ROC area near 1, where keras gives 0.
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
from estimax.metrics.inputs import Data
from estimax.metrics.metric import Accumulators, MetricError, Sums, from_sums
from estimax.metrics.thresholds import (
    EPSILON,
    check_unit_interval,
    confusion,
    counts_at,
    unit_scores,
)

# What TF 1 adds to the rates of the AUC; its operating points add EPSILON.
_SMOOTHING = 1e-6


def auc(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    curve: str = "ROC",
    num_thresholds: int = 200,
    thresholds: Sequence[float] | None = None,
    summation_method: str = "trapezoidal",
) -> Sums:
    """The smoothed area under the curve ("ROC" or "PR") of scores within [0, 1].

    `summation_method` is "trapezoidal", "minoring", "majoring", or, for PR only,
    "careful_interpolation". The ends outside [0, 1] are added to `thresholds`.

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
    return from_sums(sums, _smoothed_area, curve=curve, method=method)


def sensitivity_at_specificity(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    specificity: float,
    num_thresholds: int = 200,
) -> Sums:
    """The true positive rate where the true negative rate is nearest to the given.

    >>> metric = sensitivity_at_specificity([0, 1], [0.2, 0.8], specificity=1.0)
    >>> round(float(metric.compute()), 4)
    1.0
    """
    check_unit_interval("specificity", [specificity])
    inner = inner_thresholds(num_thresholds, None)
    grid = [-EPSILON, *inner, 1 + EPSILON]
    sums = counts_at(unit_scores(labels, predictions, weights), grid)
    return from_sums(sums, _nearest_sensitivity, target=specificity)


def specificity_at_sensitivity(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    sensitivity: float,
    num_thresholds: int = 200,
) -> Sums:
    """The true negative rate where the true positive rate is nearest to the given.

    >>> metric = specificity_at_sensitivity([0, 1], [0.2, 0.8], sensitivity=1.0)
    >>> round(float(metric.compute()), 4)
    1.0
    """
    check_unit_interval("sensitivity", [sensitivity])
    inner = inner_thresholds(num_thresholds, None)
    # Here alone the last threshold lies below 1: TF's choice, and visible at score 1.
    grid = [-EPSILON, *inner, 1 - EPSILON]
    sums = counts_at(unit_scores(labels, predictions, weights), grid)
    return from_sums(sums, _nearest_specificity, target=sensitivity)


def _smoothed_area(sums: Accumulators, *, curve: str, method: str) -> jax.Array:
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
