"""Columns side by side as one float array: what a dense network starts from."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, MutableMapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from estimax.core.errors import FeatureError
from estimax.feature_columns.column import (
    DenseColumn,
    Features,
    check_batches,
    check_features,
    check_no_sequence,
    is_dense,
    sorted_columns,
)
from estimax.feature_columns.column_variables import layer_name
from estimax.feature_columns.embedding import EmbeddingColumn
from estimax.feature_columns.embedding_table import ReadyRows, blocks_together


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
        blocks = {}
        for columns, block in self._blocks(features):
            blocks[columns[0].name] = block
            if cols_to_output_tensors is not None:
                parts = jnp.split(block, len(columns), axis=-1)
                cols_to_output_tensors.update(zip(columns, parts, strict=True))
        check_batches(blocks, "DenseFeatures")
        return jnp.concatenate(list(blocks.values()), axis=-1)

    def _blocks(
        self, features: Features
    ) -> Iterator[tuple[list[DenseColumn], jax.Array]]:
        """The block of each column, or of several that are looked up together."""
        ready = [
            column.ready(self, features)
            if isinstance(column, EmbeddingColumn)
            else None
            for column in self.feature_columns
        ]
        found = zip(self.feature_columns, ready, strict=True)
        for width, run in itertools.groupby(found, lambda pair: _width(pair[1])):
            columns, rows = zip(*run, strict=True)
            if width is None:
                for column in columns:
                    yield [column], column.block(self, features, self.trainable)
            else:
                yield list(columns), blocks_together(rows)


def _width(ready: ReadyRows | None) -> tuple[int, ...] | None:
    """What must agree for a lookup together: the table's, and the examples' number."""
    if ready is None:
        return None
    return ready.rows.shape[1], ready.places.shape[0]


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
