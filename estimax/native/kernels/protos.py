"""Compiled readers of protocol-buffer messages: Features, their keys and their lists.

The functions here are inlined into the kernels for Examples and SequenceExamples.

Records may be hostile. Before a byte is read, its place is compared with the end of the
message that it is in, which was compared with the end of the message around it. Places
count from the beginning of `data`, which holds all records of a batch. A function that
finds a broken message returns `-1 - place` in place of a place or a count, as Numba
has no cheap exceptions.

Arrays are passed as addresses, see `memory.py`; `get` and `put` access int64 arrays.
"""

# Numba has its own types, in the signatures; annotations would say nothing more.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

from numba import njit
from numpy import int64, uint64

from estimax.native.kernels.memory import (
    get,
    load8,
    load32,
    load64,
    move,
    put,
    store32,
    store64,
)

# The kinds of a Feature are their field numbers.
UNSET, TEXT, FLOAT, INT = 0, 1, 2, 3
# A problem is an array (what is wrong, row, feature or -1, byte, expected, found).
# Numbered as in `native.features.Flaw`.
FINE, MALFORMED, WRONG_KIND, WRONG_COUNT, MISSING, NOT_MULTIPLE, OUTSIDE = range(7)
PROBLEM = 6  # the size of a problem

# Tags of length-delimited fields 1 and 2, and of a lone varint and a lone float.
ONE, TWO = uint64(10), uint64(18)
_LONE_INT, _LONE_FLOAT = uint64(8), uint64(13)
_SEVEN, _HIGH = uint64(7), uint64(128)
# Keys are remembered for this many entries of a record; later ones are looked up.
REMEMBERED = 1024
# The last bytes of a head (kind, list length, tag, size) are already part of the value.
HEAD_OF_VALUE = 4
_K0 = uint64(0xC3A5C85C97CB3127)
_K1 = uint64(0xB492B66FBE98F273)


@njit(forceinline=True)
def varint(data, at, end):
    """Return the number at a place, and the place behind it."""
    if at < end:
        byte = load8(data, at)
        if byte < _HIGH:
            return byte, at + 1
    return _long_varint(data, at, end)


@njit
def _long_varint(data, at, end):
    value, shift, start = uint64(0), uint64(0), at
    while at < end and shift < uint64(70):
        byte = load8(data, at)
        at += 1
        value |= (byte & uint64(127)) << shift  # only the lowest bit of the tenth fits
        if byte < _HIGH:
            return value, at
        shift += _SEVEN
    return uint64(0), -1 - start


@njit(forceinline=True)
def message_end(data, at, end):
    """Read a length; return where the content that it measures begins and ends."""
    length, start = varint(data, at, end)
    if start < 0:
        return start, start
    if length > uint64(end - start):
        return -1 - at, -1 - at
    return start, start + int64(length)


@njit
def skip(data, tag, at, end):
    """Return the place behind a field that is not wanted, whose tag has been read."""
    kind = tag & _SEVEN
    if tag < uint64(8):  # field number 0
        return -1 - at
    if kind == uint64(0):
        return varint(data, at, end)[1]
    if kind == uint64(2):
        return message_end(data, at, end)[1]
    size = 8 if kind == uint64(1) else 4
    if (kind != uint64(1) and kind != uint64(5)) or end - at < size:
        return -1 - at
    return at + size


@njit(forceinline=True)
def is_same(a, at, b, bt, n):
    """Return whether n bytes at two places are equal."""
    if n >= 8:
        # Eight at once; the last eight overlap with the ones before.
        i = 0
        while i + 8 < n:
            if load64(a, at + i) != load64(b, bt + i):
                return False
            i += 8
        return load64(a, at + n - 8) == load64(b, bt + n - 8)
    if n >= 4:
        head = load32(a, at) == load32(b, bt)
        return head and load32(a, at + n - 4) == load32(b, bt + n - 4)
    is_same = True
    for i in range(n):
        is_same &= load8(a, at + i) == load8(b, bt + i)
    return is_same


@njit(forceinline=True)
def _hash(data, at, n):
    if n >= 8:
        h = (load64(data, at) * _K0) ^ load64(data, at + n - 8)
        # Long keys often differ in the middle only.
        h ^= load64(data, at + ((n - 8) >> 1)) * _K1
    elif n >= 4:
        h = (load32(data, at) << uint64(32)) | load32(data, at + n - 4)
    else:
        h = uint64(0)
        for i in range(n):
            h = (h << uint64(8)) | load8(data, at + i)
    h = (h ^ uint64(n)) * _K1
    return h ^ (h >> uint64(32))


