"""Sequence columns side by side as [B, T, N]: what a recurrent network starts from."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from estimax import staging, transforms
from estimax.core.errors import FeatureError
from estimax.feature_columns.column import (
    Features,
    check_batches,
    check_features,
    check_scopes,
    is_categorical,
    is_sequence,
    sorted_columns,
)
from estimax.feature_columns.column_variables import layer_name
from estimax.feature_columns.embedding import owns_table


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
