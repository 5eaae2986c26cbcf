import jax.numpy as jnp
import numpy as np
import pytest

import estimax as ex
from estimax.core.errors import LabelError, SpecError

X = np.array([[1.0], [2.0], [3.0], [4.0]], np.float32)


def model_fn(features, labels, mode):
    with ex.variable_scope("line"):
        weight = ex.get_variable("w", (1, 2), initializer=0.5, regularizer=jnp.sum)
        logits = features["x"] @ weight
        if mode == ex.ModeKeys.PREDICT:
            return ex.EstimatorSpec(mode, predictions={"logits": logits})
        ex.losses.sparse_softmax_cross_entropy(labels, logits)
    ex.losses.mean_squared_error(jnp.zeros((4, 2)), logits, loss_collection=None)
    ex.losses.mean_squared_error(jnp.zeros((4, 2)), logits, 2.0, scope="decay")
    ex.losses.add_loss(0.25)
    total = ex.losses.get_total_loss()
    by_name = {
        "line": ex.losses.get_total_loss(scope="line"),
        "decay": ex.losses.get_losses("decay")[0],
        "penalty": ex.losses.get_regularization_loss(),
        "data": ex.losses.get_total_loss(add_regularization_losses=False),
    }
    metrics = {name: ex.metrics.mean(value) for name, value in by_name.items()}
    optimizer = ex.optimizers.SGD(0.0)
    return ex.EstimatorSpec(
        mode, loss=total, train_op=optimizer, eval_metric_ops=metrics
    )


def batches(labels):
    return lambda: [({"x": X}, np.array(labels))]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    model = ex.Estimator(model_fn, str(tmp_path_factory.mktemp("line")))
    return model.train(batches([0, 1, 0, 1]))


def test_the_total_loss_is_the_sum_of_what_a_model_fn_computed(trained):
    found = trained.evaluate(batches([0, 1, 0, 1]))
    squares = 2.0 * np.mean((X * 0.5) ** 2)
    expected = {
        "line": np.log(2) + 1.0,
        "decay": squares,
        "penalty": 1.0,
        "data": np.log(2) + squares + 0.25,
        "loss": np.log(2) + squares + 0.25 + 1.0,
    }
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, err_msg=name)


def test_class_ids_of_the_input_are_checked_on_the_host(trained):
    with pytest.raises(LabelError, match=r"sparse_softmax_cross_entropy.*7 in row 2"):
        trained.evaluate(batches([0, 1, 7, 1]))


def test_nothing_is_collected_outside_of_a_model_fn():
    ex.losses.add_loss(1.0)
    assert ex.losses.get_losses() == []
    with pytest.raises(SpecError, match="no loss has been computed in scope 'a'"):
        ex.losses.get_total_loss(scope="a")


def penalized_fn(features, labels, mode):
    """Penalties of layers in TensorFlow's collection, and of shared variables."""
    ex.losses.add_loss(jnp.sum(features["x"]))
    ex.losses.add_loss(100.0, "regularization_losses")
    for _ in range(2):  # the second one shares the variable, and adds no penalty
        with ex.variable_scope("tower", reuse=ex.AUTO_REUSE):
            ex.get_variable(
                "w", (1,), initializer=2.0, regularizer=lambda v: 1000 * v[0]
            )
    with ex.variable_scope("plain", reuse=ex.AUTO_REUSE):
        ex.get_variable("w", (1,), initializer=2.0)
        ex.get_variable("w", (1,), initializer=2.0, regularizer=jnp.sum)
    collected = ex.losses.get_losses(loss_collection="regularization_losses")
    by_name = {
        "collected": sum(collected),
        "listed": sum(ex.regularization_losses()),
        "penalty": ex.losses.get_regularization_loss(),
        "tower": ex.losses.get_regularization_loss("tower"),
        "data": ex.losses.get_total_loss(add_regularization_losses=False),
    }
    return ex.EstimatorSpec(
        mode,
        loss=ex.losses.get_total_loss(),
        train_op=ex.optimizers.SGD(0.0),
        eval_metric_ops={name: ex.metrics.mean(v) for name, v in by_name.items()},
    )


def test_every_regularization_loss_counts(tmp_path):
    model = ex.Estimator(penalized_fn, str(tmp_path))
    found = model.train(batches([0, 1, 0, 1])).evaluate(batches([0, 1, 0, 1]))
    assert found["loss"] == 10 + 100 + 2000
    assert found["penalty"] == found["collected"] == found["listed"] == 2100
    assert (found["tower"], found["data"]) == (2000, 10)
