"""A named set of metrics, folded and read as one.

    seen = empty({"auc": auc(labels, scores), "loss": mean(losses)})
    seen = merge(seen, {"auc": auc(...), "loss": mean(...)})     # inside jit
    compute(seen)                          # {"auc": np.float32(...), "loss": ...}

The set is a plain dict, hence a pytree: `jax.lax.psum(seen, axis)` sums over devices.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from estimax.metrics.metric import Metric, MetricError


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
