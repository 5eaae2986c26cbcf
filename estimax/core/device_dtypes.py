"""Conversions of numbers between the host (64 bits) and devices (32 bits).

    device_dtype(np.dtype("int64"))         # int32
    as_float32(np.array([1e300, 2.0]))      # [inf, 2.0], as TensorFlow's cast
    np.asarray(Words(ids, ("no", "yes")))   # array([b"yes", b"no"], dtype=object)

To the device: integers of 64 bits and uint32 are called wide, because their values may
not fit int32. That is checked only for features that the model reads on the device.

From the device: `Words` and `Int64` are pytrees of device arrays that become text and
int64 when they are converted to NumPy. A model returns them as predictions. `Forwarded`
stands for a raw feature among the predictions, which never reaches the device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

# Keyed by dtype, because reading the name of a dtype takes ten times as long.
_NARROWED: dict[np.dtype[Any], np.dtype[Any]] = {
    np.dtype(np.float64): np.dtype(np.float32),
    np.dtype(np.complex128): np.dtype(np.complex64),
    np.dtype(np.int64): np.dtype(np.int32),
    np.dtype(np.uint64): np.dtype(np.int32),
    np.dtype(np.uint32): np.dtype(np.int32),
}
# Plain integers: `np.iinfo` computes its limits anew at every access, which took
# longer than comparing a small batch with them.
_LOWEST, _HIGHEST = -(2**31), 2**31 - 1


def is_wide(dtype: np.dtype[Any] | str) -> bool:
    """Return whether integers of this dtype may not fit the int32 of a device.

    >>> is_wide("int64"), is_wide("uint16"), is_wide("float64")
    (True, False, False)
    """
    return _NARROWED.get(np.dtype(dtype)) == np.int32


def is_real(dtype: np.dtype[Any]) -> bool:
    """Return whether values are booleans, integers or floats, bfloat16 included."""
    return dtype.kind in "biuf" or (dtype.kind == "V" and dtype.type is not np.void)


def device_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype that values of `dtype` have on a device."""
    return _NARROWED.get(dtype, dtype)


def beyond_int32(values: NDArray[Any]) -> NDArray[Any]:
    """Return the integers of an array that do not fit int32, flat.

    >>> beyond_int32(np.array([3, 2**40]))
    array([1099511627776])
    """
    if not values.size or (values.min() >= _LOWEST and values.max() <= _HIGHEST):
        return values.reshape(-1)[:0]
    return values[(values < _LOWEST) | (values > _HIGHEST)]


def cast(values: Any, dtype: Any) -> NDArray[Any]:
    """Cast numbers without a warning; floats out of range become infinite.

    The result is that of TensorFlow's cast. NumPy alone would warn on every batch.
    """
    with np.errstate(over="ignore"):
        return np.asarray(values).astype(dtype, copy=False)


def as_float32(values: Any) -> NDArray[np.float32]:
    """Cast numbers to float32, as `cast` does."""
    return cast(values, np.float32)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Words:
    """An array of words: ids on the device, bytes when converted to NumPy.

    >>> np.asarray(Words(np.array([1, 0]), ("no", "yes"))).tolist()
    [b'yes', b'no']
    """

    ids: Any  # integer array of any shape
    vocabulary: tuple[str, ...] = field(metadata={"static": True})

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the array of words."""
        return tuple(self.ids.shape)

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        words = np.array([word.encode() for word in self.vocabulary], dtype=object)
        found: NDArray[Any] = words[np.asarray(self.ids)]
        return found


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Int64:
    """An array of integers: int32 on the device, int64 when converted to NumPy.

    tf.estimator returns class ids as int64, and clients rely on it.
    """

    values: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the array."""
        return tuple(self.values.shape)

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        return np.asarray(self.values).astype(np.int64)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Forwarded:
    """A raw feature that is an output as it is. It has no array on the device.

    `default` fills the empty places of a sparse feature; None if it is dense.
    """

    origin: Any = field(metadata={"static": True})  # of `staging`, a higher layer
    default: Any = field(default=None, metadata={"static": True})


def is_host_value(value: Any) -> bool:
    """Return whether a value differs on host and device; for `is_leaf` of a tree.

    It is `Words`, `Int64`, `Forwarded`, or a raw feature that stays on the host.
    """
    return isinstance(value, Words | Int64 | Forwarded) or hasattr(
        type(value), "stays_on_host"
    )


def materialize(tree: Any, forwarded: Mapping[Forwarded, Any] | None = None) -> Any:
    """Convert every leaf of a tree to NumPy; a `Forwarded` is the array given for it.

    >>> materialize({"a": Int64(np.ones(2)), "b": Forwarded("k")}, {Forwarded("k"): 7})
    {'a': array([1, 1]), 'b': array(7)}
    """
    given = forwarded or {}

    def convert(leaf: Any) -> NDArray[Any]:
        return np.asarray(given[leaf] if isinstance(leaf, Forwarded) else leaf)

    return jax.tree.map(convert, tree, is_leaf=is_host_value)