@njit(forceinline=True)
def find_slot(data, at, n, keys, key_ends, slots, slot_count):
    """Return the slot of a key in the table, or the free one where it would go.

    Slots hold the number of a key or -1. Key f is `keys[key_ends[f]:key_ends[f + 1]]`.
    """
    mask = slot_count - 1  # a power of two, and most slots are free
    slot = int64(_hash(data, at, n) & uint64(mask))
    while get(slots, slot) >= 0:
        start = get(key_ends, get(slots, slot))
        size = get(key_ends, get(slots, slot) + 1) - start
        if size == n and is_same(data, at, keys, start, n):
            break
        slot = (slot + 1) & mask
    return slot


@njit(forceinline=True)
def _entry(data, at, end):
    """Return where key and value of a map entry begin and end."""
    key = key_end = value = value_end = at
    while at < end:
        tag, at = varint(data, at, end)
        if at < 0:
            return at, at, at, at
        if tag == ONE:
            key, key_end = message_end(data, at, end)
            at = key_end
        elif tag == TWO:
            value, value_end = message_end(data, at, end)
            at = value_end
        else:
            at = skip(data, tag, at, end)
        if at < 0:
            return at, at, at, at
    return key, key_end, value, value_end


@njit(forceinline=True)
def match_head(data, at, end, head):
    """Return how many bytes of values follow if an entry begins with `head`; else -1.

    The head of an entry is what stands before its values, as all writers write it:

        0A entry-length 0A key-length key 12 value-length kind list-length 0A size

    All of it is known but the size of the values, by which each of the lengths grows.
    So eight bytes are compared at once, as `bytes + size * mask`, where the mask has a
    1 in every byte that is such a length (see `key_tables.heads_of`, which has the
    layout of `head`). That is right while no length needs a second byte, which head[1]
    ensures: larger sizes are left to the general reader.
    """
    n = get(head, 0)
    if n == 0 or end - at < n:
        return int64(-1)
    size = load8(data, at + n - 1)
    if size >= uint64(get(head, 1)) or int64(size) > end - at - n:
        return int64(-1)
    # The first and the last eight bytes, which overlap in heads of short keys.
    first = uint64(get(head, 2)) + size * uint64(get(head, 3))
    last = uint64(get(head, 4)) + size * uint64(get(head, 5))
    if load64(data, at) != first or load64(data, at + n - 8) != last:
        return int64(-1)
    word, place = 6, 8
    while place < n - 8:
        base, mask = uint64(get(head, word)), uint64(get(head, word + 1))
        if load64(data, at + place) != base + size * mask:
            return int64(-1)
        word += 2
        place += 8
    return int64(size)


@njit(forceinline=True)
def locate(data, at, end, outer, keys, key_ends, slots, slot_count, heads, seen, found):
    """Find the wanted values among the map entries of field `outer` of a record.

    Args:
      found: [F, 3], set to (start, end, packed) of the value of each feature that the
        record has; the last entry of a key counts. `packed` is the size of the values
        if the entry matched its head, so that they are the last bytes of it; else -1.
      seen: [REMEMBERED + 1, 3], (place of the key, its size, its feature or -1) of
        entry j of the record before. Nearly always the same key comes again, so that
        one comparison replaces a lookup. All further entries share the last row.
      heads: Of the features, as `match_head` takes them; 0 for none.

    Returns how many entries there are.
    """
    j = 0
    while at < end:
        tag, at = varint(data, at, end)
        if at >= 0 and tag != outer:
            at = skip(data, tag, at, end)
        if at < 0:
            return at
        if tag != outer:
            continue
        at, stop = message_end(data, at, end)
        if at < 0:
            return at
        while at < stop:
            known = 3 * min(j, REMEMBERED)
            f = get(seen, known + 2)
            if f >= 0 and heads != 0:
                head = heads + 8 * get(heads, f)
                size = match_head(data, at, stop, head)
                if size >= 0:
                    values_at = at + get(head, 0)
                    put(found, 3 * f, values_at - HEAD_OF_VALUE)
                    put(found, 3 * f + 1, values_at + size)
                    put(found, 3 * f + 2, size)
                    at = values_at + size
                    j += 1
                    continue
            tag, at = varint(data, at, stop)
            if at >= 0 and tag != ONE:
                at = skip(data, tag, at, stop)
            if at < 0:
                return at
            if tag != ONE:
                continue
            at, entry_end = message_end(data, at, stop)
            if at < 0:
                return at
            key, key_end, value, value_end = _entry(data, at, entry_end)
            if key < 0:
                return key
            at = entry_end
            n = key_end - key
            j += 1
            if n != get(seen, known + 1) or not is_same(
                data, key, data, get(seen, known), n
            ):
                slot = find_slot(data, key, n, keys, key_ends, slots, slot_count)
                put(seen, known, key)
                put(seen, known + 1, n)
                put(seen, known + 2, get(slots, slot))
            f = get(seen, known + 2)
            if f >= 0:
                put(found, 3 * f, value)
                put(found, 3 * f + 1, value_end)
                put(found, 3 * f + 2, -1)
    return j


