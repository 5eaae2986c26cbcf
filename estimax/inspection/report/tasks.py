"""What a model was trained for, recognized from its predictions and labels.

    for task in tasks_of(predictions, labels): ...

The key of a prediction tells the task: "logistic" for two classes, "probabilities" for
several classes, "predictions" for a number. A model of several heads has predictions
and labels for each head, and so a task for each head.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from estimax.calibration.measures import log_losses
from estimax.calibration.methods import class_ids

Array = NDArray[Any]
Kind = Literal["binary", "multi_class", "regression"]

_MOST_OUTPUTS = 4  # numbers that a regression predicts, of which each is a task


@dataclass(frozen=True)
class HeadTask:
    """The labels and predictions of a head, of N rows.

    Attributes:
      kind: What is predicted.
      name: The name of the head; "" if the model has one head.
      labels: Labels within [0, 1], class ids or numbers, [N].
      scores: The probability of class 1, or the predicted number, [N]; for several
        classes, the probability of the predicted class.
      probabilities: Of several classes, [N, K]; None otherwise.
      classes: The words of the classes; empty for a regression.
      losses: Log loss or absolute error of each row, [N].
    """

    kind: Kind
    name: str
    labels: Array
    scores: Array
    probabilities: Array | None
    classes: tuple[str, ...]
    losses: Array

    @property
    def guesses(self) -> Array:
        """The predicted class ids, or the predicted numbers."""
        if self.probabilities is not None:
            return np.asarray(np.argmax(self.probabilities, axis=1))
        is_number = self.kind == "regression"
        return self.scores if is_number else np.asarray(self.scores > 0.5)

    def format_value(self, value: Any) -> str:
        """Return a label or a guess as text."""
        if not self.classes:
            return f"{float(value):.4g}"
        place = int(value)
        return self.classes[place] if value == place else f"{float(value):.4g}"


def tasks_of(predictions: Mapping[Any, Any], labels: Any) -> list[HeadTask]:
    """Return the tasks of a model; none for predictions that no head makes.

    Args:
      predictions: Predictions of N rows by key; by (head, key) for several heads.
      labels: Labels of N rows; by head for several heads.
    """
    heads: dict[str, dict[str, Any]] = {}
    for key, value in predictions.items():
        head, name = key if isinstance(key, tuple) else ("", key)
        heads.setdefault(str(head), {})[str(name)] = value
    tasks: list[HeadTask] = []
    for head, found in heads.items():
        given = labels.get(head) if head and isinstance(labels, Mapping) else labels
        if given is not None and not isinstance(given, Mapping):
            tasks += _tasks(head, found, given)
    return tasks


def _tasks(name: str, found: Mapping[str, Any], labels: Any) -> list[HeadTask]:
    if "logistic" in found and np.shape(found["logistic"])[1:] in ((), (1,)):
        scores = np.asarray(found["logistic"], np.float64).reshape(-1)
        words = _words(found, 2)
        truth = class_ids(labels, words)
        if truth is None or len(truth) != len(scores):
            return []
        losses = log_losses(truth, scores)
        return [HeadTask("binary", name, truth, scores, None, words, losses)]
    if "probabilities" in found and np.ndim(found["probabilities"]) == 2:
        p = np.asarray(found["probabilities"], np.float64)
        words = _words(found, p.shape[1])
        truth = class_ids(labels, words)
        if truth is None or len(truth) != len(p):
            return []
        losses = log_losses(truth, p)
        return [HeadTask("multi_class", name, truth, p.max(axis=1), p, words, losses)]
    if "predictions" in found and not isinstance(labels, Mapping):
        return _regressions(name, found["predictions"], labels)
    return []


def _regressions(name: str, predictions: Any, labels: Any) -> list[HeadTask]:
    guesses, truth = (_columns(values) for values in (predictions, labels))
    if guesses is None or truth is None or guesses.shape != truth.shape:
        return []
    width = guesses.shape[1]
    return [
        HeadTask(
            "regression",
            f"{name}[{i}]" if width > 1 else name,
            truth[:, i],
            guesses[:, i],
            None,
            (),
            np.abs(guesses[:, i] - truth[:, i]),
        )
        for i in range(min(width, _MOST_OUTPUTS))
    ]


def _columns(values: Any) -> Array | None:
    """Return numbers [N] or [N, D] as float64 [N, D]; None for anything else."""
    array = np.asarray(values)
    if array.dtype.kind not in "fiub" or array.ndim not in (1, 2):
        return None
    return array.astype(np.float64).reshape(len(array), -1)


def _words(found: Mapping[str, Any], classes: int) -> tuple[str, ...]:
    """Return the names of the classes, from the first row of "all_classes"."""
    every = found.get("all_classes")
    if every is None:
        return tuple(str(i) for i in range(classes))
    return tuple(as_text(word) for word in np.asarray(every)[0].reshape(-1).tolist())


def as_text(value: Any) -> str:
    """Return a raw value as text; bytes are decoded.

    >>> as_text(b"Oslo"), as_text(0.25), as_text([1, 2])
    ('Oslo', '0.25', '1, 2')
    """
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return ", ".join(as_text(item) for item in value)
    return str(value)
