from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

from estimax import heads
from estimax.core.errors import FeatureError
from estimax.core.strings import Strings

ZEROS = jnp.zeros((2, 1))


def test_a_flat_weight_is_a_column_and_not_a_row():
    head = heads.RegressionHead(label_dimension=2, weight_column="w")
    logits, labels = jnp.zeros((2, 2)), np.ones((2, 2))
    found = head.loss(labels, logits, {"w": np.array([1.0, 3.0])})
    assert float(found) == 2.0


def test_a_weight_for_every_output_is_for_regression_only():
    features = {"w": np.array([[3.0, 0.0, 0.0]])}
    labels = np.ones((1, 3))
    regression = heads.RegressionHead(3, weight_column="w")
    assert float(regression.loss(labels, jnp.zeros((1, 3)), features)) == 1.0
    with pytest.raises(FeatureError, match=r"'w' must have shape \[1\] or \[1, 1\]"):
        heads.MultiLabelHead(3, weight_column="w").loss(
            labels, jnp.zeros((1, 3)), features
        )


def test_a_normalizer_scales_the_raw_feature():
    column = SimpleNamespace(key="w", normalizer_fn=lambda w: w * 10.0)
    head = heads.RegressionHead(weight_column=column)
    assert float(head.loss([1.0, 1.0], ZEROS, {"w": np.array([1, 3])})) == 20.0


def test_a_missing_weight_names_its_neighbour():
    head = heads.BinaryClassHead(weight_column="weight")
    with pytest.raises(FeatureError, match=r"'weight' is not .* did you mean 'weigh'"):
        head.loss([1, 0], ZEROS, {"weigh": np.ones(2)})


def test_weights_of_no_features_are_missed():
    head = heads.BinaryClassHead(weight_column="w")
    with pytest.raises(FeatureError, match="needs features by name"):
        head.loss([1, 0], ZEROS)


@pytest.mark.parametrize("text", [Strings.of(["1", "2"]), np.array(["1", "2"])])
def test_text_is_no_weight(text):
    head = heads.BinaryClassHead(weight_column="w")
    with pytest.raises(FeatureError, match="must hold numbers"):
        head.loss([1, 0], ZEROS, {"w": text})


def test_a_weight_column_of_another_type_is_refused_at_once():
    with pytest.raises(TypeError, match="weight_column must be the key"):
        heads.BinaryClassHead(weight_column=3)
