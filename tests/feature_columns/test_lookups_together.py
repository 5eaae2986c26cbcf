"""Neighbouring embedding columns are looked up at once, and train to the same bits."""

import jax
import numpy as np
import pytest

import estimax as ex
from estimax.feature_columns.embedding import EmbeddingColumn
from estimax.staging import variables

fc = ex.feature_columns


def columns():
    word = fc.categorical_column_with_hash_bucket
    number = fc.categorical_column_with_identity
    pair = [number("from", 20), number("to", 20)]
    return [
        fc.embedding_column(word("a", 30), 4),
        fc.embedding_column(word("b", 7), 4, combiner="sum"),
        fc.embedding_column(word("many", 9), 4),  # several ids in an example
        fc.embedding_column(word("c", 30), 4),
        fc.embedding_column(number("d", 50), 6),  # wider than its neighbours
        fc.embedding_column(number("e", 50), 6, max_norm=0.5),
        fc.embedding_column(number("f", 50), 6, trainable=False),
        fc.embedding_column(number("g", 50), 6, row_updates=False),
        fc.embedding_column(number("h", 5), 6),
        fc.numeric_column("m"),
        *fc.shared_embeddings(pair, 6),
    ]


def batch(seed, rows=16):
    draw = np.random.default_rng(seed)
    words = np.array(["", "Oslo", "Rome", "Lima", "Bonn", "Nice"])  # '' is missing
    numbers = {"d": 50, "e": 50, "f": 50, "g": 50, "h": 5, "from": 20, "to": 20}
    features = {key: draw.integers(-1, n, rows) for key, n in numbers.items()}
    features |= {key: draw.choice(words, rows) for key in "abc"}
    features["many"] = draw.choice(words, (rows, 3))
    features["m"] = draw.random(rows).astype(np.float32)
    return features, draw.integers(0, 2, rows)


def made(folder, *, seen=None):
    def model_fn(features, labels, mode, params):
        blocks = {}
        net = fc.input_layer(features, params["columns"], cols_to_output_tensors=blocks)
        whole = {column.name: block.shape for column, block in blocks.items()}
        assert sum(shape[1] for shape in whole.values()) == net.shape[1]
        if seen is not None:
            seen.update(whole)
        if mode == ex.ModeKeys.PREDICT:
            return ex.EstimatorSpec(mode, predictions={"net": net})
        logits = jax.numpy.sum(net * net, axis=1, keepdims=True)
        head = ex.heads.BinaryClassHead()
        return head.create_estimator_spec(
            features, mode, logits, labels, optimizer=ex.optimizers.Adagrad(0.3)
        )

    config = ex.RunConfig(model_dir=folder, tf_random_seed=1, save_summary_steps=None)
    return ex.Estimator(model_fn, config=config, params={"columns": columns()})


def trained(folder, *, seen=None):
    estimator = made(folder, seen=seen)
    estimator.train(lambda: iter([batch(seed) for seed in range(5)]))
    return {n: estimator.get_variable_value(n) for n in estimator.get_variable_names()}


def predicted(folder):
    rows = made(folder).predict(lambda: iter([batch(9)[0]]))
    return np.array([row["net"] for row in rows])


def test_training_comes_to_the_same_bits_as_column_by_column(tmp_path, monkeypatch):
    seen, small = [], []
    original = variables.side_by_side

    def looking(blocks):
        seen.append(sum(isinstance(block, variables.GatheredRows) for block in blocks))
        small.append(sum(isinstance(block, variables.SmallTable) for block in blocks))
        return original(blocks)

    monkeypatch.setattr(variables, "side_by_side", looking)
    together = trained(tmp_path / "together")
    # a b c d from h to; the others go by themselves, and all do where none is trained.
    assert set(seen) == {0, 7}
    joined = predicted(tmp_path / "together")
    assert small[-1] == 8  # as in training, and f, which is not trained
    monkeypatch.setattr(EmbeddingColumn, "gather_rows", lambda *_: None)
    apart = trained(tmp_path / "apart")
    assert together.keys() == apart.keys()
    assert any("embedding_weights" in name for name in together)
    for name, value in apart.items():
        np.testing.assert_array_equal(together[name], value, err_msg=name)
    np.testing.assert_array_equal(joined, predicted(tmp_path / "together"))


def test_every_column_is_handed_out_with_its_own_width(tmp_path):
    seen = {}
    trained(tmp_path, seen=seen)
    widths = {column.name: column.variable_shape[0] for column in columns()}
    assert {name: shape[1] for name, shape in seen.items()} == widths


@pytest.mark.parametrize("missing", [False, True])
def test_a_missing_id_gives_zeros_even_beside_a_row_of_nan(tmp_path, missing):
    one = fc.embedding_column(fc.categorical_column_with_identity("x", 3), 2)
    two = fc.embedding_column(fc.categorical_column_with_identity("y", 3), 2)
    found = {}

    def model_fn(features, labels, mode):
        net = fc.input_layer(features, [one, two])
        ex.log_value("net", net)
        head = ex.heads.RegressionHead()
        return head.create_estimator_spec(
            features, mode, net[:, :1], labels, optimizer=ex.optimizers.SGD(0.1)
        )

    class Look(ex.hooks.Hook):
        def before_run(self, context):
            return ["net"]

        def after_run(self, context, values):
            found["net"] = np.asarray(values["net"])

    ids = np.array([-1 if missing else 0, 1])
    config = ex.RunConfig(model_dir=tmp_path, save_summary_steps=None)
    estimator = ex.Estimator(model_fn, config=config)
    data = ({"x": ids, "y": ids}, np.zeros((2, 1), np.float32))
    estimator.train(lambda: iter([data]), hooks=[Look()])
    assert (found["net"][0] == 0).all() == missing
    assert (found["net"][1] != 0).all()
