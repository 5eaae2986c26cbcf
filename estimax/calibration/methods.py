"""The methods of calibration: what to fit, and on which rows.

calibration = ex.calibration.Isotonic(eval_input_fn)
model.export_saved_model("export", calibration=calibration)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from estimax.calibration.fitted import FittedCalibration, _two_columns, fit_and_measure
from estimax.calibration.fitting import Method
from estimax.core.docstrings import document_like
from estimax.core.errors import InputError, LabelError, SpecError

Array = NDArray[Any]


@dataclass(frozen=True)
class _Calibration:
    """What the methods share: their arguments, the checks, and `fit`."""

    _method: ClassVar[Method]

    input_fn: Callable[..., Any] | None = None
    weight: str | None = None
    steps: int | None = None
    classify: bool = False

    def fit(
        self, labels: Any, probabilities: Any, weights: Any = None
    ) -> FittedCalibration:
        """Fit the calibration on arrays.

        Args:
          labels: Class ids of rows that the model was not trained on, [N]; of two
            classes also numbers between 0 and 1.
          probabilities: What the model predicts for them: probabilities of the classes,
            [N, K], or of class 1, [N].
          weights: Weights of the rows, [N]. None: all weigh 1.

        Returns:
          A `FittedCalibration`.

        Raises:
          InputError: There are no rows.
          LabelError: Labels are no classes, or all are of one class.
          SpecError: The shapes do not fit each other, or a value is not a probability.
        """
        p = _two_columns(np.asarray(probabilities))
        y = np.asarray(labels).reshape(-1)
        w = np.ones(len(y)) if weights is None else np.asarray(weights).reshape(-1)
        _check(self._method, y, p, w)
        counted = w > 0
        y, p, w = (values[counted].astype(np.float64) for values in (y, p, w))
        return fit_and_measure(self._method, y, p, w, classify=self.classify)


@final
@dataclass(frozen=True)
class Temperature(_Calibration):
    """Divide the logits by one number, the temperature.

    Use it if there are few rows to fit on, or many classes. It keeps the order of the
    classes of a row, and so the accuracy.

    Args:
      input_fn: Function that returns features and labels which the model was not
        trained on, such as the `input_fn` of the `EvalSpec`. Not needed for `fit`.
      weight: Name of the feature with the example weights. None: all weigh 1.
      steps: How many batches to read. None: all of the data.
      classify: Whether requests to classify and to regress are also answered with the
        calibrated probabilities, as the scores. By default only predictions have them,
        as `calibrated_probabilities`.

    Example:
      >>> method = Temperature()
      >>> rows = method.fit([0, 1, 0, 1], [0.2, 0.6, 0.4, 0.7])
      >>> rows.apply([0.6]).shape
      (1, 2)
    """

    _method: ClassVar[Method] = "temperature"


@final
@document_like(Temperature)
@dataclass(frozen=True)
class Platt(_Calibration):
    """Fit a logistic regression on the logit: a slope and an offset.

    Use it if there are few rows to fit on and the mean of the probabilities is wrong
    too, such as after training with class weights. Of more than two classes, each is
    fitted against the others, and the results are divided by their sum.

    Example:
      >>> fitted = Platt().fit(np.tile([0, 0, 1], 10), np.full(30, 0.5))
      >>> [round(p, 1) for p in fitted.apply([0.5])[0].tolist()]
      [0.7, 0.3]
    """

    _method: ClassVar[Method] = "platt"


@final
@document_like(Temperature)
@dataclass(frozen=True)
class Isotonic(_Calibration):
    """Fit a curve that rises: steps with the observed rates, joined by lines.

    Use it if there are 1,000 rows or more to fit on: it corrects any form of error. The
    lowest and highest scores may become 0 and 1. Of more than two classes, each is
    fitted against the others, and the results are divided by their sum.

    Example:
      >>> fitted = Isotonic().fit([0, 0, 1, 0, 1, 1], [0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
      >>> fitted.apply([0.3, 0.35])[:, 1].tolist()
      [0.5, 0.5]
    """

    _method: ClassVar[Method] = "isotonic"


CalibrationMethod = Temperature | Platt | Isotonic


def _check(method: str, labels: Array, p: Array, weights: Array) -> None:
    where = f"calibration by {method}"
    if not len(labels):
        raise InputError(
            f"{where}: there are no rows to fit on. It needs rows with labels that the "
            "model was not trained on; check the input_fn."
        )
    if p.ndim != 2 or p.shape[1] < 2 or len(p) != len(labels):
        raise SpecError(
            f"{where}: expected probabilities [N, K] for labels [N], got "
            f"{list(p.shape)} for {list(labels.shape)}."
        )
    if len(weights) != len(labels) or not (np.isfinite(weights) & (weights >= 0)).all():
        raise SpecError(
            f"{where}: expected a weight of at least 0 for each of {len(labels)} rows, "
            f"got an array {list(weights.shape)}."
        )
    if not ((p >= 0) & (p <= 1)).all():  # also NaN
        raise SpecError(f"{where}: the probabilities are not all within [0, 1].")
    classes = p.shape[1]
    is_inside = (labels >= 0) & (labels <= classes - 1)
    is_whole = (labels == labels.astype(int)) if classes > 2 else True
    if labels.dtype.kind not in "fiub" or not (is_inside & is_whole).all():
        raise LabelError(
            f"{where}: labels must be class ids from 0 to {classes - 1}, got "
            f"{labels[:5].tolist()} and so on."
        )
    seen = np.unique(np.round(labels[weights > 0]).astype(int)).tolist()
    needed = 2 if method == "temperature" else classes
    if len(seen) < needed:
        each = "at least two classes" if method == "temperature" else "every class"
        missing = sorted(set(range(classes)) - set(seen))
        raise LabelError(
            f"{where}: it needs rows of {each}, and the {len(labels)} rows have only "
            f"{seen} (no {missing}). Take more rows, or rows in another order."
        )


def class_ids(labels: Any, words: tuple[str, ...]) -> Array | None:
    """Return labels as numbers, words by their place; None if that fails.

    >>> class_ids(np.array([b"yes", b"no"], object), ("no", "yes")).tolist()
    [1.0, 0.0]
    """
    flat = np.asarray(labels.tolist() if hasattr(labels, "offsets") else labels)
    flat = flat.reshape(-1)
    if flat.dtype.kind in "fiub":
        numbers = flat.astype(np.float64)
        inside = np.isfinite(numbers) & (numbers >= 0) & (numbers <= len(words) - 1)
        return numbers if inside.all() else None
    place: Mapping[str, int] = {word: index for index, word in enumerate(words)}
    found = [place.get(_text(word), -1) for word in flat.tolist()]
    return None if -1 in found else np.array(found, np.float64)


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
