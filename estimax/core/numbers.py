"""NumPy numbers on their way to a device, which computes with 32 bits.

    device_dtype(np.dtype("int64"))         # int32
    as_float32(np.array([1e300, 2.0]))      # [inf, 2.0], as TensorFlow's cast

Integers of 64 bits (and uint32) are called wide: their values may not fit int32, which
is checked only for features that the model reads on the device.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_NARROWED = {
    "float64": "float32",
    "complex128": "complex64",
    "int64": "int32",
    "uint64": "int32",
    "uint32": "int32",
}
_INT32 = np.iinfo(np.int32)


def is_wide(dtype: np.dtype[Any] | str) -> bool:
    """Whether integers of this dtype may not fit the int32 of a device.

    >>> is_wide("int64"), is_wide("uint16"), is_wide("float64")
    (True, False, False)
    """
    return _NARROWED.get(np.dtype(dtype).name) == "int32"


def device_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype that values of `dtype` have on a device."""
    return np.dtype(_NARROWED.get(dtype.name, dtype))


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
