"""The string hash of TensorFlow's columns; it never changes.

    fingerprint64(Strings.of(["hello"]))      # array([0xb48be5a931380ce8], uint64)

Fingerprint64 is FarmHash's "na" 64-bit variant; saved models depend on every bit of it.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from estimax.core.strings import Strings
from estimax.native import hashing
from estimax.native.hashing import Hashes


def fingerprint64(strings: Strings | ArrayLike) -> Hashes:
    """Hash every string with TensorFlow's Fingerprint64 (FarmHash).

    Use it to compute ids outside of columns, for example to split data by a user's id.

    Args:
      strings: Strings of any shape; integers are hashed as decimal text.

    Returns:
      uint64 hashes of the same shape.

    Example:
      >>> hex(fingerprint64(Strings.of(["hello"]))[0])
      '0xb48be5a931380ce8'
    """
    if not isinstance(strings, Strings):
        array = np.asarray(strings)
        if array.dtype.kind in "iu":
            return hashing.integer_fingerprints(array).reshape(array.shape)
        strings = Strings.of(strings)
    return hashing.fingerprints(strings).reshape(strings.shape)


def hash_buckets(
    columns: Mapping[str, Strings], num_buckets: int | Mapping[str, int]
) -> dict[str, NDArray[np.int64]]:
    """Return the hash bucket of every string of several columns.

    The ids are those of `tf.strings.to_hash_bucket_fast`. Use it in an input function
    that hashes many columns: one compiled call for all of them is faster than one call
    per column, which takes only a few microseconds, most of all in threads.

    Args:
      columns: Strings by feature, of any shape.
      num_buckets: The number of buckets, the same for all or by feature.

    Returns:
      int64 ids in [0, num_buckets) by feature, of the same shapes.

    Example:
      >>> hash_buckets({"city": Strings.of(["Oslo", "Rome"])}, 1000)
      {'city': array([578, 349])}
    """
    texts = list(columns.values())
    if not texts:
        return {}
    if isinstance(num_buckets, Mapping):
        sizes = [num_buckets[key] for key in columns]
    else:
        sizes = [num_buckets] * len(texts)
    found = hashing.hash_columns(texts, sizes)
    shaped = zip(columns, found, texts, strict=True)
    return {
        key: ids if len(text.shape) == 1 else ids.reshape(text.shape)
        for key, ids, text in shaped
    }


def fingerprint_cat64(first: Hashes, second: Hashes) -> Hashes:
    """Combine hashes pair by pair with TensorFlow's FingerprintCat64.

    Crosses combine the hashes of their parts in this way. The order matters.

    Args:
      first: uint64 hashes.
      second: uint64 hashes, of a shape that broadcasts with `first`.

    Returns:
      The combined uint64 hashes.

    Example:
      >>> one, two = np.array([1], np.uint64), np.array([2], np.uint64)
      >>> bool(fingerprint_cat64(one, two)[0] == fingerprint_cat64(two, one)[0])
      False
    """
    a, b = np.broadcast_arrays(np.asarray(first, np.uint64), np.uint64(second))
    return hashing.concatenated(a, b).reshape(a.shape)
