"""Norms of the gradients and weights of layers, against numbers worked by hand."""

import jax.numpy as jnp
import numpy as np

import estimax as ex


def model_fn(features, labels, mode):
    with ex.variable_scope("layer"):
        a = ex.get_variable("a", (), initializer=3.0)
        b = ex.get_variable("b", (), initializer=4.0)
    loss = jnp.mean(features["x"] * a + 2.0 * features["x"] * b)
    return ex.EstimatorSpec(mode, loss=loss, train_op=ex.optimizers.SGD(0.0))


class Norms(ex.hooks.Hook):
    def __init__(self):
        self.seen = []

    def before_run(self, context):
        return ["gradient_norm/layer", "weight_norm/layer"]

    def after_run(self, context, values):
        self.seen.append({name: float(value) for name, value in values.items()})


def test_a_layer_has_the_norm_of_all_its_variables():
    hook = Norms()
    x = np.array([1.0, 5.0], np.float32)  # of which the mean is 3
    model = ex.Estimator(model_fn, config=ex.RunConfig(save_summary_steps=0))
    model.train(lambda: ({"x": x}, x), steps=1, hooks=[hook])
    (seen,) = hook.seen
    assert seen["weight_norm/layer"] == 5.0
    np.testing.assert_allclose(seen["gradient_norm/layer"], np.hypot(3.0, 6.0))


def test_rows_of_a_table_count_for_its_layer():
    hook = Norms()
    hook.before_run = lambda context: ["gradient_norm/linear/linear_model/city"]
    column = ex.feature_columns.categorical_column_with_identity("city", 100_000)
    model = ex.LinearRegressor([column], config=ex.RunConfig(save_summary_steps=0))
    city = np.array([7, 7, 9])
    data = {"city": city}, np.array([1.0, 1.0, 1.0])
    model.train(lambda: data, steps=1, hooks=[hook])
    # The mean squared error of 0 against 1: -2/3 for every example.
    expected = np.hypot(4 / 3, 2 / 3)
    np.testing.assert_allclose(list(hook.seen[0].values()), [expected], rtol=1e-6)


def test_tables_of_one_stack_have_norms_of_their_own():
    layers = [f"linear/linear_model/{name}" for name in ("city", "shop")]
    names = [
        f"{kind}_norm/{layer}" for kind in ("gradient", "weight") for layer in layers
    ]
    hook = Norms()
    hook.before_run = lambda context: names
    fc = ex.feature_columns
    columns = [
        fc.categorical_column_with_identity("city", 20),
        fc.categorical_column_with_identity("shop", 50),
    ]
    config = ex.RunConfig(save_summary_steps=0)
    model = ex.LinearRegressor(columns, optimizer=ex.optimizers.SGD(1.0), config=config)
    features = {"city": np.array([7, 7, 9]), "shop": np.array([1, 2, 3])}
    model.train(lambda: (features, np.ones(3)), steps=1, hooks=[hook])
    expected = [np.hypot(4 / 3, 2 / 3), np.sqrt(3 * (2 / 3) ** 2), 0.0, 0.0]
    np.testing.assert_allclose([hook.seen[0][n] for n in names], expected, rtol=1e-6)
    model.train(lambda: (features, np.ones(3)), steps=1, hooks=[hook])
    expected = [np.hypot(4 / 3, 2 / 3), np.sqrt(3 * (2 / 3) ** 2)]
    seen = [hook.seen[1][name] for name in names[2:]]
    np.testing.assert_allclose(seen, expected, rtol=1e-6)
