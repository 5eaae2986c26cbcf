import jax
import numpy as np
import pytest
from flax import linen as nn

from estimax import feature_columns as fc
from estimax.v1 import feature_columns as v1

KEY = jax.random.key(0)


def test_a_vocabulary_file_takes_the_oov_buckets_fourth(tmp_path):
    column = v1.categorical_column_with_vocabulary_file("w", tmp_path / "v", 5, 2)
    assert column.num_oov_buckets == 2
    assert column.num_buckets == 7


def _net(found):
    class Net(nn.Module):
        @nn.compact
        def __call__(self, features):
            words = [fc.categorical_column_with_identity(key, 4) for key in "ab"]
            deep = [fc.numeric_column("x"), *v1.shared_embedding_columns(words, 2)]
            net = v1.input_layer(features, deep, cols_to_vars=found)
            return net.sum() + v1.linear_model(features, words, cols_to_vars=found)

    return Net()


def test_variables_are_handed_out_by_column():
    found = {}
    features = {"a": [1], "b": [2], "x": np.ones(1, np.float32)}
    jax.eval_shape(lambda: _net(found).init(KEY, features))
    shapes = {
        getattr(column, "name", column): [array.shape for array in arrays]
        for column, arrays in found.items()
    }
    assert shapes == {
        "x": [],
        "a_shared_embedding": [(4, 2)],
        "b_shared_embedding": [(4, 2)],
        "a": [(4, 1)],
        "b": [(4, 1)],
        "bias": [(1,)],
    }


def test_collections_of_graphs_are_refused():
    with pytest.raises(ValueError, match="cols_to_vars"):
        v1.input_layer({}, [fc.numeric_column("x")], weight_collections=["w"])
