import shutil

import numpy as np
import optax
import pytest
from flax import linen as nn

import estimax as ex
from estimax import checkpoints
from estimax import feature_columns as fc
from estimax.canned import defaults, dnn
from estimax.canned.linear import _train_op
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


def test_a_baseline_needs_no_numbers(tmp_path):
    model = ex.BaselineRegressor(
        tmp_path / "run", optimizer=ex.optimizers.SGD(0.5), config=quiet()
    )
    labels = np.arange(8, dtype=np.float32).reshape(8, 1)
    text = {"city": np.array(["Oslo", "Rome"] * 4)}
    model.train(rows(text, labels))
    assert model.evaluate(rows(text, labels))["prediction/mean"] == 3.5
    assert len(list(model.predict(rows(text)))) == 8
    bundle = ex.export.load(model.export_saved_model(tmp_path / "bundles"))
    found = bundle.predict({"city": np.array(["Lima"] * 3)})
    np.testing.assert_allclose(found["predictions"], [[3.5]] * 3)


def test_a_baseline_of_sparse_features_alone_predicts_for_every_row(tmp_path):
    model = ex.BaselineRegressor(tmp_path, config=quiet())
    sparse = {"tags": ex.Sparse.of_rows([["a"], []])}
    model.train(lambda: iter([(sparse, X[:2])]))
    assert len(list(model.predict(lambda: iter([sparse])))) == 2


DENSE_AND_TABLES = ex.group(
    ex.minimize(optax.adam(0.01), var_list="dnn/(hidden|logits)"),
    ex.minimize(ex.optimizers.Adagrad(0.1), var_list="dnn/input"),
)


@pytest.mark.parametrize("kind", ["deep", "combined"])
def test_optax_may_train_the_layers_and_a_row_rule_the_tables(tmp_path, kind):
    ids = fc.categorical_column_with_identity("id", 8)
    columns = [fc.embedding_column(ids, 2)]
    if kind == "deep":
        model = ex.DNNClassifier([4], columns, tmp_path, optimizer=DENSE_AND_TABLES)
    else:
        model = ex.DNNLinearCombinedClassifier(
            tmp_path,
            linear_feature_columns=[ids],
            dnn_feature_columns=columns,
            dnn_hidden_units=[4],
            dnn_optimizer=DENSE_AND_TABLES,
        )
    batch = {"id": np.arange(8)}
    model.train(rows(batch))
    table = ex.inspection.variable_table(model, rows(batch))
    trained = {v.name.split("/")[-1]: v for v in table.variables if "dnn/" in v.name}
    assert trained["kernel"].optimizer == "optax"
    assert trained["embedding_weights"].optimizer == "Adagrad"
    assert trained["embedding_weights"].updated == "the rows of its batch"


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


def test_a_label_out_of_range_is_refused_with_its_value(tmp_path):
    model = ex.LinearClassifier([COLUMN], tmp_path, config=quiet())
    with pytest.raises(LabelError, match="7"):
        model.train(rows(labels=np.full((8, 1), 7)))


@pytest.mark.parametrize(
    ("train_op", "rate"),
    [
        (defaults.train_op_of("Adagrad", None), 0.001),
        (defaults.train_op_of("SGD", None), 0.01),
        (_train_op("Ftrl", [COLUMN]), 0.2),
        (_train_op(None, [COLUMN] * 4), 0.2),
        (_train_op(None, [COLUMN] * 50), 50**-0.5),
        (_train_op(ex.optimizers.Adam(0.3), [COLUMN]), 0.3),
    ],
)
def test_learning_rates_are_the_familys_when_only_a_name_is_given(train_op, rate):
    assert train_op.groups[0].optimizer.learning_rate == pytest.approx(rate)


@pytest.mark.parametrize(
    ("train_op", "rate"),
    [
        (defaults.train_op_of("Adagrad", dnn._NAMED_RATES["v1"], "v1"), 0.05),
        (defaults.train_op_of("SGD", dnn._NAMED_RATES["v1"], "v1"), 0.05),
        (_train_op("Ftrl", [COLUMN], "v1"), 0.2),
        (_train_op(None, [COLUMN] * 50, "v1"), 50**-0.5),
    ],
)
def test_tensorflow_1_had_learning_rates_of_its_own(train_op, rate):
    optimizer = train_op.groups[0].optimizer
    assert optimizer.learning_rate == pytest.approx(rate)
    (older,) = defaults.train_op_of(optimizer.name, rate, "v1").groups
    assert optimizer.rule == older.optimizer.rule


