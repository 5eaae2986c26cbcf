"""Find the distinct ids of each row, and the place of each id among them."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.native import loading

_Ids = NDArray[np.int32]


def distinct_ids(ids: _Ids, limits: _Ids) -> tuple[_Ids, _Ids]:
    """Return the sorted distinct ids of each row, and every id's place among them.

    Args:
      ids: [R, S]; negative ids are missing.
      limits: [R], the values that pad the distinct ids of each row.

    Returns:
      Two arrays [R, S]: the distinct ids, padded; and the index of each id among them,
      or -1 if it is missing.

    >>> distinct_ids(np.array([[7, 3, 7, -1]], np.int32), np.array([9], np.int32))
    (array([[3, 7, 9, 9]], dtype=int32), array([[ 1,  0,  1, -1]], dtype=int32))
    """
    if ids.ndim != 2 or limits.shape != (len(ids),):
        raise ValueError(f"expected ids [R, S], limits [R]; got {limits.shape}")
    ids, limits = np.asarray(ids, np.int32), np.ascontiguousarray(limits, np.int32)
    packed, shift = _pack_ids(ids, limits)
    packed.sort(axis=1)
    kernels = loading.kernels("distinct", _agrees)
    if kernels is None:
        return _by_numpy(packed, shift, limits)
    distinct, places = np.empty((2, *ids.shape), np.int32)
    kernels.number_distinct(packed, shift, limits, distinct, places)
    return distinct, places


def _pack_ids(ids: _Ids, limits: _Ids) -> tuple[NDArray[Any], int]:
    """Return `id << shift | position` for each id, and the shift.

    Sorting these integers also sorts the positions. It is several times faster than an
    argsort, which NumPy does not vectorise. 32 bits are used if they suffice.
    """
    size = ids.shape[1]
    shift = max(size - 1, 1).bit_length()
    largest = max(int(limits.max(initial=0)), int(ids.max(initial=0)))
    fits = largest.bit_length() + shift < 32
    wide = np.dtype(np.int32 if fits else np.int64)
    packed = np.left_shift(ids, shift, dtype=wide)
    packed |= np.arange(size, dtype=wide)
    return packed, shift


def _by_numpy(packed: NDArray[Any], shift: int, limits: _Ids) -> tuple[_Ids, _Ids]:
    """Return what the kernel computes, in NumPy; `packed` is sorted."""
    found, positions = packed >> shift, packed & ((1 << shift) - 1)
    is_id = found >= 0
    is_first = is_id.copy()
    is_first[:, 1:] &= found[:, 1:] != found[:, :-1]
    rank = is_first.cumsum(axis=1, dtype=np.int32) - 1
    distinct = np.repeat(limits[:, None], packed.shape[1], axis=1)
    rows = np.broadcast_to(np.arange(len(packed))[:, None], packed.shape)
    distinct[rows[is_first], rank[is_first]] = found[is_first]
    places = np.empty(packed.shape, np.int32)
    places[rows, positions] = np.where(is_id, rank, -1)
    return distinct, places


def _agrees(kernels: ModuleType) -> bool:
    """Return whether the kernel agrees with NumPy on repeated and missing ids."""
    ids = np.array([[5, 2, 5, -1, 0], [-1, -1, -1, -1, -1], [4, 3, 2, 1, 0]], np.int32)
    for limit in (7, 2**30):  # packed into 32 and into 64 bits
        limits = np.full(len(ids), limit, np.int32)
        packed, shift = _pack_ids(ids, limits)
        packed.sort(axis=1)
        found = np.empty((2, *ids.shape), np.int32)
        kernels.number_distinct(packed, shift, limits, found[0], found[1])
        if not np.array_equal(found, np.stack(_by_numpy(packed, shift, limits))):
            return False
    return True
