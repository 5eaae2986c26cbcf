import numpy as np
import pytest

import estimax as ex

fc = ex.feature_columns
RNG = np.random.default_rng(0)
ROWS = 400
TOWNS = np.array(["Oslo", "Rome", "Lima", "Bern"])[RNG.integers(0, 4, ROWS)]
NOISE = RNG.normal(size=ROWS).astype(np.float32)
WARM = np.isin(TOWNS, ["Rome", "Lima"]).astype(np.int64)


def data():
    features = {"town": TOWNS, "noise": NOISE}
    return ex.input.Dataset.from_tensor_slices((features, WARM)).batch(64)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    town = fc.categorical_column_with_hash_bucket("town", 50)
    estimator = ex.DNNLinearCombinedClassifier(
        tmp_path_factory.mktemp("model"),
        linear_feature_columns=[town],
        dnn_feature_columns=[fc.numeric_column("noise"), fc.embedding_column(town, 3)],
        dnn_hidden_units=[4],
        dnn_optimizer=ex.optimizers.Adagrad(0.3),
        config=ex.RunConfig(tf_random_seed=1, save_summary_steps=None),
    )
    return estimator.train(lambda: data().repeat(), steps=60)


def test_a_table_tells_what_trains_each_variable(model):
    table = ex.inspection.variable_table(model, data)
    found = {v.name: (v.shape, v.optimizer, v.updated) for v in table.variables}
    embedding = "dnn/input_from_feature_columns/input_layer/town_embedding"
    by_rows = "the rows of its batch"
    assert found[f"{embedding}/embedding_weights"] == ((50, 3), "Adagrad", by_rows)
    assert found["linear/linear_model/town/weights"] == ((50, 1), "Ftrl", by_rows)
    assert found["dnn/logits/kernel"] == ((4, 1), "Adagrad", "whole")
    assert table.size == 50 * 3 + 50 + (4 * 4 + 4) + (4 + 1) + 1
    # Adagrad keeps one number for each of its own, Ftrl two.
    assert table.optimizer_bytes == 4 * (150 + 20 + 5 + 2 * 51)
    assert "7 variables, 226 numbers" in str(table)


def test_a_table_tells_what_is_not_trained(tmp_path):
    def model_fn(features, labels, mode):
        scale = ex.get_variable("scale", (1,), trainable=False)
        logits = features["noise"][:, None] * scale
        return ex.heads.BinaryClassHead().create_estimator_spec(
            features,
            mode,
            logits * ex.get_variable("weight", (1,)),
            labels,
            optimizer=ex.optimizers.SGD(0.1),
        )

    table = ex.inspection.variable_table(ex.Estimator(model_fn, tmp_path), data)
    found = {v.name: v.optimizer for v in table.variables}
    assert found == {"scale": None, "weight": "SGD"}


@pytest.mark.parametrize(
    ("options", "optimizer", "wanted"),
    [
        ({"trainable": False}, "Adagrad", (None, "never")),
        ({}, "Adam", ("Adam", "whole")),  # its moments move rows without examples
        ({}, "LazyAdam", ("LazyAdam", "the rows of its batch")),
        ({"row_updates": False}, "LazyAdam", ("LazyAdam", "whole")),
    ],
)
def test_a_table_of_rows_tells_how_it_is_updated(tmp_path, options, optimizer, wanted):
    town = fc.categorical_column_with_hash_bucket("town", 50)
    columns = [fc.embedding_column(town, 3, **options)]
    estimator = ex.DNNClassifier([4], columns, tmp_path, optimizer=optimizer)
    largest = ex.inspection.variable_table(estimator, data).variables[0]
    assert (largest.optimizer, largest.updated) == wanted


def test_the_feature_that_tells_is_the_important_one(model):
    found = ex.inspection.permutation_importance(model, data, metric="auc")
    assert [f.feature for f in found.features] == ["town", "noise"]
    town, noise = found.features
    assert town.mean > 0.3
    assert abs(noise.mean) < 0.05
    assert found.examples == ROWS
    assert "auc lost" in str(found)


def test_a_greater_loss_is_a_loss(model):
    found = ex.inspection.permutation_importance(
        model, data, features=["town"], repeats=1
    )
    assert [f.feature for f in found.features] == ["town"]
    assert found.features[0].mean > 0.1


def test_importance_leaves_no_evaluations_behind(model):
    before = sorted(path.name for path in model_files(model))
    ex.inspection.permutation_importance(model, data, features=["noise"], repeats=1)
    assert sorted(path.name for path in model_files(model)) == before


def model_files(model):
    from pathlib import Path

    return [path for path in Path(model.model_dir).rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"features": ["towm"]}, "no feature 'towm'.*did you mean 'town'"),
        ({"metric": "acu"}, "no metric 'acu'.*did you mean 'auc'"),
    ],
)
def test_a_misspelled_name_is_told(model, options, message):
    with pytest.raises(ValueError, match=message):
        ex.inspection.permutation_importance(model, data, **options)


def test_ids_and_their_weights_are_shuffled_together(tmp_path):
    rows = [["a"] * n for n in (0, 1, 2, 3)] * 8
    features = {
        "tags": ex.Sparse.of_rows(rows),
        "shares": ex.Sparse.of_rows([[0.5] * len(row) for row in rows]),
        "town": ex.Sparse.of_rows([["Oslo"], ["Rome"]] * 16),
        "job": ex.Sparse.of_rows([["clerk"], ["nurse"]] * 16),
    }
    hashed = [
        fc.categorical_column_with_hash_bucket(k, 9) for k in ("tags", "town", "job")
    ]
    tags = fc.weighted_categorical_column(hashed[0], "shares")
    estimator = ex.LinearClassifier([tags, *hashed[1:]], tmp_path)

    def input_fn():
        labels = np.arange(32) % 2
        return ex.input.Dataset.from_tensor_slices((features, labels)).batch(32)

    estimator.train(input_fn)
    found = ex.inspection.permutation_importance(estimator, input_fn, repeats=1)
    names = sorted(f.feature for f in found.features)
    assert names == ["job", "shares + tags", "town"]
    found = ex.inspection.permutation_importance(
        estimator, input_fn, repeats=1, features=[("job", "town")]
    )
    assert [f.feature for f in found.features] == ["job + town"]
