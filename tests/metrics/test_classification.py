import numpy as np
import pytest

from estimax import metrics

LABELS = [1, 0, 1, 0, 1]
SCORES = [0.9, 0.8, 0.5, 0.1, 0.3]


def test_a_score_at_the_threshold_is_not_positive() -> None:
    assert float(metrics.true_positives(LABELS, SCORES, thresholds=0.5).compute()) == 1


def test_thresholds_keep_the_order_in_which_they_were_given() -> None:
    up = metrics.recall(LABELS, SCORES, thresholds=[0.2, 0.6]).compute()
    down = metrics.recall(LABELS, SCORES, thresholds=[0.6, 0.2]).compute()
    np.testing.assert_array_equal(up, down[::-1])
    np.testing.assert_allclose(up, [1.0, 1 / 3])


def test_one_threshold_gives_a_scalar() -> None:
    assert metrics.precision(LABELS, SCORES, thresholds=[0.5]).compute().shape == ()


def test_thresholds_outside_the_unit_interval_are_refused() -> None:
    with pytest.raises(ValueError, match=r"thresholds must be within \[0, 1\]"):
        metrics.precision(thresholds=[0.5, 1.5])


def test_no_positive_prediction_gives_precision_zero() -> None:
    assert float(metrics.precision([1, 0], [0.1, 0.2]).compute()) == 0.0


def test_top_k_takes_the_highest_scores_of_each_row() -> None:
    labels = [[0, 1, 0], [1, 0, 0]]
    scores = [[0.1, 0.3, 0.2], [0.1, 0.3, 0.2]]
    assert float(metrics.precision(labels, scores, top_k=1).compute()) == 0.5
    assert float(metrics.recall(labels, scores, top_k=1).compute()) == 0.5


def test_the_baseline_is_the_more_frequent_class() -> None:
    seen = metrics.accuracy_baseline([1, 1, 0]).merge(metrics.accuracy_baseline([1]))
    assert float(seen.compute()) == 0.75
    assert float(metrics.accuracy_baseline().compute()) == 0.0


def test_soft_labels_never_match_a_class() -> None:
    assert float(metrics.accuracy([0.3, 1.0], [0, 1]).compute()) == 0.5


def test_operating_points_are_checked() -> None:
    with pytest.raises(ValueError, match=r"recall must be within \[0, 1\]"):
        metrics.precision_at_recall(recall=1.5)
    with pytest.raises(ValueError, match="num_thresholds"):
        metrics.precision_at_recall(recall=0.5, num_thresholds=0)


def test_keras_takes_the_best_point_and_v1_the_nearest() -> None:
    labels, scores = [0, 0, 1, 1], [0.3, 0.7, 0.5, 0.9]
    best = metrics.sensitivity_at_specificity(labels, scores, specificity=0.4)
    nearest = metrics.v1.sensitivity_at_specificity(labels, scores, specificity=0.1)
    assert float(best.compute()) == 1.0
    assert float(nearest.compute()) == pytest.approx(1.0)
    none = metrics.recall_at_precision([0, 0, 1], [0.9, 0.8, 0.1], precision=0.9)
    assert float(none.compute()) == 0.0


def test_a_label_twice_counts_once_in_recall_at_k() -> None:
    metric = metrics.v1.recall_at_k([[1, 1, -1]], [[0.1, 0.7, 0.2]], k=1)
    assert float(metric.compute()) == 1.0


def test_at_k_without_anything_retrieved_is_nan() -> None:
    metric = metrics.v1.precision_at_k([[1]], [[0.1, 0.7]], k=1, class_id=0)
    assert np.isnan(metric.compute())


def test_k_beyond_the_classes_is_refused() -> None:
    with pytest.raises(ValueError, match="k must be from 1 to 2"):
        metrics.v1.precision_at_k([[1]], [[0.1, 0.7]], k=3)


def test_mean_iou_leaves_absent_classes_out_and_per_class_accuracy_does_not() -> None:
    ids = [0, 0, 1]
    iou = metrics.mean_iou(ids, ids, num_classes=4)
    per_class = metrics.v1.mean_per_class_accuracy(ids, ids, num_classes=4)
    assert (float(iou.compute()), float(per_class.compute())) == (1.0, 0.5)
