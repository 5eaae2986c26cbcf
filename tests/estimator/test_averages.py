"""Moving averages of variables: kept beside them, evaluated and exported by a flag."""

import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

import estimax as ex


def model_fn(features, labels, mode):
    weight = nn.Dense(1, use_bias=False, name="line")(features["x"])
    if mode == ex.ModeKeys.PREDICT:
        return ex.EstimatorSpec(mode, predictions=weight)
    loss = jnp.mean(jnp.square(weight - labels))
    return ex.EstimatorSpec(
        mode, predictions=weight, loss=loss, train_op=ex.optimizers.SGD(0.1)
    )


def one_row():
    return {"x": np.ones((1, 1), np.float32)}, np.full((1, 1), 2.0, np.float32)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("averages")
    config = ex.RunConfig(folder, tf_random_seed=1, average_decay=0.9)
    return ex.Estimator(model_fn, config=config).train(one_row, steps=3)


def test_an_average_follows_its_variable_by_the_rule_of_the_step(trained, tmp_path):
    plain = ex.Estimator(model_fn, tmp_path, ex.RunConfig(tf_random_seed=1))
    weight = average = _initial(trained)
    for step in range(3):
        weight = weight + 0.2 * (2.0 - weight)
        decay = min(0.9, (2 + step) / (11 + step))  # the step after the update
        average += (weight - average) * (1 - decay)
    plain.train(one_row, steps=3)
    np.testing.assert_allclose(plain.get_variable_value("line/kernel"), [[weight]])
    saved = trained.get_variable_value("line/kernel/ExponentialMovingAverage")
    np.testing.assert_allclose(saved, [[average]], rtol=1e-5)


def test_an_average_is_that_of_tensorflow_after_train_op(tmp_path):
    # TensorFlow 2.15.1: with control_dependencies([train_op]):
    #     ExponentialMovingAverage(0.99, num_updates=global_step).apply([w])
    def counting(features, labels, mode):
        loss = -ex.get_variable("w", (), initializer=0.0)
        return ex.EstimatorSpec(mode, loss=loss, train_op=ex.optimizers.SGD(1.0))

    config = ex.RunConfig(tmp_path, tf_random_seed=1, average_decay=0.99)
    model = ex.Estimator(counting, config=config).train(one_row, steps=5)
    saved = model.get_variable_value("w/ExponentialMovingAverage")
    np.testing.assert_allclose(saved, 4.4002, rtol=1e-6)


def test_evaluation_and_export_use_the_averages(trained, tmp_path):
    average = trained.get_variable_value("line/kernel/ExponentialMovingAverage")
    predicted = next(trained.predict(one_row))
    np.testing.assert_allclose(predicted, average[0])
    bundle = ex.export.load(trained.export_saved_model(tmp_path))
    np.testing.assert_allclose(bundle.predict({"x": [[1.0]]})["output"], average)


def test_a_flag_turns_the_averages_off(trained):
    config = ex.RunConfig(trained.model_dir, use_averages=False)
    plain = ex.Estimator(model_fn, config=config)
    predicted = next(plain.predict(one_row))
    np.testing.assert_allclose(predicted, plain.get_variable_value("line/kernel")[0])


def _initial(estimator):
    """The weight before the first step, worked back from three steps towards 2."""
    final = float(estimator.get_variable_value("line/kernel")[0, 0])
    return 2.0 - (2.0 - final) / 0.8**3
