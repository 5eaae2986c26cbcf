"""A fitted calibration: its arrays, what it does to probabilities, and how well.

fitted = ex.calibration.Isotonic().fit(labels, probabilities)
fitted.apply(probabilities)
fitted.report["expected_calibration_error"]     # before and after
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from estimax.calibration.fitting import TINY, Method, fit
from estimax.calibration.measures import log_losses, reliability, rows_of_bins

Array = NDArray[Any]

_FOLDS = 5
_BINS = 15
_ROWS_OF_TABLE = 10


@dataclass(frozen=True, eq=False)
class FittedCalibration:
    """A calibration with its numbers, ready to be applied.

    `Isotonic.fit` and the other methods make one. Pass it to `export_saved_model` as
    `calibration` if the rows to fit on are not those of an `input_fn`.

    Args:
      method: "temperature", "platt" or "isotonic".
      arrays: The numbers of the calibration, by name.
      report: How well probabilities are calibrated before and after, as JSON values:
        "expected_calibration_error" and "log_loss", each with "before" and "after", and
        a table "bins". They are measured on rows that were left out of a fit: a fifth
        at a time. Of more than two classes, it is the probability of the predicted
        class that is measured.
      classify: Whether the signatures for classify and regress requests answer with
        calibrated probabilities too.

    Example:
      >>> import estimax as ex
      >>> labels = np.tile([0, 0, 0, 1], 25)
      >>> fitted = ex.calibration.Temperature().fit(labels, np.full(100, 0.25))
      >>> fitted.apply([0.25]).round(2).tolist()
      [[0.75, 0.25]]
    """

    method: Method
    arrays: Mapping[str, Any]
    report: Mapping[str, Any]
    classify: bool = False

    def __repr__(self) -> str:
        error = self.report["expected_calibration_error"]
        return (
            f"FittedCalibration({self.method!r}, rows={self.report['rows']}, "
            f"expected_calibration_error={error['before']:.4f} -> {error['after']:.4f})"
        )

    def apply(self, probabilities: Any) -> Array:
        """Return calibrated probabilities.

        Args:
          probabilities: Probabilities of the classes, [N, K], or of class 1, [N].

        Returns:
          Probabilities, float32 [N, K]; [N, 2] for two classes.
        """
        given = jnp.asarray(_two_columns(np.asarray(probabilities)), jnp.float32)
        return np.asarray(calibrate(self.method, self.arrays, given))


def fit_and_measure(
    method: Method,
    labels: Array,
    probabilities: Array,
    weights: Array,
    *,
    classify: bool,
) -> FittedCalibration:
    """Fit on all rows, and measure on rows that are left out of a fit in turn."""
    rows = labels, probabilities, weights
    folds = _folds(labels)
    after = np.empty_like(probabilities, np.float64)
    for fold in range(folds.max() + 1):
        out = folds == fold
        # Too few rows to leave any out: the fit itself is measured.
        kept = np.ones(len(labels), bool) if folds.max() == 0 else ~out
        arrays = fit(method, *(values[kept] for values in rows))
        given = jnp.asarray(probabilities[out], jnp.float32)
        after[out] = np.asarray(calibrate(method, arrays, given))
    report = {
        "method": method,
        "rows": len(labels),
        "folds": int(folds.max()) + 1,
        **_compare(labels, probabilities, after, weights),
    }
    return FittedCalibration(method, fit(method, *rows), report, classify)


def calibrate(method: Method, arrays: Mapping[str, Any], given: jax.Array) -> jax.Array:
    """Return calibrated probabilities [N, K]; also inside of `jit`."""
    if method == "temperature":
        logs = jnp.log(jnp.maximum(given, TINY))
        return jax.nn.softmax(logs / arrays["temperature"], axis=-1)
    several = given.shape[-1] > 2
    if method == "platt":
        p = given if several else given[:, 1:]
        rest = 1 - given if several else given[:, :1]
        logits = jnp.log(jnp.maximum(p, TINY)) - jnp.log(jnp.maximum(rest, TINY))
        scores = arrays["slopes"] * logits + arrays["offsets"]
        if not several:
            return jnp.concatenate([jax.nn.sigmoid(-scores), jax.nn.sigmoid(scores)], 1)
        found = jax.nn.sigmoid(scores)
    else:
        p = given if several else given[:, 1:]
        curves = jnp.asarray(arrays["given"]), jnp.asarray(arrays["calibrated"])
        found = jax.vmap(jnp.interp, in_axes=(1, 0, 0), out_axes=1)(p, *curves)
        if not several:
            return jnp.concatenate([1 - found, found], axis=1)
    # Each class was calibrated against the others; where no class is left, all are.
    total = found.sum(axis=-1, keepdims=True)
    even = 1 / given.shape[-1]
    return jnp.where(total > 0, found / jnp.where(total > 0, total, 1), even)


def _two_columns(p: Array) -> Array:
    """Return probabilities [N, K], of class 1 alone as [N, 2]."""
    return np.stack([1 - p.reshape(-1), p.reshape(-1)], 1) if p.ndim == 1 else p


def _folds(labels: Array) -> Array:
    """Return the fold of every row; all folds have their share of each class."""
    counts = np.unique(labels.astype(int), return_counts=True)[1]
    count = min(_FOLDS, int(counts.min()))
    folds = np.empty(len(labels), int)
    folds[np.argsort(labels, kind="stable")] = np.arange(len(labels)) % count
    return folds


def _compare(
    labels: Array, before: Array, after: Array, weights: Array
) -> dict[str, Any]:
    """Return the measures before and after as JSON values."""
    if before.shape[1] == 2:
        truth, first, second = labels, before[:, 1], after[:, 1]
        losses = [log_losses(labels, p) for p in (first, second)]
        ends = [(truth, first), (truth, second)]
    else:
        ends = [
            ((p.argmax(axis=1) == labels).astype(float), p.max(axis=1))
            for p in (before, after)
        ]
        (truth, first), (_, second) = ends
        losses = [log_losses(labels, p) for p in (before, after)]
    errors = [reliability(y, p, weights, _BINS).error for y, p in ends]
    means = [float(np.average(loss, weights=weights)) for loss in losses]
    names = ("before", "after")
    return {
        "expected_calibration_error": dict(zip(names, errors, strict=True)),
        "log_loss": dict(zip(names, means, strict=True)),
        "bins": [
            {
                "rows": len(part),
                "before": float(np.average(first[part], weights=weights[part])),
                "after": float(np.average(second[part], weights=weights[part])),
                "actual": float(np.average(truth[part], weights=weights[part])),
            }
            for part in rows_of_bins(first, weights, _ROWS_OF_TABLE)
        ],
    }
