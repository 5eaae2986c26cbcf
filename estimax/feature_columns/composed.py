"""A categorical column with a weight for every id."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from estimax import transforms
from estimax.core.errors import FeatureError
from estimax.core.parse_spec import STRING, VarLenFeature, dtype_name
from estimax.feature_columns.categorical import (
    HashedCategoricalColumn,
    check_hash_size,
)
from estimax.feature_columns.column import (
    CategoricalColumn,
    ParseSpec,
    check_categorical,
    check_key,
    check_no_sequence,
    is_categorical,
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


@dataclass(frozen=True)
class CrossedColumn:
    """Combinations of values as ids; see `crossed_column`."""

    keys: tuple[str | CategoricalColumn, ...]
    hash_bucket_size: int
    hash_key: int | None

    @property
    def name(self) -> str:
        """The leaves' names, sorted and joined."""
        leaves = self._leaves()
        names = (leaf if isinstance(leaf, str) else leaf.name for leaf in leaves)
        return "_X_".join(sorted(names))

    @property
    def num_buckets(self) -> int:
        """The hash size."""
        return self.hash_bucket_size

    @property
    def parse_example_spec(self) -> ParseSpec:
        """All leaves' together."""
        spec: ParseSpec = {}
        for leaf in self._leaves():
            if isinstance(leaf, str):
                spec[leaf] = VarLenFeature(STRING)
            else:
                spec.update(leaf.parse_example_spec)
        return spec

    @property
    def host_half(self) -> transforms.Cross:
        """What makes the ids."""
        parts: list[str | transforms.IdSource] = []
        for leaf in self._leaves():
            if isinstance(leaf, WeightedCategoricalColumn):
                raise FeatureError(
                    f"crossed_column {self.name!r}: a weighted column ({leaf.name!r}) "
                    "cannot be crossed; cross its categorical column."
                )
            parts.append(leaf if isinstance(leaf, str) else leaf.host_half)
        return transforms.Cross(tuple(parts), self.hash_bucket_size, self.hash_key)

    def _leaves(self) -> list[str | CategoricalColumn]:
        """The keys, crosses among them replaced by their own."""
        leaves: list[str | CategoricalColumn] = []
        for key in self.keys:
            leaves.extend(key._leaves() if isinstance(key, CrossedColumn) else [key])
        return leaves


def crossed_column(
    keys: Iterable[str | CategoricalColumn],
    hash_bucket_size: int,
    hash_key: int | None = None,
) -> CrossedColumn:
    """All combinations of the keys' values, hashed.

    A key is a raw feature's name or a categorical column. The ids depend on the order
    of the keys and on whether a raw feature is fed dense or sparse; the name does not.

    >>> crossed_column(["language", "city"], 1000).name
    'city_X_language'
    """
    check_hash_size(hash_bucket_size, "crossed_column")
    listed = tuple(keys) if keys else ()
    if len(listed) < 2:
        raise FeatureError(f"crossed_column: needs two keys or more, got {listed!r}.")
    for key in listed:
        if isinstance(key, str):
            continue
        if not is_categorical(key):
            raise FeatureError(
                f"crossed_column: a key must be a feature's name or a categorical "
                f"column, got {key!r}. Bucketize a numeric column first."
            )
        check_no_sequence(key, "crossed_column")
        if isinstance(key, HashedCategoricalColumn):
            raise FeatureError(
                f"crossed_column: the key {key.name!r} is hashed already, and hashing "
                "twice collides more. Use the feature's name as the key."
            )
    return CrossedColumn(listed, int(hash_bucket_size), hash_key)
