"""Compiled loops over whole columns: hashing, vocabularies, crosses.

The string hash is TensorFlow's `Fingerprint64`, which is FarmHash's "farmhashna" 64-bit
hash; crosses combine hashes with `FingerprintCat64`. Ids must equal those that
tf.estimator computed, so every step below is fixed. The algorithm has a formula for
each range of lengths: up to 3, 7, 16, 32 and 64 bytes, and a loop over blocks of 64
bytes. Loads at the end of a string overlap those at its start, so no byte-wise tail is
needed.

`native/hashing.py` checks the arguments and calls these. Every
public function has its signature written out, so all are compiled (or read from the
cache) when the module is imported, and none during a request.

Inputs are typed read-only, because NumPy views of Arrow buffers and of bytes are. A
writable array is accepted where a read-only one is expected, but not vice versa.

String i is `data[offsets[i]:offsets[i + 1]]`. Offsets come from files and users, so
each pair is compared with the size of the data before a byte is read. A kernel returns
the index of the first bad pair, or -1.
"""

# Numba reads the types from the signatures, so annotations are left out.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

import numpy as np
from numba import njit, types
from numpy import uint64

from estimax.native.kernels.memory import address, load8
from estimax.native.kernels.memory import load32 as _read32
from estimax.native.kernels.memory import load64 as _read64
from estimax.native.reference.hashing import MISSING

_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_INT64 = types.Array(types.int64, 1, "C", readonly=True)
_INT64_2D = types.Array(types.int64, 2, "C", readonly=True)
_INT32 = types.Array(types.int32, 1, "C", readonly=True)
_UINT64 = types.Array(types.uint64, 1, "C", readonly=True)
_OUT_INT64 = types.Array(types.int64, 1, "C")
_OUT_INT32 = types.Array(types.int32, 1, "C")
_OUT_UINT64 = types.Array(types.uint64, 1, "C")

# The constants of FarmHash and of FingerprintCat64.
_K0 = uint64(0xC3A5C85C97CB3127)
_K1 = uint64(0xB492B66FBE98F273)
_K2 = uint64(0x9AE16A3B2F90404F)
_CAT = uint64(0xC6A4A7935BD1E995)
_DIGITS = 20  # characters of the longest int64, sign included


# The functions below are inlined and take addresses. Numba updates the reference count
# of an array that is passed, which takes longer than hashing a short string.
#
# Every constant that meets a hash is a uint64: Numba converts an operation of uint64
# and a signed integer to float64, which would lose the low bits without an error.
@njit(forceinline=True)
def _rotate(v, by):
    """Rotate 64 bits to the right."""
    return (v >> uint64(by)) | (v << uint64(64 - by))


@njit(forceinline=True)
def _fold(v):
    """FarmHash's ShiftMix: fold the high bits into the low ones."""
    return v ^ (v >> uint64(47))


@njit(forceinline=True)
def _mix(u, v, m):
    """FarmHash's HashLen16: hash two words with the multiplier m."""
    a = _fold((u ^ v) * m)
    b = _fold((v ^ a) * m)
    return b * m


