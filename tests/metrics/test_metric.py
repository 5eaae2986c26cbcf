from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from estimax import metrics


def cost_per_click(sums: Mapping[str, jax.Array], *, scale: float) -> jax.Array:
    return scale * sums["cost"] / jnp.maximum(sums["clicks"], 1.0)


def own_metric(cost: jax.Array, clicks: jax.Array) -> metrics.Sums:
    sums = {"cost": jnp.sum(cost), "clicks": jnp.sum(clicks)}
    return metrics.from_sums(sums, cost_per_click, scale=100.0)


def test_a_metric_of_ones_own_folds_inside_jit() -> None:
    @jax.jit
    def step(
        seen: metrics.Sums, cost: jax.Array, clicks: jax.Array
    ) -> tuple[metrics.Sums, jax.Array]:
        seen = seen.merge(own_metric(cost, clicks))
        return seen, seen.compute()

    seen = own_metric(jnp.zeros(0), jnp.zeros(0))
    seen, first = step(seen, jnp.array([0.5, 1.5]), jnp.array([1.0, 0.0]))
    seen, second = step(seen, jnp.array([1.0, 0.0]), jnp.array([1.0, 0.0]))
    assert (float(first), float(second)) == (200.0, 150.0)
    assert step._cache_size() == 1


def test_a_result_function_made_per_call_compiles_once_more_and_no_further() -> None:
    def made(value: jax.Array) -> metrics.Sums:
        return metrics.from_sums({"x": value}, lambda sums: sums["x"])

    step = jax.jit(lambda seen, value: seen.merge(made(value)))
    seen = made(jnp.zeros(()))
    for _ in range(4):
        seen = step(seen, jnp.ones(()))
    assert float(seen.compute()) == 4.0
    assert step._cache_size() == 1


def test_metrics_of_another_kind_do_not_merge() -> None:
    with pytest.raises(metrics.MetricError, match=r"curve='ROC'.*curve='PR'"):
        metrics.auc().merge(metrics.auc(curve="PR"))


def test_metrics_of_another_shape_do_not_merge() -> None:
    with pytest.raises(metrics.MetricError, match=r"\(3,\).*\(2,\)"):
        metrics.mean_tensor(shape=(3,)).merge(metrics.mean_tensor(shape=(2,)))


def test_every_metric_is_a_metric_by_protocol() -> None:
    assert isinstance(metrics.mean(), metrics.Metric)


def test_merging_changes_neither_side() -> None:
    one, other = metrics.mean([1.0]), metrics.mean([3.0])
    assert float(one.merge(other).compute()) == 2.0
    assert (float(one.compute()), float(other.compute())) == (1.0, 3.0)


def test_empty_keeps_the_options() -> None:
    metric = metrics.auc([0, 1], [0.1, 0.9], curve="PR")
    assert metric.empty().options == metric.options
    assert float(metric.empty().compute()) == 0.0


def test_accumulators_are_float32_whatever_comes_in() -> None:
    metric = metrics.from_sums({"n": np.int64(3)}, lambda sums: sums["n"])
    assert metric.sums["n"].dtype == jnp.float32


def test_options_that_cannot_be_static_are_refused() -> None:
    with pytest.raises(metrics.MetricError, match="options k must be hashable"):
        metrics.from_sums({"x": 1.0}, lambda sums, k: sums["x"], k=[1, 2])


class TestTupleOfTensorFlow:
    """`tf.metrics` return (value, update_op); programs index and unpack them."""

    def test_both_parts_are_the_value_of_the_batch(self):
        accuracy = metrics.v1.accuracy(jnp.array([1, 0]), jnp.array([1, 1]))
        assert float(accuracy[0]) == float(accuracy[1]) == 0.5
        value, update_op = metrics.v1.auc(jnp.array([0, 1]), jnp.array([0.1, 0.9]))
        assert float(value) == float(update_op) == pytest.approx(1.0)

    def test_there_are_two_parts(self):
        with pytest.raises(IndexError):
            metrics.mean([1.0])[2]

    def test_a_part_is_computed_inside_jit(self):
        part = jax.jit(lambda x: metrics.mean(x)[1])(jnp.array([1.0, 3.0]))
        assert float(part) == 2.0
