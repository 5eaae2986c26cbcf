"""What the metrics of a trained model say about the run.

perfect_metric({"accuracy": 1.0}, {"accuracy": 0.6})     # "accuracy is 1"
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_ALMOST_ONE = 1 - 1e-6
_ALMOST_ZERO = 1e-4  # a cross entropy that only a leak reaches on unseen rows
_PERFECT_R2 = 0.9999


def perfect_metric(
    metrics: Mapping[str, Any], baseline: Mapping[str, float]
) -> str | None:
    """Return which metric is too good to be true; None if none is.

    Args:
      metrics: The metrics of an evaluation.
      baseline: The metrics of a constant answer on the same rows, as `baseline` returns
        them; empty if they are not known.

    >>> perfect_metric({"average_loss": 0.001}, {"average_loss": 400.0})
    'R² is 0.9999975'
    """
    is_class = "accuracy" in metrics
    if is_class and baseline.get("accuracy", 0.0) >= _ALMOST_ONE:
        return None  # all rows are of one class
    for name in ("accuracy", "auc"):
        if name in metrics and float(metrics[name]) >= _ALMOST_ONE:
            return f"{name} is 1"
    if "average_loss" not in metrics:
        return None
    loss = float(metrics["average_loss"])
    if is_class:
        return f"average_loss is {loss:.2g}" if loss < _ALMOST_ZERO else None
    variance = baseline.get("average_loss", 0.0)
    if not variance or not 1 - loss / variance > _PERFECT_R2:
        return None
    return f"R² is {1 - loss / variance:.7f}"
