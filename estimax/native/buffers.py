"""Memory that is used again: pools of lent buffers, and scratch arrays of a thread.

    pool = BufferPool(np.uint8)
    block = pool.take(1 << 20)        # as np.empty: its values are arbitrary

    scratch = Scratch()
    places = scratch.take("places", 3 * n)   # until the next take of that name

A large array that is freed goes back to the operating system, and the next one is paid
for page by page: for a batch that costs as much as parsing it.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

# Free buffers that a pool keeps: as many as an input's threads have under way.
_KEPT = 8
# A larger buffer is not kept: it would be felt in the process's memory.
_MOST_BYTES = 16 << 20


class _Lease:
    """The owner that every array and view of a lent buffer refers to.

    NumPy keeps the object that has `__array_interface__` alive as long as any array
    made from it, or any view of those, is alive. So a weak reference to the lease tells
    when nobody can reach the memory any more.
    """

    __slots__ = ("__array_interface__", "__weakref__", "_memory")

    def __init__(self, memory: NDArray[Any]) -> None:
        self._memory = memory
        self.__array_interface__ = memory.__array_interface__


class BufferPool:
    """Flat arrays of one dtype that are lent, and lent again once unreachable.

    Safe for several threads.
    """

    def __init__(self, dtype: DTypeLike) -> None:
        self._dtype = np.dtype(dtype)
        self._free: deque[NDArray[Any]] = deque(maxlen=_KEPT)

    def take(self, size: int) -> NDArray[Any]:
        """Return a flat array of `size` values, which are arbitrary."""
        memory = self._take_free(size)
        if memory is None:
            memory = np.empty(size, self._dtype)
        if not 0 < memory.nbytes <= _MOST_BYTES:
            return memory
        lease = _Lease(memory)
        array = np.asarray(lease)
        # Called when the lease is unreachable; until then it holds pool and memory.
        returned = weakref.finalize(lease, self._free.append, memory)
        returned.atexit = False
        return array

    def _take_free(self, size: int) -> NDArray[Any] | None:
        # One turn of the deque; other threads may take or return buffers meanwhile.
        for _ in range(len(self._free)):
            try:
                memory = self._free.popleft()
            except IndexError:
                return None
            if len(memory) == size:
                return memory
            self._free.append(memory)
        return None


class Scratch(threading.local):
    """Named int64 arrays of each thread, for use within one call.

    The next `take` of a name in the same thread returns the same memory, so nothing
    that outlives the call may refer to it.
    """

    def __init__(self) -> None:
        self._kept: dict[str, NDArray[np.int64]] = {}

    def take(self, name: str, size: int) -> NDArray[np.int64]:
        """Return an array of `size` integers, which are arbitrary."""
        kept = self._kept.get(name)
        if kept is None or len(kept) < size:
            kept = self._kept[name] = np.empty(size, np.int64)
        return kept[:size]
