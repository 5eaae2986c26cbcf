"""Several batches to an update: the same as one large batch, at the price of small."""

import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

import estimax as ex

RNG = np.random.default_rng(0)
ROWS = 24
FEATURES = {
    "x": RNG.normal(size=(ROWS, 3)).astype(np.float32),
    "id": RNG.integers(0, 7, size=(ROWS, 1)),
    "words": np.array([["a", ""], ["b", "c"], ["a", "a"], ["", ""]] * 6),
}
LABELS = RNG.normal(size=(ROWS, 1)).astype(np.float32)


def model_fn(features, labels, mode, params):
    identity = ex.feature_columns.categorical_column_with_identity("id", 7)
    words = ex.feature_columns.categorical_column_with_vocabulary_list(
        "words", ["a", "b", "c"]
    )
    columns = [
        ex.feature_columns.numeric_column("x", (3,)),
        ex.feature_columns.embedding_column(identity, 2),
        ex.feature_columns.embedding_column(words, 2),
    ]
    net = ex.feature_columns.input_layer(features, columns)
    y = nn.Dense(1, name="out")(net)
    loss = jnp.mean(jnp.square(y - labels))
    ex.log_value("first_x", features["x"][0, 0])
    return ex.EstimatorSpec(mode, loss=loss, train_op=params["optimizer"])


def input_fn(batch, rows=ROWS, repeat=1):
    features = {name: value[:rows] for name, value in FEATURES.items()}
    return lambda: (
        ex.input.Dataset.from_tensor_slices((features, LABELS[:rows]))
        .repeat(repeat)
        .batch(batch)
    )


def trained(folder, optimizer, batch, *, hooks=(), rows=ROWS, steps=None, **settings):
    config = ex.RunConfig(
        folder,
        tf_random_seed=1,
        save_summary_steps=0,
        log_step_count_steps=None,
        **settings,
    )
    model = ex.Estimator(model_fn, config=config, params={"optimizer": optimizer})
    repeat = 1 if steps is None else None
    return model.train(input_fn(batch, rows, repeat), hooks=hooks, steps=steps)


def assert_same_variables(one, other, rtol):
    names = [n for n in one.get_variable_names() if n != "random_key"]
    assert names == [n for n in other.get_variable_names() if n != "random_key"]
    for name in names:
        np.testing.assert_allclose(
            one.get_variable_value(name),
            other.get_variable_value(name),
            rtol=rtol,
            atol=1e-7,
            err_msg=name,
        )


class Look(ex.hooks.Hook):
    """Keeps what the steps tell."""

    def __init__(self):
        self.values, self.examples = [], []

    def before_run(self, context):
        return ["loss", "first_x"]

    def after_run(self, context, values):
        self.values.append(values)
        self.examples.append(context.examples)


@pytest.mark.parametrize(
    "optimizer",
    [ex.optimizers.SGD(0.3, global_clipnorm=0.5), ex.optimizers.Adagrad(0.3)],
    ids=["SGD", "Adagrad"],
)
def test_n_small_batches_are_one_large_batch(tmp_path, optimizer):
    one, many = Look(), Look()
    large = trained(tmp_path / "large", optimizer, 12, hooks=[one])
    small = trained(tmp_path / "small", optimizer, 4, accumulate_steps=3, hooks=[many])
    assert small.get_variable_value("global_step") == 2
    assert_same_variables(large, small, 1e-5)
    # A step tells the mean loss, and the values that its last part named.
    for mine, whole in zip(many.values, one.values, strict=True):
        assert mine["loss"] == pytest.approx(whole["loss"], rel=1e-5)
    assert many.values[0]["first_x"] == FEATURES["x"][8, 0]
    assert many.examples == [12, 24]


def test_data_that_ends_within_a_step_counts_each_example_once(tmp_path):
    optimizer = ex.optimizers.Adagrad(0.3)
    # Batches of 4, 4, 4 and then 4, 2: the second step has 6 examples.
    small = trained(tmp_path / "small", optimizer, 4, rows=18, accumulate_steps=3)
    large = trained(tmp_path / "large", optimizer, 12, rows=18)
    assert small.get_variable_value("global_step") == 2
    assert_same_variables(large, small, 1e-5)


def test_a_run_that_resumes_within_a_loop_ends_with_the_same_bits(tmp_path):
    optimizer = ex.optimizers.Adagrad(0.3)
    settings = {"accumulate_steps": 2, "iterations_per_loop": 2}
    whole = trained(tmp_path / "whole", optimizer, 4, steps=4, **settings)
    for steps in (1, 3):
        halves = trained(tmp_path / "halves", optimizer, 4, steps=steps, **settings)
    for name in whole.get_variable_names():
        one, other = (m.get_variable_value(name) for m in (whole, halves))
        np.testing.assert_array_equal(one, other, err_msg=name)