@pytest.mark.parametrize(("compat", "examples"), [("v1", 8), ("v2", 1)])
def test_tensorflow_1_summed_the_losses(compat, examples, tmp_path):
    model = ex.LinearClassifier([COLUMN], tmp_path, config=quiet(), compat=compat)
    found = model.train(rows()).evaluate(rows())
    assert found["loss"] == pytest.approx(examples * found["average_loss"], rel=1e-5)


def test_an_embedding_starts_from_a_checkpoint_that_may_then_go(tmp_path):
    source = checkpoints.path_of(tmp_path / "old", 5)
    table = np.arange(8, dtype=np.float32).reshape(4, 2)
    checkpoints.write(source, {"t": table}, step=5)
    column = fc.categorical_column_with_identity("n", 4)
    embedding = fc.embedding_column(
        column, 2, ckpt_to_load_from=str(tmp_path / "old"), tensor_name_in_ckpt="t"
    )
    frozen = ex.optimizers.SGD(0.0)
    given = rows({"n": np.arange(8) % 4}, X)
    folder = tmp_path / "new"
    name = "dnn/input_from_feature_columns/input_layer/n_embedding/embedding_weights"

    def train():
        model = ex.DNNRegressor(
            [], [embedding], folder, optimizer=frozen, config=quiet()
        )
        return model.train(given).get_variable_value(name)

    np.testing.assert_array_equal(train(), table)
    shutil.rmtree(tmp_path / "old")
    np.testing.assert_array_equal(train(), table)


def test_an_unknown_generation_is_refused_at_once():
    with pytest.raises(SpecError, match="compat"):
        ex.DNNClassifier([2], [COLUMN], compat="v3")


def test_a_table_that_wide_and_deep_share_is_trained(tmp_path):
    words = [fc.categorical_column_with_identity(key, 4) for key in "ab"]
    shared = fc.shared_embeddings(words, 2)
    model = ex.DNNLinearCombinedClassifier(
        tmp_path,
        linear_feature_columns=shared,
        dnn_feature_columns=shared,
        dnn_hidden_units=[2],
        dnn_optimizer=ex.optimizers.SGD(0.5),
        config=quiet(save_checkpoints_steps=1),
    )
    given = {key: np.arange(8) % 4 for key in "ab"}
    model.train(lambda: rows(given)().repeat(), steps=3)
    first = checkpoints.path_of(model.model_dir, 0)
    before = checkpoints.read_array(first, "a_b_shared_embedding")
    after = model.get_variable_value("a_b_shared_embedding")
    assert after.shape == (4, 2)
    assert not np.allclose(before, after)


def test_a_table_of_ordinary_weights_is_named_and_trained_like_any(tmp_path):
    column = fc.categorical_column_with_identity("n", 4)
    found = {}
    for row_updates in (True, False):
        embedding = fc.embedding_column(
            column, 2, initializer=nn.initializers.ones, row_updates=row_updates
        )
        model = ex.DNNRegressor(
            [], [embedding], tmp_path / str(row_updates), config=quiet(),
            optimizer=ex.optimizers.Adagrad(0.1),
        )  # fmt: skip
        model.train(rows({"n": np.arange(8) % 3}, X))
        name = "dnn/input_from_feature_columns/input_layer/n_embedding/"
        found[row_updates] = model.get_variable_value(name + "embedding_weights")
    np.testing.assert_allclose(found[True], found[False], rtol=1e-6)
    assert found[True][3].tolist() == [1, 1]


def test_a_network_may_be_part_of_another_model(tmp_path):
    deep = ex.dnn_logit_fn_builder(1, [2], [COLUMN])
    wide = ex.linear_logit_fn_builder(1, [COLUMN])

    def model_fn(features, labels, mode, params, config):
        logits = ex.call_logit_fn(deep, features, mode, params, config)
        logits += ex.call_logit_fn(wide, features, mode, params, config)
        head = ex.heads.RegressionHead()
        return head.create_estimator_spec(
            features, mode, logits, labels, optimizer=ex.optimizers.SGD(0.1)
        )

    model = ex.Estimator(model_fn, tmp_path, quiet()).train(rows(labels=X))
    names = model.get_variable_names()
    assert "hiddenlayer_0/kernel" in names
    assert "linear_model/x/weights" in names
    with pytest.raises(SpecError, match="units"):
        ex.linear_logit_fn_builder(0, [COLUMN])


def test_the_linear_part_of_a_combined_model_learns_slowly():
    assert defaults.combined_linear_rate([COLUMN]) == 0.005
    assert defaults.combined_linear_rate([COLUMN] * 90_000) == pytest.approx(1 / 300)


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
