"""Numbers of a report against scikit-learn and numbers worked by hand."""

import numpy as np
import pytest

from estimax.calibration.measures import log_losses, reliability
from estimax.inspection.report import measures

sklearn = pytest.importorskip("sklearn.metrics")


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    scores = np.round(rng.random(500), 2)  # with ties
    labels = (rng.random(500) < scores).astype(float)
    return labels, scores, rng.random(500)


def test_areas_are_those_of_scikit_learn(rows):
    labels, scores, weights = rows
    curve = measures.threshold_curve(*rows)
    area = sklearn.roc_auc_score(labels, scores, sample_weight=weights)
    precision = sklearn.average_precision_score(labels, scores, sample_weight=weights)
    assert curve.roc_area == pytest.approx(area)
    assert curve.average_precision == pytest.approx(precision)


def test_rates_at_a_threshold_are_those_of_scikit_learn(rows):
    labels, scores, weights = rows
    curve = measures.threshold_curve(*rows)
    at, passed = curve.at(0.3), scores >= 0.3
    given = {"sample_weight": weights}
    assert curve.recall[at] == pytest.approx(
        sklearn.recall_score(labels, passed, **given)
    )
    assert curve.precision[at] == pytest.approx(
        sklearn.precision_score(labels, passed, **given)
    )
    assert curve.f1[at] == pytest.approx(sklearn.f1_score(labels, passed, **given))


def test_a_threshold_between_scores_counts_those_above():
    curve = measures.threshold_curve(
        np.array([1.0, 0.0]), np.array([0.8, 0.2]), np.ones(2)
    )
    assert curve.tp[curve.at(0.5)] == 1
    assert curve.at(0.9) == 0, "above every score"


def test_labels_of_one_class_have_no_curve():
    assert measures.threshold_curve(np.ones(3), np.ones(3), np.ones(3)) is None


def test_log_losses_are_those_of_scikit_learn(rows):
    labels, scores, weights = rows
    losses = log_losses(labels, scores)
    clipped = np.clip(scores, 1e-7, 1 - 1e-7)
    expected = sklearn.log_loss(labels, clipped, sample_weight=weights)
    assert measures.mean(losses, weights) == pytest.approx(expected)


def test_calibrated_predictions_have_no_error():
    predictions = np.repeat([0.25, 0.75], 100)
    labels = np.concatenate([np.arange(100) < 25, np.arange(100) < 75]).astype(float)
    found = reliability(labels, predictions, np.ones(200), bins=2)
    assert found.error == pytest.approx(0.0)
    np.testing.assert_allclose(found.weight, [100, 100])


def test_ndcg_is_that_of_scikit_learn():
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 4, 40).astype(float)
    scores, groups = rng.random(40), np.repeat(["a", "b", "c", "d"], 10)
    found = measures.ranking(labels, scores, groups)
    expected = [
        sklearn.ndcg_score([2 ** labels[i : i + 10] - 1], [scores[i : i + 10]], k=5)
        for i in range(0, 40, 10)
    ]
    assert found.ndcg[5] == pytest.approx(np.mean(expected))
    assert found.groups == 4


def test_groups_of_equal_labels_are_not_ranked():
    labels, groups = np.array([1.0, 1.0]), np.array(["a", "a"])
    assert measures.ranking(labels, np.array([0.1, 0.2]), groups) is None
