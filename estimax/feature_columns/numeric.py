"""Numeric columns, and bucketized ones: dense (one-hot) and categorical at once."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from estimax import staging
from estimax.core import display
from estimax.core.errors import FeatureError, did_you_mean
from estimax.core.parse_spec import STRING, FixedLenFeature, dtype_name
from estimax.core.raw_values import as_raw
from estimax.core.sparse import Ids, Sparse
from estimax.feature_columns import transforms
from estimax.feature_columns.column import (
    CategoricalColumn,
    Features,
    ParseSpec,
    check_key,
)
from estimax.feature_columns.lookup import count
from estimax.feature_columns.transforms.texts import NumberFormat
from estimax.feature_columns.transforms.transform import OutOfRange
from estimax.staging.host_plan import as_device_dtype
from estimax.staging.trace import HostOnly, Origin

Default = Any  # None, a number, or nested tuples of numbers


@dataclass(frozen=True, repr=False)
class NumericColumn:
    """Numbers; made by `numeric_column`.

    Args:
      key: The feature.
      shape: The shape of one row.
      default_value: The numbers of an Example that has none, or None.
      dtype: The type of the feature, by name.
      normalizer_fn: A function applied to the numbers, or None.
      text: How the numbers are written if they are text, or None.
    """

    key: str
    shape: tuple[int, ...]
    default_value: Default
    dtype: str
    normalizer_fn: Callable[[Any], Any] | None
    text: NumberFormat | None = None

    def __repr__(self) -> str:
        return display.format_fields(self)

    @property
    def name(self) -> str:
        """The key."""
        return self.key

    @property
    def variable_shape(self) -> tuple[int, ...]:
        """The shape of one row."""
        return self.shape

    @property
    def parse_example_spec(self) -> ParseSpec:
        """How the feature is stored in an Example."""
        if self.text is not None:
            return {self.key: FixedLenFeature(self.shape, STRING, "")}
        return {self.key: FixedLenFeature(self.shape, self.dtype, self.default_value)}

    def values(self, features: Features) -> jax.Array:
        """Return the normalized numbers, float32 [B, N].

        Args:
          features: The features of a batch by key.
        """
        raw = self._raw(features)
        numbers = raw if self.normalizer_fn is None else self.normalizer_fn(raw)
        numbers = jnp.asarray(numbers).astype(jnp.float32)
        width = math.prod(self.shape)
        if math.prod(numbers.shape[1:]) != width:
            raise FeatureError(
                f"numeric_column {self.key!r}: expected {width} numbers a row, got "
                f"shape {tuple(numbers.shape)}. Set the column's shape."
            )
        return jnp.reshape(numbers, (numbers.shape[0], width))

    def _raw(self, features: Features) -> jax.Array:
        """Return the raw feature on the device; 64-bit integers as float32.

        A `normalizer_fn` sees the raw dtype, so its integers must fit 32 bits. A
        `Scaling` gives the same result for integers and floats.
        """
        if self.text is not None:
            return self._parsed(features, self.text)
        self.declare_default(features)
        floats = isinstance(self.normalizer_fn, transforms.Scaling | None)
        if floats and staging.is_wide(features.get(self.key)):
            staged: jax.Array = staging.stage(transforms.Numbers(self.key), features)
            return staged
        return dense_feature(features, self.key)

    def _parsed(self, features: Features, text: NumberFormat) -> jax.Array:
        """Return the numbers of texts; of a missing one, the default."""
        fills = getattr(self.normalizer_fn, "fill", None) is not None
        required = self.default_value is None and not fills
        parsed = transforms.TextNumbers(self.key, text, required)
        numbers: jax.Array = staging.stage(parsed, features)
        if fills or required:
            return numbers
        default = jnp.broadcast_to(
            jnp.asarray(self.default_value, jnp.float32), numbers.shape
        )
        return jnp.where(jnp.isnan(numbers), default, numbers)

    def declare_default(self, features: Features) -> None:
        """Record what a request to an exported model may leave out.

        Args:
          features: The features of a batch by key.
        """
        if self.text is not None:
            return  # an empty text is a missing number
        scaling = self.normalizer_fn
        fills = isinstance(scaling, transforms.Scaling) and scaling.fill is not None
        default = math.nan if fills else self.default_value
        staging.declare_default(features.get(self.key), default)

    def block(self, layer: nn.Module, features: Features, trainable: bool) -> jax.Array:
        """Return the normalized numbers, float32 [B, N].

        Args:
          layer: Not used: there are no variables.
          features: The features of a batch by key.
          trainable: Not used.
        """
        return self.values(features)


def numeric_column(
    key: str,
    shape: int | Iterable[int] = (1,),
    default_value: Default = None,
    dtype: Any = "float32",
    normalizer_fn: Callable[[Any], Any] | None = None,
    *,
    text: NumberFormat | None = None,
) -> NumericColumn:
    """Take the numbers of a feature as they are, or normalized.

    Use it for quantities. The result is float32; the shape is flattened in a layer.

    Args:
      key: The feature, of dense real numbers.
      shape: The shape of one row, without the batch.
      default_value: The numbers of an Example that has none: one for all positions, or
        of the given shape. Used only when Examples are parsed.
      dtype: The type of the feature in Examples: an integer or float type. Used only
        when Examples are parsed.
      normalizer_fn: Applied to the feature, on the device and in its raw dtype. With
        `ex.transforms.Scaling` the column also works inside an exported cross.
      text: The feature is text with numbers in it: "point" reads $1,302.10 and 65% (as
        65), "comma" reads 1.302,10 and 3,25 €. An empty text is `default_value` or the
        `fill` of an `ex.transforms.Scaling`, or else an error. None: it is numbers.

    Returns:
      A dense column.

    Raises:
      FeatureError: A dimension is below 1, `dtype` is not numeric, or `default_value`
        has another shape.
      TypeError: `shape` or `default_value` has the wrong type, or `normalizer_fn` is
        not callable.

    Example:
      >>> from estimax import feature_columns as fc
      >>> age = fc.numeric_column("age", normalizer_fn=lambda x: x / 100)
      >>> fc.DenseFeatures([age]).apply({}, {"age": [25.0, 50.0]}).tolist()
      [[0.25], [0.5]]
    """
    check_key(key, "numeric_column")
    checked_shape = _validate_shape(key, shape)
    name = _validate_dtype(key, dtype)
    default = _validate_default(key, default_value, checked_shape, name)
    if normalizer_fn is not None and not callable(normalizer_fn):
        raise TypeError(
            f"numeric_column {key!r}: normalizer_fn must be callable, got "
            f"{normalizer_fn!r}."
        )
    if text is not None:
        transforms.TextNumbers(key, text)  # checks it
    return NumericColumn(key, checked_shape, default, name, normalizer_fn, text)


def dense_feature(features: Features, key: str) -> jax.Array:
    """Return a dense numeric feature on the device, of rank 2 or more."""
    if key not in features:
        near = did_you_mean(key, [str(k) for k in features], listed_as="found")
        raise FeatureError(f"feature {key!r} is not among the features{near}")
    value = features[key]
    if not isinstance(value, jax.Array):
        value = _on_device(key, value)
    if jnp.iscomplexobj(value):
        raise _not_numeric(key, str(value.dtype))
    if value.ndim == 0:
        raise FeatureError(
            f"feature {key!r} is a single value; a batch needs rank 1 or more, [B, …]."
        )
    return jnp.reshape(value, (-1, 1)) if value.ndim == 1 else value


def _on_device(key: str, value: Any) -> jax.Array:
    if isinstance(value, HostOnly):
        raise _not_numeric(key, value.kind)
    raw = as_raw(value, f"feature {key!r}")
    if not isinstance(raw, np.ndarray):
        raise _not_numeric(key, "sparse" if isinstance(raw, Sparse) else "text")
    return jnp.asarray(as_device_dtype(Origin("features", key), raw))


def _not_numeric(key: str, found: str) -> FeatureError:
    return FeatureError(
        f"feature {key!r} is {found}, but a numeric column needs dense real numbers. "
        "Parse it as FixedLenFeature, make an array [B, n] of lists of one length "
        "(np.stack of a data frame's column, fixed_size_list in Parquet), or use a "
        "categorical column."
    )


def _validate_shape(key: str, shape: int | Iterable[int]) -> tuple[int, ...]:
    dims = tuple(shape) if isinstance(shape, Iterable) else (shape,)
    for dim in dims:
        if not isinstance(dim, int | np.integer):
            raise TypeError(
                f"numeric_column {key!r}: shape must hold integers, got {dim!r}."
            )
        if dim < 1:
            raise FeatureError(
                f"numeric_column {key!r}: every dimension of shape must be at least "
                f"1, got {dims}."
            )
    return tuple(int(dim) for dim in dims)


def _validate_dtype(key: str, dtype: Any) -> str:
    name = dtype_name(dtype)
    # NumPy does not count bfloat16 and the like as numbers; jnp does.
    kinds = (jnp.integer, jnp.floating)
    if name == STRING or not any(jnp.issubdtype(jnp.dtype(name), k) for k in kinds):
        raise FeatureError(
            f"numeric_column {key!r}: dtype must be an integer or a float, got {name}."
        )
    return name


def _validate_default(
    key: str, default: Default, shape: tuple[int, ...], dtype: str
) -> Default:
    if default is None:
        return None
    array = np.asarray(default)
    if array.dtype.kind not in "iuf":
        raise TypeError(
            f"numeric_column {key!r}: default_value must hold numbers, got {default!r}."
        )
    if array.dtype.kind == "f" and np.issubdtype(np.dtype(dtype), np.integer):
        raise TypeError(
            f"numeric_column {key!r}: default_value {default!r} is a float, but the "
            f"dtype is {dtype}."
        )
    if array.ndim and array.shape != shape:
        raise FeatureError(
            f"numeric_column {key!r}: default_value has shape {array.shape}, the "
            f"column has {shape}."
        )
    return _as_nested_tuples(np.broadcast_to(array, shape).tolist())


def _as_nested_tuples(values: Any) -> Any:
    return tuple(map(_as_nested_tuples, values)) if isinstance(values, list) else values


@dataclass(frozen=True)
class BucketizedColumn(CategoricalColumn):
    """Buckets of a numeric column; made by `bucketized_column`.

    Args:
      source_column: The numeric column.
      boundaries: The boundaries, ascending.
    """

    source_column: NumericColumn
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
        width = source.shape[0] if source.shape else 1
        return transforms.Bucketize(
            source.key, self.boundaries, width, source.normalizer_fn
        )

    def ids(self, features: Features, out_of_range: OutOfRange = "drop") -> Ids:
        source = self.source_column
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
    source_column: NumericColumn, boundaries: Sequence[float]
) -> BucketizedColumn:
    """Divide the range of a numeric column into buckets.

    Use it to give a linear model a weight per range, or to cross a number with other
    features. The result is categorical, and dense (one-hot) as well.

    Args:
      source_column: A `numeric_column` of at most one dimension.
      boundaries: The boundaries, ascending; n of them make n + 1 buckets. A bucket
        contains its lower boundary. Values are compared as float32.

    Returns:
      A column that is dense and categorical.

    Raises:
      FeatureError: The source is not a `numeric_column` or has several dimensions, or
        `boundaries` are empty or not ascending.

    Example:
      >>> from estimax import feature_columns as fc
      >>> age = fc.bucketized_column(fc.numeric_column("age"), [18, 65])
      >>> fc.DenseFeatures([age]).apply({}, {"age": [17.0, 18.0]}).tolist()
      [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
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
