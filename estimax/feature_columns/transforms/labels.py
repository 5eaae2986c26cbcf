"""Labels as numbers in a range, for bundles that evaluate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import LabelError
from estimax.core.strings import Strings
from estimax.feature_columns.transforms.transform import BundleFormat, Record, Transform
from estimax.feature_columns.transforms.words import WordList


@dataclass(frozen=True)
class LabelNumbers(Transform):
    """Labels of a head as numbers, checked to be in a range.

    An export writes it in place of the rule of a head, whose code a bundle does not
    have.

    Args:
      key: The name under which the labels are passed in.
      dtype: The dtype of the result.
      low: The smallest label; None is no limit.
      high: The largest label; None is no limit.
      words: The words of text labels, in the order of their numbers. None: labels are
        numbers.

    Raises:
      LabelError: When called, if a label is out of range or not among the words.

    Example:
      >>> labels = LabelNumbers("labels", "int32", 0, 1, ("no", "yes"))
      >>> labels({"labels": Strings.of(["yes", "no"])})
      array([1, 0], dtype=int32)
    """

    kind = "label_numbers"

    key: str
    dtype: str
    low: float | None = None
    high: float | None = None
    words: tuple[str, ...] | None = None

    @cached_property
    def _list(self) -> WordList:
        return WordList.of(self.words or ())

    def __call__(self, raw: Mapping[str, Any]) -> NDArray[Any]:
        """Return the labels of a batch as numbers."""
        given = raw[self.key]
        if isinstance(given, Strings) != (self.words is not None):
            expected = "numbers" if self.words is None else "text"
            raise LabelError(f"labels: expected {expected}, found other values.")
        if isinstance(given, Strings):
            found = self._list.ids_of(given, oov_buckets=0, default=-1, drop=False)
            numbers = found.reshape(given.shape)
        else:
            numbers = np.asarray(given)
        low = -np.inf if self.low is None else self.low
        high = np.inf if self.high is None else self.high
        has_limits = (self.low, self.high) != (None, None)
        outside = ~((numbers >= low) & (numbers <= high))
        if has_limits and outside.any():
            row = int(np.argwhere(outside)[0][0])
            expected = (
                f"one of {', '.join(self.words[:8])}"
                if self.words is not None
                else f"numbers from {low:g} to {high:g}"
            )
            raise LabelError(f"labels: expected {expected}, found others in row {row}.")
        return numbers.astype(self.dtype)

    def to_json(self, bundle: BundleFormat) -> Record:
        """Return the fields as JSON values.

        Args:
          bundle: Not used.
        """
        words = None if self.words is None else list(self.words)
        record = {"key": self.key, "dtype": self.dtype, "words": words}
        return {**record, "low": self.low, "high": self.high}

    @classmethod
    def from_json(cls, fields: Record, bundle: BundleFormat) -> Self:
        """Build the transform from what `to_json` returned.

        Args:
          fields: The fields as JSON values.
          bundle: Not used.

        Raises:
          ValueError: A field has another type.
        """
        words, dtype = fields["words"], fields["dtype"]
        if dtype not in ("float32", "int32"):
            raise ValueError(f"labels cannot have the dtype {dtype!r}")
        is_list = isinstance(words, list) and all(isinstance(w, str) for w in words)
        if words is not None and not is_list:
            raise ValueError("the words of labels must be a list of text")
        limits = fields["low"], fields["high"]
        if not all(x is None or isinstance(x, int | float) for x in limits):
            raise ValueError("the limits of labels must be numbers")
        return cls(fields["key"], dtype, *limits, None if words is None else (*words,))
