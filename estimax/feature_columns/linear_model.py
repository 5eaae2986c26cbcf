"""The linear model over columns: a weight per id or number, and a bias."""

from __future__ import annotations

from typing import Any

import jax
from flax import linen as nn

from estimax.feature_columns.column import (
    Column,
    Features,
    check_batches,
    check_features,
    check_no_sequence,
    check_scopes,
    is_categorical,
    sorted_columns,
)
from estimax.feature_columns.column_variables import (
    Place,
    layer_name,
    table_rows,
    weights,
    zeros,
)
from estimax.feature_columns.combine import check_combiner, combine
from estimax.feature_columns.ids import ids_of


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
