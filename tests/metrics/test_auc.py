import jax
import numpy as np
import pytest

from estimax import metrics


def positives_passed(score: np.float32, thresholds: int = 200) -> int:
    """How many thresholds an example of this score passes."""
    counts = metrics.auc([1], [score], num_thresholds=thresholds).sums["counts"]
    return int(np.argmax(counts[1]))


def test_scores_on_the_grid_are_rounded_as_keras_rounds_them() -> None:
    grid = np.arange(200) / np.float32(199)
    strict = np.concatenate([[-1e-7], grid[1:-1], [1 + 1e-7]]).astype(np.float32)
    higher = [
        k for k in range(200) if positives_passed(grid[k]) > np.sum(grid[k] > strict)
    ]
    assert higher == [31, 53, 62, 103, 106, 111, 119, 124]


def test_scores_outside_the_unit_interval_are_clipped() -> None:
    far = metrics.auc([0, 1, 1, 0], [-3.0, 7.0, 0.4, 0.6])
    near = metrics.auc([0, 1, 1, 0], [0.0, 1.0, 0.4, 0.6])
    assert float(far.compute()) == float(near.compute())


def test_soft_labels_count_as_positive() -> None:
    soft = metrics.auc([0.0, 0.3, 0.0], [0.1, 0.8, 0.3])
    assert float(soft.compute()) == 1.0


@pytest.mark.parametrize("label", [0, 1])
def test_one_class_alone_has_area_zero(label: int) -> None:
    assert float(metrics.auc([label, label], [0.2, 0.7]).compute()) == 0.0


def test_v1_gives_all_negatives_an_area_of_one() -> None:
    assert float(metrics.v1.auc([0, 0], [0.2, 0.7]).compute()) == pytest.approx(1.0)


def test_a_single_threshold_is_refused() -> None:
    with pytest.raises(ValueError, match="num_thresholds must be above 1, got 1"):
        metrics.auc(num_thresholds=1)


def test_an_unknown_curve_is_refused() -> None:
    with pytest.raises(ValueError, match="curve must be one of ROC, PR; got 'ROCK'"):
        metrics.auc(curve="rock")


def test_lower_case_curves_are_accepted() -> None:
    assert metrics.auc(curve="pr").options == metrics.auc(curve="PR").options


def test_multi_label_without_data_asks_for_the_number_of_labels() -> None:
    with pytest.raises(ValueError, match="needs num_labels"):
        metrics.auc(multi_label=True)


def test_v1_careful_interpolation_is_for_pr_only() -> None:
    with pytest.raises(ValueError, match="PR"):
        metrics.v1.auc(summation_method="careful_interpolation")


def test_the_state_does_not_grow_with_the_batch() -> None:
    shape = jax.eval_shape(metrics.auc, np.zeros(4096), np.zeros(4096))
    assert [leaf.shape for leaf in jax.tree.leaves(shape)] == [(2, 201)]


def test_the_bucketed_area_nears_the_exact_one() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 2000)
    scores = np.clip(0.3 * labels + rng.random(2000) * 0.7, 0, 1).astype(np.float32)
    wins = scores[labels == 1][:, None] > scores[labels == 0][None, :]
    assert float(metrics.auc(labels, scores).compute()) == pytest.approx(
        wins.mean(), abs=1e-3
    )
