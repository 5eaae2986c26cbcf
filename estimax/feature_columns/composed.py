"""Categorical columns made of others: weighted columns and crosses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from estimax.core.errors import FeatureError
from estimax.core.parse_spec import STRING, VarLenFeature, dtype_name
from estimax.feature_columns import transforms
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
class WeightedCategoricalColumn(CategoricalColumn):
    """Ids with weights; made by `weighted_categorical_column`.

    Args:
      categorical_column: The column of the ids.
      weight_feature_key: The feature of the weights.
      dtype: The type of the weights, by name.
    """

    categorical_column: CategoricalColumn
    weight_feature_key: str
    dtype: str

    @property
    def name(self) -> str:
        """The names of the ids and of the weights, joined."""
        return f"{self.categorical_column.name}_weighted_by_{self.weight_feature_key}"

    @property
    def num_buckets(self) -> int:
        """The number of ids."""
        return self.categorical_column.num_buckets

    @property
    def parse_example_spec(self) -> ParseSpec:
        spec = self.categorical_column.parse_example_spec
        if self.weight_feature_key in spec:
            raise FeatureError(
                f"column {self.name!r}: {self.weight_feature_key!r} cannot be both its "
                "ids and its weights."
            )
        return {**spec, self.weight_feature_key: VarLenFeature(self.dtype)}

    @property
    def id_source(self) -> transforms.Weighted:
        source = self.categorical_column.id_source
        return transforms.Weighted(source, self.weight_feature_key, self.dtype)


def weighted_categorical_column(
    categorical_column: CategoricalColumn,
    weight_feature_key: str,
    dtype: Any = "float32",
) -> WeightedCategoricalColumn:
    """Give each id of a categorical column a weight from another feature.

    Use it for ids with counts or scores, such as the terms of a text with their
    frequencies. Ids and weights are paired by their order, so both features must have
    the same number of entries. A dense weight of 0 counts as missing, as in TensorFlow.

    Args:
      categorical_column: The column of the ids.
      weight_feature_key: The feature with the weights.
      dtype: The type of the weights: a float or an integer type.

    Returns:
      A categorical column.

    Raises:
      FeatureError: The column is not categorical or is a sequence column, or `dtype`
        is not a number.

    Example:
      >>> from estimax import feature_columns as fc
      >>> terms = fc.categorical_column_with_identity("terms", 3)
      >>> weighted = fc.weighted_categorical_column(terms, "counts")
      >>> layer = fc.DenseFeatures([fc.indicator_column(weighted)])
      >>> layer.apply({}, {"terms": [[0, 2]], "counts": [[0.5, 2.0]]}).tolist()
      [[0.5, 0.0, 2.0]]
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
class CrossedColumn(CategoricalColumn):
    """Combinations of values as ids; made by `crossed_column`.

    Args:
      keys: Names of features, and categorical columns.
      hash_bucket_size: The number of ids.
      hash_key: The seed of the hash, or None.
    """

    keys: tuple[str | CategoricalColumn, ...]
    hash_bucket_size: int
    hash_key: int | None

    @property
    def name(self) -> str:
        """The names of the crossed features, sorted and joined."""
        leaves = self._leaves()
        names = (leaf if isinstance(leaf, str) else leaf.name for leaf in leaves)
        return "_X_".join(sorted(names))

    @property
    def num_buckets(self) -> int:
        """The number of ids."""
        return self.hash_bucket_size

    @property
    def parse_example_spec(self) -> ParseSpec:
        spec: ParseSpec = {}
        for leaf in self._leaves():
            if isinstance(leaf, str):
                spec[leaf] = VarLenFeature(STRING)
            else:
                spec.update(leaf.parse_example_spec)
        return spec

    @property
    def id_source(self) -> transforms.Cross:
        parts: list[str | transforms.IdSource] = []
        for leaf in self._leaves():
            if isinstance(leaf, WeightedCategoricalColumn):
                raise FeatureError(
                    f"crossed_column {self.name!r}: a weighted column ({leaf.name!r}) "
                    "cannot be crossed; cross its categorical column."
                )
            parts.append(leaf if isinstance(leaf, str) else leaf.id_source)
        return transforms.Cross(tuple(parts), self.hash_bucket_size, self.hash_key)

    def _leaves(self) -> list[str | CategoricalColumn]:
        """Return the keys, with the keys of a cross in place of the cross."""
        leaves: list[str | CategoricalColumn] = []
        for key in self.keys:
            leaves.extend(key._leaves() if isinstance(key, CrossedColumn) else [key])
        return leaves


def crossed_column(
    keys: Iterable[str | CategoricalColumn],
    hash_bucket_size: int,
    hash_key: int | None = None,
) -> CrossedColumn:
    """Take the hash of each combination of several features' values as an id.

    Use it in a linear model, which cannot learn that features interact. An example
    with several values of a feature gets all combinations. The ids depend on the order
    of the keys, and on whether a raw feature is fed dense or sparse; the name of the
    column does not.

    Args:
      keys: Two or more names of features (of strings or integers) and categorical
        columns. A number goes through `bucketized_column` first.
      hash_bucket_size: The number of ids; different combinations may share one.
      hash_key: The seed of the hash; by default that of TensorFlow.

    Returns:
      A categorical column.

    Raises:
      FeatureError: There are fewer than two keys, `hash_bucket_size` is below 1, or a
        key is a dense, sequence or hashed column.

    Example:
      >>> from estimax import feature_columns as fc
      >>> cross = fc.crossed_column(["language", "city"], 1000)
      >>> features = {"language": [["no", "en"]], "city": [["Oslo"]]}
      >>> cross.name, cross.ids(features, "error").ids.shape
      ('city_X_language', (1, 2))
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
