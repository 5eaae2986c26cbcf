"""What TensorBoard shows of an evaluation besides numbers: curves and matrices.

Everything is computed from sums that the metrics hold anyway: "auc" counts positive and
negative labels at 200 thresholds, and "accuracy" of several classes holds the matrix.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.heads.kept_sums import table_of
from estimax.hooks.summary import curves
from estimax.metrics.auc import curve_counts

Value = tuple[str, str, Any]  # kind, name and value, as `SummaryWriter.add` takes them

_CALIBRATION_BINS = 10
_MOST_CELLS = 20  # classes of a matrix that is also written as a table of numbers


def curve_summaries(metrics: Mapping[str, Any]) -> list[Value]:
    """Return the curves and matrices of the metrics of an evaluation."""
    found: list[Value] = []
    for name, metric in metrics.items():
        counts = curve_counts(metric)
        # The default of `metrics.auc`. Thresholds that a user chose may be uneven.
        if counts is not None and counts.shape[1] == 200:
            found += _binary(_suffix(name, "auc"), counts)
        table = table_of(metric)
        if table is not None:
            found += _matrix(_suffix(name, "accuracy"), table, range(len(table)))
    return found


def _suffix(name: str, usual: str) -> str:
    """Return "/click" for the metric "auc/click" of a head that is named "click"."""
    return name.removeprefix(usual) if name.startswith(usual) else f"/{name}"


def _binary(suffix: str, counts: NDArray[Any]) -> Iterator[Value]:
    tp, fp, tn, fn = counts
    positives, negatives = tp[0] + fn[0], fp[0] + tn[0]
    if not (positives > 0 and negatives > 0):
        return
    yield "pr_curve", f"pr_curve{suffix}", counts
    # From the highest threshold on, so that the line starts at the lower left.
    roc = curves.draw_curve((fp / negatives)[::-1], (tp / positives)[::-1])
    yield "image", f"roc{suffix}", roc
    predicted, actual, _ = calibration(tp, fp)
    yield (
        "image",
        f"calibration{suffix}",
        curves.draw_curve(predicted, actual, marks=True),
    )
    half = len(tp) // 2
    table = np.array([[tn[half], fp[half]], [fn[half], tp[half]]])
    yield from _matrix(suffix, table, (0, 1))


def calibration(tp: NDArray[Any], fp: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """Return mean prediction, share of positive labels and weight of each score bin.

    Args:
      tp: Weight of positive labels above each of T evenly spaced thresholds, [T].
      fp: Weight of negative labels above each threshold, [T].

    Returns:
      Three arrays of up to 10 bins; bins without a label are left out. The prediction
      of an example counts as the middle between the two thresholds around it.
    """
    positives, negatives = -np.diff(tp), -np.diff(fp)
    weights = positives + negatives
    middles = (np.arange(len(weights)) + 0.5) / len(weights)
    bins = np.minimum((middles * _CALIBRATION_BINS).astype(int), _CALIBRATION_BINS - 1)
    weight, predicted, actual = (
        np.bincount(bins, values, _CALIBRATION_BINS)
        for values in (weights, weights * middles, positives)
    )
    kept = weight > 0
    weight = weight[kept]
    return predicted[kept] / weight, actual[kept] / weight, weight


def _matrix(
    suffix: str, table: NDArray[Any], classes: Sequence[Any]
) -> Iterator[Value]:
    yield "image", f"confusion{suffix}", curves.draw_matrix(table)
    if len(table) <= _MOST_CELLS:
        yield "text", f"confusion{suffix}", _as_markdown(table, classes)


def _as_markdown(table: NDArray[Any], classes: Sequence[Any]) -> str:
    heading = "| label \\ prediction | " + " | ".join(map(str, classes)) + " |"
    rows = [
        f"| **{name}** | " + " | ".join(f"{n:,.6g}" for n in row) + " |"
        for name, row in zip(classes, table, strict=True)
    ]
    return "\n".join([heading, "|---" * (len(classes) + 1) + "|", *rows])
