import numpy as np
import pytest

import estimax as ex
from estimax import feature_columns as fc
from estimax.canned import parts
from estimax.canned.linear import _optimizer
from estimax.core.errors import FeatureError, LabelError, SpecError
from estimax.hooks import Hook
from estimax.input import Dataset

X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(8, 1)
Y = (X > 0).astype(np.int64)
COLUMN = fc.numeric_column("x")


def rows(features=None, labels=Y):
    return lambda: Dataset.from_tensor_slices((features or {"x": X}, labels)).batch(8)


def quiet(**settings):
    return ex.RunConfig(
        tf_random_seed=1, save_summary_steps=0, log_step_count_steps=None, **settings
    )


class Losses(Hook):
    def __init__(self):
        self.seen = []

    def before_run(self, context):
        return ["loss"]

    def after_run(self, context, values):
        self.seen.append(float(values["loss"]))


def test_dropout_is_for_training_only_and_new_in_every_step(tmp_path):
    frozen = ex.optimizers.SGD(0.0)
    model = ex.DNNClassifier(
        [16], [COLUMN], tmp_path, optimizer=frozen, dropout=0.5, config=quiet()
    )
    losses = Losses()
    model.train(lambda: rows()().repeat(), hooks=[losses], steps=4)
    assert len(set(losses.seen)) == 4
    assert model.evaluate(rows())["loss"] == model.evaluate(rows())["loss"]


def test_without_hidden_units_the_logits_sit_on_the_input(tmp_path):
    model = ex.DNNClassifier([], [COLUMN], tmp_path, config=quiet())
    model.train(rows())
    assert model.get_variable_value("dnn/logits/kernel").shape == (1, 1)


def test_no_activation_is_a_linear_layer(tmp_path):
    model = ex.DNNRegressor([2], [COLUMN], tmp_path, activation_fn=None, config=quiet())
    model.train(rows(labels=X))
    kernels = [
        model.get_variable_value(f"dnn/{layer}/kernel")
        for layer in ("hiddenlayer_0", "logits")
    ]
    bias = model.get_variable_value("dnn/hiddenlayer_0/bias") @ kernels[1]
    wanted = X @ kernels[0] @ kernels[1] + bias
    wanted += model.get_variable_value("dnn/logits/bias")
    found = np.stack([row["predictions"] for row in model.predict(rows(labels=X))])
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)


def test_a_baseline_predicts_the_mean_for_every_example(tmp_path):
    model = ex.BaselineRegressor(
        tmp_path, optimizer=ex.optimizers.SGD(0.5), config=quiet()
    )
    labels = np.arange(8, dtype=np.float32).reshape(8, 1)
    model.train(rows(labels=labels))
    found = [float(row["predictions"][0]) for row in model.predict(rows())]
    np.testing.assert_allclose(found, [3.5] * 8)


def test_a_baseline_of_text_alone_says_what_it_lacks(tmp_path):
    model = ex.BaselineRegressor(tmp_path, config=quiet())
    with pytest.raises(FeatureError, match="one numeric feature"):
        model.train(rows({"city": np.array(["a"] * 8)}, X))


def test_a_combined_model_needs_columns_and_hidden_units():
    with pytest.raises(SpecError, match="linear_feature_columns"):
        ex.DNNLinearCombinedClassifier()
    with pytest.raises(SpecError, match="dnn_hidden_units"):
        ex.DNNLinearCombinedRegressor(dnn_feature_columns=[COLUMN])


def test_one_class_is_no_classification():
    with pytest.raises(ValueError, match="classes"):
        ex.LinearClassifier([COLUMN], n_classes=1)


def test_features_must_have_names(tmp_path):
    model = ex.LinearClassifier([COLUMN], tmp_path, config=quiet())
    with pytest.raises(FeatureError, match="Linear: features must be a dict"):
        model.train(lambda: (X, Y), steps=1)


def test_an_unknown_optimizer_is_told_with_its_neighbour(tmp_path):
    model = ex.DNNClassifier([2], [COLUMN], tmp_path, optimizer="adagrd")
    with pytest.raises(ValueError, match="did you mean 'adagrad'"):
        model.train(rows())


def test_a_label_out_of_range_is_refused_with_its_value(tmp_path):
    model = ex.LinearClassifier([COLUMN], tmp_path, config=quiet())
    with pytest.raises(LabelError, match="7"):
        model.train(rows(labels=np.full((8, 1), 7)))


@pytest.mark.parametrize(
    ("optimizer", "rate"),
    [
        (parts.optimizer_of("Adagrad", None), 0.001),
        (parts.optimizer_of("SGD", None), 0.01),
        (_optimizer("Ftrl", [COLUMN]), 0.2),
        (_optimizer(None, [COLUMN] * 4), 0.2),
        (_optimizer(None, [COLUMN] * 50), 50**-0.5),
        (_optimizer(ex.optimizers.Adam(0.3), [COLUMN]), 0.3),
    ],
)
def test_learning_rates_are_the_familys_when_only_a_name_is_given(optimizer, rate):
    assert optimizer.learning_rate == pytest.approx(rate)


def test_the_linear_part_of_a_combined_model_learns_slowly():
    assert parts.combined_linear_rate([COLUMN]) == 0.005
    assert parts.combined_linear_rate([COLUMN] * 90_000) == pytest.approx(1 / 300)


def test_an_optimizer_may_be_made_by_a_function(tmp_path):
    model = ex.LinearRegressor(
        [COLUMN], tmp_path, optimizer=lambda: ex.optimizers.SGD(0.1), config=quiet()
    )
    model.train(rows(labels=X))
    assert model.evaluate(rows(labels=X))["loss"] < np.mean(X**2)


def test_layers_tell_how_many_of_their_values_are_zero(tmp_path):
    class Wants(Hook):
        def before_run(self, context):
            self.names = dict(context.logged)

    hook = Wants()
    model = ex.DNNClassifier([4], [COLUMN], tmp_path, config=quiet())
    model.train(rows(), hooks=[hook])
    assert hook.names["dnn/hiddenlayer_0/fraction_of_zero_values"] == "scalar"
