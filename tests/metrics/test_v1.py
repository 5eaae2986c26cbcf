"""The arguments of `metrics.v1` are those of TensorFlow."""

import numpy as np
import pytest

from estimax import metrics
from estimax.v1 import metrics as v1


@pytest.mark.parametrize(
    ("by_position", "by_name"),
    [
        (
            v1.precision_at_k([[0]], [[0.2, 0.8]], 1, 1, [2.0]),
            v1.precision_at_k([[0]], [[0.2, 0.8]], k=1, class_id=1, weights=[2.0]),
        ),
        (
            v1.recall_at_thresholds([1, 1], [0.2, 0.8], [0.5], [1.0, 3.0]),
            v1.recall_at_thresholds(
                [1, 1], [0.2, 0.8], thresholds=[0.5], weights=[1.0, 3.0]
            ),
        ),
        (
            v1.percentage_below([0.2, 0.8], 0.5, [1.0, 3.0]),
            v1.percentage_below([0.2, 0.8], threshold=0.5, weights=[1.0, 3.0]),
        ),
        (
            v1.mean_iou([0, 1], [1, 1], 2, [1.0, 3.0]),
            metrics.mean_iou([0, 1], [1, 1], [1.0, 3.0], num_classes=2),
        ),
        (
            v1.mean_relative_error([1.0, 2.0], [2.0, 2.0], [4.0, 1.0], [1.0, 3.0]),
            v1.mean_relative_error(
                [1.0, 2.0], [2.0, 2.0], normalizer=[4.0, 1.0], weights=[1.0, 3.0]
            ),
        ),
        (
            v1.sensitivity_at_specificity([0, 1], [0.7, 0.6], 0.5, [1.0, 2.0], 10),
            v1.sensitivity_at_specificity(
                [0, 1], [0.7, 0.6], 0.5, num_thresholds=10, weights=[1.0, 2.0]
            ),
        ),
    ],
    ids=lambda metric: metric.result.__name__,
)
def test_positions_are_those_of_tensorflow(by_position, by_name):
    assert by_position.compute().tolist() == by_name.compute().tolist()


@pytest.mark.parametrize(
    ("function", "option"),
    [
        (v1.precision_at_k, "k"),
        (v1.true_positives_at_thresholds, "thresholds"),
        (v1.percentage_below, "threshold"),
        (v1.mean_cosine_distance, "dim"),
        (v1.mean_per_class_accuracy, "num_classes"),
        (v1.specificity_at_sensitivity, "sensitivity"),
    ],
)
def test_an_option_without_a_default_is_asked_for(function, option):
    with pytest.raises(metrics.MetricError, match=f"{option} is missing"):
        function([[0.0]]) if function is v1.percentage_below else function([0], [0])


def test_a_name_is_accepted_and_has_no_effect():
    metric = v1.accuracy([1, 0], [1, 1], name="acc_op")
    assert metric.compute() == 0.5


def test_retrieved_ids_count_like_the_highest_scores():
    labels, scores = [[0, 2], [1, -1]], [[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]]
    by_score = v1.recall_at_k(labels, scores, 2, weights=[1.0, 3.0])
    by_id = v1.recall_at_top_k(labels, [[0, 1], [2, 1]], weights=[1.0, 3.0])
    assert by_id.compute() == by_score.compute() == np.float32(4 / 5)


def test_a_repeated_label_lowers_the_average_precision():
    once = v1.average_precision_at_k([[1, -1]], [[0.1, 0.9]], 2)
    twice = v1.average_precision_at_k([[1, 1]], [[0.1, 0.9]], 2)
    assert (once.compute(), twice.compute()) == (1.0, 0.5)
