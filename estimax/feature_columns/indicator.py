"""A categorical column as counts."""

from __future__ import annotations

from dataclasses import dataclass

import jax
from flax import linen as nn

from estimax.feature_columns.column import (
    CategoricalColumn,
    Features,
    ParseSpec,
    check_categorical,
)
from estimax.feature_columns.ids import ids_of, step_ids_of
from estimax.feature_columns.lookup import count
from estimax.feature_columns.sequence import (
    SequenceCategoricalColumn,
    sequence_of,
)


@dataclass(frozen=True)
class IndicatorColumn:
    """Counts of ids; see `indicator_column`."""

    categorical_column: CategoricalColumn

    @property
    def name(self) -> str:
        """The categorical column's, marked as indicator."""
        return f"{self.categorical_column.name}_indicator"

    @property
    def is_sequence(self) -> bool:
        """Whether it counts at every step of a sequence."""
        return isinstance(self.categorical_column, SequenceCategoricalColumn)

    @property
    def variable_shape(self) -> tuple[int, ...]:
        """One row of counts."""
        return (1, self.categorical_column.num_buckets)

    @property
    def parse_example_spec(self) -> ParseSpec:
        """The categorical column's."""
        return self.categorical_column.parse_example_spec

    def block(self, layer: nn.Module, features: Features, trainable: bool) -> jax.Array:
        """The counts; ids out of range are not counted."""
        ids = ids_of(self.categorical_column, features, "drop")
        return count(ids, self.categorical_column.num_buckets)

    @property
    def timed_by(self) -> tuple[str, int | None]:
        """The feature of ids."""
        return sequence_of(self).timed_by

    def steps(self, layer: nn.Module, features: Features, trainable: bool) -> jax.Array:
        """The counts of every step."""
        ids = step_ids_of(sequence_of(self), features, "drop")
        return count(ids, self.categorical_column.num_buckets)


def indicator_column(categorical_column: CategoricalColumn) -> IndicatorColumn:
    """How often each id is there, or with which total weight.

    >>> from estimax.feature_columns import categorical_column_with_identity
    >>> indicator_column(categorical_column_with_identity("n", 4)).variable_shape
    (1, 4)
    """
    check_categorical(categorical_column, "indicator_column")
    return IndicatorColumn(categorical_column)
