"""Compiled readers of protocol-buffer messages: Features, their keys and their lists.

The functions here are inlined into the kernels for Examples and SequenceExamples. The
messages that they read:

    Example         { Features features = 1; }
    SequenceExample { Features context = 1; FeatureLists feature_lists = 2; }
    Features        { map<string, Feature> feature = 1; }
    FeatureLists    { map<string, FeatureList> feature_list = 1; }
    FeatureList     { repeated Feature feature = 1; }
    Feature         { oneof: BytesList = 1, FloatList = 2, Int64List = 3 }
    each list       { repeated value = 1; numbers packed, or one field per value }

A map is a repeated field of entries { key = 1; value = 2; }.

On the wire, a message is a sequence of fields. A field is a tag and its content. The
tag is `field number << 3 | wire type`, written as a varint. The wire type says how long
the content is: 0 a varint, 1 eight bytes, 2 a length (varint) and that many bytes, 5
four bytes. A varint has seven bits in each byte, the lowest first; the highest bit of a
byte says that another follows. Tag 0x0A is thus field 1 with a length, 0x12 field 2.

Records may be hostile. Before a byte is read, its position is compared with the end of
the message that contains it, which was compared with the end of the enclosing message.
Positions are byte offsets into `data`, which holds all records of a batch. A function
that finds a broken message at a position returns `-1 - position` where it would return
a position or a count otherwise, because exceptions are slow in Numba.

Arrays are passed as addresses, see `memory.py`; `get` and `put` access int64 arrays.
"""

# Numba reads the types from the signatures, so annotations are left out.
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

# The kind of a Feature is the number of the field that is set in it.
UNSET, TEXT, FLOAT, INT = 0, 1, 2, 3
# Values of `native.example_types.Flaw`. A kernel reports a problem as an int64 array:
# (flaw, row, feature or -1, byte offset in the record, expected, found).
FINE, MALFORMED, WRONG_KIND, WRONG_COUNT, MISSING, NOT_MULTIPLE, OUTSIDE = range(7)
PROBLEM = 6  # items of that array

# Tags: fields 1 and 2 with a length; field 1 as a single unpacked varint or float.
ONE, TWO = uint64(10), uint64(18)
_LONE_INT, _LONE_FLOAT = uint64(8), uint64(13)
_SEVEN, _HIGH = uint64(7), uint64(128)
# `locate` remembers the keys of the first 1024 entries of the record before. Keys of
# later entries are looked up in the hash table every time.
REMEMBERED = 1024
# The last four bytes of a head (see `match_head`) belong to the Feature message: its
# tag, the list's length, the tag of the values and their size.
HEAD_OF_VALUE = 4
# Odd multipliers with well mixed bits, taken from FarmHash; see `_hash`.
_K0 = uint64(0xC3A5C85C97CB3127)
_K1 = uint64(0xB492B66FBE98F273)


@njit(forceinline=True)
def varint(data, at, end):
    """Return the varint at a position, and the position behind it.

    Nearly all varints of Examples (tags, lengths) have one byte. Only that case is
    inlined; the loop for longer ones is a call, which keeps the callers small.
    """
    if at < end:
        byte = load8(data, at)
        if byte < _HIGH:
            return byte, at + 1
    return _long_varint(data, at, end)


@njit
def _long_varint(data, at, end):
    """Return a varint of up to ten bytes and the position behind it, or an error."""
    value, shift, start = uint64(0), uint64(0), at
    while at < end and shift < uint64(70):
        byte = load8(data, at)
        at += 1
        # Of the tenth byte only the lowest bit fits into 64 bits; the others are
        # dropped.
        value |= (byte & uint64(127)) << shift
        if byte < _HIGH:
            return value, at
        shift += _SEVEN
    return uint64(0), -1 - start


@njit(forceinline=True)
def message_end(data, at, end):
    """Read a length; return where the content behind it begins and ends."""
    length, start = varint(data, at, end)
    if start < 0:
        return start, start
    # Compared as unsigned: `start + length` could overflow with a hostile length.
    if length > uint64(end - start):
        return -1 - at, -1 - at
    return start, start + int64(length)


@njit
def skip(data, tag, at, end):
    """Return the position behind a field whose tag has been read and is not wanted."""
    kind = tag & _SEVEN  # the wire type
    if tag < uint64(8):  # field number 0 does not exist
        return -1 - at
    if kind == uint64(0):
        return varint(data, at, end)[1]
    if kind == uint64(2):
        return message_end(data, at, end)[1]
    # What remains is 1 or 5. Types 3 and 4 are groups, which no Example contains.
    size = 8 if kind == uint64(1) else 4
    if (kind != uint64(1) and kind != uint64(5)) or end - at < size:
        return -1 - at
    return at + size


