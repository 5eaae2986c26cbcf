import jax
import jax.numpy as jnp
import numpy as np
import pytest

from estimax.metrics import losses


def gradient(loss, labels, logits, **options):
    def total(x):
        return jnp.sum(loss(jnp.asarray(labels), x, **options))

    return np.asarray(jax.grad(total)(jnp.asarray(logits, jnp.float32)))


def test_sigmoid_cross_entropy_has_an_exact_gradient_at_zero():
    labels = [[0.0], [1.0], [0.25]]
    found = gradient(losses.sigmoid_cross_entropy, labels, np.zeros((3, 1)))
    assert found.tolist() == [[0.5], [-0.5], [0.25]]


def test_sigmoid_cross_entropy_stays_finite_for_extreme_logits():
    found = losses.sigmoid_cross_entropy([[0.0], [1.0]], [[1e4], [1e4]])
    assert found.tolist() == [[1e4], [0.0]]


def test_weighted_cross_entropy_multiplies_positives_only():
    plain = losses.sigmoid_cross_entropy([[1.0], [0.0]], [[0.3], [0.3]])
    found = losses.weighted_cross_entropy(
        [[1.0], [0.0]], [[0.3], [0.3]], pos_weight=4.0
    )
    np.testing.assert_allclose(found, plain * np.array([[4.0], [1.0]]), rtol=1e-6)


def test_focal_cross_entropy_without_focus_is_cross_entropy():
    labels, logits = [[1.0], [0.0], [0.4]], [[0.7], [-2.0], [3.0]]
    found = losses.focal_cross_entropy(labels, logits, alpha=None, gamma=0.0)
    expected = losses.sigmoid_cross_entropy(labels, logits)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_focal_cross_entropy_by_hand():
    found = losses.focal_cross_entropy([[1.0]], [[0.0]], alpha=0.25, gamma=2.0)
    np.testing.assert_allclose(found, 0.25 * 0.5**2 * np.log(2), rtol=1e-6)


def test_focal_cross_entropy_has_a_finite_gradient_where_an_answer_is_sure():
    found = gradient(losses.focal_cross_entropy, [[1.0]], [[200.0]], gamma=0.5)
    assert np.isfinite(found).all()


def test_sparse_focal_cross_entropy_is_cross_entropy_times_a_power_of_the_miss():
    labels, logits = np.array([[0], [2]]), np.array([[1.0, 0.5, 0], [2.0, 0, -1]])
    plain = losses.sparse_softmax_cross_entropy(labels, logits)
    found = losses.sparse_focal_cross_entropy(labels, logits, gamma=1.5)
    np.testing.assert_allclose(found, (1 - np.exp(-plain)) ** 1.5 * plain, rtol=1e-5)
    np.testing.assert_allclose(
        losses.sparse_focal_cross_entropy(labels, logits, gamma=0.0), plain, rtol=1e-6
    )
    sure = gradient(
        losses.sparse_focal_cross_entropy, [[0]], [[300.0, 0, 0]], gamma=0.5
    )
    assert np.isfinite(sure).all()


def test_softmax_cross_entropy_of_one_hot_labels_is_that_of_their_ids():
    logits = [[0.1, 2.0, -1.0], [3.0, 0.0, 0.5]]
    dense = losses.softmax_cross_entropy([[0.0, 1, 0], [0, 0, 1]], logits)
    by_id = losses.sparse_softmax_cross_entropy([[1], [2]], logits)
    np.testing.assert_allclose(dense, by_id, rtol=1e-6)
    assert dense.shape == (2, 1)


def test_kl_divergence_ignores_classes_of_probability_zero():
    found = losses.kl_divergence([[1.0, 0.0]], [[0.0, 0.0]])
    np.testing.assert_allclose(found, [[np.log(2)]], rtol=1e-6)


def test_absolute_error_does_not_move_a_perfect_answer():
    found = gradient(losses.absolute_error, [[1.0], [0.0]], [[1.0], [2.0]])
    assert found.tolist() == [[0.0], [1.0]]


def test_huber_turns_linear_at_delta():
    found = losses.huber([[0.0], [0.0]], [[1.0], [-4.0]], delta=2.0)
    assert found.tolist() == [[0.5], [6.0]]
    slope = gradient(losses.huber, [[0.0], [0.0]], [[0.0], [-4.0]], delta=2.0)
    assert slope.tolist() == [[0.0], [-2.0]]


def test_poisson_leaves_stirling_out_for_labels_up_to_one():
    found = losses.poisson([[0.0], [1.0], [2.0]], [[0.0], [0.0], [0.0]])
    stirling = 2 * np.log(2) - 2 + 0.5 * np.log(2 * np.pi * 2)
    np.testing.assert_allclose(found, [[1.0], [1.0], [1.0 + stirling]], rtol=1e-6)


def test_hinge_is_zero_beyond_the_margin():
    found = losses.hinge([[1.0], [0.0], [1.0]], [[2.0], [-0.5], [-1.0]])
    assert found.tolist() == [[0.0], [0.5], [2.0]]


def test_pairwise_ranking_by_hand():
    found = losses.pairwise_ranking([[2.0, 1.0, 0.0]], [[0.0, 0.0, 0.0]])
    np.testing.assert_allclose(found, [[np.log(2)]], rtol=1e-6)


def test_pairwise_ranking_skips_padding_and_lists_without_order():
    found = losses.pairwise_ranking(
        [[1.0, 0.0, -1.0], [1.0, 1.0, 1.0]], [[0.0, 0.0, 50.0], [3.0, 2.0, 1.0]]
    )
    np.testing.assert_allclose(found, [[np.log(2)], [0.0]], rtol=1e-6)


def test_a_mean_over_the_batch_counts_examples_of_weight_zero():
    found = losses.reduce_losses([[2.0], [4.0]], [[0.0], [1.0]])
    assert float(found) == 2.0


def test_a_mean_over_the_batch_counts_every_output():
    found = losses.reduce_losses(np.ones((2, 3)), [[1.0], [3.0]])
    assert float(found) == 2.0


@pytest.mark.parametrize(
    ("reduction", "expected"),
    [
        ("sum", 10.0),
        ("auto", 2.5),
        ("mean", 10.0 / 3.0),
        ("sum_over_nonzero_weights", 5.0),
    ],
)
def test_reductions_divide_differently(reduction, expected):
    weights = [[0.0], [1.0], [2.0], [0.0]]
    found = losses.reduce_losses([[9.0], [2.0], [4.0], [9.0]], weights, reduction)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("reduction", losses.REDUCTIONS)
def test_no_examples_have_no_loss(reduction):
    assert float(losses.reduce_losses(np.zeros((0, 1)), None, reduction)) == 0.0


def test_an_unknown_reduction_names_its_neighbour():
    with pytest.raises(ValueError, match="did you mean 'sum'"):
        losses.reduce_losses([[1.0]], None, "summ")
