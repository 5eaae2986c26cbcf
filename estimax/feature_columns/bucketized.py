"""Bucketized columns: ranges of a number, dense (one-hot) and categorical at once."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from flax import linen as nn

from estimax import staging
from estimax.core.errors import FeatureError
from estimax.core.sparse import Ids
from estimax.feature_columns import transforms
from estimax.feature_columns.column import CategoricalColumn, Features, ParseSpec
from estimax.feature_columns.computed import (
    ComputedColumn,
    NumberColumn,
    check_source,
)
from estimax.feature_columns.lookup import count
from estimax.feature_columns.transforms.transform import OutOfRange


@dataclass(frozen=True)
class BucketizedColumn(CategoricalColumn):
    """Buckets of a numeric column; made by `bucketized_column`.

    Args:
      source_column: The numeric column.
      boundaries: The boundaries, ascending.
    """

    source_column: NumberColumn
    boundaries: tuple[float, ...]

    @property
    def name(self) -> str:
        """The source's name, with `_bucketized` behind it."""
        return f"{self.source_column.name}_bucketized"

    @property
    def variable_shape(self) -> tuple[int, ...]:
        """The shape of one row: the source's, and the buckets."""
        return (*self.source_column.shape, len(self.boundaries) + 1)

    @property
    def num_buckets(self) -> int:
        """The number of ids: the buckets of all positions."""
        return self.id_source.num_buckets

    @property
    def parse_example_spec(self) -> ParseSpec:
        return self.source_column.parse_example_spec

    @property
    def id_source(self) -> transforms.Bucketize:
        source = self.source_column
        if isinstance(source, ComputedColumn):
            return transforms.Bucketize(
                source.name,
                self.boundaries,
                normalizer=source.filling,
                numbers=source.transform,
            )
        width = source.shape[0] if source.shape else 1
        return transforms.Bucketize(
            source.key, self.boundaries, width, source.normalizer_fn
        )

    def ids(self, features: Features, out_of_range: OutOfRange = "drop") -> Ids:
        source = self.source_column
        if isinstance(source, ComputedColumn):
            source.declare_default(features)
            computed: Ids = staging.stage(transforms.PadIds(self.id_source), features)
            return computed
        value = features.get(source.key)
        # A normalizer runs on the device, where an export can trace it; and a number
        # that the model computed is on the device already.
        is_raw = source.normalizer_fn is None and source.text is None
        if is_raw and staging.can_stage(value):
            source.declare_default(features)
            # Always "drop": no id can be out of range, so all uses share a transform.
            staged: Ids = staging.stage(transforms.PadIds(self.id_source), features)
            return staged
        return self._device_ids(source.values(features))

    def _device_ids(self, numbers: jax.Array) -> Ids:
        edges = jnp.asarray(self.boundaries, jnp.float32)
        # "Not less" and not "greater or equal", so that NaN goes to the last bucket.
        reached = jnp.logical_not(numbers[..., None] < edges)
        buckets = jnp.sum(reached, axis=-1, dtype=jnp.int32)
        each = len(self.boundaries) + 1
        return Ids(buckets + each * jnp.arange(numbers.shape[1], dtype=jnp.int32))

    def block(self, layer: nn.Module, features: Features, trainable: bool) -> jax.Array:
        """Return the buckets one-hot, position by position: [B, N].

        Args:
          layer: Not used: there are no variables.
          features: The features of a batch by key.
          trainable: Not used.
        """
        return count(self.ids(features), self.num_buckets)


def bucketized_column(
    source_column: NumberColumn, boundaries: Sequence[float]
) -> BucketizedColumn:
    """Divide the range of a numeric column into buckets.

    Use it to give a linear model a weight per range, or to cross a number with other
    features. The result is categorical, and dense (one-hot) as well.

    Args:
      source_column: A `numeric_column` of at most one dimension, or a column of one
        number, such as `expression_column`.
      boundaries: The boundaries, ascending; n of them make n + 1 buckets. A bucket
        contains its lower boundary. Values are compared as float32.

    Returns:
      A column that is dense and categorical.

    Raises:
      FeatureError: The source is no numeric column or has several dimensions, or
        `boundaries` are empty or not ascending.

    Example:
      >>> from estimax import feature_columns as fc
      >>> age = fc.bucketized_column(fc.numeric_column("age"), [18, 65])
      >>> fc.DenseFeatures([age]).apply({}, {"age": [17.0, 18.0]}).tolist()
      [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """
    check_source(source_column, "bucketized_column")
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
