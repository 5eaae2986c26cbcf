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

    def __init__(self, memory: NDArray[Any], interface: dict[str, Any]) -> None:
        self._memory = memory
        self.__array_interface__ = interface


class _Loan(weakref.ref[_Lease]):
    """A weak reference to a lease, with what goes back to the pool when it ends."""

    __slots__ = ("interface", "memory")

    memory: NDArray[Any]
    interface: dict[str, Any]


class BufferPool:
    """Flat arrays of one dtype that are lent, and lent again once unreachable.

    Safe for several threads.
    """

    def __init__(self, dtype: DTypeLike) -> None:
        self._dtype = np.dtype(dtype)
        # Each with its `__array_interface__`, which takes NumPy longer to build than
        # all the rest of a loan.
        self._free: deque[tuple[NDArray[Any], dict[str, Any]]] = deque(maxlen=_KEPT)
        self._loans: set[_Loan] = set()  # a weak reference must be kept to be called

    def take(self, size: int) -> NDArray[Any]:
        """Return a flat array of `size` values, which are arbitrary."""
        found = self._take_free(size)
        if found is None:
            memory = np.empty(size, self._dtype)
            if not 0 < memory.nbytes <= _MOST_BYTES:
                return memory
            found = memory, memory.__array_interface__
        lease = _Lease(*found)
        loan = _Loan(lease, self._return)
        loan.memory, loan.interface = found
        self._loans.add(loan)
        return np.asarray(lease)

    def _return(self, loan: Any) -> None:
        """Take a buffer back; called with the `_Loan` whose lease is unreachable."""
        self._loans.discard(loan)
        self._free.append((loan.memory, loan.interface))

    def _take_free(self, size: int) -> tuple[NDArray[Any], dict[str, Any]] | None:
        # One turn of the deque; other threads may take or return buffers meanwhile.
        for _ in range(len(self._free)):
            try:
                found = self._free.popleft()
            except IndexError:
                return None
            if len(found[0]) == size:
                return found
            self._free.append(found)
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
