import numpy as np
import pytest

from estimax import metrics


def test_keras_errors_of_rank_one_are_means_of_batch_means() -> None:
    first = metrics.mean_squared_error([0.0, 0.0, 0.0], [1.0, 1.0, 1.0])
    second = metrics.mean_squared_error([0.0], [3.0])
    assert float(first.merge(second).compute()) == 5.0


def test_v1_errors_of_rank_one_are_means_of_elements() -> None:
    first = metrics.v1.mean_squared_error([0.0, 0.0, 0.0], [1.0, 1.0, 1.0])
    second = metrics.v1.mean_squared_error([0.0], [3.0])
    assert float(first.merge(second).compute()) == 3.0


def test_keras_errors_of_rank_one_take_no_weights_per_example() -> None:
    with pytest.raises(metrics.MetricError, match=r"weights \[2\] do not fit"):
        metrics.mean_squared_error([0.0, 0.0], [1.0, 1.0], [1.0, 0.0])


def test_an_empty_batch_of_rank_one_changes_nothing() -> None:
    seen = metrics.mean_absolute_error([1.0], [2.0])
    empty = metrics.mean_absolute_error(np.zeros(0), np.zeros(0))
    assert float(seen.merge(empty).compute()) == 1.0


def test_relative_error_is_zero_where_the_normalizer_is() -> None:
    metric = metrics.v1.mean_relative_error([1.0, 2.0], [2.0, 4.0], normalizer=[0.0, 2])
    assert float(metric.compute()) == 0.5


def test_v1_accuracy_casts_predictions_to_the_label_dtype() -> None:
    assert float(metrics.v1.accuracy(np.array([1]), np.array([1.9])).compute()) == 1.0
    assert float(metrics.accuracy(np.array([1]), np.array([1.9])).compute()) == 0.0


def test_log_loss_of_a_certain_mistake_is_finite() -> None:
    loss = float(metrics.log_loss([1.0], [0.0]).compute())
    assert 15 < loss < 17


def test_a_class_id_out_of_range_makes_the_crossentropy_nan() -> None:
    metric = metrics.sparse_categorical_crossentropy([2], [[0.5, 0.5]])
    assert np.isnan(metric.compute())


def test_mean_tensor_without_data_asks_for_its_shape() -> None:
    with pytest.raises(metrics.MetricError, match="shape="):
        metrics.mean_tensor()
