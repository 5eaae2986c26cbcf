"""Layers beyond the golden cases: variables, names, gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from estimax import checkpoints
from estimax import feature_columns as fc
from estimax.core.errors import FeatureError
from estimax.core.strings import Strings

KEY = jax.random.key(0)


def _embedding(key="n", buckets=4, dimension=2, **options):
    categorical = fc.categorical_column_with_identity(key, buckets)
    return fc.embedding_column(categorical, dimension, **options)


def test_variables_are_named_by_column_with_odd_characters_replaced():
    column = _embedding("my key/ä")
    made = fc.DenseFeatures([column]).init(KEY, {"my key/ä": np.array([1])})
    assert list(made["tables"]) == ["my_key___embedding"]


@pytest.mark.parametrize("key", ["name", "path", "scope", "parent", "variables"])
def test_features_may_be_called_like_attributes_of_a_module(key):
    layer = fc.LinearModel([fc.numeric_column(key)])
    made = layer.init(KEY, {key: np.ones(2, np.float32)})
    assert made["params"][key]["weights"].shape == (1, 1)


def test_layers_inside_a_model_nest_their_names():
    class Net(nn.Module):
        @nn.compact
        def __call__(self, features):
            a = fc.input_layer(features, [_embedding()])
            b = fc.linear_model(features, [fc.categorical_column_with_identity("n", 4)])
            return a.sum() + b.sum()

    made = Net().init(KEY, {"n": np.array([1])})
    assert made["tables"]["input_layer"]["n_embedding"]["embedding_weights"].shape == (
        (4, 2)
    )
    assert made["tables"]["linear_model"]["n"]["weights"].shape == (4, 1)
    assert made["params"]["linear_model"]["bias_weights"].shape == (1,)


def test_the_default_initializer_is_cut_at_two_sigma():
    made = fc.DenseFeatures([_embedding(buckets=20_000, dimension=4)]).init(
        KEY, {"n": np.array([1])}
    )
    table = made["tables"]["n_embedding"]["embedding_weights"]
    assert jnp.abs(table).max() <= 1.0  # 2σ, σ = 1/√4
    assert 0.42 < jnp.std(table) < 0.46  # 0.88σ: redrawn, not rescaled


def test_an_initializer_gets_key_shape_and_dtype():
    def ones(key, shape, dtype):
        return jnp.ones(shape, dtype)

    made = fc.DenseFeatures([_embedding(initializer=ones)]).init(
        KEY, {"n": np.array([1])}
    )
    assert made["tables"]["n_embedding"]["embedding_weights"].tolist() == [[1, 1]] * 4


def test_two_tables_start_differently():
    columns = [_embedding("a"), _embedding("b")]
    made = fc.DenseFeatures(columns).init(KEY, {"a": np.ones(1, int), "b": [1]})
    tables = made["tables"]
    a, b = (tables[f"{k}_embedding"]["embedding_weights"] for k in "ab")
    assert not np.array_equal(a, b)


def _gradient(layer, variables, features, collection):
    def loss(given):
        return layer.apply({**variables, collection: given}, features).sum()

    return jax.grad(loss)(variables[collection])


def test_a_table_that_is_not_trainable_has_no_gradient():
    layer = fc.DenseFeatures([_embedding(trainable=False)])
    features = {"n": np.array([1])}
    gradient = _gradient(layer, layer.init(KEY, features), features, "tables")
    assert not gradient["n_embedding"]["embedding_weights"].any()


def test_a_linear_model_that_is_not_trainable_is_out_of_optimizers_reach():
    ids = fc.categorical_column_with_identity("n", 4)
    layer = fc.LinearModel([fc.numeric_column("a"), ids], trainable=False)
    made = layer.init(KEY, {"a": np.ones(2, np.float32), "n": np.array([1, 2])})
    assert jax.tree.map(jnp.shape, made) == {
        "untrained": {"a": {"weights": (1, 1)}, "bias_weights": (1,)},
        "tables": {"n": {"weights": (4, 1)}},
    }


def _identity(key):
    return fc.categorical_column_with_identity(key, 3)


@pytest.mark.parametrize("pair", [("a b", "a_b"), ("年", "月")])
def test_two_columns_never_share_a_variable_by_their_names(pair):
    with pytest.raises(FeatureError, match=f"{pair[0]!r} and {pair[1]!r} would both"):
        fc.LinearModel([_identity(key) for key in pair])
    with pytest.raises(FeatureError, match="Rename one of the features"):
        fc.DenseFeatures([fc.embedding_column(_identity(key), 2) for key in pair])
    steps = [fc.sequence_categorical_column_with_identity(key, 3) for key in pair]
    with pytest.raises(FeatureError, match="Rename one of the features"):
        fc.SequenceFeatures([fc.embedding_column(each, 2) for each in steps])
    # Without variables of their own:
    fc.DenseFeatures([fc.numeric_column(key) for key in pair])
    fc.DenseFeatures(fc.shared_embeddings([_identity(key) for key in pair], 2))


def test_columns_of_a_shared_table_agree_on_its_shape():
    tables = [
        fc.shared_embeddings(
            [fc.categorical_column_with_identity(key, size)],
            2,
            shared_embedding_collection_name="t",
        )[0]
        for key, size in (("a", 3), ("b", 5))
    ]
    features = {"a": np.array([1]), "b": np.array([4])}
    with pytest.raises(FeatureError, match=r"has shape \(3, 2\).* asks for \(5, 2\)"):
        fc.DenseFeatures(tables).init(KEY, features)


def test_the_gradient_of_a_clipped_zero_row_is_finite():
    layer = fc.DenseFeatures(
        [_embedding(max_norm=1.0, initializer=nn.initializers.zeros)]
    )
    features = {"n": np.array([1])}
    gradient = _gradient(layer, layer.init(KEY, features), features, "tables")
    assert np.isfinite(gradient["n_embedding"]["embedding_weights"]).all()


def test_a_broken_row_does_not_spoil_examples_without_ids():
    layer = fc.DenseFeatures([_embedding()])
    table = np.full((4, 2), np.nan, np.float32)
    variables = {"tables": {"n_embedding": {"embedding_weights": table}}}
    assert layer.apply(variables, {"n": np.array([[-1, -1]])}).tolist() == [[0, 0]]


def test_many_ids_in_many_buckets_are_counted_alike():
    many = fc.indicator_column(fc.categorical_column_with_identity("n", 500))
    ids = np.array([[3, 3, 499, -1], [7, 600, -5, 3]])
    counts = np.asarray(fc.DenseFeatures([many]).apply({}, {"n": ids}))
    assert counts[0, 3] == 2
    assert counts[0, 499] == counts[1, 7] == counts[1, 3] == 1
    assert counts.sum() == 5


def test_an_embedding_starts_from_a_checkpoint_when_asked(tmp_path):
    rows = np.arange(8, dtype=np.float32).reshape(4, 2)
    checkpoints.write(checkpoints.path_of(tmp_path, 5), {"old/table": rows}, step=5)
    column = _embedding(
        ckpt_to_load_from=str(tmp_path), tensor_name_in_ckpt="old/table"
    )
    made = fc.DenseFeatures([column]).init(KEY, {"n": np.array([1])})
    np.testing.assert_array_equal(
        made["tables"]["n_embedding"]["embedding_weights"], rows
    )


def test_a_checkpoint_of_another_shape_is_refused(tmp_path):
    checkpoints.write(
        checkpoints.path_of(tmp_path, 5),
        {"old/table": np.zeros((3, 2), np.float32)},
        step=5,
    )
    column = _embedding(
        ckpt_to_load_from=str(tmp_path), tensor_name_in_ckpt="old/table"
    )
    with pytest.raises(ValueError, match=r"\(3, 2\).*\(4, 2\)"):
        fc.DenseFeatures([column]).init(KEY, {"n": np.array([1])})


def test_a_run_that_has_its_own_checkpoint_needs_no_other(tmp_path):
    gone = str(tmp_path / "model.ckpt-5")
    column = _embedding(ckpt_to_load_from=gone, tensor_name_in_ckpt="old/table")
    layer = fc.DenseFeatures([column])
    shapes = jax.eval_shape(lambda: layer.init(KEY, {"n": np.array([1])}))
    assert shapes["tables"]["n_embedding"]["embedding_weights"].shape == (4, 2)


def test_a_tensor_that_a_checkpoint_lacks_is_told_with_its_neighbour(tmp_path):
    rows = np.zeros((4, 2), np.float32)
    checkpoints.write(checkpoints.path_of(tmp_path, 5), {"old/table": rows}, step=5)
    column = _embedding(ckpt_to_load_from=str(tmp_path), tensor_name_in_ckpt="old/tabl")
    with pytest.raises(ValueError, match="did you mean 'old/table'"):
        fc.DenseFeatures([column]).init(KEY, {"n": np.array([1])})


class _Twice(nn.Module):
    """Two layers over the same shared columns."""

    columns: tuple

    @nn.compact
    def __call__(self, features):
        one = fc.input_layer(features, self.columns, name="one")
        return one + fc.input_layer(features, self.columns, name="two")


def test_a_second_layer_of_a_kind_is_numbered():
    class Net(nn.Module):
        @nn.compact
        def __call__(self, features):
            one = fc.input_layer(features, [_embedding()])
            two = fc.input_layer(features, [_embedding()])
            named = fc.input_layer(features, [_embedding()], name="mine")
            return one + two + named + fc.input_layer(features, [_embedding()])

    made = jax.eval_shape(lambda: Net().init(KEY, {"n": np.array([1])}))
    names = ["input_layer", "input_layer_1", "input_layer_2", "mine"]
    assert sorted(made["tables"]) == names


def _pair():
    return [fc.categorical_column_with_identity(key, 4) for key in "ab"]


def test_layers_that_name_a_shared_table_have_one_at_the_top():
    columns = tuple(fc.shared_embeddings(_pair(), 2))
    made = _Twice(columns).init(KEY, {"a": [1], "b": [2]})
    assert made["tables"]["a_b_shared_embedding"].shape == (4, 2)
    assert len(jax.tree.leaves(made)) == 1


def test_two_shared_tables_start_differently():
    columns = [*fc.shared_embeddings(_pair(), 2)]
    others = [fc.categorical_column_with_identity(key, 4) for key in "cd"]
    columns += fc.shared_embeddings(others, 2)
    made = fc.DenseFeatures(columns).init(KEY, {k: [1] for k in "abcd"})
    one, other = made["tables"].values()
    assert not np.array_equal(one, other)


def test_tensorflow_1_had_a_shared_table_in_every_layer():
    columns = tuple(fc.shared_embedding_columns(_pair(), 2))
    made = _Twice(columns).init(KEY, {"a": [1], "b": [2]})
    for layer in ("one", "two"):
        table = made["tables"][layer]["a_b_shared_embedding"]["embedding_weights"]
        assert table.shape == (4, 2)


def test_a_table_may_be_trained_as_ordinary_weights():
    layer = fc.DenseFeatures([_embedding(row_updates=False)])
    features = {"n": np.array([[1, -1], [1, 3]])}
    made = layer.init(KEY, features)
    assert "tables" not in made
    gradient = _gradient(layer, made, features, "params")
    rows = gradient["n_embedding"]["embedding_weights"]
    assert rows.tolist() == [[0, 0], [1.5, 1.5], [0, 0], [0.5, 0.5]]


def test_negative_ids_are_refused_without_the_safe_lookup():
    layer = fc.DenseFeatures([_embedding(use_safe_embedding_lookup=False)])
    with pytest.raises(ValueError, match="id -2"):
        layer.init(KEY, {"n": np.array([-2])})


def test_a_missing_feature_names_its_neighbour():
    layer = fc.DenseFeatures([fc.numeric_column("weight")])
    with pytest.raises(ValueError, match="did you mean 'weigth'"):
        layer.init(KEY, {"weigth": np.ones(2)})


def test_text_for_a_numeric_column_is_refused():
    layer = fc.DenseFeatures([fc.numeric_column("age")])
    with pytest.raises(ValueError, match=r"'age' is text"):
        layer.init(KEY, {"age": Strings.of(["3"])})


def test_features_must_be_a_dict():
    with pytest.raises(ValueError, match="must be a dict"):
        fc.DenseFeatures([fc.numeric_column("age")]).init(KEY, np.ones(2))


def test_integers_beyond_32_bits_survive_as_floats():
    layer = fc.DenseFeatures([fc.numeric_column("big", dtype="int64")])
    found = layer.apply({}, {"big": np.array([2**40, -(2**40)])})
    assert found.tolist() == [[2.0**40], [-(2.0**40)]]


def test_the_normalizer_sees_the_raw_dtype():
    seen = []
    column = fc.numeric_column("n", normalizer_fn=lambda x: seen.append(x.dtype) or x)
    fc.DenseFeatures([column]).apply({}, {"n": np.array([1, 2], np.int32)})
    assert seen == [np.int32]


@pytest.mark.parametrize("layer", [fc.DenseFeatures, fc.LinearModel])
def test_every_missing_feature_is_named_and_what_was_found(layer):
    city = fc.categorical_column_with_hash_bucket("city", 10)
    columns = [
        fc.numeric_column("age"),
        fc.numeric_column("income"),
        fc.indicator_column(city),
        fc.bucketized_column(fc.numeric_column("size"), [1.0]),
    ]
    made = layer(columns)
    with pytest.raises(FeatureError) as raised:
        made.init(jax.random.key(0), {"age": [1.0], "zip": [2.0]})
    assert str(raised.value) == (
        f"{layer.__name__}: its columns need features 'city', 'income', 'size', which "
        "are not among the features; found: age, zip"
    )
    with pytest.raises(FeatureError, match="'city_indicator' needs feature 'city',"):
        made.init(jax.random.key(0), {"age": [1.0], "income": [1.0], "size": [1.0]})
