"""A metric is a value: sums that grow batch by batch, and a way to read them.

    seen = metrics.auc()                                    # before any data
    for batch in batches:
        seen = seen.merge(metrics.auc(batch.labels, batch.scores, batch.weights))
    print(seen.compute())

Every metric of this room is one `Sums`: named float32 accumulators, and a static
function from them to the result. Merging adds the accumulators, so batches, devices
(`jax.lax.psum(metric, axis)`) and hosts may be folded in any order, and the result is
computed once, at the end. Averaging results instead would be wrong for all but means.

float32 counts examples one by one up to 2**24; beyond it a batch is still added with a
relative error of 6e-8, since whole batches are summed before they are merged.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, Self, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from estimax.core import errors

Accumulators = Mapping[str, jax.Array]
# Takes the accumulators and, by keyword, the options; returns what is reported.
Result = Callable[..., jax.Array]


class MetricError(errors.EstimaxError, ValueError):
    """A metric asked for with arguments that do not fit each other."""


@runtime_checkable
class Metric(Protocol):
    """What evaluation folds: a pytree that merges with its like and has a result."""

    def merge(self, other: Self, /) -> Self:
        """The metric of both sets of examples."""
        ...

    def compute(self) -> jax.Array:
        """The result for all examples merged so far."""
        ...


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Sums:
    """Accumulators and the function that reads them; made by `from_sums`."""

    sums: dict[str, jax.Array]
    result: Result = field(metadata={"static": True})
    options: tuple[tuple[str, Hashable], ...] = field(metadata={"static": True})

    def merge(self, other: Self, /) -> Self:
        """Add the other's accumulators. Its kind and options must be the same."""
        if _kind(self) != _kind(other):
            raise MetricError(
                f"cannot merge {_kind(self)} with {_kind(other)}: both must come from "
                "the same function, with the same options and shapes"
            )
        added = jax.tree.map(jnp.add, self.sums, other.sums)
        # self.result is kept: a lambda made anew per batch would otherwise change the
        # tree's static part at every merge, and so compile at every step.
        return type(self)(added, self.result, self.options)

    def compute(self) -> jax.Array:
        """The result; may be called inside `jit`."""
        return self.result(self.sums, **dict(self.options))

    def empty(self) -> Self:
        """The same metric before any data."""
        zeros = jax.tree.map(jnp.zeros_like, self.sums)
        return type(self)(zeros, self.result, self.options)


def from_sums(
    sums: Mapping[str, ArrayLike], result: Result, **options: Hashable
) -> Sums:
    """Make a metric of your own from one batch's sums.

    `result(sums, **options)` gets the accumulators of all batches merged so far. It is
    run inside `jit`, so it is written with `jax.numpy`; options are static.

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
    """The quotient, and 0 where the denominator is 0.

    >>> safe_div(jnp.array([1.0, 1.0]), jnp.array([2.0, 0.0])).tolist()
    [0.5, 0.0]
    """
    nothing = denominator == 0
    return jnp.where(nothing, 0.0, numerator / jnp.where(nothing, 1.0, denominator))


def ratio(sums: Accumulators) -> jax.Array:
    """The result of the mean family: total / count, 0 before any data."""
    return safe_div(sums["total"], sums["count"])


def _is_hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:  # a tuple may still hold a list
        return False
    return True


def _kind(metric: Sums) -> str:
    """What must agree for two metrics to merge, in words."""
    name = getattr(metric.result, "__qualname__", repr(metric.result))
    options = ", ".join(f"{key}={value!r}" for key, value in metric.options)
    shapes = {key: tuple(value.shape) for key, value in metric.sums.items()}
    return f"{name}({options}) over {dict(sorted(shapes.items()))}"


def empty(metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    """The same metrics before any data; arrays or their shapes (`jax.eval_shape`)."""

    def zeros(leaf: jax.Array) -> jax.Array:
        return jnp.zeros(leaf.shape, leaf.dtype)

    blank: dict[str, Metric] = jax.tree.map(zeros, dict(metrics))
    return blank


def merge(one: Mapping[str, Metric], other: Mapping[str, Metric]) -> dict[str, Metric]:
    """Each metric merged with the other set's metric of the same name."""
    if one.keys() != other.keys():
        unmatched = ", ".join(sorted(one.keys() ^ other.keys()))
        raise MetricError(
            f"cannot merge metric sets: {unmatched} only in one of them. Every batch "
            "must yield the same metrics"
        )
    return {name: metric.merge(other[name]) for name, metric in one.items()}


def compute(metrics: Mapping[str, Metric]) -> dict[str, np.float32 | np.ndarray]:
    """All results on the host: np.float32 for scalars, else arrays.

    >>> from estimax.metrics.mean import mean
    >>> compute({"loss": mean([1.0, 3.0])})
    {'loss': np.float32(2.0)}
    """
    results = jax.device_get(_results(dict(metrics)))
    return {
        name: np.float32(results[name]) if results[name].ndim == 0 else results[name]
        for name in metrics
    }


# Compiled as one: run one by one, the small operations of ten metrics take longer.
@jax.jit
def _results(metrics: dict[str, Metric]) -> dict[str, jax.Array]:
    return {name: metric.compute() for name, metric in metrics.items()}
