"""Columns side by side as one float array: what a dense network starts from."""

from __future__ import annotations

import itertools
from collections.abc import MutableMapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from estimax import variables
from estimax.core.errors import FeatureError
from estimax.feature_columns.column import (
    DenseColumn,
    Features,
    check_batches,
    check_features,
    check_no_sequence,
    check_scopes,
    is_dense,
    sorted_columns,
)
from estimax.feature_columns.column_variables import layer_name
from estimax.feature_columns.embedding import EmbeddingColumn, owns_table


class DenseFeatures(nn.Module):
    """A layer that turns features into [B, N]: dense columns in order of their names.

    >>> from estimax.feature_columns import numeric_column
    >>> layer = DenseFeatures([numeric_column("b"), numeric_column("a")])
    >>> layer.apply({}, {"a": [1.0, 2.0], "b": [3.0, 4.0]}).tolist()
    [[1.0, 3.0], [2.0, 4.0]]
    """

    feature_columns: Any  # one column, or an iterable of them
    trainable: bool = True

    def __post_init__(self) -> None:
        columns = sorted_columns(self.feature_columns, "DenseFeatures")
        for column in columns:
            check_no_sequence(column, "DenseFeatures")
            if not is_dense(column):
                raise FeatureError(
                    f"DenseFeatures: column {column.name!r} is categorical, not dense. "
                    "Wrap it in embedding_column or indicator_column."
                )
        check_scopes(filter(owns_table, columns), "DenseFeatures")
        self.feature_columns = columns
        super().__post_init__()

    @nn.compact
    def __call__(
        self,
        features: Features,
        cols_to_output_tensors: MutableMapping[DenseColumn, jax.Array] | None = None,
    ) -> jax.Array:
        """Compute all columns; optionally hand out each one's block too."""
        check_features(features, "DenseFeatures")
        parts = {c.name: self._part(c, features) for c in self.feature_columns}
        check_batches(parts, "DenseFeatures")
        laid = variables.side_by_side(list(parts.values()))
        if cols_to_output_tensors is not None:
            ends = itertools.accumulate(part.shape[1] for part in parts.values())
            blocks = jnp.split(laid, list(ends)[:-1], axis=1)
            named = zip(self.feature_columns, blocks, strict=True)
            cols_to_output_tensors.update(named)
        return laid

    def _part(self, column: DenseColumn, features: Features) -> variables.Part:
        """A column's block, or in training the rows that it is made of."""
        ready = None
        if isinstance(column, EmbeddingColumn):
            ready = column.ready(self, features)
        return column.block(self, features, self.trainable) if ready is None else ready


def input_layer(
    features: Features,
    feature_columns: Any,  # one column, or an iterable of them
    trainable: bool = True,
    cols_to_output_tensors: MutableMapping[DenseColumn, jax.Array] | None = None,
    name: str | None = None,
) -> jax.Array:
    """Turn features into [B, N] inside a `model_fn`; see `DenseFeatures`.

    The layer is called `input_layer`, a second one `input_layer_1`, unless named.
    """
    called = layer_name(name, "input_layer")
    layer = DenseFeatures(feature_columns, trainable, name=called)
    block: jax.Array = layer(features, cols_to_output_tensors)
    return block
