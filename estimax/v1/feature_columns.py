"""Functions whose arguments differ in `tf.compat.v1.feature_column`, to port programs.

    from estimax.feature_columns import v1
    net = v1.input_layer(features, columns, cols_to_vars=found)

All other columns are those of `estimax.feature_columns`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, MutableMapping
from typing import Any

import jax

from estimax.core.errors import FeatureError
from estimax.core.parse_spec import STRING
from estimax.feature_columns import categorical
from estimax.feature_columns.categorical import VocabularyFileCategoricalColumn
from estimax.feature_columns.column import Features, variable_scope
from estimax.feature_columns.embedding import shared_embedding_columns
from estimax.feature_columns.layers import DenseFeatures, LinearModel
from estimax.feature_columns.lookup import layer_name

__all__ = [
    "categorical_column_with_vocabulary_file",
    "input_layer",
    "linear_model",
    "shared_embedding_columns",
]

ColumnVariables = MutableMapping[Any, list[jax.Array]]  # column (or "bias") -> arrays


def categorical_column_with_vocabulary_file(
    key: str,
    vocabulary_file: str | os.PathLike[str],
    vocabulary_size: int | None = None,
    num_oov_buckets: int = 0,
    default_value: int | None = None,
    dtype: Any = STRING,
) -> VocabularyFileCategoricalColumn:
    """Take the line number of each value in a file as its id.

    This is `feature_columns.categorical_column_with_vocabulary_file` with the
    arguments in TensorFlow 1's order.

    Args:
      key: The feature, of strings or integers.
      vocabulary_file: The path of a file with one word per line.
      vocabulary_size: How many words of the file to use; by default all.
      num_oov_buckets: The number of ids, behind those of the file, that values not in
        the file get by hash.
      default_value: The id of such values instead. By default they have none.
      dtype: The type of the feature: string, or an integer type.

    Returns:
      A categorical column.

    Raises:
      FeatureError: As for the function of version 2.

    Example:
      >>> categorical_column_with_vocabulary_file("w", "words.txt", 9, 2).num_buckets
      11
    """
    return categorical.categorical_column_with_vocabulary_file(
        *(key, vocabulary_file, vocabulary_size),
        dtype=dtype,
        default_value=default_value,
        num_oov_buckets=num_oov_buckets,
    )


def input_layer(
    features: Features,
    feature_columns: Any,  # one column, or an iterable of them
    weight_collections: Iterable[str] | None = None,
    trainable: bool = True,
    cols_to_vars: ColumnVariables | None = None,
    cols_to_output_tensors: MutableMapping[Any, jax.Array] | None = None,
    name: str | None = None,
) -> jax.Array:
    """Turn features into [B, N] inside a `model_fn`, for dense columns.

    This is `feature_columns.input_layer` with TensorFlow 1's arguments.

    Args:
      features: The features of a batch by key.
      feature_columns: One dense column, or an iterable of them.
      weight_collections: Must be empty: there are no graph collections.
      trainable: Whether the variables of the columns are trained.
      cols_to_vars: A dict to be filled with the variables of each column.
      cols_to_output_tensors: A dict to be filled with the block of each column.
      name: The name of the layer; by default `input_layer`, then `input_layer_1`, ….

    Returns:
      float32 [B, N], the columns in order of their names.

    Raises:
      FeatureError: `weight_collections` is given, or as for the function of version 2.

    Example:
      >>> from flax import linen as nn
      >>> from estimax import feature_columns as fc
      >>> city = fc.categorical_column_with_hash_bucket("city", 9)
      >>> found = {}
      >>> class Net(nn.Module):
      ...     @nn.compact
      ...     def __call__(self, features):
      ...         columns = [fc.embedding_column(city, 2)]
      ...         return input_layer(features, columns, cols_to_vars=found)
      >>> _ = Net().init(jax.random.key(0), {"city": ["Oslo"]})
      >>> [array.shape for arrays in found.values() for array in arrays]
      [(9, 2)]
    """
    _check_collections(weight_collections, "input_layer")
    called = layer_name(name, "input_layer")
    layer = DenseFeatures(feature_columns, trainable, name=called)
    block: jax.Array = layer(features, cols_to_output_tensors)
    _fill(cols_to_vars, layer)
    return block


def linear_model(
    features: Features,
    feature_columns: Any,  # one column, or an iterable of them
    units: int = 1,
    sparse_combiner: str = "sum",
    weight_collections: Iterable[str] | None = None,
    trainable: bool = True,
    cols_to_vars: ColumnVariables | None = None,
    name: str | None = None,
) -> jax.Array:
    """Compute linear logits [B, units] inside a `model_fn`.

    This is `feature_columns.linear_model` with TensorFlow 1's arguments.

    Args:
      features: The features of a batch by key.
      feature_columns: One dense or categorical column, or an iterable of them.
      units: The number of logits.
      sparse_combiner: How the weights of several ids of one column are combined:
        "sum", "mean" or "sqrtn".
      weight_collections: Must be empty: there are no graph collections.
      trainable: Whether the variables are trained.
      cols_to_vars: A dict to be filled with the variables of each column, and with
        the bias under the key "bias".
      name: The name of the layer; by default `linear_model`, then `linear_model_1`, ….

    Returns:
      float32 [B, units], zero before training.

    Raises:
      FeatureError: `weight_collections` is given, or as for the function of version 2.

    Example:
      >>> from flax import linen as nn
      >>> from estimax import feature_columns as fc
      >>> found = {}
      >>> class Net(nn.Module):
      ...     @nn.compact
      ...     def __call__(self, features):
      ...         age = fc.numeric_column("age")
      ...         return linear_model(features, [age], cols_to_vars=found)
      >>> _ = Net().init(jax.random.key(0), {"age": [1.0]})
      >>> found["bias"][0].shape
      (1,)
    """
    _check_collections(weight_collections, "linear_model")
    name = layer_name(name, "linear_model")
    layer = LinearModel(feature_columns, units, sparse_combiner, trainable, name=name)
    logits: jax.Array = layer(features)
    _fill(cols_to_vars, layer)
    if cols_to_vars is not None:
        cols_to_vars["bias"] = [layer.variables["params"]["bias_weights"]]
    return logits


def _fill(found: ColumnVariables | None, layer: Any) -> None:
    """Put the variables of each column into the dict."""
    if found is None:
        return
    for column in layer.feature_columns:
        shared = getattr(column, "shared_embedding_collection_name", None)
        scope = variable_scope(shared or column.name)
        collections = layer.variables.values()
        inside = [tree[scope] for tree in collections if scope in tree]
        found[column] = [leaf for tree in inside for leaf in jax.tree.leaves(tree)]


def _check_collections(weight_collections: Any, function: str) -> None:
    if weight_collections:
        raise FeatureError(
            f"{function}: there are no graph collections to add variables to; leave "
            "weight_collections out, and find variables by name or in cols_to_vars."
        )
