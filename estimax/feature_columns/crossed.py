"""Crosses of several categorical features."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from estimax import transforms
from estimax.core.errors import FeatureError
from estimax.core.parse_spec import STRING, VarLenFeature
from estimax.feature_columns.categorical import (
    HashedCategoricalColumn,
    check_hash_size,
)
from estimax.feature_columns.column import (
    CategoricalColumn,
    ParseSpec,
    check_no_sequence,
    is_categorical,
)
from estimax.feature_columns.weighted import WeightedCategoricalColumn


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
