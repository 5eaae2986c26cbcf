import numpy as np
import pytest

from estimax import metrics


def test_perfectly_calibrated_predictions_have_no_error() -> None:
    labels = [1, 0, 0, 0, 1, 1, 1, 0]
    scores = [0.25] * 4 + [0.75] * 4
    metric = metrics.expected_calibration_error(labels, scores)
    assert float(metric.compute()) == 0.0


def test_bins_are_weighed_by_their_examples() -> None:
    # Three examples at 0.9 that all fail, one at 0.1 that succeeds.
    metric = metrics.expected_calibration_error([0, 0, 0, 1], [0.9, 0.9, 0.9, 0.1])
    assert float(metric.compute()) == pytest.approx((3 * 0.9 + 0.9) / 4)


def test_opposite_errors_in_two_batches_cancel_within_a_bin() -> None:
    one = metrics.expected_calibration_error([1], [0.5])
    other = metrics.expected_calibration_error([0], [0.5])
    assert float(one.compute()) == 0.5
    assert float(one.merge(other).compute()) == 0.0


def test_probability_one_falls_into_the_last_bin() -> None:
    curve = metrics.reliability_curve([1, 1], [1.0, 0.0], num_bins=4).compute()
    np.testing.assert_array_equal(curve[:, 2], [1, 0, 0, 1])


def test_scores_outside_the_unit_interval_are_refused() -> None:
    with pytest.raises(metrics.MetricError, match=r"within \[0, 1\]"):
        metrics.reliability_curve([1], [1.5])


def test_bins_of_equal_weight_tell_small_probabilities_apart():
    rng = np.random.default_rng(0)
    scores = (rng.random(6000) ** 2 * 0.02).astype(np.float32)  # as those of clicks
    labels, weights = rng.random(6000) < 2 * scores, rng.random(6000)
    metric = metrics.expected_calibration_error(strategy="quantile", num_bins=8)
    for part in np.split(np.arange(6000), 3):
        rows = labels[part], scores[part], weights[part]
        metric = metric.merge(
            metrics.expected_calibration_error(*rows, strategy="quantile", num_bins=8)
        )
    order = np.argsort(scores)
    at = np.cumsum(weights[order]) / weights.sum()
    bins = np.split(order, np.searchsorted(at, np.arange(1, 8) / 8))
    gaps = [weights[b] @ (scores[b] - labels[b]) for b in bins]
    exact = np.abs(gaps).sum() / weights.sum()
    assert float(metric.compute()) == pytest.approx(exact, rel=0.05)
    with pytest.raises(metrics.MetricError, match="unknown strategy 'quantil'; did"):
        metrics.expected_calibration_error(labels, scores, strategy="quantil")
