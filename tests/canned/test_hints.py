"""A model that has not learned says so once, and what to try."""

import logging

import numpy as np
import pytest

import estimax as ex
from estimax import feature_columns as fc
from estimax.heads.kept_sums import average_loss, constant_loss

QUIET = ex.RunConfig(save_summary_steps=0, tf_random_seed=1)


def _data(labels):
    x = np.linspace(-1, 1, 64, dtype=np.float32)
    rows = ex.input.Dataset.from_tensor_slices(({"x": x}, labels(x)))
    return lambda: rows.batch(32)


def _hints(caplog):
    return [r.message for r in caplog.records if "no better than" in r.message]


def test_a_classifier_at_tf_estimators_rate_is_told_which_rate_to_try(caplog):
    late = _data(lambda x: (np.arange(64) % 4 == 0).astype(np.float32))
    model = ex.DNNClassifier([4], [fc.numeric_column("x")], config=QUIET)
    model.train(late)
    with caplog.at_level(logging.WARNING, "estimax"):
        model.evaluate(late)
        model.evaluate(late)
    (hint,) = _hints(caplog)
    assert "after 2 steps" in hint
    assert "that of the mean 0.5623" in hint  # the entropy of 1 in 4
    assert "optimizer=ex.optimizers.Adagrad(0.05) (the learning rate is 0.001)" in hint


def test_a_regressor_is_told_to_scale_its_labels(caplog):
    price = _data(lambda x: 300 + 10 * x)
    model = ex.LinearRegressor([fc.numeric_column("x")], config=QUIET)
    model.train(price)
    with caplog.at_level(logging.WARNING, "estimax"):
        model.evaluate(price)
    (hint,) = _hints(caplog)
    assert "scale the labels to a mean of 0" in hint


def test_a_model_that_has_learned_is_not_told_anything(caplog):
    side = _data(lambda x: (x > 0).astype(np.float32))
    model = ex.DNNClassifier(
        [4], [fc.numeric_column("x")], config=QUIET, optimizer=ex.optimizers.Adam(0.1)
    )
    model.train(lambda: side().repeat(20))
    with caplog.at_level(logging.WARNING, "estimax"):
        assert model.evaluate(side)["accuracy"] > 0.9
    assert not _hints(caplog)


def test_two_parts_are_both_named():
    model = ex.DNNLinearCombinedClassifier(
        linear_feature_columns=[fc.categorical_column_with_identity("id", 3)],
        dnn_feature_columns=[fc.numeric_column("x")],
        dnn_hidden_units=[4],
    )
    assert "dnn_optimizer=ex.optimizers.Adagrad(0.05)" in model.not_learning_hint
    assert "linear_optimizer=ex.optimizers.Ftrl(0.05)" in model.not_learning_hint


def test_the_loss_of_a_constant_is_weighed_and_merges_over_batches():
    zeros = np.zeros((2, 1), np.float32)
    one = average_loss(
        zeros,
        np.float32([[0], [4]]),
        np.float32([[1], [1]]),
        baseline="variance",
    )
    two = average_loss(
        zeros,
        np.float32([[2], [9]]),
        np.float32([[2], [0]]),
        baseline="variance",
    )
    # 0, 4, 2, 2: the mean is 2, the squared distances are 4, 4, 0, 0.
    assert constant_loss(one.merge(two)) == pytest.approx(2.0, rel=1e-4)


def test_classes_have_the_entropy_of_their_frequencies():
    ids = np.int32([[0], [0], [1], [2]])
    loss = average_loss(
        np.zeros((4, 1), np.float32), ids, None, baseline="class_entropy", classes=4
    )
    expected = -(0.5 * np.log(0.5) + 2 * 0.25 * np.log(0.25))
    assert constant_loss(loss) == pytest.approx(expected)
