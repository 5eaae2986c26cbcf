"""Permutation importance: how much worse a metric is when a feature is shuffled.

    print(ex.inspection.permutation_importance(model, eval_input_fn, metric="auc"))

The values of a feature are permuted over the examples. Its distribution stays the same,
but it no longer carries information about its example. If two features carry the same
information, the model can use either one, and both importances may be small.
`read_rows` keeps rows of an input in memory, for measurements that need them twice.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from estimax import input as inputs
from estimax.core.display import html_table
from estimax.core.errors import FeatureError, SpecError, did_you_mean
from estimax.core.sparse import Sparse
from estimax.core.spec import ModeKeys
from estimax.estimator import Estimator
from estimax.estimator.arguments import call_input_fn
from estimax.input.streams import columns
from estimax.inspection.variables import as_text

_LOWER_IS_BETTER = ("loss", "error", "regret")


@dataclass(frozen=True)
class FeatureImportance:
    """How much worse the metric is when this feature is shuffled.

    Attributes:
      feature: Name of the feature; "ids + weights" for features shuffled as one.
      mean: Mean loss of the metric over the repeats. Positive if the model needs the
        feature.
      std: Standard deviation over the repeats.
    """

    feature: str
    mean: float
    std: float


@dataclass(frozen=True)
class Importances:
    """The result of `permutation_importance`; print it for a table.

    Attributes:
      metric: Name of the metric.
      baseline: Value of the metric without shuffling.
      examples: Number of examples that were evaluated.
      features: The importance of each feature, most important first.
    """

    metric: str
    baseline: float
    examples: int
    features: tuple[FeatureImportance, ...]

    def __str__(self) -> str:
        return f"{as_text(*self._table())}\n{self._summary()}"

    def _repr_html_(self) -> str:
        return html_table(*self._table(), title=self._summary())

    def _table(self) -> tuple[list[str], list[list[str]]]:
        rows = [[f.feature, f"{f.mean:+.5f}", f"{f.std:.5f}"] for f in self.features]
        return ["feature", f"{self.metric} lost", "±"], rows

    def _summary(self) -> str:
        return f"{self.metric} {self.baseline:.5f} on {self.examples:,} examples"


def permutation_importance(
    estimator: Estimator,
    input_fn: Callable[..., Any],
    *,
    metric: str = "loss",
    features: Sequence[str | Sequence[str]] | None = None,
    repeats: int = 3,
    max_examples: int = 100_000,
    higher_is_better: bool | None = None,
    seed: int = 0,
    max_secs: float | None = None,
    checkpoint_path: str | None = None,
) -> Importances:
    """Measure how much a trained model relies on each of its features.

    The model is evaluated once as it is, and `repeats` times for each feature with the
    values of that feature shuffled. The examples are read into memory.

    Args:
      estimator: A trained Estimator.
      input_fn: Function that returns the evaluation data; features must be a dict.
      metric: Name of the metric, as in the results of `evaluate`.
      features: Features to measure; by default all. A tuple of names is shuffled as
        one. By default, sparse features whose rows have the same lengths, such as ids
        and their weights, are shuffled as one.
      repeats: Number of permutations of each feature.
      max_examples: Number of examples after which no further batch is read.
      higher_is_better: Whether a higher value of the metric is better. None decides by
        the name: not for names that contain "loss", "error" or "regret".
      seed: Seed of the permutations.
      max_secs: Seconds after which no further feature is measured; None has no limit.
      checkpoint_path: The checkpoint to measure; None is the latest.

    Returns:
      The importances, most important feature first. Features that `max_secs` cut off
      are missing.

    Raises:
      FeatureError: A name in `features` does not exist, or the features are no dict.
      SpecError: The metric does not exist, or the input has no data.

    Example:
      >>> import numpy as np
      >>> import estimax as ex
      >>> rng = np.random.default_rng(0)
      >>> x, noise = rng.normal(size=(2, 64, 1)).astype(np.float32)
      >>> def input_fn():
      ...     data = {"x": x, "noise": noise}, 3 * x[:, 0]
      ...     return ex.input.Dataset.from_tensor_slices(data).batch(16)
      >>> columns = [ex.feature_columns.numeric_column(name) for name in ("x", "noise")]
      >>> model = ex.LinearRegressor(columns, optimizer=ex.optimizers.SGD(0.1))
      >>> model = model.train(lambda: input_fn().repeat(), steps=100)
      >>> found = ex.inspection.permutation_importance(model, input_fn)
      >>> [importance.feature for importance in found.features]
      ['x', 'noise']
    """
    _, found, labels, batch_size = read_rows(
        estimator, input_fn, max_examples, where="permutation_importance"
    )
    groups = _groups(found) if features is None else list(map(_as_group, features))
    for name in (name for group in groups for name in group):
        if name not in found:
            near = did_you_mean(name, found)
            raise FeatureError(f"permutation_importance: no feature {name!r}{near}")
    if higher_is_better is None:
        higher_is_better = not any(word in metric for word in _LOWER_IS_BETTER)
    sign = 1.0 if higher_is_better else -1.0

    def measure_metric(some: Mapping[str, Any]) -> float:
        rows = dataset(some, labels)
        results = estimator.evaluate(
            lambda: rows.batch(batch_size),
            report=False,
            checkpoint_path=checkpoint_path,
        )
        if metric not in results:
            near = did_you_mean(metric, results)
            raise SpecError(f"permutation_importance: no metric {metric!r}{near}")
        return float(results[metric])

    baseline = measure_metric(found)
    rng = np.random.default_rng(seed)
    examples = len(next(iter(found.values())))
    importances = []
    end = math.inf if max_secs is None else time.monotonic() + max_secs
    for group in groups:
        if time.monotonic() >= end:
            break
        lost = []
        for _ in range(repeats):
            order = rng.permutation(examples)
            moved = {name: columns.take_rows(found[name], order) for name in group}
            lost.append(sign * (baseline - measure_metric({**found, **moved})))
        together = " + ".join(group)
        importances.append(
            FeatureImportance(together, float(np.mean(lost)), float(np.std(lost)))
        )
    importances.sort(key=lambda importance: -importance.mean)
    return Importances(metric, baseline, examples, tuple(importances))


def _as_group(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _groups(found: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return names in groups: features that a column pairs are shuffled as one."""
    groups: list[list[str]] = []
    for name in sorted(found):
        mates = (g for g in groups if _are_paired(found[g[0]], found[name]))
        group = next(mates, None)
        if group is None:
            groups.append([name])
        else:
            group.append(name)
    return [tuple(group) for group in groups]


