"""Large pages of memory under large tables, where Linux has them to give.

A batch reads rows all over a table. In pages of 4 KB, finding out where a row is takes
the processor longer than reading it, the more so the larger the table: with tables of
1,000,000 rows a step took a tenth longer.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import jax

_PAGE = 2 << 20
# Of `madvise`: large pages when they can be had; and those of now put together at once
# (since Linux 6.1; an older one does so in the background).
_ADVICE = (14, 25)


def ask_for_large_pages(tree: Any) -> None:  # a tree of arrays
    """Have the arrays of some megabytes that lie in this machine's memory moved.

    Their values and addresses stay. Nothing happens where this is unknown or forbidden.
    """
    if sys.platform != "linux":
        return
    for array in jax.tree.leaves(tree):
        if array.nbytes < 2 * _PAGE or not array.is_fully_addressable:
            continue
        for part in array.addressable_shards:
            if part.device.platform == "cpu":
                _advise(part.data.unsafe_buffer_pointer(), part.data.nbytes)


def _advise(address: int, size: int) -> None:
    # Whole pages of the array alone.
    start = -(-address // _PAGE) * _PAGE
    length = (address + size) // _PAGE * _PAGE - start
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for advice in _ADVICE:
        if length <= 0 or madvise(start, length, advice) != 0:
            return  # it was only advice
