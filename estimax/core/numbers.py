"""NumPy numbers on their way to a device, which computes with 32 bits.

    device_dtype(np.dtype("int64"))         # int32
    as_float32(np.array([1e300, 2.0]))      # [inf, 2.0], as TensorFlow's cast

Integers of 64 bits (and uint32) are called wide: their values may not fit int32, which
is checked only for features that the model reads on the device.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

# Keyed by dtype: to ask a dtype for its name takes ten times as long.
_NARROWED: dict[np.dtype[Any], np.dtype[Any]] = {
    np.dtype(np.float64): np.dtype(np.float32),
    np.dtype(np.complex128): np.dtype(np.complex64),
    np.dtype(np.int64): np.dtype(np.int32),
    np.dtype(np.uint64): np.dtype(np.int32),
    np.dtype(np.uint32): np.dtype(np.int32),
}
_INT32 = np.iinfo(np.int32)


def is_wide(dtype: np.dtype[Any] | str) -> bool:
    """Whether integers of this dtype may not fit the int32 of a device.

    >>> is_wide("int64"), is_wide("uint16"), is_wide("float64")
    (True, False, False)
    """
    return _NARROWED.get(np.dtype(dtype)) == np.int32


def is_real(dtype: np.dtype[Any]) -> bool:
    """Whether values are booleans, integers or floats, jax's bfloat16 among them."""
    return dtype.kind in "biuf" or (dtype.kind == "V" and dtype.type is not np.void)


def device_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype that values of `dtype` have on a device."""
    return _NARROWED.get(dtype, dtype)


def beyond_int32(values: NDArray[Any]) -> NDArray[Any]:
    """The integers of an array that int32 cannot hold, flat.

    >>> beyond_int32(np.array([3, 2**40]))
    array([1099511627776])
    """
    if not values.size or (values.min() >= _INT32.min and values.max() <= _INT32.max):
        return values.reshape(-1)[:0]
    return values[(values < _INT32.min) | (values > _INT32.max)]


def cast(values: Any, dtype: Any) -> NDArray[Any]:
    """Cast numbers; floats beyond the range of `dtype` become infinite.

    TensorFlow's cast does the same. NumPy would also warn, on every batch.
    """
    with np.errstate(over="ignore"):
        return np.asarray(values).astype(dtype, copy=False)


def as_float32(values: Any) -> NDArray[np.float32]:
    """Cast numbers to float32, as `cast` does."""
    return cast(values, np.float32)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Words:
    """Class names: `ids` on the device, the word of each id on the host."""

    ids: Any  # integer array of any shape
    vocabulary: tuple[str, ...] = field(metadata={"static": True})

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array of words."""
        return tuple(self.ids.shape)

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        words = np.array([word.encode() for word in self.vocabulary], dtype=object)
        found: NDArray[Any] = words[np.asarray(self.ids)]
        return found


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Int64:
    """Integers promised as int64 outside, computed as int32 inside."""

    values: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return tuple(self.values.shape)

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        return np.asarray(self.values).astype(np.int64)


def is_host_value(value: Any) -> bool:
    """Whether a value is one of this file's, which trees should treat as a leaf."""
    return isinstance(value, Words | Int64)


def materialize(tree: Any) -> Any:  # the same tree with NumPy leaves
    """Turn every leaf into NumPy, words and int64 included."""
    return jax.tree.map(np.asarray, tree, is_leaf=is_host_value)
