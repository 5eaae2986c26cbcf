"""Reuse of memory: `BufferPool` for arrays that leave a function, `Scratch` for others.

    pool = BufferPool(np.uint8)
    block = pool.take(1 << 20)        # as np.empty: its values are arbitrary

    scratch = Scratch()
    places = scratch.take("places", 3 * n)   # valid until the next take of that name

A large array that is freed is returned to the operating system, and the next one causes
a page fault for each of its pages. For a batch, that takes as long as parsing it.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

# Free buffers that a pool keeps: about as many as the threads of an input use at once.
_KEPT = 8
# Larger buffers are not kept, to bound the memory that a pool holds to 128 MB.
_MOST_BYTES = 16 << 20


class _Lease:
    """The owner of a buffer in use, which all its arrays and views refer to.

    NumPy keeps the object that has `__array_interface__` alive as long as an array made
    from it, or a view of one, is alive. So a weak reference to the lease tells when the
    memory is no longer in use.
    """

    __slots__ = ("__array_interface__", "__weakref__", "_memory")

    def __init__(self, memory: NDArray[Any], interface: dict[str, Any]) -> None:
        self._memory = memory
        self.__array_interface__ = interface


class _Loan(weakref.ref[_Lease]):
    """A weak reference to a lease, with the buffer that returns to the pool then."""

    __slots__ = ("interface", "memory")

    memory: NDArray[Any]
    interface: dict[str, Any]


class BufferPool:
    """A pool of flat arrays of one dtype, whose memory is reused when out of use.

    Safe for several threads.
    """

    def __init__(self, dtype: DTypeLike) -> None:
        self._dtype = np.dtype(dtype)
        # Each buffer is kept with its `__array_interface__`, which NumPy takes longer
        # to build than everything else in `take`.
        self._free: deque[tuple[NDArray[Any], dict[str, Any]]] = deque(maxlen=_KEPT)
        # A weak reference must be alive itself for its callback to be called.
        self._loans: set[_Loan] = set()

    def take(self, size: int) -> NDArray[Any]:
        """Return a flat array of `size` values, which are not initialised."""
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
        """Take a buffer back; called with the `_Loan` whose lease was freed."""
        self._loans.discard(loan)
        self._free.append((loan.memory, loan.interface))

    def _take_free(self, size: int) -> tuple[NDArray[Any], dict[str, Any]] | None:
        # Rotate through the deque once. Other threads may change it at the same time;
        # each operation on a deque is atomic.
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
    """Named int64 arrays of each thread, for use within one function call.

    The next `take` of a name in the same thread returns the same memory, so the arrays
    must not be returned or stored.
    """

    def __init__(self) -> None:
        self._kept: dict[str, NDArray[np.int64]] = {}

    def take(self, name: str, size: int) -> NDArray[np.int64]:
        """Return an array of `size` integers, which are not initialised."""
        kept = self._kept.get(name)
        if kept is None or len(kept) < size:
            kept = self._kept[name] = np.empty(size, np.int64)
        return kept[:size]
