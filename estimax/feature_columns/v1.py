"""What `tf.compat.v1.feature_column` had in another order or place, to port programs.

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
    """Words by their line in a file, with the arguments in TensorFlow 1's order.

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
    """Turn features into [B, N] inside a `model_fn`; fills `cols_to_vars` if given."""
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
    """Logits [B, units] inside a `model_fn`; `cols_to_vars` gets a "bias" as well."""
    _check_collections(weight_collections, "linear_model")
    name = layer_name(name, "linear_model")
    layer = LinearModel(feature_columns, units, sparse_combiner, trainable, name=name)
    logits: jax.Array = layer(features)
    _fill(cols_to_vars, layer)
    if cols_to_vars is not None:
        cols_to_vars["bias"] = [layer.variables["params"]["bias_weights"]]
    return logits


def _fill(found: ColumnVariables | None, layer: Any) -> None:
    """Put the variables under each column's scope into the dict."""
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
