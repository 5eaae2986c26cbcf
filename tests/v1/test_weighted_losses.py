import jax
import jax.numpy as jnp
import numpy as np
import pytest

from estimax import heads
from estimax.core.errors import LabelError, SpecError
from estimax.v1 import losses


def test_weights_must_have_the_axes_of_the_losses():
    with pytest.raises(SpecError, match=r"mean_squared_error: weights \[2\].*\[2, 3\]"):
        losses.mean_squared_error(np.ones((2, 3)), np.ones((2, 3)), weights=[1.0, 2.0])


def test_weights_of_none_are_an_error():
    with pytest.raises(SpecError, match="weights are None"):
        losses.log_loss([1.0], [0.5], weights=None)


def test_an_unknown_reduction_names_its_neighbour():
    with pytest.raises(SpecError, match="did you mean 'mean'"):
        losses.compute_weighted_loss([1.0], reduction="meen")


def test_a_reduction_is_what_a_head_takes():
    reduction = losses.Reduction.SUM
    head = heads.BinaryClassHead(loss_reduction=reduction)
    found = head.loss(np.array([[1], [0]]), jnp.zeros((2, 1)))
    np.testing.assert_allclose(found, 2 * np.log(2), rtol=1e-6)


def test_the_arguments_have_the_positions_of_tensorflow():
    sum_of_both = losses.huber_loss(
        [0.0, 0.0], [3.0, 1.0], 1.0, 2.0, "loss", None, losses.Reduction.SUM
    )
    assert float(sum_of_both) == 4.0 + 0.5
    assert float(losses.cosine_distance([[1.0, 0.0]], [[0.0, 1.0]], 1, 3.0)) == 3.0


def test_gradients_flow_through_weights_but_not_through_one_hot_labels():
    by_weight = jax.grad(lambda w: losses.mean_squared_error([1.0], [3.0], w))(0.5)
    assert float(by_weight) == 4.0
    labels, logits = jnp.array([[0.0, 1.0]]), jnp.array([[1.0, 2.0]])
    by_label = jax.grad(lambda y: losses.softmax_cross_entropy(y, logits))(labels)
    assert by_label.tolist() == [[0.0, 0.0]]


def test_class_ids_may_have_an_axis_of_one_and_so_may_their_weights():
    logits = np.array([[0.0, 1.0], [2.0, 0.0]], np.float32)
    flat = losses.sparse_softmax_cross_entropy([1, 1], logits, [1.0, 3.0])
    found = losses.sparse_softmax_cross_entropy([[1], [1]], logits, [[1.0], [3.0]])
    assert float(found) == float(flat)


def test_a_class_id_out_of_range_is_named():
    with pytest.raises(LabelError, match="found 2 in row 1"):
        losses.sparse_softmax_cross_entropy([0, 2], np.zeros((2, 2)))


@pytest.mark.parametrize("wrong", [-1, 2])
def test_a_class_id_out_of_range_inside_jit_makes_the_loss_nan(wrong):
    loss = jax.jit(
        lambda ids: losses.sparse_softmax_cross_entropy(ids, jnp.ones((1, 2)))
    )
    assert np.isnan(loss(jnp.array([wrong])))
    assert np.isfinite(loss(jnp.array([1])))


def test_missing_labels_and_predictions_are_named():
    with pytest.raises(LabelError, match="hinge_loss: labels are None"):
        losses.hinge_loss(None, [1.0])
    with pytest.raises(LabelError, match="predictions or logits are None"):
        losses.hinge_loss([1.0], None)


def test_cosine_distance_needs_an_axis():
    with pytest.raises(SpecError, match="axis"):
        losses.cosine_distance([[1.0]], [[1.0]])
    assert float(losses.cosine_distance([[1.0]], [[1.0]], dim=1)) == 0.0
