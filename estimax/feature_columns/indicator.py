"""Indicator columns: a categorical column as counts of its ids."""

from __future__ import annotations

from dataclasses import dataclass

import jax
from flax import linen as nn

from estimax.feature_columns.column import (
    CategoricalColumn,
    Features,
    WrapperColumn,
    check_categorical,
)
from estimax.feature_columns.lookup import count


@dataclass(frozen=True)
class IndicatorColumn(WrapperColumn):
    """Counts of ids; made by `indicator_column`.

    Args:
      categorical_column: The column whose ids are counted.
    """

    categorical_column: CategoricalColumn

    @property
    def name(self) -> str:
        """The categorical column's name, with `_indicator` behind it."""
        return f"{self.categorical_column.name}_indicator"

    @property
    def variable_shape(self) -> tuple[int, ...]:
        """The shape of one row, (1, num_buckets)."""
        return (1, self.categorical_column.num_buckets)

    def block(self, layer: nn.Module, features: Features, trainable: bool) -> jax.Array:
        # "drop": an id out of range is not counted.
        ids = self.categorical_column.ids(features, "drop")
        return count(ids, self.categorical_column.num_buckets)

    def steps(self, layer: nn.Module, features: Features, trainable: bool) -> jax.Array:
        ids = self._sequence.step_ids(features, "drop")
        return count(ids, self.categorical_column.num_buckets)


def indicator_column(categorical_column: CategoricalColumn) -> IndicatorColumn:
    """Turn a categorical column into counts: one-hot, or multi-hot for several ids.

    Use it to feed a categorical column with few ids to a dense layer; for many ids,
    `embedding_column` is smaller. A weighted column gives the total weight of each id.

    Args:
      categorical_column: Any categorical column, also of sequences.

    Returns:
      A dense column of width `num_buckets`.

    Raises:
      FeatureError: The column is not categorical.

    Example:
      >>> import jax
      >>> from estimax import feature_columns as fc
      >>> size = fc.categorical_column_with_vocabulary_list("size", ["S", "M", "L"])
      >>> layer = fc.DenseFeatures([fc.indicator_column(size)])
      >>> layer.apply({}, {"size": [["M"], ["S"]]}).tolist()
      [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
    """
    check_categorical(categorical_column, "indicator_column")
    return IndicatorColumn(categorical_column)
