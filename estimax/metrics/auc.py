"""Area under the ROC or precision-recall curve, over all examples or within groups.

    auc(labels, scores, weights).merge(...).compute()
    auc(labels, scores, curve="PR")
    group_auc(labels, scores, user_ids, num_groups=1000)

`auc` is `tf.keras.metrics.AUC`, which the heads report: approximated at
200 thresholds and not computed from sorted scores, so that the state has a fixed size
and merges by adding. `metrics.v1.auc` has the smoothing of `tf.compat.v1.metrics.auc`.

The ROC area within a group is the share of pairs (positive, negative) that the scores
put in the right order; equal scores count half.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from estimax.metrics.inputs import Data, check_given, guard_weights, label_pair
from estimax.metrics.metric import (
    Accumulators,
    MetricError,
    Sums,
    from_sums,
    ratio,
    safe_div,
)
from estimax.metrics.thresholds import (
    EPSILON,
    Confusion,
    check_unit_interval,
    confusion,
    count,
    count_passed_even,
    count_passed_sorted,
    is_even,
    score_pair,
)

_AVERAGES = ("weight", "group")


def auc(
    labels: Data | None = None,
    predictions: Data | None = None,
    weights: Data | None = None,
    *,
    curve: str = "ROC",
    num_thresholds: int = 200,
    thresholds: Sequence[float] | None = None,
    summation_method: str = "interpolation",
    multi_label: bool = False,
    num_labels: int | None = None,
    label_weights: Sequence[float] | None = None,
    from_logits: bool = False,
) -> Sums:
    """Return the area under the ROC or the precision-recall curve.

    Use it to measure how well scores separate positive from negative labels, whatever
    the threshold. It is `keras.metrics.AUC`, approximated at fixed thresholds, so that
    its state has a fixed size. For `tf.compat.v1.metrics.auc` see `metrics.v1.auc`.

    Args:
      labels: True labels, [B], or [B, L] for L labels of an example. A label that is
        not 0 is positive.
      predictions: Scores, in the shape of the labels up to one trailing axis of size 1.
        They are clipped to [0, 1].
      weights: Example weights: a scalar, or an array that broadcasts to the
        predictions, such as [B]. By default every example weighs 1.
      curve: "ROC" or "PR" (precision-recall).
      num_thresholds: How many thresholds approximate the curve, evenly spaced. More are
        more exact and take more memory.
      thresholds: Thresholds within [0, 1] instead of the even ones. One below 0 and one
        above 1 are added.
      summation_method: "interpolation" (trapezoids for ROC; for PR, precision is
        interpolated as Davis and Goadrich do), "minoring" (lower bound) or "majoring"
        (upper bound).
      multi_label: If true, each of L columns has its own curve and the areas are
        averaged. By default all columns share one curve.
      num_labels: The number of columns L. Needed only if `multi_label` is true and no
        data is given.
      label_weights: L weights of the columns: of their areas if `multi_label` is true,
        else of their examples.
      from_logits: If true, predictions are logits, to which a sigmoid is applied.

    Returns:
      A `Sums` of this batch. Merge those of all batches, then call `compute` for the
      area, a scalar within [0, 1]. Without data, the metric before any data.

    Raises:
      MetricError: `curve`, `summation_method`, `num_thresholds` or `thresholds` is not
        as described, `num_labels` is missing, shapes do not fit each other, only some
        of the arrays are given, or a prediction is NaN. Inside `jit`, where values
        cannot be checked, the result is NaN instead.

    Example:
      >>> float(auc([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]).compute())
      0.75
    """
    curve = check_choice("curve", curve.upper(), ("ROC", "PR"))
    methods = ("interpolation", "minoring", "majoring")
    method = check_choice("summation_method", summation_method, methods)
    inner = inner_thresholds(num_thresholds, thresholds)
    no_data = (0, num_labels or 1) if multi_label else (0,)
    if multi_label and labels is None and num_labels is None:
        raise MetricError("auc: multi_label without data needs num_labels")
    truth, scores, weighted = score_pair(labels, predictions, weights, no_data=no_data)
    column_weights = _column_weights(label_weights)
    if column_weights is not None and not multi_label and labels is not None:
        weighted = weighted * jnp.asarray(column_weights, jnp.float32)
    if from_logits:
        scores = jax.nn.sigmoid(scores)
    if not multi_label:
        truth, scores, weighted = truth.ravel(), scores.ravel(), weighted.ravel()
    passed = _count_passed(scores, inner, even=thresholds is None)
    sums = {"counts": count(truth, passed, weighted, len(inner) + 2)}
    return from_sums(
        sums,
        _area,
        curve=curve,
        method=method,
        label_weights=column_weights if multi_label else None,
    )


def group_auc(
    labels: Data | None = None,
    predictions: Data | None = None,
    groups: Data | None = None,
    weights: Data | None = None,
    *,
    num_groups: int,
    num_buckets: int = 100,
    average: str = "weight",
) -> Sums:
    """Return the mean of the ROC areas within groups.

    Use it to measure how well the items of each user are ordered, regardless of how
    users compare. Examples of a group may be in different batches. The state holds
    `num_groups` * `num_buckets` numbers twice; for more groups use `batch_group_auc`.
    Groups with only positive or only negative labels do not count.

    Args:
      labels: True labels, [B] or any shape. A label that is not 0 is positive.
      predictions: Scores within [0, 1], in the shape of the labels.
      groups: Group ids, in the shape of the labels; for example user ids. From 0 to
        `num_groups` - 1.
      weights: Example weights: a scalar, or an array that broadcasts to the
        predictions, such as [B]. By default every example weighs 1.
      num_groups: One more than the highest group id.
      num_buckets: Into how many buckets the scores fall. Scores in one bucket count as
        equal.
      average: "weight" weighs the area of a group by the weights of its examples,
        "group" weighs all groups the same.

    Returns:
      A `Sums` of this batch. Merge those of all batches, then call `compute` for the
      mean area, a scalar within [0, 1]. Without data, the metric before any data.

    Raises:
      MetricError: A group id is out of range, `average`, `num_groups` or `num_buckets`
        is not as described, shapes do not fit each other, only some of the arrays are
        given, or a prediction is NaN. Inside `jit`, where values cannot be checked, the
        result is NaN instead.

    Example:
      >>> labels, scores = [0, 1, 1, 0], [0.1, 0.2, 0.8, 0.9]
      >>> metric = group_auc(labels, scores, [7, 7, 3, 3], num_groups=10)
      >>> float(metric.compute())
      0.5
    """
    check_choice("average", average, _AVERAGES)
    if min(num_groups, num_buckets) < 1:
        raise MetricError("num_groups and num_buckets must be at least 1")
    truth, scores, ids, weighted = _flatten_groups(labels, predictions, groups, weights)
    inside = (ids >= 0) & (ids < num_groups)
    problem = f"groups must be ids from 0 to {num_groups - 1}"
    weighted = guard_weights(weighted, inside, problem)
    bins = num_buckets + 1
    # One bin for each pair of group and bucket, numbered group by group.
    own = jnp.where(inside, ids, 0) * bins + count_passed_even(scores, bins)
    flat = count(truth, own, weighted, num_groups * bins - 1)
    sums = {"counts": flat.reshape(2, num_groups, bins)}
    return from_sums(sums, _mean_area, average=average)


def batch_group_auc(
    labels: Data | None = None,
    predictions: Data | None = None,
    groups: Data | None = None,
    weights: Data | None = None,
    *,
    average: str = "weight",
) -> Sums:
    """Return the mean of the exact ROC areas within the groups of a batch.

    Use it instead of `group_auc` if there are many groups and all examples of a group
    are in one batch: areas are exact, ids and scores are arbitrary, and the state is
    two numbers. A group that spans batches counts once for each of them.

    Args:
      labels: True labels, [B] or any shape. A label that is not 0 is positive.
      predictions: Scores, in the shape of the labels.
      groups: Group ids, in the shape of the labels; for example user ids.
      weights: Example weights: a scalar, or an array that broadcasts to the
        predictions, such as [B]. By default every example weighs 1.
      average: "weight" weighs the area of a group by the weights of its examples,
        "group" weighs all groups the same.

    Returns:
      A `Sums` of this batch. Merge those of all batches, then call `compute` for the
      mean area, a scalar within [0, 1]. Without data, the metric before any data.

    Raises:
      MetricError: `average` is unknown, shapes do not fit each other, only some of the
        arrays are given, or a prediction is NaN. Inside `jit`, where values cannot be
        checked, the result is NaN instead.

    Example:
      >>> labels, scores = [0, 1, 1, 0], [0.1, 0.2, 0.8, 0.9]
      >>> float(batch_group_auc(labels, scores, [70, 70, -3, -3]).compute())
      0.5
    """
    check_choice("average", average, _AVERAGES)
    truth, scores, ids, weighted = _flatten_groups(labels, predictions, groups, weights)
    order = jnp.lexsort((scores, ids))
    truth, scores, ids, weighted = (x[order] for x in (truth, scores, ids, weighted))
    # A run is the examples of one group with one score. Runs are numbered by group,
    # then by ascending score, so cumulative sums over runs count the pairs in order.
    new_group = _changes(ids)
    run = jnp.cumsum(new_group | _changes(scores)) - 1
    group_of_example = jnp.cumsum(new_group) - 1
    size = truth.size
    negatives = jax.ops.segment_sum(jnp.where(truth == 0, weighted, 0.0), run, size)
    positives = jax.ops.segment_sum(jnp.where(truth != 0, weighted, 0.0), run, size)
    group = jax.ops.segment_max(group_of_example, run, size)

    def by_group(values: jax.Array) -> jax.Array:
        return jax.ops.segment_sum(values, group, size)

    # Negatives below a run: those of all earlier runs, minus those of earlier groups.
    before = jnp.cumsum(negatives) - negatives
    all_negatives = by_group(negatives)
    earlier_groups = jnp.cumsum(all_negatives) - all_negatives
    below = before - jnp.take(earlier_groups, group, mode="clip")
    won = by_group(positives * (below + negatives / 2))
    return from_sums(
        _area_sums(won, by_group(positives), all_negatives, average), ratio
    )


def inner_thresholds(
    num_thresholds: int, thresholds: Sequence[float] | None
) -> tuple[float, ...]:
    """Return the ascending thresholds, without the two ends just outside [0, 1]."""
    if thresholds is not None:
        check_unit_interval("thresholds", thresholds)
        return tuple(sorted(thresholds))
    if num_thresholds <= 1:
        raise MetricError(f"auc: num_thresholds must be above 1, got {num_thresholds}")
    last = num_thresholds - 1
    return tuple(i / last for i in range(1, last))


def step_areas(x: jax.Array, y: jax.Array, method: str) -> jax.Array:
    """Return the area under the points (x, y), with x descending, by this method."""
    heights = {
        "interpolation": (y[:-1] + y[1:]) / 2,
        "trapezoidal": (y[:-1] + y[1:]) / 2,
        "minoring": jnp.minimum(y[:-1], y[1:]),
        "majoring": jnp.maximum(y[:-1], y[1:]),
    }
    return jnp.sum((x[:-1] - x[1:]) * heights[method], axis=0)


def interpolated_pr_area(counts: Confusion) -> jax.Array:
    """Return the precision-recall area, with precision interpolated in each step.

    Between two thresholds, true positives are assumed to grow linearly with predicted
    positives (Davis and Goadrich, 2006). Precision is then not linear in recall, and a
    trapezoid would be too optimistic.
    """
    tp, fn = counts.tp, counts.fn
    positives = tp + counts.fp
    gained = tp[:-1] - tp[1:]
    # tp = slope * positives + intercept. The area of a step is the integral of
    # tp / positives over tp, divided by the number of positive labels.
    slope = safe_div(gained, jnp.maximum(positives[:-1] - positives[1:], 0.0))
    intercept = tp[1:] - slope * positives[1:]
    both = (positives[:-1] > 0) & (positives[1:] > 0)
    # The inner `where` keeps 0/0 out of the branch that is not taken.
    quotient = positives[:-1] / jnp.where(both, positives[1:], 1.0)
    log_ratio = jnp.log(jnp.where(both, quotient, 1.0))
    area = slope * (gained + intercept * log_ratio)
    return jnp.sum(safe_div(area, jnp.maximum(tp[1:] + fn[1:], 0.0)), axis=0)


def check_choice(name: str, value: str, choices: Sequence[str]) -> str:
    """Return the value; raise `MetricError` if it is not one of the choices."""
    if value not in choices:
        raise MetricError(f"{name} must be one of {', '.join(choices)}; got {value!r}")
    return value


def _count_passed(
    scores: jax.Array, inner: tuple[float, ...], *, even: bool
) -> jax.Array:
    """Return how many thresholds each score passes, counting the two ends."""
    if even or is_even([0.0, *inner, 1.0]):
        return jnp.maximum(count_passed_even(scores, len(inner) + 2), 1)
    return count_passed_sorted(scores, [-EPSILON, *inner, 1 + EPSILON])


def _column_weights(weights: Sequence[float] | None) -> tuple[float, ...] | None:
    return None if weights is None else tuple(np.asarray(weights, float).tolist())


def _area(
    sums: Accumulators,
    *,
    curve: str,
    method: str,
    label_weights: tuple[float, ...] | None,
) -> jax.Array:
    counts = confusion(sums)
    tpr = safe_div(counts.tp, counts.tp + counts.fn)
    if curve == "ROC":
        fpr = safe_div(counts.fp, counts.fp + counts.tn)
        areas = step_areas(fpr, tpr, method)
    elif method == "interpolation":
        areas = interpolated_pr_area(counts)
    else:
        areas = step_areas(tpr, safe_div(counts.tp, counts.tp + counts.fp), method)
    if label_weights is None:
        return jnp.mean(areas)  # of one area, unless multi_label
    by_label = jnp.asarray(label_weights, jnp.float32)
    return safe_div(jnp.sum(areas * by_label), jnp.sum(by_label))


def curve_counts(metric: object) -> NDArray[np.float64] | None:
    """Return the counts behind an ROC area: tp, fp, tn and fn at T thresholds, [4, T].

    Thresholds ascend from just below 0 to just above 1, and a given number of them is
    evenly spaced. None if the metric is not the area of one ROC curve.

    >>> tp, fp, _, _ = curve_counts(auc([0, 1], [0.2, 0.7], num_thresholds=3))
    >>> tp.tolist(), fp.tolist()
    ([1.0, 1.0, 0.0], [1.0, 0.0, 0.0])
    """
    if not isinstance(metric, Sums) or metric.result is not _area:
        return None
    counts = metric.sums["counts"]
    if dict(metric.options)["curve"] != "ROC" or counts.ndim != 2:
        return None
    # What `confusion` returns, in NumPy: nothing is compiled for it.
    negatives, positives = np.asarray(counts, np.float64)
    tp, fp = (np.cumsum(part[:0:-1])[::-1] for part in (positives, negatives))
    return np.stack([tp, fp, np.cumsum(negatives[:-1]), np.cumsum(positives[:-1])])


def _flatten_groups(
    labels: Data | None,
    predictions: Data | None,
    groups: Data | None,
    weights: Data | None,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Return labels, scores, group ids and weights, all flat."""
    check_given(labels=labels, predictions=predictions, groups=groups, weights=weights)
    truth, scores, weighted = score_pair(labels, predictions, weights)
    ids, _ = label_pair(groups, labels)
    ids = ids.astype(jnp.int32)
    return truth.ravel(), scores.ravel(), ids.ravel(), weighted.ravel()


def _changes(values: jax.Array) -> jax.Array:
    """Return whether a value differs from the one before it; True for the first."""
    differs = values[1:] != values[:-1]
    return jnp.concatenate([jnp.ones_like(values[:1], bool), differs])


def _mean_area(sums: Accumulators, *, average: str) -> jax.Array:
    negatives, positives = sums["counts"]  # [G, bins]
    below = jnp.cumsum(negatives, axis=1) - negatives
    won = jnp.sum(positives * (below + negatives / 2), axis=1)
    n, p = jnp.sum(negatives, axis=1), jnp.sum(positives, axis=1)
    return ratio(_area_sums(won, p, n, average))


def _area_sums(
    won: jax.Array, positives: jax.Array, negatives: jax.Array, average: str
) -> dict[str, jax.Array]:
    """Return total and count of the areas; `won` is the weight of pairs in order."""
    pairs = positives * negatives
    share = positives + negatives if average == "weight" else jnp.ones_like(pairs)
    share = jnp.where(pairs == 0, 0.0, share)
    return {
        "total": jnp.sum(share * safe_div(won, pairs)),
        "count": jnp.sum(share),
    }
