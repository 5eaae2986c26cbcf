import numpy as np
import pytest

from estimax import metrics


def exact(
    labels: np.ndarray, scores: np.ndarray, groups: np.ndarray, weights: np.ndarray
) -> float:
    """The definition: pairs compared one by one, groups weighed by their weight."""
    total = count = 0.0
    for group in np.unique(groups):
        own = groups == group
        positive, negative = own & (labels == 1), own & (labels == 0)
        pairs = np.outer(weights[positive], weights[negative])
        if pairs.sum() == 0:
            continue
        ahead = scores[positive][:, None] - scores[negative][None, :]
        won = (pairs * ((ahead > 0) + 0.5 * (ahead == 0))).sum()
        total += weights[own].sum() * won / pairs.sum()
        count += weights[own].sum()
    return total / count


def examples(seed: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, 300)
    # With ties, and in the middle of one of 50 buckets.
    scores = (rng.integers(0, 50, 300).astype(np.float32) + 0.5) / 50
    groups = rng.integers(0, 40, 300)
    weights = rng.integers(0, 4, 300).astype(np.float32)
    return labels, scores, groups, weights


@pytest.mark.parametrize("seed", range(3))
def test_batch_group_auc_is_exact(seed: int) -> None:
    batch = examples(seed)
    found = metrics.batch_group_auc(*batch).compute()
    assert float(found) == pytest.approx(exact(*batch), rel=1e-5)


def test_group_auc_is_exact_when_groups_are_scattered_over_batches() -> None:
    batch = examples(7)
    seen = metrics.group_auc(num_groups=40, num_buckets=50)
    for start in range(0, 300, 50):
        part = [column[start : start + 50] for column in batch]
        seen = seen.merge(metrics.group_auc(*part, num_groups=40, num_buckets=50))
    assert float(seen.compute()) == pytest.approx(exact(*batch), rel=1e-5)


def test_a_group_split_over_batches_counts_twice_in_batch_group_auc() -> None:
    one = metrics.batch_group_auc([1, 0], [0.9, 0.5], [3, 3])
    other = metrics.batch_group_auc([1, 0], [0.2, 0.1], [3, 3])
    assert float(one.merge(other).compute()) == 1.0
    whole = metrics.batch_group_auc([1, 0, 1, 0], [0.9, 0.5, 0.2, 0.1], [3] * 4)
    assert float(whole.compute()) == 0.75


def test_groups_of_one_class_are_left_out() -> None:
    metric = metrics.batch_group_auc([1, 0, 1, 1], [0.9, 0.5, 0.2, 0.1], [1, 1, 2, 2])
    assert float(metric.compute()) == 1.0
    assert float(metric.sums["count"]) == 2.0


def test_groups_may_count_the_same_whatever_their_size() -> None:
    labels, groups = [1, 0, 1, 0, 0, 0], [1, 1, 2, 2, 2, 2]
    scores = [0.9, 0.5, 0.2, 0.8, 0.8, 0.8]
    by_weight = metrics.batch_group_auc(labels, scores, groups)
    by_group = metrics.batch_group_auc(labels, scores, groups, average="group")
    assert float(by_weight.compute()) == pytest.approx(2 / 6)
    assert float(by_group.compute()) == 0.5


def test_ids_beyond_num_groups_are_refused() -> None:
    with pytest.raises(metrics.MetricError, match="ids from 0 to 9"):
        metrics.group_auc([1, 0], [0.1, 0.2], [3, 10], num_groups=10)
