"""Numbers behind the figures of a report, computed exactly with NumPy from rows.

    curve = threshold_curve(labels, scores, weights)
    curve.roc_area

Everything takes weights, one for each row. Nothing here draws or reads files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class ThresholdCurve:
    """Rates at every distinct score, thresholds descending; a row counts if >=.

    Attributes:
      thresholds: The thresholds [T]; the first one, infinity, is above every score.
      tp: Weight of positive labels at or above each threshold.
      fp: Weight of negative labels at or above each threshold.
    """

    thresholds: Array
    tp: Array
    fp: Array

    @property
    def recall(self) -> Array:
        return np.asarray(self.tp / self.tp[-1])

    @property
    def false_positive_rate(self) -> Array:
        return np.asarray(self.fp / self.fp[-1])

    @property
    def precision(self) -> Array:
        total = self.tp + self.fp
        ones = np.ones_like(self.tp)
        return np.asarray(np.divide(self.tp, total, out=ones, where=total > 0))

    @property
    def f1(self) -> Array:
        # tp / (tp + (fp + fn) / 2), which is 0 where nothing is predicted positive.
        return np.asarray(2 * self.tp / (self.tp + self.fp + self.tp[-1]))

    @property
    def roc_area(self) -> float:
        return float(np.trapezoid(self.recall, self.false_positive_rate))

    @property
    def average_precision(self) -> float:
        return float(np.sum(np.diff(self.recall) * self.precision[1:]))

    def at(self, threshold: float) -> int:
        """Return the place of the lowest threshold that is not below the given one."""
        return int(np.searchsorted(-self.thresholds, -threshold, side="right")) - 1


def threshold_curve(
    labels: Array, scores: Array, weights: Array
) -> ThresholdCurve | None:
    """Return the rates of all thresholds; None without positive or negative labels.

    Args:
      labels: Labels within [0, 1], [N]; one between counts partly as both.
      scores: Scores, [N].
      weights: Weights, [N].

    >>> curve = threshold_curve(
    ...     np.array([0, 0, 1, 1]), np.array([0.1, 0.4, 0.35, 0.8]), np.ones(4)
    ... )
    >>> curve.roc_area, round(curve.average_precision, 4)
    (0.75, 0.8333)
    """
    order = np.argsort(-scores, kind="stable")
    ordered = scores[order]
    positive = np.cumsum((labels * weights)[order])
    negative = np.cumsum(((1 - labels) * weights)[order])
    # Rows of equal scores pass a threshold together.
    last = np.append(np.flatnonzero(np.diff(ordered)), len(ordered) - 1)
    tp, fp = (np.append(0.0, part[last]) for part in (positive, negative))
    if not (tp[-1] > 0 and fp[-1] > 0):
        return None
    return ThresholdCurve(np.append(np.inf, ordered[last]), tp, fp)


def confusion(labels: Array, guesses: Array, weights: Array, classes: int) -> Array:
    """Return the weights [label, prediction] of class ids.

    >>> confusion(np.array([0, 1]), np.array([0, 0]), np.ones(2), 2).tolist()
    [[1.0, 0.0], [1.0, 0.0]]
    """
    cells = labels.astype(int) * classes + guesses.astype(int)
    return np.bincount(cells, weights, classes**2).reshape(classes, classes)


def mean(values: Array, weights: Array) -> float:
    """Return the weighted mean; NaN if there is no weight."""
    total = weights.sum()
    return float((values * weights).sum() / total) if total > 0 else float("nan")


@dataclass(frozen=True)
class Ranking:
    """How well scores order the rows within groups, such as the items of a query.

    Attributes:
      groups: The number of groups with different labels; others cannot be ranked.
      auc: Mean ROC area of the groups, of labels above 0 against others.
      reciprocal_rank: Mean of 1 / rank of the first row with a label above 0.
      ndcg: Mean normalized discounted cumulative gain at 1, 3, 5 and 10.
      sizes: The number of rows of each group.
      group_ndcg: NDCG at 10 of each group.
      names: Which group is which.
    """

    groups: int
    auc: float
    reciprocal_rank: float
    ndcg: dict[int, float]
    sizes: Array
    group_ndcg: Array
    names: Array


def ranking(labels: Array, scores: Array, groups: Array) -> Ranking | None:
    """Return ranking metrics; None if no group has different labels.

    >>> found = ranking(
    ...     np.array([1.0, 0.0, 0.0, 1.0]), np.array([0.9, 0.1, 0.8, 0.3]),
    ...     np.array(["a", "a", "b", "b"]),
    ... )
    >>> found.groups, found.auc, found.reciprocal_rank, found.ndcg[1]
    (2, 0.5, 0.75, 0.5)
    """
    names, places = np.unique(groups, return_inverse=True)
    order = np.argsort(places, kind="stable")
    starts = np.searchsorted(places[order], np.arange(len(names) + 1))
    kept, areas, ranks, gains = [], [], [], []
    for index in range(len(names)):
        rows = order[starts[index] : starts[index + 1]]
        found, given = labels[rows], scores[rows]
        if found.max() == found.min():
            continue
        ranked = found[np.argsort(-given, kind="stable")]
        kept.append((index, len(rows)))
        curve = threshold_curve((found > 0).astype(float), given, np.ones(len(rows)))
        areas.append(np.nan if curve is None else curve.roc_area)
        relevant = np.flatnonzero(ranked > 0)
        ranks.append(1 / (1 + relevant[0]) if len(relevant) else 0.0)
        gains.append([_ndcg(ranked, k) for k in (1, 3, 5, 10)])
    if not kept:
        return None
    at = np.mean(gains, axis=0)
    return Ranking(
        groups=len(kept),
        auc=float(np.nanmean(areas)) if np.isfinite(areas).any() else float("nan"),
        reciprocal_rank=float(np.mean(ranks)),
        ndcg={k: float(value) for k, value in zip((1, 3, 5, 10), at, strict=True)},
        sizes=np.array([size for _, size in kept]),
        group_ndcg=np.array(gains)[:, 3],
        names=names[[index for index, _ in kept]],
    )


def _ndcg(ranked: Array, k: int) -> float:
    """Return NDCG at k with gains 2^label - 1, of labels in the order of scores."""
    discounts = 1 / np.log2(np.arange(2, min(k, len(ranked)) + 2))
    best = np.sort(ranked)[::-1]
    gained, possible = (
        float(((2.0 ** part[:k] - 1) * discounts).sum()) for part in (ranked, best)
    )
    return gained / possible if possible > 0 else 0.0