@njit(forceinline=True)
def is_same(a, at, b, bt, n):
    """Return whether n bytes at two positions are equal."""
    if n >= 8:
        # Eight bytes at a time. The last eight end exactly at n and may overlap the
        # eight before them, so no loop over single bytes is needed.
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
    """Return a hash of a key for `find_slot`. It is not FarmHash, and never stored."""
    if n >= 8:
        # The first, last and middle eight bytes. The middle is needed because long keys
        # often share both ends ("user_…_id").
        h = (load64(data, at) * _K0) ^ load64(data, at + n - 8)
        h ^= load64(data, at + ((n - 8) >> 1)) * _K1
    elif n >= 4:
        h = (load32(data, at) << uint64(32)) | load32(data, at + n - 4)
    else:
        h = uint64(0)
        for i in range(n):
            h = (h << uint64(8)) | load8(data, at + i)
    # A multiplication mixes towards the high bits, and the slot is taken from the low
    # bits: fold the upper half down.
    h = (h ^ uint64(n)) * _K1
    return h ^ (h >> uint64(32))


@njit(forceinline=True)
def find_slot(data, at, n, keys, key_ends, slots, slot_count):
    """Return the slot of a key in the hash table, or the free slot where it would go.

    The table is open-addressed with linear probing. A slot holds the number of a key or
    -1. Key f is `keys[key_ends[f]:key_ends[f + 1]]`.
    """
    # The number of slots is a power of two. At most a quarter of them is used, so the
    # loop always meets a free slot.
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
    """Return where key and value of a map entry begin and end.

    A part that the entry lacks is empty. Of a repeated part the last one counts.
    """
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

    The head of a map entry is what precedes its values. All known writers emit the same
    bytes for it:

        0A entry-length 0A key-length key 12 value-length kind list-length 0A size

    For a given feature all of these are known except `size`, the number of bytes of
    values. Each of the lengths grows by one when `size` does. So the expected bytes are
    `bytes + size * mask`, where the mask has a 1 in every byte that is such a length,
    and they are compared eight at a time. This holds as long as no length needs a
    second byte; head[1] is the limit of `size` for that. Larger values are left to the
    general reader. `example_batches.heads_of` makes the array `head` and documents its
    layout.
    """
    n = get(head, 0)
    if n == 0 or end - at < n:
        return int64(-1)
    # The last byte of the head is the size. Read it first; the rest depends on it.
    size = load8(data, at + n - 1)
    if size >= uint64(get(head, 1)) or int64(size) > end - at - n:
        return int64(-1)
    # The first and the last eight bytes tell most entries apart. They overlap if the
    # key is short: a head has at least ten bytes.
    first = uint64(get(head, 2)) + size * uint64(get(head, 3))
    last = uint64(get(head, 4)) + size * uint64(get(head, 5))
    if load64(data, at) != first or load64(data, at + n - 8) != last:
        return int64(-1)
    # What remains between them, for keys of more than six bytes.
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
      outer: ONE for the features of an Example, TWO for the feature lists of a
        SequenceExample.
      heads: The address of what `match_head` needs for each feature, or 0 to do
        without.
      seen: [REMEMBERED + 1, 3]. Row j holds (position of the key, its size, its feature
        or -1) of entry j of the record before. Nearly always the same key comes again
        at the same place, so one comparison replaces a lookup in the hash table.
        Entries behind the first REMEMBERED share the last row.
      found: [F, 3], set to (start, end, packed) of the value of each feature that the
        record has. The last entry of a key counts. If the entry matched its head,
        `packed` is the size of the values, which are the last bytes of the entry; else
        it is -1.

    Returns:
      The number of entries, or -1 - position of what is broken.
    """
    j = 0  # the number of the entry
    while at < end:
        # Fields of the record: only `outer` is of interest. It may come several times.
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
            # The fast path: entry j has the key it had in the record before, and its
            # head is as writers emit it. Then nothing of the entry is parsed at all.
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
            # The general path: parse the entry, then find the feature of its key.
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
            # A key of the record before is compared in place: `seen` holds positions in
            # `data`, and all records of the batch are in it.
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
    """Write at most `capacity` floats of a FloatList; return how many it has.

    The values are packed (one field with all of them), or one field each, or both. The
    same list is read twice if its size is not known: once with capacity 0 to count.
    """
    count = 0
    while at < end:
        tag, at = varint(data, at, end)
        if at < 0:
            return at
        start, stop, n = at, at, 0
        if tag == ONE:  # packed
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
        # The wire format is little-endian, as memory is, so floats are copied as bytes.
        # That keeps the bits of every NaN.
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
    """Write at most `capacity` integers of an Int64List; return how many it has.

    Each integer is a varint of its two's complement: negative ones have ten bytes.
    """
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
    """Write (position, size) of at most `capacity` texts; return how many there are.

    The bytes stay where they are until `fill` copies them: only then are the sizes of
    all texts of the batch known.
    """
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

    `out` is an array of float32, of int64, or of pairs (position, size) of texts, by
    `kind`, which is the kind that is wanted. Item `to` is the first that is written.
    The kind that is returned is the one found. The list is a oneof, which may be
    written several times: a list of the same kind adds to the one before it, a list of
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
        # The content of a wrong kind is not read. The caller compares the kinds.
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
    """Write a problem, see PROBLEM: what is wrong, in which row and feature, where."""
    for i, item in enumerate((what, row, f, at, expected, found)):
        put(problem, i, item)
