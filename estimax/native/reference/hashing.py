"""TensorFlow's string hash, in NumPy: FarmHash's "na" 64-bit fingerprint.

Strings are flat bytes with the start and the length of each. All strings to which the
same formula applies are hashed at once, with an array operation for each step of the
algorithm. `kernels/hashing.py` explains the algorithm.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# The id of a missing value. -1 is an id of its own: an unknown word.
MISSING = np.int64(-(2**63))

_Words = NDArray[np.uint64]
_Int64s = NDArray[np.int64]

_K0 = np.uint64(0xC3A5C85C97CB3127)
_K1 = np.uint64(0xB492B66FBE98F273)
_K2 = np.uint64(0x9AE16A3B2F90404F)
_CAT = np.uint64(0xC6A4A7935BD1E995)


def fingerprints(data: NDArray[np.uint8], starts: _Int64s, lengths: _Int64s) -> _Words:
    """Return the fingerprint of every string.

    >>> text = np.frombuffer(b"hello", np.uint8)
    >>> hex(fingerprints(text, np.array([0]), np.array([5]))[0])
    '0xb48be5a931380ce8'
    """
    out = np.full(len(starts), _K2, np.uint64)  # of an empty string
    # Padded, because loads at the end of the data would read beyond it.
    padded = np.concatenate([data, np.zeros(8, np.uint8)])
    classes = (
        (1, 3, _up_to_3),
        (4, 7, _up_to_7),
        (8, 16, _up_to_16),
        (17, 32, _up_to_32),
        (33, 64, _up_to_64),
        (65, np.inf, _over_64),
    )
    for least, most, hash_all in classes:
        which = np.flatnonzero((lengths >= least) & (lengths <= most))
        if len(which):
            out[which] = hash_all(padded, starts[which], lengths[which])
    return out


def integer_fingerprints(values: _Int64s) -> _Words:
    """Return the fingerprint of every integer's decimal text."""
    text = values.astype("S20")  # the longest has 20 characters
    starts = 20 * np.arange(len(values), dtype=np.int64)
    lengths = np.char.str_len(text).astype(np.int64)
    return fingerprints(text.view(np.uint8), starts, lengths)


def concatenated(a: _Words, b: _Words) -> _Words:
    """Return FingerprintCat64 of every pair."""
    r = (a ^ _CAT) ^ (_fold(b * _CAT) * _CAT)
    folded: _Words = _fold(_fold(r * _CAT) * _CAT)
    return folded


def cross_rows(
    values: _Words, starts: _Int64s, seed: int, size: int, out_starts: _Int64s
) -> _Int64s:
    """Hash every combination of one value per key, row by row, last key fastest.

    The values of key k in row r are `values[starts[k, r]:starts[k, r + 1]]`; the ids of
    row r are `out[out_starts[r]:out_starts[r + 1]]`.
    """
    counts = np.diff(starts, axis=1)  # [K, R]
    rows = np.repeat(np.arange(counts.shape[1]), np.diff(out_starts))
    rest = np.arange(len(rows)) - out_starts[rows]  # number of the combination
    hashed = np.full(len(rows), seed, np.uint64)
    # after[k, r] is the number of combinations of the keys behind k in row r. Dividing
    # the number of a combination by it gives the value of key k.
    after = np.cumprod(counts[::-1], axis=0)[::-1] // np.maximum(counts, 1)
    for k in range(len(starts)):
        step = np.maximum(after[k, rows], 1)
        which, rest = rest // step, rest % step
        hashed = concatenated(hashed, values[starts[k, rows] + which])
    return (hashed % np.uint64(size)).astype(np.int64)


def _load(data: NDArray[np.uint8], at: _Int64s, size: int = 8) -> _Words:
    """Return the little-endian number in the `size` bytes at each position."""
    bytes_ = np.zeros((len(at), 8), np.uint8)
    bytes_[:, :size] = data[at[:, None] + np.arange(size)]
    return bytes_.view("<u8").reshape(-1).astype(np.uint64)


def _shift_right(v: _Words, by: int) -> _Words:
    return v << np.uint64(by)


def _rotate(v: _Words, by: int) -> _Words:
    return (v >> np.uint64(by)) | (v << np.uint64(64 - by))


def _fold(v: _Words) -> _Words:
    return v ^ (v >> np.uint64(47))


def _mix(u: _Words, v: _Words, m: _Words) -> _Words:
    a = _fold((u ^ v) * m)
    return _fold((v ^ a) * m) * m


def _factor(n: _Int64s) -> _Words:
    return _K2 + n.astype(np.uint64) * np.uint64(2)


