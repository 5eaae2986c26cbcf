"""The string hash of TensorFlow's columns, the same bits for ever.

    fingerprint64(Strings.of(["hello"]))      # array([0xb48be5a931380ce8], uint64)

Fingerprint64 is FarmHash's "na" 64-bit variant; saved models depend on every bit of it.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from estimax.core.strings import Strings
from estimax.transforms.compiled import kernels

Hashes = NDArray[np.uint64]


def fingerprint64(strings: Strings | ArrayLike) -> Hashes:
    """Hash every string; integers are hashed as their decimal text.

    >>> hex(fingerprint64(Strings.of(["hello"]))[0])
    '0xb48be5a931380ce8'
    """
    if not isinstance(strings, Strings):
        array = np.asarray(strings)
        if array.dtype.kind in "iu":
            return _of_integers(array)
        strings = Strings.of(strings)
    out = np.empty(strings.size, np.uint64)
    kernels().fingerprints(strings.data, strings.offsets, out)
    return out.reshape(strings.shape)


def _of_integers(values: NDArray[np.integer]) -> Hashes:
    out = np.empty(values.size, np.uint64)
    flat = np.ascontiguousarray(values.reshape(-1), np.int64)
    kernels().int_fingerprints(flat, out)
    return out.reshape(values.shape)


def fingerprint_cat64(first: Hashes, second: Hashes) -> Hashes:
    """Combine hashes pair by pair (FingerprintCat64); the order matters.

    >>> one, two = np.array([1], np.uint64), np.array([2], np.uint64)
    >>> bool(fingerprint_cat64(one, two)[0] == fingerprint_cat64(two, one)[0])
    False
    """
    a, b = np.broadcast_arrays(np.asarray(first, np.uint64), np.uint64(second))
    out = np.empty(a.size, np.uint64)
    flat_a, flat_b = (np.ascontiguousarray(x.reshape(-1)) for x in (a, b))
    kernels().concatenated(flat_a, flat_b, out)
    return out.reshape(a.shape)
