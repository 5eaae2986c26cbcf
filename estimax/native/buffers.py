"""Arrays that are used again once nobody refers to them any more.

    buffers = Recycled(np.uint8)
    block = buffers.take(1 << 20)     # as np.empty: anything may be in it

A large array that is freed goes back to the operating system, and the next one is paid
for page by page: a batch's worth costs as much as parsing it. One that is still
referred to, by a view as well, is never handed out.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

# As many as are under way between the threads of an input; none that is so large that
# keeping it would be felt.
_KEPT, _MOST_BYTES = 8, 16 << 20
# The list's own, the loop variable's and getrefcount's argument.
_OURS = 3


class Recycled:
    """Arrays of one dtype, for one thread at a time."""

    def __init__(self, dtype: DTypeLike) -> None:
        self._dtype = np.dtype(dtype)
        self._kept: list[NDArray[Any]] = []

    def take(self, size: int) -> NDArray[Any]:
        """A flat array of so many values, not set."""
        for array in self._kept:
            if len(array) == size and sys.getrefcount(array) == _OURS:
                return array
        array = np.empty(size, self._dtype)
        if array.nbytes <= _MOST_BYTES:
            self._kept = [*self._kept[1 - _KEPT :], array]
        return array
