import numpy as np
import pytest

from estimax import metrics


def test_gain_agrees_with_sorting_everything() -> None:
    rng = np.random.default_rng(1)
    scores = rng.permutation(1000).astype(np.float32) / 1000 + 0.0005
    labels = rng.random(1000) < scores
    top = labels[np.argsort(-scores)][:200]
    gain = metrics.gain_at_k(labels, scores, k=0.2)
    lift = metrics.lift_at_k(labels, scores, k=0.2)
    assert float(gain.compute()) == pytest.approx(top.sum() / labels.sum(), abs=1e-5)
    assert float(lift.compute()) == pytest.approx(top.mean() / labels.mean(), abs=1e-4)


def test_equal_scores_lift_nothing() -> None:
    metric = metrics.lift_at_k([1, 0, 0, 1], [0.5] * 4, k=0.1)
    assert float(metric.compute()) == pytest.approx(1.0)


def test_everyone_has_all_the_positives() -> None:
    assert float(metrics.gain_at_k([1, 0, 1], [0.1, 0.9, 0.4], k=1.0).compute()) == 1.0


def test_no_positives_give_zero() -> None:
    assert float(metrics.gain_at_k([0, 0], [0.1, 0.9]).compute()) == 0.0


def test_k_is_a_share() -> None:
    with pytest.raises(metrics.MetricError, match="k is a share"):
        metrics.lift_at_k(k=10)
