"""The numbers of a calibration, from held-out labels and probabilities.

    arrays = fit("isotonic", labels, probabilities, weights)

Everything is NumPy in float64. `fitted.py` applies the arrays on the device.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Method = Literal["temperature", "platt", "isotonic"]

TINY = 1e-37  # float32 has no logarithm of a smaller probability


def fit(
    method: Method, labels: Array, probabilities: Array, weights: Array
) -> dict[str, Array]:
    """Return the arrays of a calibration, float32.

    Args:
      method: Temperature, Platt or isotonic.
      labels: Class ids, [N]; of two classes also numbers between 0 and 1.
      probabilities: Probabilities of the classes, [N, K].
      weights: Weights of the rows, [N].
    """
    p = probabilities.astype(np.float64)
    if method == "temperature":
        return {"temperature": _float32(_temperature(labels, p, weights))}
    # Of two classes the second; of more, each class against the others.
    several = p.shape[1] > 2
    classes = range(p.shape[1]) if several else [1]
    truth = [(labels == k).astype(float) if several else labels for k in classes]
    if method == "platt":
        found = [
            _platt(y, _logits(p, k), weights)
            for k, y in zip(classes, truth, strict=True)
        ]
        return {"slopes": _float32(found)[:, 0], "offsets": _float32(found)[:, 1]}
    curves = [
        _isotonic(y, p[:, k], weights) for k, y in zip(classes, truth, strict=True)
    ]
    # Padded to a power of two with the last point, so that the program of the next
    # export is the same, with other numbers.
    most = max(len(curve) for curve in curves)
    size = 1 << (most - 1).bit_length()
    padded = [np.pad(c, ((0, size - len(c)), (0, 0)), mode="edge") for c in curves]
    points = _float32(padded)  # [classes, points, 2]
    return {"given": points[..., 0], "calibrated": points[..., 1]}


def _float32(values: Any) -> Array:
    return np.asarray(values, np.float32)


def _logits(p: Array, k: int) -> Array:
    """Return the log odds of class k; exact where its probability is almost 1."""
    rest = np.delete(p, k, axis=1).sum(axis=1)
    odds: Array = np.log(np.maximum(p[:, k], TINY)) - np.log(np.maximum(rest, TINY))
    return odds


def _temperature(labels: Array, p: Array, weights: Array) -> float:
    """Return the temperature with the least log loss."""
    from scipy import optimize, special  # takes 0.1 s to import

    logs = np.log(np.maximum(p, TINY))
    share = weights / weights.sum()
    if p.shape[1] == 2:
        chosen = labels * logs[:, 1] + (1 - labels) * logs[:, 0]
    else:
        chosen = np.take_along_axis(logs, labels.astype(int)[:, None], axis=1)[:, 0]

    def loss(log_beta: float) -> float:
        beta = np.exp(log_beta)
        norm = special.logsumexp(beta * logs, axis=1)
        return float(share @ (norm - beta * chosen))

    found = optimize.minimize_scalar(loss, bounds=(-5, 5), method="bounded")
    return float(np.exp(-found.x))


def _platt(labels: Array, logits: Array, weights: Array) -> tuple[float, float]:
    """Return slope and offset of the logit with the least log loss.

    The labels are smoothed as by Platt (1999), so that rows which are perfectly
    separated have finite numbers.
    """
    from scipy import optimize, special

    yes, no = float(weights @ labels), float(weights @ (1 - labels))
    target = labels * (yes + 1) / (yes + 2) + (1 - labels) / (no + 2)
    share = weights / weights.sum()

    def loss(given: Array) -> tuple[float, Array]:
        scores = given[0] * logits + given[1]
        value = share @ (np.logaddexp(0, scores) - target * scores)
        error = share * (special.expit(scores) - target)
        return float(value), np.array([error @ logits, error.sum()])

    found = optimize.minimize(loss, np.array([1.0, 0.0]), jac=True, method="BFGS")
    return float(found.x[0]), float(found.x[1])


def _isotonic(labels: Array, p: Array, weights: Array) -> Array:
    """Return points [P, 2] of the rising curve with the least squared error."""
    from scipy import optimize

    is_counted = weights > 0
    given, place = np.unique(p[is_counted], return_inverse=True)
    weight = np.bincount(place, weights[is_counted])
    mean = np.bincount(place, (weights * labels)[is_counted]) / weight
    found = optimize.isotonic_regression(mean, weights=weight).x
    # Of each level only its ends: between them the curve is flat.
    is_end = np.ones(len(found), bool)
    is_end[1:-1] = (found[1:-1] != found[:-2]) | (found[1:-1] != found[2:])
    return np.stack([given, found], axis=1)[is_end]
