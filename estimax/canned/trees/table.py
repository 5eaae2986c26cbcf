"""Feature columns as the table that trees read: numbers and ids.

    table = table_of(columns, "BoostedTreesClassifier")
    numbers, ids = table.read(features)       # float32 [B, F], int32 [B, K]

Trees need no scaling and no encoding, so a column that wraps another is unwrapped: an
indicator or embedding gives its ids, piecewise-linear and periodic codes their number.
A missing number is NaN and a missing id is -1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from estimax import feature_columns as fc
from estimax.canned import defaults
from estimax.core.errors import FeatureError
from estimax.feature_columns import transforms
from estimax.feature_columns.column import is_sequence

# Ids go to LightGBM as float32.
_MOST_IDS = 2**24


@dataclass(frozen=True)
class TreeColumns:
    """The columns of a model, sorted by kind and name.

    Attributes:
      numeric: Columns that give numbers.
      categories: Categorical columns, each of one id.
    """

    numeric: tuple[Any, ...]
    categories: tuple[Any, ...]

    @property
    def width(self) -> int:
        """The number of numbers, F: a column may have several."""
        return sum(_width(column) for column in self.numeric)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of ids of each category."""
        return tuple(int(column.num_buckets) for column in self.categories)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns of the table: numbers, then categories."""
        found = []
        for column in self.numeric:
            width, name = _width(column), column.name
            found += [name] if width == 1 else [f"{name}[{i}]" for i in range(width)]
        # A feature may be a number and a category.
        return (
            *found,
            *(f"{c.name} (id)" if c.name in found else c.name for c in self.categories),
        )

    def read(self, features: Any) -> tuple[jax.Array, jax.Array]:
        """Return the numbers [B, F] and ids [B, K] of a batch, within a `model_fn`."""
        numbers = [_numbers(column, features) for column in self.numeric]
        found = [column.ids(features, "drop").ids for column in self.categories]
        ids = [_first(one) for one in found]
        rows = (numbers or ids)[0].shape[0]
        return (
            jnp.concatenate([*numbers, jnp.zeros((rows, 0), jnp.float32)], axis=1),
            jnp.concatenate([*ids, jnp.zeros((rows, 0), jnp.int32)], axis=1),
        )

    def count_ids(self, features: Any) -> jax.Array:
        """Return how many ids each category has in each row, int32 [B, K]."""
        found = [column.ids(features, "drop").ids for column in self.categories]
        counts = [jnp.sum(ids >= 0, axis=1, dtype=jnp.int32)[:, None] for ids in found]
        return jnp.concatenate(counts, axis=1)


def table_of(given: Any, model: str) -> TreeColumns:
    """Return the table of feature columns.

    Raises:
      FeatureError: The value is no list of columns, a column cannot be given to trees,
        or two columns read the same.
    """
    columns = defaults.validate_columns(given, model, layer=lambda _: None)
    if not columns:
        raise FeatureError(f"{model}: feature_columns must not be empty.")
    plain = [_unwrap(column, model) for column in columns]
    by_name: dict[tuple[str, bool], Any] = {}
    for column in plain:
        other = by_name.setdefault((column.name, _is_category(column)), column)
        if other != column:
            raise FeatureError(
                f"{model}: two feature columns have the name {column.name!r}."
            )
    # A column that is wrapped twice, as an indicator and an embedding, is read once.
    ordered = [by_name[name] for name in sorted(by_name)]
    return TreeColumns(
        tuple(c for c in ordered if not _is_category(c)),
        tuple(c for c in ordered if _is_category(c)),
    )


def _unwrap(column: Any, model: str) -> Any:
    if is_sequence(column):
        raise _unfit(column, model, "is a sequence; trees read one value of each row")
    if isinstance(column, fc.PiecewiseLinearColumn | fc.PeriodicColumn):
        return _unwrap(column.source_column, model)
    if isinstance(column, fc.BucketizedColumn | fc.DateColumn):
        return column
    if isinstance(column, fc.ComputedColumn):
        return replace(column, default_value=math.nan, normalizer_fn=None)
    if isinstance(column, fc.NumericColumn):
        # A scaling keeps the order of numbers, which is all that trees look at, and
        # may hide that one is missing. Another function may not keep it.
        scaling, missing = column.normalizer_fn, column.default_value
        if isinstance(scaling, transforms.Scaling):
            missing = missing if scaling.fill is None else None
            scaling = None
        missing = math.nan if missing is None else missing
        return replace(column, default_value=missing, normalizer_fn=scaling)
    if not fc.is_categorical(column) and fc.is_categorical(
        getattr(column, "categorical_column", None)
    ):
        return _unwrap(column.categorical_column, model)
    if not fc.is_categorical(column):
        raise _unfit(column, model, f"is a {type(column).__name__}, which has no ids")
    if hasattr(column, "weight_feature_key"):
        raise _unfit(column, model, "has weights; give its categorical column instead")
    if column.num_buckets > _MOST_IDS:
        raise _unfit(
            column, model, f"has {column.num_buckets:,} ids; at most {_MOST_IDS:,} fit"
        )
    return column


def _unfit(column: Any, model: str, why: str) -> FeatureError:
    return FeatureError(f"{model}: the feature column {column.name!r} {why}.")


def _is_category(column: Any) -> bool:
    # Buckets are ordered: as a number, one split can separate low from high ones.
    return fc.is_categorical(column) and not isinstance(column, fc.BucketizedColumn)


def _width(column: Any) -> int:
    if isinstance(column, fc.BucketizedColumn):
        return math.prod(column.source_column.shape)
    return math.prod(column.variable_shape)


def _numbers(column: Any, features: Any) -> jax.Array:
    if not isinstance(column, fc.BucketizedColumn):
        values: jax.Array = column.values(features)
        return values
    # The ids of position i begin at i * (number of buckets).
    ids = column.ids(features).ids
    buckets = len(column.boundaries) + 1
    bucket: jax.Array = (ids % buckets).astype(jnp.float32)
    return bucket


def _first(ids: jax.Array) -> jax.Array:
    """Return the first id of each row, [B, 1]; -1 if there is none."""
    if not ids.shape[1]:
        return jnp.full((ids.shape[0], 1), -1, jnp.int32)
    # Ids that were dropped may stand before the first.
    place = jnp.argmax(ids >= 0, axis=1)
    first: jax.Array = jnp.take_along_axis(ids, place[:, None], axis=1)
    return first


def check_single(counts: Any, columns: Iterable[Any], model: str) -> None:
    """Raise FeatureError if a row has several ids of a category."""
    for column, most in zip(columns, counts.max(axis=0, initial=0), strict=True):
        if most > 1:
            raise FeatureError(
                f"{model}: a row has {most} values of {column.name!r}; trees read one. "
                "Split the feature into several columns, or leave it out."
            )
