"""The weight and shape rules, through the public functions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from estimax import metrics

ROWS = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 9.0]], np.float32)


@pytest.mark.parametrize(
    ("weights", "wanted"),
    [
        (2.0, 4.0),
        ([1.0, 0.0], 2.0),
        ([[0.0], [1.0]], 6.0),
        ([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]], 2.5),
        ([[1.0, 0.0, 0.0]], 2.5),
    ],
)
def test_weights_are_broadcast_over_the_values(weights: object, wanted: float) -> None:
    assert float(metrics.mean(ROWS, weights).compute()) == wanted


def test_the_denominator_sums_the_broadcast_weights() -> None:
    metric = metrics.mean(ROWS, np.array([[1.0], [2.0]]))
    assert float(metric.sums["count"]) == 9.0


def test_weights_with_one_axis_too_many_lose_it() -> None:
    assert float(metrics.mean([1.0, 3.0], [[1.0], [0.0]]).compute()) == 1.0


def test_mean_averages_over_axes_the_weights_lack() -> None:
    values = np.stack([ROWS, ROWS + 1.0])  # [2, 2, 3] with weights [2]
    metric = metrics.mean(values, [1.0, 0.0])
    assert float(metric.compute()) == ROWS.mean()
    assert float(metric.sums["count"]) == 1.0


def test_v1_mean_refuses_weights_that_lack_two_axes() -> None:
    with pytest.raises(metrics.MetricError, match=r"weights \[2\].*values \[2, 2, 3\]"):
        metrics.v1.mean(np.stack([ROWS, ROWS]), [1.0, 0.0])


def test_weights_of_another_length_are_refused() -> None:
    with pytest.raises(metrics.MetricError, match=r"weights \[3\] do not fit"):
        metrics.auc([0, 1], [0.1, 0.9], [1.0, 1.0, 1.0])


def test_labels_lose_a_trailing_axis_of_one() -> None:
    assert float(metrics.accuracy([[1], [2]], [1, 0]).compute()) == 0.5


def test_labels_of_another_shape_are_refused() -> None:
    with pytest.raises(
        metrics.MetricError, match=r"labels \[2\] and predictions \[3\]"
    ):
        metrics.accuracy([1, 2], [1, 2, 3])


def test_labels_without_predictions_are_refused() -> None:
    with pytest.raises(metrics.MetricError, match="predictions missing"):
        metrics.auc([0, 1])


def test_weights_without_data_are_refused() -> None:
    with pytest.raises(metrics.MetricError, match="values missing"):
        metrics.mean(weights=[1.0])


def test_negative_weights_are_accepted() -> None:
    assert float(metrics.mean([1.0, 2.0], [3.0, -1.0]).compute()) == 0.5


def test_weight_zero_removes_a_nan() -> None:
    assert float(metrics.mean([1.0, np.nan], [1.0, 0.0]).compute()) == 1.0


def test_a_value_out_of_range_raises_outside_jit_and_is_nan_inside() -> None:
    def step(ids: jax.Array) -> metrics.Sums:
        return metrics.mean_iou(ids, ids, num_classes=3)

    with pytest.raises(metrics.MetricError, match="class ids below 3"):
        step(jnp.array([0, 3]))
    assert np.isnan(jax.jit(step)(jnp.array([0, 3])).compute())


def test_v1_refuses_scores_outside_the_unit_interval() -> None:
    with pytest.raises(metrics.MetricError, match=r"within \[0, 1\]"):
        metrics.v1.auc([0, 1], [0.5, 1.5])
    inside = jax.jit(metrics.v1.auc)(jnp.array([0, 1]), jnp.array([0.5, 1.5]))
    assert np.isnan(inside.compute())


def test_a_nan_prediction_makes_the_auc_nan() -> None:
    with pytest.raises(metrics.MetricError, match="prediction is NaN"):
        metrics.auc([0, 1], [0.5, np.nan])
    inside = jax.jit(metrics.auc)(jnp.array([0, 1]), jnp.array([0.5, jnp.nan]))
    assert np.isnan(inside.compute())
