"""A metric is a value: accumulators that merge, and a function that reads them.

    seen = metrics.auc()                                    # before any data
    for batch in batches:
        seen = seen.merge(metrics.auc(batch.labels, batch.scores, batch.weights))
    print(seen.compute())

Every metric of this package is a `Sums`: named float32 accumulators and a static
function from them to the result. Merging adds accumulators, so batches, devices
(`jax.lax.psum(metric, axis)`) and hosts may be merged in any order, and the result is
computed once, at the end. Averaging the results of batches would be wrong for all
metrics but means.

float32 counts examples exactly up to 2**24. Beyond that a batch is still added with a
relative error of 6e-8, since each batch is summed before it is merged.

`Metric`, `Sums` and `from_sums` are public; `empty`, `merge` and `compute` work on the
dict of metrics that evaluation keeps.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, Self, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from estimax.core import display, errors

Accumulators = Mapping[str, jax.Array]
# Takes the accumulators and, by keyword, the options; returns what is reported.
Result = Callable[..., jax.Array]


class MetricError(errors.EstimaxError, ValueError):
    """The arguments of a metric do not fit each other, or metrics cannot be merged."""


@runtime_checkable
class Metric(Protocol):
    """The interface of a metric: a pytree that merges and has a result.

    `eval_metric_ops` of an `EstimatorSpec` is a dict of metrics. Functions of this
    package return `Sums`, which has this interface. Write a class of your own only if
    adding accumulators is not how your metric merges; otherwise use `from_sums`.

    Example:
      >>> from estimax import metrics
      >>> isinstance(metrics.mean([1.0, 2.0]), metrics.Metric)
      True
    """

    def merge(self, other: Self, /) -> Self:
        """Return the metric of both sets of examples.

        Args:
          other: A metric of the same kind.
        """
        ...

    def compute(self) -> jax.Array:
        """Return the result for all examples merged so far."""
        ...


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False)
class Sums:
    """A metric whose accumulators are added to merge; `from_sums` makes one.

    It is a pytree: it can be returned from `jit`, carried through `jax.lax.scan` and
    summed over devices with `jax.lax.psum`.

    Args:
      sums: The accumulators by name, float32 arrays.
      result: Function from the accumulators and, by keyword, the options to what is
        reported. It is static under `jit`.
      options: Pairs (name, value) for `result`, sorted by name. They are static.

    Example:
      >>> from estimax import metrics
      >>> monday, tuesday = metrics.mean([1.0, 2.0]), metrics.mean([6.0])
      >>> monday
      Sums(ratio, total=3.0, count=2.0)
      >>> float(monday.merge(tuesday).compute())
      3.0
    """

    sums: dict[str, jax.Array]
    result: Result = field(metadata={"static": True})
    options: tuple[tuple[str, Hashable], ...] = field(metadata={"static": True})

    def merge(self, other: Self, /) -> Self:
        """Return the metric of both sets of examples; may be called inside `jit`.

        Args:
          other: A metric made by the same function with the same options.

        Raises:
          MetricError: The other metric is of another kind or has other shapes.
        """
        if _kind(self) != _kind(other):
            raise MetricError(
                f"cannot merge {_kind(self)} with {_kind(other)}: both must come from "
                "the same function, with the same options and shapes"
            )
        added = jax.tree.map(jnp.add, self.sums, other.sums)
        # Keep self.result: a lambda that is created for every batch would otherwise
        # change the static part of the tree, and so compile again at every step.
        return type(self)(added, self.result, self.options)

    def compute(self) -> jax.Array:
        """Return the result for all examples merged so far; works inside `jit`."""
        return self.result(self.sums, **dict(self.options))

    def __getitem__(self, part: int) -> jax.Array:
        """Return the result, as part 0 or 1 of the tuple (value, update_op) of TF 1.

        Both are the result of what was merged so far: in a `model_fn`, of this batch.
        """
        if part not in (0, 1):
            raise IndexError(f"a metric has the parts 0 and 1, got {part}")
        return self.compute()

    def empty(self) -> Self:
        """Return the same metric before any data."""
        zeros = jax.tree.map(jnp.zeros_like, self.sums)
        return type(self)(zeros, self.result, self.options)

    def __repr__(self) -> str:
        """Show the result function, the accumulators and the options."""
        name = display.format_value(self.result).lstrip("_")
        sums = [f"{key}={_format_array(value)}" for key, value in self.sums.items()]
        options = [f"{key}={value!r}" for key, value in self.options]
        return f"Sums({', '.join([name, *sums, *options])})"


def from_sums(
    sums: Mapping[str, ArrayLike], result: Result, **options: Hashable
) -> Sums:
    """Return a metric of your own, from the sums of one batch.

    Use it for any metric that is a function of sums over examples: ratios, means,
    correlations. Call it in `model_fn` for each batch; evaluation merges the results.

    Args:
      sums: Accumulators by name, numbers or arrays; converted to float32. Their names
        and shapes are the same in every batch.
      result: Function from the accumulators of all batches and, by keyword, `options`
        to the number or array to report. It runs inside `jit`, so use `jax.numpy`.
        Define it at module level: all batches must use the same function.
      **options: Hashable values passed to `result`. They are static under `jit`.

    Returns:
      A `Sums` of this batch.

    Raises:
      MetricError: An option is not hashable.

    Example:
      >>> def cost_per_click(sums):
      ...     return sums["cost"] / jnp.maximum(sums["clicks"], 1.0)
      >>> def batch_metric(cost, clicks):
      ...     sums = {"cost": jnp.sum(cost), "clicks": jnp.sum(clicks)}
      ...     return from_sums(sums, cost_per_click)
      >>> monday = batch_metric(jnp.array([0.5, 1.5]), jnp.array([1, 0]))
      >>> tuesday = batch_metric(jnp.array([1.0]), jnp.array([1]))
      >>> float(monday.merge(tuesday).compute())
      1.5
    """
    unhashable = [name for name, value in options.items() if not _is_hashable(value)]
    if unhashable:
        raise MetricError(
            f"from_sums: options {', '.join(unhashable)} must be hashable: they "
            "are static under jit. Give tuples instead of lists, or put arrays in sums"
        )
    arrays = {name: jnp.asarray(value, jnp.float32) for name, value in sums.items()}
    return Sums(arrays, result, tuple(sorted(options.items())))


def safe_div(numerator: jax.Array, denominator: jax.Array) -> jax.Array:
    """Return the quotient, and 0 where the denominator is 0.

    >>> safe_div(jnp.array([1.0, 1.0]), jnp.array([2.0, 0.0])).tolist()
    [0.5, 0.0]
    """
    is_zero = denominator == 0
    # The inner `where` keeps 0/0 out of the branch that is not taken.
    return jnp.where(is_zero, 0.0, numerator / jnp.where(is_zero, 1.0, denominator))


def ratio(sums: Accumulators) -> jax.Array:
    """Return total / count, the result of a mean; 0 before any data."""
    return safe_div(sums["total"], sums["count"])


def _format_array(array: jax.Array) -> str:
    """Return a concrete scalar as a number, anything else as dtype and shape."""
    if isinstance(array, jax.core.Tracer) or np.ndim(array):
        return f"{array.dtype}{list(array.shape)}"
    return str(float(array))


def _is_hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:  # a tuple may still hold a list
        return False
    return True


def _kind(metric: Sums) -> str:
    """Return what must be equal for two metrics to merge, as text."""
    name = getattr(metric.result, "__qualname__", None) or display.format_value(
        metric.result
    )
    options = ", ".join(f"{key}={value!r}" for key, value in metric.options)
    shapes = {key: tuple(value.shape) for key, value in metric.sums.items()}
    return f"{name}({options}) over {dict(sorted(shapes.items()))}"


def empty(metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    """Return the same metrics before any data; leaves may be shapes without values."""

    def zeros(leaf: jax.Array) -> jax.Array:
        return jnp.zeros(leaf.shape, leaf.dtype)

    blank: dict[str, Metric] = jax.tree.map(zeros, dict(metrics))
    return blank


def merge(one: Mapping[str, Metric], other: Mapping[str, Metric]) -> dict[str, Metric]:
    """Return each metric merged with the metric of the same name in the other dict."""
    if one.keys() != other.keys():
        unmatched = ", ".join(sorted(one.keys() ^ other.keys()))
        raise MetricError(
            f"cannot merge metric sets: {unmatched} only in one of them. Every batch "
            "must yield the same metrics"
        )
    return {name: metric.merge(other[name]) for name, metric in one.items()}


def compute(metrics: Mapping[str, Metric]) -> dict[str, np.float32 | np.ndarray]:
    """Return all results on the host: np.float32 for scalars, else arrays.

    >>> from estimax.metrics.mean import mean
    >>> compute({"loss": mean([1.0, 3.0])})
    {'loss': np.float32(2.0)}
    """
    results = jax.device_get(_results(dict(metrics)))
    return {
        name: np.float32(results[name]) if results[name].ndim == 0 else results[name]
        for name in metrics
    }


# Compiled together: dispatching the small operations of ten metrics one by one takes
# longer.
@jax.jit
def _results(metrics: dict[str, Metric]) -> dict[str, jax.Array]:
    return {name: metric.compute() for name, metric in metrics.items()}
