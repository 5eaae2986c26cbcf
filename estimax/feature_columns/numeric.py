"""Numeric columns: the numbers of a feature, as they are or normalized."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
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
from estimax.core.sparse import Sparse
from estimax.feature_columns import transforms
from estimax.feature_columns.column import Features, ParseSpec, check_key
from estimax.feature_columns.transforms.texts import NumberFormat
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