@njit(forceinline=True)
def _floats(data, at, end, out, to, capacity):
    """Write at most `capacity` floats of a FloatList; return the count of all."""
    count = 0
    while at < end:
        tag, at = varint(data, at, end)
        if at < 0:
            return at
        start, stop, n = at, at, 0
        if tag == ONE:
            start, stop = message_end(data, at, end)
            if start < 0:
                return start
            n = (stop - start) >> 2
            if n << 2 != stop - start:
                return -1 - start
        elif tag == _LONE_FLOAT:
            n, stop = 1, at + 4
            if stop > end:
                return -1 - at
        else:
            stop = skip(data, tag, at, end)
            if stop < 0:
                return stop
        fits = min(n, capacity - count)
        if fits == 1:
            store32(out, 4 * (to + count), load32(data, start))
        elif fits > 1:
            move(out, 4 * (to + count), data, start, 4 * fits)
        count += n
        at = stop
    return count


@njit(forceinline=True)
def _ints(data, at, end, out, to, capacity):
    """Write at most `capacity` integers of an Int64List; return the count of all."""
    count = 0
    while at < end:
        tag, at = varint(data, at, end)
        if at < 0:
            return at
        if tag == ONE:
            at, stop = message_end(data, at, end)
            if at < 0:
                return at
            while at < stop:
                value, at = varint(data, at, stop)
                if at < 0:
                    return at
                if count < capacity:
                    store64(out, 8 * (to + count), value)
                count += 1
        elif tag == _LONE_INT:
            value, at = varint(data, at, end)
            if at < 0:
                return at
            if count < capacity:
                store64(out, 8 * (to + count), value)
            count += 1
        else:
            at = skip(data, tag, at, end)
            if at < 0:
                return at
    return count


@njit(forceinline=True)
def _texts(data, at, end, out, to, capacity):
    """Write where at most `capacity` texts of a BytesList are; return their count."""
    count = 0
    while at < end:
        tag, at = varint(data, at, end)
        if at < 0:
            return at
        if tag != ONE:
            at = skip(data, tag, at, end)
            if at < 0:
                return at
            continue
        start, at = message_end(data, at, end)
        if at < 0:
            return at
        if count < capacity:
            put(out, 2 * (to + count), start)
            put(out, 2 * (to + count) + 1, at - start)
        count += 1
    return count


@njit(forceinline=True)
def values(data, at, end, kind, out, to, capacity):
    """Write at most `capacity` values of a Feature; return its kind and count.

    By kind, `out` has float32, int64, or pairs (place, size) of texts; item `to` is the
    first that is written. A list of the same kind adds to the one before, a list of
    another kind replaces it.
    """
    found, count = uint64(UNSET), 0
    while at < end:
        tag, at = varint(data, at, end)
        if at < 0:
            return UNSET, at
        number = tag >> uint64(3)
        is_list = tag & _SEVEN == uint64(2) and uint64(1) <= number <= uint64(3)
        if not is_list:
            at = skip(data, tag, at, end)
            if at < 0:
                return UNSET, at
            continue
        start, at = message_end(data, at, end)
        if at < 0:
            return UNSET, at
        if number != found:
            found, count = number, 0
        if number != uint64(kind):
            continue
        if kind == TEXT:
            n = _texts(data, start, at, out, to + count, capacity - count)
        elif kind == FLOAT:
            n = _floats(data, start, at, out, to + count, capacity - count)
        else:
            n = _ints(data, start, at, out, to + count, capacity - count)
        if n < 0:
            return UNSET, n
        count += n
    return int64(found), count


@njit(forceinline=True)
def report(problem, what, row, f, at, expected, found):
    """Write what is wrong with which row and feature, at which byte of the record."""
    for i, item in enumerate((what, row, f, at, expected, found)):
        put(problem, i, item)