def _are_paired(one: Any, other: Any) -> bool:
    if not (isinstance(one, Sparse) and isinstance(other, Sparse)):
        return False
    lengths, others = np.diff(one.starts), np.diff(other.starts)
    # If all rows have the same length, equal lengths do not suggest a pair, and the
    # features fit together in any order.
    return len(np.unique(lengths)) > 1 and np.array_equal(lengths, others)


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
    found = _concat_columns([part.features for part in parts])
    labels = _concat_labels([part.labels for part in parts])
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
        labels = _take_labels(self.labels, index)
        return _Part(self.numbers[index], take_rows(self.features, index), labels)


def take_rows(values: Mapping[str, Any], index: NDArray[np.int64]) -> dict[str, Any]:
    """Return the rows of features at an index."""
    return {name: columns.take_rows(value, index) for name, value in values.items()}


def _concat_columns(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {name: columns.join([part[name] for part in parts]) for name in parts[0]}


def _take_labels(labels: Any, index: NDArray[np.int64]) -> Any:
    if labels is None:  # as for k-means
        return None
    if isinstance(labels, Mapping):
        return take_rows(labels, index)
    return columns.take_rows(labels, index)


def _concat_labels(parts: Sequence[Any]) -> Any:
    if parts[0] is None:
        return None
    return (
        _concat_columns(parts) if isinstance(parts[0], Mapping) else columns.join(parts)
    )


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
