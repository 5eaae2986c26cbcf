"""Compiled readers of protocol-buffer messages: Features, their keys and their lists.

The parts that the kernels for Examples and for SequenceExamples share. Every record is
taken for hostile: a place is compared with the end of its enclosing message before it
is read, and that end was compared with its own enclosing one. A function that meets a
broken message returns `-1 - place` where it would return a place or a count.

Arrays come as addresses (`core/loads.py`); those of int64 are read with get and put.
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
# What may be wrong, in problem[0]; then row, feature, byte, expected, found.
# Numbered as in `native.features.Flaw`.
FINE, MALFORMED, WRONG_KIND, WRONG_COUNT, MISSING, NOT_MULTIPLE, OUTSIDE = range(7)
PROBLEM = 6  # the size of a problem

# Tags of length-delimited fields 1 and 2, and of a lone varint and a lone float.
ONE, TWO = uint64(10), uint64(18)
_LONE_INT, _LONE_FLOAT = uint64(8), uint64(13)
_SEVEN, _HIGH = uint64(7), uint64(128)
# Keys are remembered for this many entries of a record; later ones are looked up.
REMEMBERED = 1024
# Kind, list length, tag and size: what of a head belongs to the value.
HEAD_OF_VALUE = 4
_K0 = uint64(0xC3A5C85C97CB3127)
_K1 = uint64(0xB492B66FBE98F273)


@njit(forceinline=True)
def varint(data, at, end):
    """The number at a place and the place behind it."""
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
        value |= (byte & uint64(127)) << shift  # of the tenth byte, what fits
        if byte < _HIGH:
            return value, at
        shift += _SEVEN
    return uint64(0), -1 - start


@njit(forceinline=True)
def message_end(data, at, end):
    """Read a length: where what it measures begins and ends."""
    length, start = varint(data, at, end)
    if start < 0:
        return start, start
    if length > uint64(end - start):
        return -1 - at, -1 - at
    return start, start + int64(length)


@njit
def skip(data, tag, at, end):
    """The place behind an unknown field, whose tag has been read."""
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
    """Whether n bytes at two places are equal."""
    if n >= 8:
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
    """The slot of a key in the table, or the free one where it would go."""
    mask = slot_count - 1
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
    """The places of key and value in a map entry: start and end of each."""
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
    """How many bytes of values follow, if an entry is as `head` says; else -1.

    A head is what stands before the values in an entry as all writers write it:

        0A entry-length 0A key-length key 12 value-length kind list-length 0A size

    The lengths grow with the size, each by one, so that head = base + size * mask,
    eight bytes at once. It holds while no length needs a second byte.
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

    Writes where each value lies into found[f], with the size of its packed values if
    they are all it ends with, else -1: the last of a key wins. `seen[j]` holds
    the key of entry j of the record before, and whose it was: nearly always the same
    again, so that a comparison does for a look into the table. `heads` may be 0.
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
def _floats(data, at, end, out, to, room):
    """Write at most `room` floats of a FloatList; how many it has."""
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
        fits = min(n, room - count)
        if fits == 1:
            store32(out, 4 * (to + count), load32(data, start))
        elif fits > 1:
            move(out, 4 * (to + count), data, start, 4 * fits)
        count += n
        at = stop
    return count


@njit(forceinline=True)
def _ints(data, at, end, out, to, room):
    """Write at most `room` integers of an Int64List; how many it has."""
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
                if count < room:
                    store64(out, 8 * (to + count), value)
                count += 1
        elif tag == _LONE_INT:
            value, at = varint(data, at, end)
            if at < 0:
                return at
            if count < room:
                store64(out, 8 * (to + count), value)
            count += 1
        else:
            at = skip(data, tag, at, end)
            if at < 0:
                return at
    return count


@njit(forceinline=True)
def _texts(data, at, end, out, to, room):
    """Write where at most `room` texts of a BytesList lie; how many it has."""
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
        if count < room:
            put(out, 2 * (to + count), start)
            put(out, 2 * (to + count) + 1, at - start)
        count += 1
    return count


@njit(forceinline=True)
def values(data, at, end, kind, out, to, room):
    """Write at most `room` values of a Feature; its kind, and how many it has.

    `out` is of float32, of int64, or of pairs that say where a text lies, by kind.
    A kind that is set again adds to its list, another kind replaces it.
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
            n = _texts(data, start, at, out, to + count, room - count)
        elif kind == FLOAT:
            n = _floats(data, start, at, out, to + count, room - count)
        else:
            n = _ints(data, start, at, out, to + count, room - count)
        if n < 0:
            return UNSET, n
        count += n
    return int64(found), count


@njit(forceinline=True)
def report(problem, what, row, f, at, expected, found):
    """Say what is wrong with which row and feature, at which byte of the record."""
    for i, item in enumerate((what, row, f, at, expected, found)):
        put(problem, i, item)