@njit(forceinline=True)
def _up_to_16(data, s, n):
    """Hash n <= 16 bytes at offset s. Most strings of tabular data end here."""
    length = uint64(n)
    if n == 0:
        return _K2
    if n < 4:
        # First, middle and last byte, which are the same byte if n is 1.
        y = load8(data, s) + (load8(data, s + n // 2) << uint64(8))
        z = length + (load8(data, s + n - 1) << uint64(2))
        return _fold((y * _K2) ^ (z * _K0)) * _K2
    m = _K2 + length * uint64(2)
    if n < 8:
        first = length + (_read32(data, s) << uint64(3))
        return _mix(first, _read32(data, s + n - 4), m)
    a = _read64(data, s) + _K2
    b = _read64(data, s + n - 8)
    return _mix(_rotate(b, 37) * m + a, (_rotate(a, 25) + b) * m, m)


@njit
def _up_to_32(data, s, n):
    """Hash 17 to 32 bytes: the first and the last 16."""
    m = _K2 + uint64(n) * uint64(2)
    a = _read64(data, s) * _K1
    b = _read64(data, s + 8)
    c = _read64(data, s + n - 8) * m
    d = _read64(data, s + n - 16) * _K2
    first = _rotate(a + b, 43) + _rotate(c, 30) + d
    return _mix(first, a + _rotate(b + _K2, 18) + c, m)


@njit
def _up_to_64(data, s, n):
    """Hash 33 to 64 bytes: the first and the last 32."""
    m = _K2 + uint64(n) * uint64(2)
    a = _read64(data, s) * _K2
    b = _read64(data, s + 8)
    c = _read64(data, s + n - 8) * m
    d = _read64(data, s + n - 16) * _K2
    y = _rotate(a + b, 43) + _rotate(c, 30) + d
    z = _mix(y, a + _rotate(b + _K2, 18) + c, m)
    e = _read64(data, s + 16) * m
    f = _read64(data, s + 24)
    g = (y + _read64(data, s + n - 32)) * m
    h = (z + _read64(data, s + n - 24)) * m
    first = _rotate(e + f, 43) + _rotate(g, 30) + h
    return _mix(first, e + _rotate(f + a, 18) + g, m)


@njit
def _weak(data, i, a, b):
    """FarmHash's WeakHashLen32WithSeeds: mix 32 bytes into two words."""
    p, q = _read64(data, i), _read64(data, i + 8)
    r, s = _read64(data, i + 16), _read64(data, i + 24)
    a1 = a + p
    b1 = _rotate(b + a1 + s, 21)
    a2 = a1 + q + r
    b2 = b1 + _rotate(a2, 44)
    return a2 + s, b2 + a1


@njit
def _over_64(data, s, n):
    """Hash more than 64 bytes: whole blocks of 64, then the last 64 bytes once more."""
    # The state is 56 bytes: x, y, z and the pairs v and w. 81 is FarmHash's seed.
    x = uint64(81)
    y = uint64(81) * _K1 + uint64(113)
    z = _fold(y * _K2 + uint64(113)) * _K2
    v0 = v1 = w0 = w1 = uint64(0)
    x = x * _K2 + _read64(data, s)
    for i in range(s, s + 64 * ((n - 1) // 64), 64):
        x = _rotate(x + y + v0 + _read64(data, i + 8), 37) * _K1
        y = _rotate(y + v1 + _read64(data, i + 48), 42) * _K1
        x = x ^ w1
        y = y + v0 + _read64(data, i + 40)
        z = _rotate(z + w0, 33) * _K1
        v0, v1 = _weak(data, i, v1 * _K1, x + w0)
        w0, w1 = _weak(data, i + 32, z + w1, y + _read64(data, i + 16))
        x, z = z, x
    # The last step has a multiplier that depends on the data so far.
    m = _K1 + ((z & uint64(0xFF)) << uint64(1))
    i = s + n - 64  # the last 64 bytes, which may overlap the last block of the loop
    w0 = w0 + uint64((n - 1) & 63)
    v0 = v0 + w0
    w0 = w0 + v0
    x = _rotate(x + y + v0 + _read64(data, i + 8), 37) * m
    y = _rotate(y + v1 + _read64(data, i + 48), 42) * m
    x = x ^ (w1 * uint64(9))
    y = y + v0 * uint64(9) + _read64(data, i + 40)
    z = _rotate(z + w0, 33) * m
    v0, v1 = _weak(data, i, v1 * m, x + w0)
    w0, w1 = _weak(data, i + 32, z + w1, y + _read64(data, i + 16))
    x, z = z, x
    return _mix(_mix(v0, w0, m) + _fold(y) * _K0 + z, _mix(v1, w1, m) + x, m)


@njit(forceinline=True)
def _fingerprint(data, start, n):
    """Return Fingerprint64 of n bytes. The four cases agree with FarmHash's own."""
    if n <= 16:
        return _up_to_16(data, start, n)
    if n <= 32:
        return _up_to_32(data, start, n)
    if n <= 64:
        return _up_to_64(data, start, n)
    return _over_64(data, start, n)


@njit
def _int_fingerprint(value, digits):
    """Return the fingerprint of an integer's decimal text, as TensorFlow hashes it.

    `digits` is scratch memory of _DIGITS bytes. The text is written from its end, since
    division yields the lowest digit first.
    """
    # The magnitude is a uint64: that of the smallest int64 does not fit an int64.
    rest = uint64(value) if value >= 0 else uint64(0) - uint64(value)
    at = _DIGITS
    while True:
        at -= 1
        digits[at] = np.uint8(48) + np.uint8(rest % uint64(10))  # 48 is "0"
        rest = rest // uint64(10)
        if rest == uint64(0):
            break
    if value < 0:
        at -= 1
        digits[at] = np.uint8(45)  # "-"
    return _fingerprint(digits, at, _DIGITS - at)


@njit
def _cat(a, b):
    """TensorFlow's FingerprintCat64: combine two hashes; the order matters."""
    r = (a ^ _CAT) ^ (_fold(b * _CAT) * _CAT)
    r = _fold(r * _CAT) * _CAT
    return _fold(r)


@njit(forceinline=True)
def _is_outside(start, end, size):
    """Return whether a string is not within `size` bytes of data."""
    return start < 0 or end < start or end > size


@njit(forceinline=True)
def _are_inside(offsets, low, high):
    """Return whether all strings of a column are within [low, high)."""
    # No early return: a loop without branches is vectorised.
    decrease = False
    for i in range(len(offsets) - 1):
        decrease |= offsets[i + 1] < offsets[i]
    return not decrease and offsets[0] >= low and offsets[-1] <= high


@njit(types.int64(_BYTES, _INT64, _OUT_UINT64), cache=True, nogil=True)
def fingerprints(data, offsets, out):
    """Write the fingerprint of every string."""
    text = address(data)
    for i in range(len(out)):
        start, end = offsets[i], offsets[i + 1]
        if _is_outside(start, end, len(data)):
            return i
        out[i] = _fingerprint(text, start, end - start)
    return -1


@njit(types.void(_INT64, _OUT_UINT64), cache=True, nogil=True)
def int_fingerprints(values, out):
    """Write the fingerprint of every integer's decimal text."""
    digits = np.empty(_DIGITS, np.uint8)
    for i in range(len(values)):
        out[i] = _int_fingerprint(values[i], digits)


@njit(types.void(_UINT64, _UINT64, _OUT_UINT64), cache=True, nogil=True)
def concatenated(a, b, out):
    """Write FingerprintCat64 of every pair."""
    for i in range(len(out)):
        out[i] = _cat(a[i], b[i])


@njit(
    types.int64(_BYTES, _INT64, types.uint64, types.boolean, _OUT_INT64),
    cache=True,
    nogil=True,
)
def hash_strings(data, offsets, size, drop_empty, out):
    """Write fingerprint modulo size; MISSING for empty strings if `drop_empty`."""
    text = address(data)
    for i in range(len(out)):
        start, end = offsets[i], offsets[i + 1]
        if _is_outside(start, end, len(data)):
            return i
        if start == end and drop_empty:
            out[i] = MISSING
        else:
            out[i] = np.int64(_fingerprint(text, start, end - start) % size)
    return -1


@njit(
    types.int64(_BYTES, _INT64, _INT64, _INT64, _UINT64, _OUT_INT64),
    cache=True,
    nogil=True,
)
def hash_columns(data, offsets, shifts, counts, sizes, out):
    """Write fingerprint modulo size for several columns in one call.

    Column c has counts[c] strings. `offsets` holds the counts[c] + 1 offsets of each
    column, one column after the other. shifts[c] must be added to an offset of column c
    to get a position in `data`: the columns came with buffers of their own, which were
    joined. Returns 0 if a string is not within the data, else -1.
    """
    first = 0  # strings of the columns before; they have `first + c` offsets
    for c in range(len(counts)):
        own = offsets[first + c : first + c + counts[c] + 1]
        # All offsets are checked before the loop, where the check is vectorised. Inside
        # the loop it took 7 % more time.
        if not _are_inside(own, -shifts[c], len(data) - shifts[c]):
            return 0
        text, size = address(data) + shifts[c], sizes[c]
        for i in range(counts[c]):
            n = own[i + 1] - own[i]
            out[first + i] = np.int64(_fingerprint(text, own[i], n) % size)
        first += counts[c]
    return -1


@njit(
    types.void(_INT64, types.uint64, types.boolean, _OUT_INT64), cache=True, nogil=True
)
def hash_ints(values, size, drop_minus_one, out):
    """Write fingerprint of the decimal text modulo size; -1 may be made MISSING."""
    digits = np.empty(_DIGITS, np.uint8)
    for i in range(len(values)):
        if drop_minus_one and values[i] == -1:
            out[i] = MISSING
        else:
            out[i] = np.int64(_int_fingerprint(values[i], digits) % size)


@njit
def _same(data, a, n, others, b):
    """Return whether n bytes of two arrays are equal; eight bytes at a time."""
    at = 0
    while at + 8 <= n:
        if _read64(data, a + at) != _read64(others, b + at):
            return False
        at += 8
    while at < n:
        if data[a + at] != others[b + at]:
            return False
        at += 1
    return True


# A slot of the word table is 0 if it is free. Otherwise its high half is the high half
# of the word's fingerprint, and its low half is the number of the word plus one. A word
# that is not in the table is nearly always recognised by the high half, without reading
# the bytes of any word, which would be a cache miss.
_HALF = uint64(0xFFFFFFFF00000000)
_NUMBER = uint64(0x00000000FFFFFFFF)


@njit
def _find_word(data, start, n, hashed, words, ends, slots):
    """Return the slot of a word in the table, or the free slot where it would go.

    Linear probing. The number of slots is a power of two and at most half of them are
    used, so the loop ends. The slot comes from the low bits of the fingerprint, the
    comparison uses the high half: the two are independent.
    """
    mask = len(slots) - 1
    at = np.int64(hashed & uint64(mask))
    while slots[at] != uint64(0):
        if (slots[at] ^ hashed) & _HALF == uint64(0):
            w = np.int64(slots[at] & _NUMBER) - 1
            if ends[w + 1] - ends[w] == n and _same(data, start, n, words, ends[w]):
                break
        at = (at + 1) & mask
    return at


@njit(types.int64(_BYTES, _INT64, _OUT_UINT64), cache=True, nogil=True)
def fill_word_slots(words, ends, slots):
    """Enter every word into the table; return the first repeated word, or -1.

    Returns -2 - w if word w is not within the data.
    """
    for w in range(len(ends) - 1):
        if _is_outside(ends[w], ends[w + 1], len(words)):
            return -2 - w
        n = ends[w + 1] - ends[w]
        hashed = _fingerprint(words, ends[w], n)
        at = _find_word(words, ends[w], n, hashed, words, ends, slots)
        if slots[at] != uint64(0):
            return w
        slots[at] = (hashed & _HALF) | uint64(w + 1)
    return -1


@njit(
    types.int64(
        *(_BYTES, _INT64, _BYTES, _INT64, _UINT64),
        *(types.int64, types.int64, types.boolean, _OUT_INT64),
    ),
    cache=True,
    nogil=True,
)
def find_words(
    data, offsets, words, ends, slots, oov_buckets, default, drop_empty, out
):
    """Write the id of every string: its number among the words if it is one.

    Other strings get an id behind the words, by hash, if there are `oov_buckets`; else
    the default. Empty strings are MISSING if `drop_empty`.
    """
    size, text = len(ends) - 1, address(data)
    for i in range(len(out)):
        if _is_outside(offsets[i], offsets[i + 1], len(data)):
            return i
        n = offsets[i + 1] - offsets[i]
        if n == 0 and drop_empty:
            out[i] = MISSING
            continue
        hashed = _fingerprint(text, offsets[i], n)
        at = _find_word(data, offsets[i], n, hashed, words, ends, slots)
        if slots[at] != uint64(0):
            out[i] = np.int64(slots[at] & _NUMBER) - 1
        elif oov_buckets > 0:
            out[i] = size + np.int64(hashed % uint64(oov_buckets))
        else:
            out[i] = default
    return -1


@njit
def _find_int(value, words, slots):
    """Return the slot of an integer, or the free slot where it would go.

    A slot holds the number of a word, or -1. The integer itself is compared in `words`;
    the fingerprint of its text, which is slower, is only computed for unknown values.
    """
    mask = len(slots) - 1
    at = np.int64(_fold(uint64(value) * _K2) & uint64(mask))
    while slots[at] >= 0 and words[slots[at]] != value:
        at = (at + 1) & mask
    return at


@njit(types.int64(_INT64, _OUT_INT32), cache=True, nogil=True)
def fill_int_slots(words, slots):
    """Enter every integer into the table; return the first repeated one, or -1."""
    for w in range(len(words)):
        at = _find_int(words[w], words, slots)
        if slots[at] >= 0:
            return w
        slots[at] = w
    return -1


@njit(
    types.void(
        *(_INT64, _INT64, _INT32, types.int64, types.int64, types.boolean),
        _OUT_INT64,
    ),
    cache=True,
    nogil=True,
)
def find_ints(values, words, slots, oov_buckets, default, drop_minus_one, out):
    """Write the id of every integer, as `find_words` does for strings."""
    digits = np.empty(_DIGITS, np.uint8)
    for i in range(len(values)):
        value = values[i]
        if drop_minus_one and value == -1:
            out[i] = MISSING
            continue
        at = _find_int(value, words, slots)
        if slots[at] >= 0:
            out[i] = slots[at]
        elif oov_buckets > 0:
            hashed = _int_fingerprint(value, digits)
            out[i] = len(words) + np.int64(hashed % uint64(oov_buckets))
        else:
            out[i] = default


@njit(
    types.void(_UINT64, _INT64_2D, types.uint64, types.uint64, _INT64, _OUT_INT64),
    cache=True,
    nogil=True,
)
def cross_rows(values, starts, seed, size, out_starts, out):
    """Hash every combination of one value per key, row by row, last key fastest.

    The values of key k in row r are `values[starts[k, r]:starts[k, r + 1]]`. The ids of
    row r go to `out[out_starts[r]:out_starts[r + 1]]`, whose size is the product of the
    numbers of values.
    """
    keys = starts.shape[0]
    # The combination is an odometer: at[k] is the value of key k. hashed[k] is the hash
    # of the first k values, so only the hashes behind the first changed key are
    # computed again for the next combination.
    at = np.empty(keys, np.int64)
    hashed = np.empty(keys + 1, np.uint64)
    hashed[0] = seed
    for r in range(starts.shape[1] - 1):
        if out_starts[r] == out_starts[r + 1]:
            continue
        for k in range(keys):
            at[k] = starts[k, r]
        changed = 0  # the first key whose value differs from the last combination
        for o in range(out_starts[r], out_starts[r + 1]):
            for k in range(changed, keys):
                hashed[k + 1] = _cat(hashed[k], values[at[k]])
            out[o] = np.int64(hashed[keys] % size)
            # Advance the last key. If it is at its end, reset it and carry to the left.
            changed = keys - 1
            while changed >= 0:
                at[changed] += 1
                if at[changed] < starts[changed, r + 1]:
                    break
                at[changed] = starts[changed, r]
                changed -= 1
