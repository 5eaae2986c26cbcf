import jax.numpy as jnp
import numpy as np
import pytest

from estimax import heads
from estimax.core.spec import ModeKeys

CLICK = heads.BinaryClassHead(name="click")
PRICE = heads.RegressionHead(name="price")
LABELS = {"click": np.array([1, 0]), "price": np.array([3.0, 1.0])}
LOGITS = jnp.array([[0.0, 1.0], [0.0, 1.0]])


def test_head_weights_multiply_losses_but_not_metrics():
    head = heads.MultiHead([CLICK, PRICE], head_weights=[1.0, 10.0])
    total = head.loss(LABELS, LOGITS)
    np.testing.assert_allclose(total, np.log(2) + 10 * 2.0, rtol=1e-6)
    seen = head.update_metrics(head.metrics(), {}, LOGITS, LABELS)
    assert float(seen["loss/price"].compute()) == 2.0


def test_metrics_of_children_stream_in_a_hand_written_loop():
    head = heads.MultiHead([CLICK, PRICE])
    seen = head.metrics()
    for price in (3.0, 5.0):
        labels = {**LABELS, "price": np.array([price, price])}
        seen = head.update_metrics(seen, {}, LOGITS, labels)
    assert float(seen["average_loss/price"].compute()) == (4.0 + 16.0) / 2


def test_metrics_keep_their_keys_from_the_start():
    head = heads.MultiHead([CLICK, PRICE])
    seen = head.update_metrics(head.metrics([0.1]), {}, LOGITS, LABELS, [0.1])
    assert seen.keys() == head.metrics([0.1]).keys()
    assert "regularization_loss/click_price" in seen


def test_an_error_in_labels_names_the_child():
    head = heads.MultiHead([CLICK, PRICE])
    with pytest.raises(ValueError, match=r"'click': labels must be within .* row 0"):
        head.loss({**LABELS, "click": np.array([5, 0])}, LOGITS)


def test_heads_of_one_name_are_refused():
    with pytest.raises(ValueError, match="two heads are named 'click'"):
        heads.MultiHead([CLICK, CLICK])


def test_mixed_reductions_evaluate_but_do_not_train():
    price = heads.RegressionHead(name="price", loss_reduction="sum")
    head = heads.MultiHead([CLICK, price])
    spec = head.create_estimator_spec({}, ModeKeys.EVAL, LOGITS, LABELS)
    np.testing.assert_allclose(spec.loss, np.log(2) + 4.0, rtol=1e-6)
    with pytest.raises(ValueError, match="different loss_reductions"):
        head.create_estimator_spec({}, "train", LOGITS, LABELS, optimizer="SGD")


def test_missing_logits_name_the_head():
    with pytest.raises(ValueError, match="logits of head 'price' missing"):
        heads.MultiHead([CLICK, PRICE]).predictions({"click": LOGITS[:, :1]})
