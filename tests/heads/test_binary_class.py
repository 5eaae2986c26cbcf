import jax
import jax.numpy as jnp
import numpy as np
import pytest

from estimax import heads
from estimax.core.device_dtypes import materialize
from estimax.core.errors import SpecError

LOGITS = jnp.array([[2.0], [-1.0], [0.5], [0.0]])


def test_a_gradient_at_zero_is_exact():
    head = heads.BinaryClassHead(loss_reduction="sum")
    labels = np.array([0.0, 1.0, 0.25])
    found = jax.grad(lambda x: head.loss(labels, x))(jnp.zeros((3, 1)))
    assert found.tolist() == [[0.5], [-0.5], [0.25]]


def test_the_class_is_decided_on_the_logit_and_thresholds_on_the_sigmoid():
    head = heads.BinaryClassHead(thresholds=[0.5])
    logits = jnp.array([[1e-9]])
    assert materialize(head.predictions(logits))["class_ids"].tolist() == [[1]]
    seen = head.update_metrics(head.metrics(), {}, logits, [1])
    assert float(seen["accuracy"].compute()) == 1.0
    assert float(seen["accuracy/positive_threshold_0.5"].compute()) == 0.0


def test_thresholds_are_printed_short():
    names = heads.BinaryClassHead(thresholds=[0.123456789], name="h").metrics()
    assert "recall/positive_threshold_0.123457/h" in names


def test_metrics_before_any_data_are_zero():
    empty = heads.BinaryClassHead(thresholds=[0.5]).metrics([0.1])
    assert {float(metric.compute()) for metric in empty.values()} == {0.0}


def test_no_regularization_losses_add_no_metric():
    assert "regularization_loss" not in heads.BinaryClassHead().metrics([])


def test_loss_with_labels_on_the_device_is_the_same_in_jit():
    head = heads.BinaryClassHead(weight_column="w")
    labels, features = jnp.array([1, 0, 0, 1]), {"w": jnp.arange(4.0)}
    eager = head.loss(labels, LOGITS, features)
    np.testing.assert_allclose(
        jax.jit(head.loss)(labels, LOGITS, features), eager, rtol=1e-6
    )


def test_metrics_fold_inside_jit():
    head = heads.BinaryClassHead(thresholds=[0.3])

    @jax.jit
    def fold(seen, labels):
        return head.update_metrics(seen, {}, LOGITS, labels)

    labels = jnp.array([1, 0, 0, 1])
    twice = fold(fold(head.metrics(), labels), labels)
    eager = head.update_metrics(head.metrics(), {}, LOGITS, labels)
    for key, metric in eager.items():
        np.testing.assert_allclose(
            twice[key].compute(), metric.compute(), rtol=1e-6, err_msg=key
        )


def test_predictions_pass_through_jit():
    head = heads.BinaryClassHead(label_vocabulary=["no", "yes"])
    found = materialize(jax.jit(head.predictions)(LOGITS))
    assert found["classes"].reshape(-1).tolist() == [b"yes", b"no", b"yes", b"no"]
    assert found["class_ids"].dtype == np.int64
    assert found["all_class_ids"].dtype == np.int32


@pytest.mark.parametrize("words", [["no"], ["no", "yes", "maybe"]])
def test_a_vocabulary_has_a_word_for_each_of_the_two_classes(words):
    with pytest.raises(SpecError, match="label_vocabulary must have 2 words"):
        heads.BinaryClassHead(label_vocabulary=words)


def test_areas_are_of_one_generation_or_the_other():
    # By falling score 0, 0, 1, 1: the curve goes (0, 0), (1/2, 1/3), (1, 1/2).
    labels, features = np.array([0, 1, 0, 1]), {}
    areas = {}
    for compat in ("v1", "v2"):
        head = heads.BinaryClassHead(compat=compat)
        found = head.update_metrics(head.metrics(), features, LOGITS, labels)
        areas[compat] = float(found["auc_precision_recall"].compute())
    assert areas["v1"] == pytest.approx(1 / 12 + 5 / 24, abs=1e-6)  # trapezoids
    # Interpolated, precision is t / (t + 2) at t true positives of two.
    assert areas["v2"] == pytest.approx(1 - np.log(2), abs=1e-6)
    with pytest.raises(ValueError, match="compat must be 'v1' or 'v2', got 'v3'"):
        heads.BinaryClassHead(compat="v3")
