import math

import pytest

from estimax import metrics


def test_ndcg_of_the_best_order_is_one() -> None:
    metric = metrics.ndcg_at_k([[3, 2, 0]], [[0.9, 0.5, 0.1]], k=3)
    assert float(metric.compute()) == pytest.approx(1.0)


def test_ndcg_discounts_by_rank() -> None:
    metric = metrics.ndcg_at_k([[2, 0, 1]], [[0.1, 0.9, 0.5]], k=2)
    gained = 1 / math.log2(3)  # relevance 1 at rank 2; relevance 2 is cut off
    ideal = 3 / math.log2(2) + 1 / math.log2(3)
    assert float(metric.compute()) == pytest.approx(gained / ideal)


def test_padding_is_not_ranked() -> None:
    padded = metrics.ndcg_at_k([[0, 1, -1]], [[0.9, 0.5, 7.0]], k=2)
    short = metrics.ndcg_at_k([[0, 1]], [[0.9, 0.5]], k=2)
    assert float(padded.compute()) == pytest.approx(float(short.compute()))


def test_lists_without_relevant_items_are_left_out() -> None:
    metric = metrics.mean_reciprocal_rank([[0, 0], [0, 1]], [[0.1, 0.2], [0.9, 0.5]])
    assert float(metric.compute()) == 0.5


def test_lists_are_weighted() -> None:
    labels, scores = [[1, 0], [0, 1]], [[0.9, 0.1], [0.9, 0.1]]
    metric = metrics.mean_reciprocal_rank(labels, scores, [3.0, 1.0])
    assert float(metric.compute()) == (3 * 1.0 + 1 * 0.5) / 4


def test_the_first_relevant_item_beyond_k_scores_zero() -> None:
    metric = metrics.mean_reciprocal_rank([[0, 0, 1]], [[0.9, 0.5, 0.1]], k=2)
    assert float(metric.compute()) == 0.0


def test_flat_labels_are_refused() -> None:
    with pytest.raises(metrics.MetricError, match=r"\[lists, items\]"):
        metrics.ndcg_at_k([1, 0], [0.2, 0.1])
