from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from estimax import heads
from estimax.canned.member_predictions import logits_of
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


def test_down_sampled_negatives_are_corrected_by_the_closed_form():
    rate = 0.05
    head = heads.BinaryClassHead(sampling_rate=rate)
    plain = heads.BinaryClassHead()
    p = np.asarray(plain.predictions(LOGITS)["logistic"])
    found = head.predictions(LOGITS)
    closed = p / (p + (1 - p) / rate)
    np.testing.assert_allclose(found["logistic"], closed, rtol=1e-5)
    np.testing.assert_allclose(found["probabilities"][:, 1:], closed, rtol=1e-5)
    np.testing.assert_allclose(found["logits"], LOGITS + np.log(rate), rtol=1e-6)
    labels = np.array([1.0, 0.0, 1.0, 0.0])
    seen = head.update_metrics(head.metrics(), {}, LOGITS, labels)
    assert float(seen["prediction/mean"].compute()) == pytest.approx(closed.mean())
    corrected = plain.loss(labels, LOGITS + np.log(rate))
    assert float(seen["average_loss"].compute()) == pytest.approx(float(corrected))
    assert head.loss(labels, LOGITS, mode="eval") == corrected
    # The training sees the rows as they were sampled.
    assert head.loss(labels, LOGITS, mode="train") == plain.loss(labels, LOGITS)


def test_down_sampling_is_corrected_once_in_an_average_and_for_every_step():
    head = heads.BinaryClassHead(sampling_rate=0.1)
    shown = head.predictions(LOGITS)
    np.testing.assert_allclose(logits_of(head, shown, "a"), LOGITS, atol=1e-6)
    steps = heads.SequentialHeadWrapper(head)
    features = {"sequence_length_mask": np.ones((2, 2), bool)}
    given = steps, features, LOGITS.reshape(2, 2, 1), np.array([[1.0, 0], [1, 0]])
    seen = steps.update_metrics(steps.metrics(), *given[1:])
    assert float(seen["prediction/mean"].compute()) == pytest.approx(
        float(shown["logistic"].mean())
    )
    several = heads.MultiHead([heads.BinaryClassHead(name="a", sampling_rate=0.1)])
    labels = {"a": np.array([1.0, 0, 1, 0])}
    found = several.update_metrics(several.metrics(), {}, {"a": LOGITS}, labels)
    alone = head.loss(labels["a"], LOGITS, mode="eval")
    assert float(found["loss/a"].compute()) == pytest.approx(float(alone))


def test_class_weights_multiply_the_losses_of_a_class():
    plain = heads.BinaryClassHead(label_vocabulary=["no", "yes"])
    labels = np.array(["yes", "no", "no", "yes"])
    each = plain.example_losses(jnp.array([[1.0], [0], [0], [1]]), LOGITS, {})
    expected = float((each * jnp.array([[5.0], [1], [1], [5]])).mean())
    for given in ({"yes": 5}, {1: 5.0, "0": 1}, (1, 5)):
        head = heads.BinaryClassHead(
            label_vocabulary=["no", "yes"], class_weights=given
        )
        assert float(head.loss(labels, LOGITS)) == pytest.approx(expected)
        assert hash(head) == hash(replace(head))
    seen = head.update_metrics(head.metrics(), {}, LOGITS, labels)
    assert float(seen["average_loss"].compute()) == pytest.approx(expected)
    assert float(seen["accuracy"].compute()) == 0.5  # counts rows


def test_a_focal_head_has_the_focal_loss():
    head = heads.BinaryClassHead(focal_gamma=2.0)
    labels = np.array([1.0, 0.0, 1.0, 0.0])
    p = 1 / (1 + np.exp(-np.asarray(LOGITS)[:, 0]))
    right = np.where(labels == 1, p, 1 - p)
    expected = (-((1 - right) ** 2) * np.log(right)).mean()
    assert float(head.loss(labels, LOGITS)) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sampling_rate": 0.0}, "sampling_rate is the share of the examples of class"),
        ({"sampling_rate": 10}, "above 0 and at most 1; got 10"),
        ({"focal_gamma": 0}, "focal_gamma must be a number above 0"),
        (
            {"focal_gamma": 2, "loss_fn": heads.losses.focal_cross_entropy},
            "loss_fn and focal_gamma are both given",
        ),
        ({"class_weights": {2: 1}}, "unknown class 2; expected one of: 0, 1"),
        ({"class_weights": [1, 2, 3]}, "or 2 weights in the order of the class ids"),
        ({"class_weights": "balanced"}, "must be a dict from class to weight"),
        ({"class_weights": {0: -1}}, "a number of at least 0, got -1"),
        ({"class_weights": {0: 0, 1: 0}}, "the weights of all classes are 0"),
    ],
)
def test_a_wrong_option_of_the_loss_is_named(options, words):
    with pytest.raises(SpecError, match=words):
        heads.BinaryClassHead(**options)
