import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn
from tiny_models import Losses, X, data, line_model_fn, once

import estimax as ex
from estimax import feature_columns as fc
from estimax.input import Dataset


def normed_model_fn(features, labels, mode):
    """Flax's own layers, an optax optimizer, nothing of estimax but the spec."""
    training = mode == ex.ModeKeys.TRAIN
    net = nn.Dense(4)(features["x"])
    net = nn.BatchNorm(use_running_average=not training, momentum=0.5)(net)
    net = nn.Dropout(0.5, deterministic=not training)(net)
    y = nn.Dense(1, name="out")(net)
    if mode == ex.ModeKeys.PREDICT:
        return ex.EstimatorSpec(mode, predictions={"y": y})
    loss = jnp.mean(jnp.square(y - labels))
    return ex.EstimatorSpec(mode, loss=loss, train_op=optax.adam(1e-2))


def variables(model):
    names = model.get_variable_names()
    return {name: model.get_variable_value(name) for name in names}


def assert_same_bits(one, other):
    assert one.keys() == other.keys()
    different = [name for name in one if not np.array_equal(one[name], other[name])]
    assert different == []


def test_flax_layers_with_statistics_and_dropout_train_under_optax(make):
    model = make(normed_model_fn).train(data(4), steps=3)
    mean = model.get_variable_value("BatchNorm_0/mean")
    assert np.any(mean != 0)
    rows = list(model.predict(once()))
    assert len(rows) == 8
    # Statistics are read and not moved by evaluation, and dropout is off.
    assert model.evaluate(once())["loss"] == model.evaluate(once())["loss"]
    assert np.array_equal(model.get_variable_value("BatchNorm_0/mean"), mean)


def test_a_run_is_the_same_bits_again_also_when_cut_in_two(make, tmp_path):
    def build(name):
        config = ex.RunConfig(tf_random_seed=3, log_step_count_steps=None)
        return ex.Estimator(normed_model_fn, tmp_path / name, config)

    whole = build("whole").train(data(4), steps=5)
    build("cut").train(data(4), steps=2)
    cut = build("cut").train(data(4), steps=3)
    assert_same_bits(variables(whole), variables(cut))


def embedding_model(folder, *, loop=1, optimizer="Adagrad"):
    city = fc.categorical_column_with_identity("city", 6)
    columns = [fc.numeric_column("x"), fc.embedding_column(city, 3)]
    config = ex.RunConfig(
        tf_random_seed=3, log_step_count_steps=None, iterations_per_loop=loop
    )
    return ex.DNNRegressor([4], columns, folder, optimizer=optimizer, config=config)


def cities(batch=4):
    city = np.array([[0], [1], [1], [5], [2], [0], [0], [3]])
    rows = Dataset.from_tensor_slices(({"x": X, "city": city}, X / 2))
    return lambda: rows.repeat().batch(batch)


def test_several_steps_in_one_call_give_the_same_bits(tmp_path):
    one = embedding_model(tmp_path / "one").train(cities(), steps=10)
    four = embedding_model(tmp_path / "four", loop=4).train(cities(), steps=10)
    assert_same_bits(variables(one), variables(four))


def test_a_loop_is_shortened_to_meet_the_exact_step(tmp_path):
    model = embedding_model(tmp_path, loop=4).train(cities(), steps=6)
    assert model.get_variable_value("global_step") == 6


def test_a_hook_that_wants_every_step_sees_every_step_of_a_loop(tmp_path):
    losses = Losses()
    embedding_model(tmp_path, loop=4).train(cities(), hooks=[losses], steps=6)
    assert len(losses.seen) == 6


def test_debug_runs_the_model_on_values_that_can_be_looked_at(make):
    seen = []

    def model_fn(features, labels, mode):
        if not isinstance(features["x"], jax.core.Tracer):
            seen.append(float(features["x"][0, 0]))
        return line_model_fn(features, labels, mode)

    make(model_fn, debug=True).train(data(), steps=3)
    # Before the first step the model is looked at, on the first batch.
    assert seen[-3:] == [0.0, 2.0, 4.0]
    assert set(seen[:-3]) == {0.0}


def test_debug_of_a_prediction_leaves_the_callers_jit_alone(make):
    model = make(debug=True).train(data(), steps=1)
    predictions = model.predict(once())
    next(predictions)
    assert not jax.config.jax_disable_jit
    predictions.close()


def test_debug_trains_as_jit_does(make, tmp_path):
    jitted = embedding_model(tmp_path / "jit").train(cities(), steps=2)
    config = ex.RunConfig(tf_random_seed=3, log_step_count_steps=None, debug=True)
    plain = embedding_model(tmp_path / "plain")
    plain = ex.Estimator(plain._model_fn, tmp_path / "plain", config)
    plain.train(cities(), steps=2)
    found, wanted = variables(plain), variables(jitted)
    for name in wanted:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-5, atol=1e-6)


# The last two are given the loss, too.
@pytest.mark.parametrize(
    "optimizer",
    [
        optax.sgd(0.1),
        ex.optimizers.Adam(0.01),
        optax.polyak_sgd(0.1),
        optax.chain(optax.adam(0.01), optax.contrib.reduce_on_plateau()),
    ],
)
def test_tables_train_under_optimizers_that_know_no_rows(tmp_path, optimizer):
    model = embedding_model(tmp_path, optimizer=optimizer)
    losses = Losses()
    model.train(cities(), hooks=[losses], steps=12)
    # Two batches take turns: the first one's losses are every other.
    assert losses.seen[10] < losses.seen[0]


def test_only_the_variables_that_a_train_op_names_are_trained(make):
    def model_fn(features, labels, mode):
        frozen = nn.Dense(2, name="frozen")(features["x"])
        spec = line_model_fn({"x": frozen}, labels, mode)
        if mode != ex.ModeKeys.TRAIN:
            return spec
        return spec._replace(train_op=ex.minimize("SGD", var_list="line/"))

    model = make(model_fn, save_checkpoints_steps=1).train(data(), steps=1)
    before = variables(model)
    after = variables(model.train(data(), steps=1))
    assert np.array_equal(before["frozen/kernel"], after["frozen/kernel"])
    assert not np.array_equal(before["line/kernel"], after["line/kernel"])


def test_a_loss_that_becomes_nan_is_told_and_not_saved(make):
    def model_fn(features, labels, mode):
        spec = line_model_fn(features, labels, mode)
        return spec._replace(loss=spec.loss * jnp.where(spec.loss > -1, jnp.nan, 1.0))

    model = make(model_fn)
    with pytest.raises(RuntimeError, match="NaN"):
        model.train(data(), steps=3)
    assert model.latest_checkpoint().endswith("model.ckpt-0")
