"""Rows of an input in memory, for measurements that need them twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from estimax import input as inputs
from estimax.core.errors import FeatureError, SpecError
from estimax.core.spec import ModeKeys
from estimax.estimator import Estimator
from estimax.estimator.arguments import call_input_fn
from estimax.input.streams import columns


class RowSample(NamedTuple):
    """Rows of an input: their numbers in it, features, labels and the batch size."""

    numbers: NDArray[np.int64]
    features: dict[str, Any]
    labels: Any
    batch_size: int


def dataset(features: Mapping[str, Any], labels: Any) -> inputs.Dataset:
    """Return rows as a Dataset; of features alone if `labels` is None."""
    rows = dict(features)
    return inputs.Dataset.from_tensor_slices(rows if labels is None else (rows, labels))


def read_rows(
    estimator: Estimator,
    input_fn: Callable[..., Any],
    max_examples: int,
    *,
    where: str,
    max_scan: int | None = None,
) -> RowSample:
    """Return rows of an input.

    Args:
      estimator: Its params and config are passed to the `input_fn`.
      input_fn: Function that returns the evaluation data; features must be a dict.
      max_examples: Number of examples after which no further batch is read.
      where: The function that error messages name.
      max_scan: If given, this many rows are read, and every n-th is returned, so that
        there are at most `max_examples`. Data is often sorted, and its first rows
        would then not stand for all.

    Raises:
      FeatureError: The features are no dict.
      SpecError: The input has no data.
    """
    parts: list[_Part] = []
    stride, size, count = 1, 0, 0
    for features, labels in _batches(estimator, input_fn, where):
        rows = len(next(iter(features.values())))
        size = size or rows
        part = _Part(np.arange(count, count + rows), features, labels)
        parts.append(part.every(stride))
        count += rows
        if max_scan is not None:
            while sum(len(part.numbers) for part in parts) > max_examples:
                stride *= 2
                parts = [part.every(stride) for part in parts]
        if count >= (max_examples if max_scan is None else max_scan):
            break
    if not parts:
        raise SpecError(f"{where}: the input_fn returned no data.")
    numbers = np.concatenate([part.numbers for part in parts])
    found = _joined([part.features for part in parts])
    labels = _joined_labels([part.labels for part in parts])
    return RowSample(numbers, found, labels, size)


class _Part(NamedTuple):
    """Rows of one batch, and their numbers in the input."""

    numbers: NDArray[np.int64]
    features: Mapping[str, Any]
    labels: Any

    def every(self, stride: int) -> _Part:
        """Return the rows whose numbers are multiples of the stride."""
        index = np.flatnonzero(self.numbers % stride == 0)
        if len(index) == len(self.numbers):
            return self
        labels = _taken_labels(self.labels, index)
        return _Part(self.numbers[index], _taken(self.features, index), labels)


def _taken(values: Mapping[str, Any], index: NDArray[np.int64]) -> dict[str, Any]:
    return {name: columns.take_rows(value, index) for name, value in values.items()}


def _joined(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {name: columns.join([part[name] for part in parts]) for name in parts[0]}


def _taken_labels(labels: Any, index: NDArray[np.int64]) -> Any:
    if labels is None:  # as for k-means
        return None
    if isinstance(labels, Mapping):
        return _taken(labels, index)
    return columns.take_rows(labels, index)


def _joined_labels(parts: Sequence[Any]) -> Any:
    if parts[0] is None:
        return None
    return _joined(parts) if isinstance(parts[0], Mapping) else columns.join(parts)


def _batches(
    estimator: Estimator, input_fn: Callable[..., Any], where: str
) -> Iterator[tuple[Mapping[str, Any], Any]]:
    given = call_input_fn(
        input_fn,
        mode=ModeKeys.EVAL,
        params=estimator.params,
        config=estimator.config,
    )
    batches = inputs.as_batches(given)
    try:
        for features, labels in batches:
            if not isinstance(features, Mapping):
                raise FeatureError(
                    f"{where}: features must be a dict by name, got "
                    f"{type(features).__name__}."
                )
            yield features, labels
    finally:
        batches.close()
