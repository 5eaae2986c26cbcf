"""A categorical column with a weight for every id."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from estimax import transforms
from estimax.core.errors import FeatureError
from estimax.core.parse_spec import STRING, VarLenFeature, dtype_name
from estimax.feature_columns.column import (
    CategoricalColumn,
    ParseSpec,
    check_categorical,
    check_key,
    check_no_sequence,
)


@dataclass(frozen=True)
class WeightedCategoricalColumn:
    """Ids with weights; see `weighted_categorical_column`."""

    categorical_column: CategoricalColumn
    weight_feature_key: str
    dtype: str

    @property
    def name(self) -> str:
        """The ids' name and the weights'."""
        return f"{self.categorical_column.name}_weighted_by_{self.weight_feature_key}"

    @property
    def num_buckets(self) -> int:
        """That of the ids."""
        return self.categorical_column.num_buckets

    @property
    def parse_example_spec(self) -> ParseSpec:
        """The ids' and the weights'."""
        spec = self.categorical_column.parse_example_spec
        if self.weight_feature_key in spec:
            raise FeatureError(
                f"column {self.name!r}: {self.weight_feature_key!r} cannot be both its "
                "ids and its weights."
            )
        return {**spec, self.weight_feature_key: VarLenFeature(self.dtype)}

    @property
    def host_half(self) -> transforms.Weighted:
        """What makes ids and weights."""
        source = self.categorical_column.host_half
        return transforms.Weighted(source, self.weight_feature_key, self.dtype)


def weighted_categorical_column(
    categorical_column: CategoricalColumn,
    weight_feature_key: str,
    dtype: Any = "float32",
) -> WeightedCategoricalColumn:
    """A categorical column whose ids weigh as another feature says, in its order.

    >>> from estimax.feature_columns import categorical_column_with_identity
    >>> terms = categorical_column_with_identity("terms", 100)
    >>> weighted_categorical_column(terms, "counts").name
    'terms_weighted_by_counts'
    """
    function = "weighted_categorical_column"
    check_categorical(categorical_column, function)
    check_no_sequence(categorical_column, function)
    check_key(weight_feature_key, function)
    name = dtype_name(dtype)
    if name == STRING or np.dtype(name).kind not in "iuf":
        raise FeatureError(f"{function}: dtype must be a number, got {name}.")
    return WeightedCategoricalColumn(categorical_column, weight_feature_key, name)
