"""Fit a calibration on what a trained model predicts for held-out rows.

    fitted = fit(method, estimator.labeled_predictions(method.input_fn, ...))

Labels and weights of the rows are raw values: the program is that of `predict`, and the
feed hands them on as they are.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.calibration import FittedCalibration
from estimax.calibration.methods import CalibrationMethod, class_ids
from estimax.core.device_dtypes import Forwarded
from estimax.core.errors import FeatureError, LabelError, SpecError, did_you_mean
from estimax.core.sparse import Sparse
from estimax.staging import host_plan as plans
from estimax.staging.trace import Origin

_log = logging.getLogger("estimax")
_NEEDED = ("probabilities", "all_classes")  # predictions that a calibration reads


@dataclass(frozen=True)
class RawRows:
    """Which raw values a calibration needs beside the predictions.

    Attributes:
      label: The label.
      weight: The feature with the example weights; None if all weigh 1.
    """

    label: Origin
    weight: Origin | None

    @property
    def forwarded(self) -> tuple[Forwarded, ...]:
        """What the feed hands on as it is."""
        weight = () if self.weight is None else (Forwarded(self.weight),)
        return (Forwarded(self.label), *weight)

    @classmethod
    def find(cls, batch: plans.RawBatch, weight: str | None) -> RawRows:
        """Find them in a batch; raise if it has no label, several, or no weight."""
        labels = [origin for origin in batch if origin.part == "labels"]
        if len(labels) != 1 or isinstance(batch[labels[0]], Sparse):
            found = [origin.name for origin in labels] or "none"
            raise LabelError(
                "calibration: the input_fn must return features and one label, a class "
                f"for each row; found {found}. A model of several labels cannot be "
                "calibrated."
            )
        features = {o.key: o for o in batch if o.part == "features"}
        if weight is not None and weight not in features:
            near = did_you_mean(weight, map(str, features))
            raise FeatureError(f"calibration: weight: no feature {weight!r}{near}")
        return cls(labels[0], None if weight is None else features[weight])


Batches = Iterator[
    tuple[Mapping[str, NDArray[Any]], Mapping[Forwarded, NDArray[Any]], RawRows]
]


def fit(method: CalibrationMethod, batches: Batches) -> FittedCalibration:
    """Return the calibration of predictions, each batch with its raw labels."""
    parts: list[tuple[Any, Any, Any]] = []
    words: tuple[str, ...] = ()
    for predictions, forwarded, rows in batches:
        p = predictions["probabilities"]
        words = words or _words(predictions, p.shape[1])
        given = forwarded[Forwarded(rows.label)]
        labels = class_ids(given, words)
        if labels is None or len(labels) != len(p):
            raise LabelError(
                "calibration: labels must be one class for each row, a number from 0 "
                f"to {len(words) - 1} or one of {list(words)[:5]}; got "
                f"{np.asarray(given).reshape(-1)[:3].tolist()} of shape "
                f"{list(np.shape(given))}."
            )
        weight = np.ones(len(p))
        if rows.weight is not None:
            weight = np.asarray(forwarded[Forwarded(rows.weight)], float).reshape(-1)
        parts.append((labels, p, weight))
    if not parts:
        return method.fit([], np.zeros((0, 2)))  # raises: there are no rows
    fitted = method.fit(
        *(np.concatenate(column) for column in zip(*parts, strict=True))
    )
    error = fitted.report["expected_calibration_error"]
    _log.info(
        "calibrated by %s on %s rows: expected calibration error %.4f, before %.4f",
        fitted.method,
        f"{fitted.report['rows']:,}",
        error["after"],
        error["before"],
    )
    return fitted


def needed(predictions: Any) -> dict[str, Any]:
    """Return the predictions that a calibration reads; raise if there are none.

    They are those of a batch, on the device.
    """
    found = predictions if isinstance(predictions, Mapping) else {}
    shape: tuple[int, ...] = getattr(found.get("probabilities"), "shape", ())
    if len(shape) != 2 or shape[1] < 2:
        names = sorted(map(str, found)) or type(predictions).__name__
        told = f"; their shape is {list(shape)}" if shape else ""
        raise SpecError(
            "calibration: the model must predict 'probabilities' [B, K] of two classes "
            f"or more, as a classifier with one head does; it predicts {names}{told}. "
            "Leave the calibration out."
        )
    return {name: found[name] for name in _NEEDED if name in found}


def _words(predictions: Mapping[Any, Any], classes: int) -> tuple[str, ...]:
    """Return the names of the classes, from the first row of "all_classes"."""
    every = predictions.get("all_classes")
    if every is None:
        return tuple(str(i) for i in range(classes))
    first = np.asarray(every)[0].reshape(-1).tolist()
    return tuple(
        w.decode(errors="replace") if isinstance(w, bytes) else w for w in first
    )