def _up_to_3(data: NDArray[np.uint8], s: _Int64s, n: _Int64s) -> _Words:
    y = _load(data, s, 1) + _shift_right(_load(data, s + n // 2, 1), 8)
    z = n.astype(np.uint64) + _shift_right(_load(data, s + n - 1, 1), 2)
    return _fold((y * _K2) ^ (z * _K0)) * _K2


def _up_to_7(data: NDArray[np.uint8], s: _Int64s, n: _Int64s) -> _Words:
    first = n.astype(np.uint64) + _shift_right(_load(data, s, 4), 3)
    return _mix(first, _load(data, s + n - 4, 4), _factor(n))


def _up_to_16(data: NDArray[np.uint8], s: _Int64s, n: _Int64s) -> _Words:
    m = _factor(n)
    a = _load(data, s) + _K2
    b = _load(data, s + n - 8)
    return _mix(_rotate(b, 37) * m + a, (_rotate(a, 25) + b) * m, m)


def _up_to_32(data: NDArray[np.uint8], s: _Int64s, n: _Int64s) -> _Words:
    m = _factor(n)
    a = _load(data, s) * _K1
    b = _load(data, s + 8)
    c = _load(data, s + n - 8) * m
    d = _load(data, s + n - 16) * _K2
    first = _rotate(a + b, 43) + _rotate(c, 30) + d
    return _mix(first, a + _rotate(b + _K2, 18) + c, m)


def _up_to_64(data: NDArray[np.uint8], s: _Int64s, n: _Int64s) -> _Words:
    m = _factor(n)
    a = _load(data, s) * _K2
    b = _load(data, s + 8)
    c = _load(data, s + n - 8) * m
    d = _load(data, s + n - 16) * _K2
    y = _rotate(a + b, 43) + _rotate(c, 30) + d
    z = _mix(y, a + _rotate(b + _K2, 18) + c, m)
    e = _load(data, s + 16) * m
    f = _load(data, s + 24)
    g = (y + _load(data, s + n - 32)) * m
    h = (z + _load(data, s + n - 24)) * m
    first = _rotate(e + f, 43) + _rotate(g, 30) + h
    return _mix(first, e + _rotate(f + a, 18) + g, m)


def _weak(
    data: NDArray[np.uint8], i: _Int64s, a: _Words, b: _Words
) -> tuple[_Words, _Words]:
    p, q, r, s = (_load(data, i + 8 * k) for k in range(4))
    a1 = a + p
    b1 = _rotate(b + a1 + s, 21)
    a2 = a1 + q + r
    return a2 + s, b1 + _rotate(a2, 44) + a1


def _over_64(data: NDArray[np.uint8], s: _Int64s, n: _Int64s) -> _Words:
    ones = np.ones(len(s), np.uint64)
    # The state is seven words: x, y, z, v0, v1, w0, w1. 81 is FarmHash's seed.
    seed = np.uint64(81)
    start = ones * seed * _K1 + np.uint64(113)
    z = _fold(start * _K2 + np.uint64(113)) * _K2
    zeros = 0 * ones
    state = np.stack(
        [ones * seed * _K2 + _load(data, s), start, z, zeros, zeros, zeros, zeros]
    )
    blocks = (n - 1) // 64
    for block in range(int(blocks.max())):
        which = np.flatnonzero(blocks > block)
        place = s[which] + 64 * block
        state[:, which] = _mixed(data, place, state[:, which], _K1, np.uint64(1))
    z = state[2]
    m = _K1 + _shift_right(z & np.uint64(0xFF), 1)
    # The last 64 bytes, which may overlap the last block of the loop.
    state[5] += ((n - 1) & 63).astype(np.uint64)
    state[3] += state[5]
    state[5] += state[3]
    last = _mixed(data, s + n - 64, state, m, np.uint64(9))
    x, y, z, v0, v1, w0, w1 = last
    return _mix(_mix(v0, w0, m) + _fold(y) * _K0 + z, _mix(v1, w1, m) + x, m)


def _mixed(
    data: NDArray[np.uint8],
    i: _Int64s,
    state: NDArray[np.uint64],
    m: _Words | np.uint64,
    nine: np.uint64,
) -> NDArray[np.uint64]:
    """Mix 64 bytes into the state; `nine` is 9 for the last block, 1 for others."""
    x, y, z, v0, v1, w0, w1 = state
    x = _rotate(x + y + v0 + _load(data, i + 8), 37) * m
    y = _rotate(y + v1 + _load(data, i + 48), 42) * m
    x = x ^ (w1 * nine)
    y = y + v0 * nine + _load(data, i + 40)
    z = _rotate(z + w0, 33) * m
    v0, v1 = _weak(data, i, v1 * m, x + w0)
    w0, w1 = _weak(data, i + 32, z + w1, y + _load(data, i + 16))
    return np.stack([z, y, x, v0, v1, w0, w1])
