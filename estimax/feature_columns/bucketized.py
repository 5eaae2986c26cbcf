"""Numbers in buckets: dense (one-hot) and categorical at once."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from flax import linen as nn

from estimax import staging, transforms
from estimax.core.errors import FeatureError
from estimax.core.sparse import Ids
from estimax.feature_columns.column import Features, ParseSpec
from estimax.feature_columns.combine import count
from estimax.feature_columns.numeric import NumericColumn


@dataclass(frozen=True)
class BucketizedColumn:
    """Buckets of a numeric column; see `bucketized_column`."""

    source_column: NumericColumn
    boundaries: tuple[float, ...]

    @property
    def name(self) -> str:
        """The source's name, marked as bucketized."""
        return f"{self.source_column.name}_bucketized"

    @property
    def variable_shape(self) -> tuple[int, ...]:
        """A one-hot row per position of the source."""
        return (*self.source_column.shape, len(self.boundaries) + 1)

    @property
    def num_buckets(self) -> int:
        """All positions' buckets together."""
        return self.host_half.num_buckets

    @property
    def parse_example_spec(self) -> ParseSpec:
        """The source's."""
        return self.source_column.parse_example_spec

    @property
    def host_half(self) -> transforms.Bucketize:
        """What finds the buckets on the host."""
        source = self.source_column
        width = source.shape[0] if source.shape else 1
        return transforms.Bucketize(
            source.key, self.boundaries, width, source.normalizer_fn
        )

    def ids(self, features: Features) -> Ids:
        """The buckets' ids: from the host, unless only the device knows the number."""
        source = self.source_column
        value = features.get(source.key)
        # A normalizer runs on the device: there an export can trace it.
        if source.normalizer_fn is None and staging.can_stage(value):
            staged: Ids = staging.stage(transforms.PadIds(self.host_half), features)
            return staged
        return self._device_ids(source.values(features))

    def _device_ids(self, numbers: jax.Array) -> Ids:
        edges = jnp.asarray(self.boundaries, jnp.float32)
        # "Not less" rather than "greater or equal": NaN goes to the last bucket.
        reached = jnp.logical_not(numbers[..., None] < edges)
        buckets = jnp.sum(reached, axis=-1, dtype=jnp.int32)
        each = len(self.boundaries) + 1
        return Ids(buckets + each * jnp.arange(numbers.shape[1], dtype=jnp.int32))

    def block(self, layer: nn.Module, features: Features, trainable: bool) -> jax.Array:
        """One-hot, position by position."""
        return count(self.ids(features), self.num_buckets)


def bucketized_column(
    source_column: NumericColumn, boundaries: Sequence[float]
) -> BucketizedColumn:
    """Sort a numeric column's values between boundaries; each interval owns its left.

    n boundaries make n + 1 buckets. Values are compared as float32.

    >>> from estimax.feature_columns import numeric_column
    >>> bucketized_column(numeric_column("age"), [18, 65]).num_buckets
    3
    """
    if not isinstance(source_column, NumericColumn):
        raise FeatureError(
            "bucketized_column: source_column must be a numeric_column, got "
            f"{source_column!r}."
        )
    name = source_column.name
    if len(source_column.shape) > 1:
        raise FeatureError(
            f"bucketized_column of {name!r}: the source may have one dimension, got "
            f"shape {source_column.shape}."
        )
    if not isinstance(boundaries, list | tuple) or not boundaries:
        raise FeatureError(
            f"bucketized_column of {name!r}: boundaries must be a list of at least one "
            f"number, got {boundaries!r}."
        )
    if any(a >= b for a, b in itertools.pairwise(boundaries)):
        raise FeatureError(
            f"bucketized_column of {name!r}: boundaries must increase, got "
            f"{boundaries!r}."
        )
    return BucketizedColumn(source_column, tuple(float(b) for b in boundaries))
