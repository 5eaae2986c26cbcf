"""Numbers as they are, or normalized."""

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

from estimax import staging, transforms
from estimax.core.errors import FeatureError, did_you_mean
from estimax.core.parse_spec import STRING, FixedLenFeature, dtype_name
from estimax.core.raw_values import as_raw
from estimax.core.sparse import Ids, Sparse
from estimax.feature_columns.column import Features, ParseSpec, check_key
from estimax.feature_columns.lookup import count
from estimax.staging.plan import as_device_dtype
from estimax.staging.recording import HostOnly, Origin

Default = Any  # None, a number, or nested tuples of numbers


@dataclass(frozen=True)
class NumericColumn:
    """A dense column of numbers; see `numeric_column`."""

    key: str
    shape: tuple[int, ...]
    default_value: Default
    dtype: str
    normalizer_fn: Callable[[Any], Any] | None

    @property
    def name(self) -> str:
        """The key."""
        return self.key

    @property
    def variable_shape(self) -> tuple[int, ...]:
        """The shape given."""
        return self.shape

    @property
    def parse_example_spec(self) -> ParseSpec:
        """A feature of fixed length."""
        return {self.key: FixedLenFeature(self.shape, self.dtype, self.default_value)}

    def values(self, features: Features) -> jax.Array:
        """The numbers, normalized, as float32 [B, N]."""
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
        """The raw feature; integers of 64 bits as the float32 that they become.

        A `normalizer_fn` works on raw integers, so for one these must fit 32 bits.
        `Scaling` gives the same result for floats.
        """
        floats = isinstance(self.normalizer_fn, transforms.Scaling | None)
        if floats and staging.is_wide(features.get(self.key)):
            staged: jax.Array = staging.stage(transforms.Numbers(self.key), features)
            return staged
        return dense_feature(features, self.key)

    def block(self, layer: nn.Module, features: Features, trainable: bool) -> jax.Array:
        """The numbers; there are no variables."""
        return self.values(features)


def numeric_column(
    key: str,
    shape: int | Iterable[int] = (1,),
    default_value: Default = None,
    dtype: Any = "float32",
    normalizer_fn: Callable[[Any], Any] | None = None,
) -> NumericColumn:
    """Numbers of one feature, as float32 after `normalizer_fn`.

    `dtype` and `default_value` matter when Examples are parsed only. The normalizer
    runs on the device, on the raw dtype.

    >>> numeric_column("pixels", shape=[2, 3]).variable_shape
    (2, 3)
    """
    check_key(key, "numeric_column")
    checked_shape = _checked_shape(key, shape)
    name = _checked_dtype(key, dtype)
    default = _checked_default(key, default_value, checked_shape, name)
    if normalizer_fn is not None and not callable(normalizer_fn):
        raise TypeError(
            f"numeric_column {key!r}: normalizer_fn must be callable, got "
            f"{normalizer_fn!r}."
        )
    return NumericColumn(key, checked_shape, default, name, normalizer_fn)


def dense_feature(features: Features, key: str) -> jax.Array:
    """A dense numeric feature on the device, of rank 2 or more."""
    if key not in features:
        near = did_you_mean(key, [str(k) for k in features])
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
        "Parse it as FixedLenFeature, or use a categorical column."
    )


def _checked_shape(key: str, shape: int | Iterable[int]) -> tuple[int, ...]:
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


def _checked_dtype(key: str, dtype: Any) -> str:
    name = dtype_name(dtype)
    # Asked of jnp: NumPy does not take bfloat16 and its like for numbers.
    kinds = (jnp.integer, jnp.floating)
    if name == STRING or not any(jnp.issubdtype(jnp.dtype(name), k) for k in kinds):
        raise FeatureError(
            f"numeric_column {key!r}: dtype must be an integer or a float, got {name}."
        )
    return name


def _checked_default(
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
    return _nested(np.broadcast_to(array, shape).tolist())


def _nested(values: Any) -> Any:
    return tuple(map(_nested, values)) if isinstance(values, list) else values


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
