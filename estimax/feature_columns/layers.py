"""Columns side by side as one float array: what a dense network starts from."""

from __future__ import annotations

import itertools
from collections.abc import MutableMapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from estimax import staging, transforms, variables
from estimax.core.errors import FeatureError
from estimax.feature_columns.column import (
    Column,
    DenseColumn,
    Features,
    check_batches,
    check_features,
    check_no_sequence,
    check_scopes,
    is_categorical,
    is_dense,
    is_sequence,
    sorted_columns,
)
from estimax.feature_columns.embedding import EmbeddingColumn, owns_table
from estimax.feature_columns.ids import ids_of
from estimax.feature_columns.lookup import (
    Place,
    check_combiner,
    combine,
    layer_name,
    table_rows,
    weights,
    zeros,
)


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


class LinearModel(nn.Module):
    """A layer of logits [B, units], linear in dense and categorical columns.

    A bucketized column counts as categorical. `sparse_combiner` says how the weights
    of a categorical column's several ids are combined.

    >>> from estimax.feature_columns import numeric_column
    >>> layer = LinearModel([numeric_column("a")])
    >>> layer.init_with_output(jax.random.key(0), {"a": [1.0]})[0].tolist()
    [[0.0]]
    """

    feature_columns: Any  # one column, or an iterable of them
    units: int = 1
    sparse_combiner: str = "sum"
    trainable: bool = True

    def __post_init__(self) -> None:
        self.feature_columns = sorted_columns(self.feature_columns, "LinearModel")
        for column in self.feature_columns:
            check_no_sequence(column, "LinearModel")
            check_combiner(self.sparse_combiner, column.name)
        check_scopes(self.feature_columns, "LinearModel")
        super().__post_init__()

    @nn.compact
    def __call__(self, features: Features) -> jax.Array:
        """Compute the logits."""
        check_features(features, "LinearModel")
        shares = {
            column.name: self._share(column, features)
            for column in self.feature_columns
        }
        check_batches(shares, "LinearModel")
        bias = zeros(self, "bias_weights", (self.units,), trainable=self.trainable)
        total: jax.Array = sum(shares.values()) + bias
        return total

    def _share(self, column: Any, features: Features) -> jax.Array:
        """What one column adds: [B, units]."""
        if is_categorical(column):
            return self._categorical_share(column, features)
        block = column.block(self, features, self.trainable)
        shape = (block.shape[1], self.units)
        each = weights(self, column.name, shape, trainable=self.trainable)
        product: jax.Array = block @ each
        return product

    def _categorical_share(self, column: Any, features: Features) -> jax.Array:
        ids = ids_of(column, features, "error")
        rows = table_rows(
            *(self, Place(column.name, "weights"), (column.num_buckets, self.units)),
            nn.initializers.zeros,
            ids.ids,
            trainable=self.trainable,
        )
        return combine(rows, ids, self.sparse_combiner)


def linear_model(
    features: Features,
    feature_columns: Column | Any,  # one column, or an iterable of them
    units: int = 1,
    sparse_combiner: str = "sum",
    trainable: bool = True,
    name: str | None = None,
) -> jax.Array:
    """Logits [B, units] inside a `model_fn`; see `LinearModel`.

    The layer is called `linear_model`, a second one `linear_model_1`, unless named.
    """
    name = layer_name(name, "linear_model")
    layer = LinearModel(feature_columns, units, sparse_combiner, trainable, name=name)
    logits: jax.Array = layer(features)
    return logits


class SequenceFeatures(nn.Module):
    """A layer that turns features into ([B, T, N], lengths [B]), columns by name.

    All columns must have the same lengths. In a compiled model T is rounded up to a
    power of two: mask the steps at and after an example's length.

    >>> from estimax.core.sparse import Sparse
    >>> from estimax.feature_columns import sequence_numeric_column
    >>> layer = SequenceFeatures([sequence_numeric_column("x")])
    >>> block, lengths = layer.apply({}, {"x": Sparse.of_rows([[1.0, 2.0], [3.0]])})
    >>> block.tolist(), lengths.tolist()
    ([[[1.0], [2.0]], [[3.0], [0.0]]], [2, 1])
    """

    feature_columns: Any  # one column, or an iterable of them
    trainable: bool = True

    def __post_init__(self) -> None:
        self.feature_columns = sorted_columns(self.feature_columns, "SequenceFeatures")
        for column in self.feature_columns:
            _check_column(column)
        check_scopes(filter(owns_table, self.feature_columns), "SequenceFeatures")
        super().__post_init__()

    @nn.compact
    def __call__(self, features: Features) -> tuple[jax.Array, jax.Array]:
        """Compute all columns, and the number of steps of each example."""
        check_features(features, "SequenceFeatures")
        columns = self.feature_columns
        # First, since it says which features disagree; it alone knows them all.
        parts = tuple(dict.fromkeys(column.timed_by for column in columns))
        lengths = staging.stage(transforms.SequenceLengths(parts), features)
        blocks = {c.name: c.steps(self, features, self.trainable) for c in columns}
        check_batches(blocks, "SequenceFeatures")
        return jnp.concatenate(list(blocks.values()), axis=-1), lengths


def sequence_input_layer(
    features: Features,
    feature_columns: Any,  # one column, or an iterable of them
    trainable: bool = True,
    name: str | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Sequences [B, T, N] and lengths [B] inside a `model_fn`: `SequenceFeatures`.

    The layer is called `sequence_features`, a second one `sequence_features_1`, unless
    it is named.
    """
    called = layer_name(name, "sequence_features")
    layer = SequenceFeatures(feature_columns, trainable, name=called)
    block, lengths = layer(features)
    return block, lengths


def concatenate_context_input(
    context_input: jax.Array, sequence_input: jax.Array
) -> jax.Array:
    """Repeat a context [B, C] at every step of [B, T, S], behind it: [B, T, S + C].

    >>> context, sequence = jnp.ones((1, 1)), jnp.zeros((1, 2, 1))
    >>> concatenate_context_input(context, sequence).tolist()
    [[[0.0, 1.0], [0.0, 1.0]]]
    """
    for name, given, rank in (
        ("context_input", context_input, 2),
        ("sequence_input", sequence_input, 3),
    ):
        if given.ndim != rank or given.dtype != jnp.float32:
            raise FeatureError(
                f"concatenate_context_input: {name} must be float32 of rank {rank}, "
                f"got {given.dtype} of shape {given.shape}."
            )
    shape = (*sequence_input.shape[:2], context_input.shape[1])
    repeated = jnp.broadcast_to(context_input[:, None], shape)
    return jnp.concatenate([sequence_input, repeated], axis=-1)


def _check_column(column: Any) -> None:
    if not is_sequence(column):
        raise FeatureError(
            f"SequenceFeatures: column {column.name!r} is not of sequences; build it "
            "on sequence_numeric_column or sequence_categorical_column_with_…"
        )
    if is_categorical(column):
        raise FeatureError(
            f"SequenceFeatures: column {column.name!r} is categorical. Wrap it in "
            "embedding_column or indicator_column."
        )
