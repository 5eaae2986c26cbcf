"""How well probabilities are calibrated: bins with equal numbers of rows, in NumPy.

found = reliability(labels, predictions, weights)
found.predicted, found.actual, found.weight      # of each bin
found.error                                      # expected calibration error
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_TINY = 1e-7  # smallest probability of which a logarithm is taken


@dataclass(frozen=True)
class Reliability:
    """Bins of predictions with about the same number of rows each.

    Attributes:
      predicted: Mean prediction of each bin.
      actual: Mean label of each bin.
      weight: Weight of the rows of each bin.
    """

    predicted: Array
    actual: Array
    weight: Array

    @property
    def error(self) -> float:
        """The mean distance between prediction and label over the bins."""
        gaps = np.abs(self.predicted - self.actual)
        return float(np.average(gaps, weights=self.weight))


def reliability(
    labels: Array, predictions: Array, weights: Array, bins: int = 15
) -> Reliability:
    """Return mean prediction and mean label in bins of equal numbers of rows.

    >>> found = reliability(np.array([0, 1]), np.array([0.2, 0.6]), np.ones(2), bins=1)
    >>> found.predicted.tolist(), found.actual.tolist()
    ([0.4], [0.5])
    """
    parts = rows_of_bins(predictions, weights, bins)
    predicted, actual = (
        np.array([np.average(values[p], weights=weights[p]) for p in parts])
        for values in (predictions, labels)
    )
    return Reliability(predicted, actual, np.array([weights[p].sum() for p in parts]))


def rows_of_bins(predictions: Array, weights: Array, bins: int) -> list[Array]:
    """Return the rows of each bin; bins without weight are left out."""
    order = np.argsort(predictions, kind="stable")
    return [part for part in np.array_split(order, bins) if weights[part].sum() > 0]


def log_losses(labels: Array, probabilities: Array) -> Array:
    """Return the loss of each row: of one probability [N], or of classes [N, K]."""
    p = np.clip(probabilities.astype(np.float64), _TINY, 1 - _TINY)
    if p.ndim == 2:
        losses: Array = -np.log(p[np.arange(len(p)), labels.astype(int)])
        return losses
    losses = -(labels * np.log(p) + (1 - labels) * np.log(1 - p))
    return losses
