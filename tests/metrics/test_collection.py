import jax
import jax.numpy as jnp
import numpy as np
import pytest

from estimax import metrics
from estimax.metrics import metric


def batch_metrics(labels: jax.Array, scores: jax.Array) -> dict[str, metrics.Metric]:
    return {
        "auc": metrics.auc(labels, scores),
        "mean": metrics.mean(scores),
        "recall": metrics.recall(labels, scores, thresholds=[0.3, 0.6]),
    }


def test_a_set_folds_inside_jit() -> None:
    labels, scores = jnp.array([0, 1, 1, 0]), jnp.array([0.2, 0.9, 0.5, 0.1])
    seen = metric.empty(jax.eval_shape(batch_metrics, labels, scores))
    step = jax.jit(lambda seen, *batch: metric.merge(seen, batch_metrics(*batch)))
    for _ in range(3):
        seen = step(seen, labels, scores)
    wanted = metric.compute(batch_metrics(labels, scores))
    found = metric.compute(seen)
    assert found.keys() == wanted.keys()
    for name in wanted:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-6)
    assert step._cache_size() == 1


def test_results_are_host_values_in_the_given_order() -> None:
    results = metric.compute(batch_metrics(jnp.array([0, 1]), jnp.array([0.2, 0.9])))
    assert list(results) == ["auc", "mean", "recall"]
    assert type(results["auc"]) is np.float32
    assert type(results["recall"]) is np.ndarray
    assert results["recall"].shape == (2,)


def test_sets_of_other_names_do_not_merge() -> None:
    with pytest.raises(metrics.MetricError, match="loss only in one"):
        metric.merge({"loss": metrics.mean()}, {})
