from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from estimax import heads, staging
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


def test_rows_of_padding_have_no_part_in_loss_and_metrics():
    head = heads.MultiHead(
        [
            heads.BinaryClassHead("w", [0.3], loss_reduction="sum", name="a"),
            heads.MultiClassHead(3, name="b"),
            heads.RegressionHead(2, weight_column="pair", name="c"),
            heads.MultiLabelHead(2, name="d"),
            heads.PoissonRegressionHead(name="e"),
        ]
    )
    labels = {
        "a": jnp.array([1, 0, 1]),
        "b": jnp.array([2, 0, 1]),
        "c": jnp.array([[1.0, 2.0], [3.0, 4.0], [0.0, 1.0]]),
        "d": jnp.array([[1, 0], [0, 0], [1, 1]]),
        "e": jnp.array([1.0, 4.0, 2.0]),
    }
    features = {"w": jnp.array([1.0, 3.0, 0.5]), "pair": labels["c"] + 1.0}
    logits = jnp.sin(jnp.arange(3.0 * head.logits_dimension)).reshape(3, -1)

    def measure(mask, *batch):
        trace = staging.Trace("eval", lambda call: None)
        trace.mask = mask
        with staging.tracing(trace):
            features, logits, labels = batch
            spec = head.create_estimator_spec(features, "eval", logits, labels)
        computed = {n: m.compute() for n, m in spec.eval_metric_ops.items()}
        return spec.loss, computed, spec.eval_metric_ops

    batch = features, logits, labels
    expected = jax.jit(measure)(None, *batch)
    padded = jax.tree.map(lambda array: array[jnp.array([0, 1, 2, 2, 2])], batch)
    found = jax.jit(measure)(jnp.array([1.0, 1.0, 1.0, 0.0, 0.0]), *padded)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, 1e-6, 1e-6), found, expected
    )
