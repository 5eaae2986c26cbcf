"""The string hash of TensorFlow's columns, the same bits for ever.

    fingerprint64(Strings.of(["hello"]))      # array([0xb48be5a931380ce8], uint64)

Fingerprint64 is FarmHash's "na" 64-bit variant; saved models depend on every bit of it.
"""

from collections.abc import Mapping
from types import ModuleType

import numpy as np
from numpy.typing import ArrayLike, NDArray

from estimax.core.strings import Strings
from estimax.native import loading
from estimax.native.buffers import Scratch

Hashes = NDArray[np.uint64]
_scratch = Scratch()


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
    _kernels().fingerprints(strings.data, strings.offsets, out)
    return out.reshape(strings.shape)


def _of_integers(values: NDArray[np.integer]) -> Hashes:
    out = np.empty(values.size, np.uint64)
    flat = np.ascontiguousarray(values.reshape(-1), np.int64)
    _kernels().int_fingerprints(flat, out)
    return out.reshape(values.shape)


def hash_buckets(
    columns: Mapping[str, Strings], num_buckets: int | Mapping[str, int]
) -> dict[str, NDArray[np.int64]]:
    """The bucket of every string of several columns, `tf.strings.to_hash_bucket_fast`.

    One call of compiled code hashes them all: for the columns of a batch, which take a
    few microseconds each, that is faster than a call each, above all in threads.

    >>> hash_buckets({"city": Strings.of(["Oslo", "Rome"])}, 1000)
    {'city': array([578, 349])}
    """
    texts = list(columns.values())
    if not texts:
        return {}
    data, shifts = texts[0].data, np.zeros(len(texts), np.int64)
    if any(text.data is not data for text in texts):  # a parser's columns share it
        starts = np.array([int(text.offsets[0]) for text in texts])
        parts = [text.data[text.offsets[0] : text.offsets[-1]] for text in texts]
        data, ends = np.concatenate(parts), np.cumsum([len(part) for part in parts])
        shifts[1:] = ends[:-1]
        shifts -= starts
    if isinstance(num_buckets, Mapping):
        sizes = np.array([num_buckets[key] for key in columns], np.uint64)
    else:
        sizes = np.full(len(texts), num_buckets, np.uint64)
    counts = np.array([len(text.offsets) - 1 for text in texts])
    offsets = _scratch.take("offsets", int(counts.sum()) + len(texts))
    np.concatenate([text.offsets for text in texts], out=offsets)
    flat = np.empty(len(offsets) - len(texts), np.int64)
    _kernels().hash_columns(data, offsets, shifts, counts, sizes, flat)
    shapes = [text.shape for text in texts]
    if shapes.count(shapes[0]) == len(shapes):
        return dict(zip(columns, flat.reshape((-1, *shapes[0])), strict=True))
    cut = np.split(flat, np.cumsum(counts)[:-1])
    shaped = zip(columns, cut, shapes, strict=True)
    return {key: ids.reshape(shape) for key, ids, shape in shaped}


def fingerprint_cat64(first: Hashes, second: Hashes) -> Hashes:
    """Combine hashes pair by pair (FingerprintCat64); the order matters.

    >>> one, two = np.array([1], np.uint64), np.array([2], np.uint64)
    >>> bool(fingerprint_cat64(one, two)[0] == fingerprint_cat64(two, one)[0])
    False
    """
    a, b = np.broadcast_arrays(np.asarray(first, np.uint64), np.uint64(second))
    out = np.empty(a.size, np.uint64)
    flat_a, flat_b = (np.ascontiguousarray(x.reshape(-1)) for x in (a, b))
    _kernels().concatenated(flat_a, flat_b, out)
    return out.reshape(a.shape)


def _kernels() -> ModuleType:
    return loading.load("estimax.native.kernels.hashing")
