"""Checks of `Strings` before compiled code reads them through addresses."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import InputError
from estimax.core.strings import Strings

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
