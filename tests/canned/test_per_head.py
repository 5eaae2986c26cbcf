"""A model of its own for each head, trained together."""

import numpy as np
import pytest

import estimax as ex
from estimax import checkpoints
from estimax.core.errors import LabelError, SpecError

fc = ex.feature_columns
X = np.linspace(-1, 1, 64, dtype=np.float32)
ITEMS = np.arange(64) % 8
FEATURES = {"x": X, "item": ITEMS, "other": (ITEMS * 3) % 8}
LABELS = {"click": (X > 0).astype(np.int64), "dwell": 3 * X + ITEMS}
ROWS = ex.input.Dataset.from_tensor_slices((FEATURES, LABELS))


def train_input():
    return ROWS.repeat().batch(32)


def eval_input():
    return ROWS.batch(64)


def columns():
    both = [
        fc.categorical_column_with_identity(name, 8, default_value=0)
        for name in ("item", "other")
    ]
    return [fc.numeric_column("x"), *fc.shared_embeddings(both, 4)]


def models(config, **deep):
    head = ex.heads.RegressionHead()
    return {
        "click": ex.LinearEstimator(
            ex.heads.BinaryClassHead(name="click"),
            [fc.numeric_column("x")],
            optimizer=ex.optimizers.Ftrl(0.5),
            config=config,
        ),
        "dwell": ex.DNNEstimator(
            head,
            [8],
            columns(),
            optimizer=ex.optimizers.Adagrad(0.1),
            config=config,
            **deep,
        ),
    }


def config(folder):
    return ex.RunConfig(str(folder), tf_random_seed=1, save_summary_steps=10)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("both")
    model = ex.PerHeadEstimator(models(config(folder)))
    return model.train(train_input, steps=60)


def test_every_model_learns_its_label(trained):
    found = trained.evaluate(eval_input)
    assert found["accuracy/click"] > 0.9
    assert found["auc/click"] > 0.95
    assert found["average_loss/dwell"] < 3
    total = found["loss/click"] + found["loss/dwell"]
    assert found["loss"] == pytest.approx(total, rel=1e-5)


def test_variables_are_named_after_their_model(trained):
    arrays = checkpoints.restore_latest(trained.model_dir).arrays
    names = {name.partition("/")[2] for name in arrays if name.startswith("params/")}
    names = names or set(arrays)
    assert any(name.startswith("click/linear/") for name in names)
    assert any(name.startswith("dwell/dnn/") for name in names)
    tables = [name for name in arrays if "shared_embedding" in name]
    assert tables
    assert all("dwell/item_other_shared_embedding" in name for name in tables)


def test_a_model_trains_as_it_does_alone(tmp_path):
    """With the same initial weights, the other model changes nothing."""
    folder = tmp_path / "alone"
    alone = models(config(folder))["click"]
    alone.train(lambda: train_input().map(lambda f, y: (f, y["click"])), steps=20)
    both = ex.PerHeadEstimator(models(config(tmp_path / "both")))
    both.train(train_input, steps=20)
    ours, theirs = (
        checkpoints.restore_latest(m.model_dir).arrays for m in (both, alone)
    )
    found = [name for name in ours if "click/linear" in name]
    assert len(found) > 1
    for name in found:
        np.testing.assert_array_equal(
            ours[name], theirs[name.replace("click/linear", "linear")], name
        )


def test_weights_scale_the_loss_and_not_the_metrics(tmp_path):
    given = models(config(tmp_path / "a"))
    model = ex.PerHeadEstimator(given, head_weights={"dwell": 0.0})
    model.train(train_input, steps=5)
    found = model.evaluate(eval_input)
    assert found["loss"] == pytest.approx(found["loss/click"], rel=1e-6)
    assert found["loss/dwell"] > 1


def test_predictions_and_signatures_have_the_name_of_their_model(trained, tmp_path):
    row = next(iter(trained.predict(eval_input)))
    assert {("click", "logistic"), ("dwell", "predictions")} <= row.keys()
    path = trained.export_saved_model(tmp_path)
    bundle = ex.export.load(path)
    assert {"click", "dwell", "click/classification", "dwell/regression"} <= set(
        bundle.signatures
    )


def test_the_same_names_in_two_models_are_two_variables(tmp_path):
    cfg = config(tmp_path)
    given = {
        name: ex.DNNEstimator(ex.heads.RegressionHead(), [4], columns(), config=cfg)
        for name in ("click", "dwell")
    }
    model = ex.PerHeadEstimator(given).train(train_input, steps=2)
    arrays = checkpoints.restore_latest(model.model_dir).arrays
    tables = [n for n in arrays if n.endswith("item_other_shared_embedding")]
    assert len(tables) == 2


def test_summaries_of_the_models_are_kept_apart(trained):
    found = ex.summary.read_scalars(trained.model_dir)
    assert {"loss/click", "loss/dwell", "click/bias"} <= set(found)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "with at least one"),
        ({"a": 3}, r"models\['a'\] must be an Estimator, got int"),
        (["a"], "must be a dict"),
    ],
)
def test_models_are_estimators_by_name(given, words):
    with pytest.raises(SpecError, match=words):
        ex.PerHeadEstimator(given)


def test_names_and_weights_are_checked(tmp_path):
    given = models(config(tmp_path))
    with pytest.raises(SpecError, match="'a/b' is no name for a model"):
        ex.PerHeadEstimator({"a/b": given["click"]})
    with pytest.raises(SpecError, match="no model 'clik'; did you mean 'click'"):
        ex.PerHeadEstimator(given, head_weights={"clik": 1})


def test_labels_are_a_dict_by_name(tmp_path):
    model = ex.PerHeadEstimator(models(config(tmp_path)))
    with pytest.raises(LabelError, match="must be a dict with the keys"):
        model.train(lambda: (FEATURES, LABELS["click"]), steps=1)
    labels = {"click": LABELS["click"], "dwel": LABELS["dwell"]}
    with pytest.raises(LabelError, match="'dwell' missing; did you mean 'dwel'"):
        model.train(lambda: (FEATURES, labels), steps=1)


def test_a_model_may_choose_its_variables_by_their_arrays(tmp_path):
    def model_fn(features, labels, mode):
        w = ex.get_variable("w", (1,), initializer=0.0)
        b = ex.get_variable("b", (1,), initializer=0.0)
        head = ex.RegressionHead()
        y = features["x"][:, None] * w + b
        assert list(ex.variables_by_name()) in (
            ["click/b", "click/w"],
            ["dwell/b", "dwell/w"],
        )
        sgd = ex.optimizers.SGD(0.1)
        return head.create_estimator_spec(
            features, mode, y, labels, optimizer=sgd, trainable_variables=[b]
        )

    parts = {
        name: ex.Estimator(model_fn, tmp_path / name) for name in ("click", "dwell")
    }
    model = ex.PerHeadEstimator(parts, model_dir=tmp_path / "joined")
    model.train(train_input, steps=2)
    for name in parts:
        assert model.get_variable_value(f"{name}/w").item() == 0.0
        assert model.get_variable_value(f"{name}/b").item() != 0.0
