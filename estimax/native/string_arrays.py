"""Check `Strings` before compiled code reads them, and gather them by row number.

    data, offsets = text_of(strings)             # contiguous, of the right dtypes
    gather(strings, np.array([2, 0]))

Compiled code reads the arrays through addresses and does not check their dtypes.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import InputError
from estimax.core.strings import Strings
from estimax.native import loading

_BYTE, _WIDE = np.dtype(np.uint8), np.dtype(np.int64)


def text_of(strings: Strings) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return data and offsets as contiguous arrays of uint8 [n] and int64 [count + 1].

    The kernel checks that each string is within the data, because it reads every offset
    anyway.

    Raises:
      InputError: An array has another dtype or rank.
    """
    data, offsets = strings.data, strings.offsets
    if data.dtype != _BYTE or data.ndim != 1:
        raise InputError(
            f"Strings: data must be bytes, uint8 [n]; got {data.dtype} {data.shape}."
        )
    if offsets.dtype != _WIDE or offsets.ndim != 1 or not len(offsets):
        raise InputError(
            "Strings: offsets must be int64 [count + 1]; "
            f"got {offsets.dtype} {offsets.shape}."
        )
    if not data.flags.c_contiguous:
        data = np.ascontiguousarray(data)
    if not offsets.flags.c_contiguous:
        offsets = np.ascontiguousarray(offsets)
    return data, offsets


def check_spans(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> None:
    """Raise `InputError` if a string is not within the data; reads all offsets."""
    bad = (offsets[:-1] < 0) | (offsets[1:] < offsets[:-1]) | (offsets[1:] > len(data))
    if bad.any():
        raise outside(data, offsets, int(bad.argmax()))


def outside(
    data: NDArray[np.uint8], offsets: NDArray[np.int64], place: int
) -> InputError:
    """Return the error for a string that is not within its data."""
    start, end = offsets[place], offsets[place + 1]
    return InputError(
        f"Strings: offsets must increase and stay within the {len(data)} bytes of "
        f"data; string {place} begins at {start} and ends at {end}."
    )


def gather(strings: Strings, index: NDArray[np.integer[Any]]) -> Strings:
    """Return the strings of rank 1 at the rows of `index`, in that order.

    Raises:
      IndexError: A row is negative or beyond the last one.
      InputError: The offsets of the strings do not increase within their data.

    >>> gather(Strings.of(["a", "bc", "d"]), np.array([2, 0])).tolist()
    [b'd', b'a']
    """
    index = np.ascontiguousarray(index, np.int64).reshape(-1)
    if len(index) and not 0 <= index.min() <= index.max() < strings.size:
        raise IndexError(f"rows must be in [0, {strings.size})")
    data, offsets = text_of(strings)
    kernels = _kernels()
    if kernels is None:
        check_spans(data, offsets)
        taken: Strings = strings.reshape((-1,))[index]
        return taken
    out_offsets = np.empty(len(index) + 1, np.int64)
    total = kernels.measure_gathered(offsets, index, len(data), out_offsets)
    if total < 0:
        raise outside(data, offsets, -1 - total)
    # Eight spare bytes, because the kernel copies eight bytes at a time.
    out = np.empty(total + 8, np.uint8)
    kernels.gather(data, offsets, index, out_offsets, out)
    return Strings(out, out_offsets, (len(index),))


def _kernels() -> ModuleType | None:
    return loading.kernels("gathering", _agrees)


def _agrees(kernels: ModuleType) -> bool:
    """Return whether strings shorter and longer than eight bytes are copied whole."""
    words = Strings.of([b"", b"a", b"eight by", b"more than eight bytes", b"end"])
    index = np.array([3, 0, 4, 2, 2, 1, 4])
    offsets, out = np.empty(len(index) + 1, np.int64), np.empty(100, np.uint8)
    total = kernels.measure_gathered(words.offsets, index, len(words.data), offsets)
    kernels.gather(words.data, words.offsets, index, offsets, out)
    expected = [words[i] for i in index.tolist()]
    found = Strings(out, offsets, (len(index),)).tolist()
    return bool(total == offsets[-1]) and found == expected
