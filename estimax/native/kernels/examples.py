"""The compiled parser of Example messages, a batch at a time.

Parsing takes two calls, because the sizes of the outputs are not known before:

1. `scan` reads every record. It writes the numbers of features of fixed size, and for
   texts and features of variable size where they are and how many there are.
2. `fill` writes those into arrays of exactly the right size.

If all features have a fixed size, `scan_and_fill` does both in one call.

`native/example_batches.py` allocates the arrays. All features of a kind share one flat
array. The table `features` has a row for each feature and says where its part begins.

Each record is read in one of two ways. The general reader (`locate`, `values`) accepts
any valid message. `_read_regular` reads a record whose entries come in the order of a
record before it, which is true for nearly all records of nearly all files, and falls
back to the general reader otherwise.
"""

# Numba reads the types from the signatures, so annotations are left out.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

from numba import njit, types
from numpy import empty, int64, uint8, uint64

from estimax.native.kernels.memory import (
    address,
    get,
    load8,
    load32,
    load64,
    move,
    put,
    store32,
    store64,
)
from estimax.native.kernels.protos import (
    FLOAT,
    HEAD_OF_VALUE,
    INT,
    MALFORMED,
    MISSING,
    NOT_MULTIPLE,
    ONE,
    OUTSIDE,
    PROBLEM,
    REMEMBERED,
    TEXT,
    TWO,
    UNSET,
    WRONG_COUNT,
    WRONG_KIND,
    find_slot,
    is_same,
    locate,
    match_head,
    message_end,
    report,
    values,
)

_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_INT64 = types.Array(types.int64, 1, "C", readonly=True)
_INT64_2D = types.Array(types.int64, 2, "C", readonly=True)
_FLOAT32 = types.Array(types.float32, 1, "C", readonly=True)
_OUT_BYTES = types.Array(types.uint8, 1, "C")
_OUT_INT64 = types.Array(types.int64, 1, "C")
_OUT_INT64_2D = types.Array(types.int64, 2, "C")
_OUT_FLOAT32 = types.Array(types.float32, 1, "C")

# Columns of the table that describes the wanted features. "First" is an index into a
# flat array that all features share:
#   KIND      TEXT, FLOAT or INT
#   SIZE      values in each row, or VARIABLE
#   BASE      first value, in the array of its kind (one for fixed sizes, one for
#             variable sizes)
#   OFFSETS   first offset of its texts
#   SPLITS    first row split, and first row in `where`; for variable sizes
#   INDICES   first sparse index, or NONE
#   DEFAULT   first default value among all defaults of its kind, or NONE
#   MULTIPLE  a number that must divide the number of values; for variable sizes
#   ROWS      number of rows; for variable sizes
KIND, SIZE, BASE, OFFSETS, SPLITS, INDICES, DEFAULT, MULTIPLE, ROWS = range(9)
COLUMNS = 9
VARIABLE = -1  # as SIZE: any number of values
NONE = -1  # as DEFAULT: the feature is required; as INDICES: not wanted

# `native.example_batches` and `native.sequences` read these from this module.
__all__ = ["PROBLEM", "REMEMBERED"]


@njit(types.void(_BYTES, _INT64, _OUT_INT64), cache=True)
def fill_key_slots(keys, key_ends, slots):
    """Enter distinct keys into the hash table `slots`; -1 marks a free slot."""
    data, ends, table = address(keys), address(key_ends), address(slots)
    for f in range(len(key_ends) - 1):
        at, n = key_ends[f], key_ends[f + 1] - key_ends[f]
        slots[find_slot(data, at, n, data, ends, table, len(slots))] = f


@njit(forceinline=True)
def _is_simple(data, stop, kind, size, packed):
    """Return whether values found by `match_head` can be copied without parsing.

    The values are the last `packed` bytes before `stop`. They can be copied if they are
    one text, the right number of floats, or one integer of one byte.
    """
    if kind == TEXT:
        # After a matching head comes exactly one text, which fills the list.
        return size == 1 or size == VARIABLE
    if kind == FLOAT:
        return packed == 4 * size or (size == VARIABLE and packed & 3 == 0)
    # An integer of one byte has its highest bit clear.
    is_one = packed == 1 and load8(data, stop - 1) < uint64(128)
    return is_one and (size == 1 or size == VARIABLE)


@njit(forceinline=True)
def _put_simple(data, at, packed, kind, out, to):
    """Write the values of a row for which `_is_simple` returned true.

    By kind, `out` is the address of float32, of int64, or of pairs (position, size).
    """
    if kind == TEXT:
        put(out, 2 * to, at)
        put(out, 2 * to + 1, packed)
    elif kind == FLOAT and packed == 4:
        store32(out, 4 * to, load32(data, at))
    elif kind == FLOAT:
        move(out, 4 * to, data, at, packed)
    else:
        put(out, to, load8(data, at))


@njit(forceinline=True)
def _put_variable(splits, where, s, count, at, stop, packed):
    """Write how many values a row of a variable feature has, and where they are.

    `splits` are running totals, so the split before must be written already: rows are
    visited in order. `where` has (start, end, packed) for each row.
    """
    put(splits, s + 1, get(splits, s) + count)
    put(where, 3 * s, at)
    put(where, 3 * s + 1, stop)
    put(where, 3 * s + 2, packed)


@njit(forceinline=True)
def _put_default(kind, default, size, to, floats, ints, texts, own_floats, own_ints):
    """Write the default of a feature of fixed size that a record lacks."""
    for i in range(size):
        if kind == FLOAT:
            store32(floats, 4 * (to + i), load32(own_floats, 4 * (default + i)))
        elif kind == INT:
            put(ints, to + i, get(own_ints, default + i))
        else:
            # Texts of records have positions >= 0. Negative numbers stand for defaults:
            # -1 - d is default text d. `_fill_texts` tells them apart.
            put(texts, 2 * (to + i), -1 - (default + i))


@njit(forceinline=True)
def _skip_known(data, at, end, key, n):
    """Return the position behind an entry with this key and one value; else -1.

    The entry is not wanted, but its lengths are checked: a record with a broken entry
    must be left to the general reader, which reports it.
    """
    if at >= end or load8(data, at) != ONE:
        return int64(-1)
    start, stop = message_end(data, at + 1, end)
    if start < 0 or start >= stop or load8(data, start) != ONE:
        return int64(-1)
    start, key_end = message_end(data, start + 1, stop)
    if start < 0 or key_end - start != n or not is_same(data, start, data, key, n):
        return int64(-1)
    if key_end >= stop or load8(data, key_end) != TWO:
        return int64(-1)
    # The value must fill the rest of the entry. Further fields would be unusual.
    return stop if message_end(data, key_end + 1, stop)[1] == stop else int64(-1)


@njit(forceinline=True)
def _read_regular(
    data,
    at,
    end,
    row,
    n,
    features,
    order,
    heads,
    floats,
    ints,
    texts,
    splits,
    where,
    own_floats,
    own_ints,
):
    """Read a record whose entries come in a known order; return its bytes of texts.

    Row j of `order` is (position of the key, its size, its feature or -1) for entry j;
    there are n. Features that have a default or a variable size may be missing. Returns
    -1 for a record that does not fit. Some of its values may have been written by then;
    the general reader writes all of them again, to the same places.
    """
    # The record must be one field 1 (the Features) and nothing else.
    if at >= end or load8(data, at) != ONE:
        return -1
    at, stop = message_end(data, at + 1, end)
    if at < 0 or stop != end:
        return -1
    text_bytes = 0
    for j in range(n):
        f = get(order, 3 * j + 2)
        if f < 0:
            # An entry that is not wanted: step over it if it is there.
            key, size = get(order, 3 * j), get(order, 3 * j + 1)
            behind = _skip_known(data, at, end, key, size)
            at = behind if behind >= 0 else at
            continue
        head, feature = heads + 8 * get(heads, f), features + 8 * COLUMNS * f
        packed = match_head(data, at, end, head)
        kind, size = get(feature, KIND), get(feature, SIZE)
        to = get(feature, BASE) + row * size
        if packed < 0:
            # The feature is missing, or its entry has an unusual form. Treat it as
            # missing. If it was there after all, `at` stays in front of it, the end of
            # the record is not reached, and the last line returns -1.
            default = get(feature, DEFAULT)
            if size == VARIABLE:
                s = get(feature, SPLITS) + row
                _put_variable(splits, where, s, 0, -1, -1, -1)
            elif default == NONE:
                return -1
            else:
                _put_default(
                    *(kind, default, size, to, floats, ints, texts),
                    *(own_floats, own_ints),
                )
            continue
        at += get(head, 0)
        stop = at + packed
        if not _is_simple(data, stop, kind, size, packed):
            return -1
        if size == VARIABLE:
            count = packed >> 2 if kind == FLOAT else 1
            multiple = get(feature, MULTIPLE)
            if multiple != 1 and count % multiple != 0:
                return -1
            # `where` spans the Feature message, as `locate` has it, not the values.
            s = get(feature, SPLITS) + row
            _put_variable(splits, where, s, count, at - HEAD_OF_VALUE, stop, packed)
        else:
            out = texts if kind == TEXT else floats if kind == FLOAT else ints
            _put_simple(data, at, packed, kind, out, to)
        text_bytes += packed if kind == TEXT else 0
        at = stop
    return text_bytes if at == end else -1


@njit(forceinline=True)
def _find_order(seen, found, order, entries, n):
    """Return whether a record has each of the n features exactly once; set `order`.

    Such a record is the model that `_read_regular` compares later records with. `found`
    is used up.
    """
    if entries > REMEMBERED:
        return False
    for j in range(entries):
        f = get(seen, 3 * j + 2)
        if f >= 0:
            # Marking the feature as taken shows a repeated key, of which the last
            # entry counts: `_read_regular` cannot know which is the last.
            if get(found, 3 * f) < 0:
                return False
            put(found, 3 * f, -1)
            n -= 1
    if n != 0:
        return False
    # Copy the rows: the general reader changes `seen` with every record it reads.
    for i in range(3 * entries):
        put(order, i, get(seen, i))
    return True


_SCANNED = (
    *(_BYTES, _INT64, _BYTES, _INT64, _INT64, _INT64, _INT64_2D, _FLOAT32, _INT64),
    *(_OUT_FLOAT32, _OUT_INT64, _OUT_INT64, _OUT_INT64, _OUT_INT64_2D),
    *(_OUT_INT64_2D, _OUT_INT64_2D, _OUT_INT64, _OUT_INT64),
)


@njit(types.int64(*_SCANNED), cache=True, nogil=True)
def scan(
    data,
    offsets,
    keys,
    key_ends,
    slots,
    heads,
    features,
    default_floats,
    default_ints,
    floats,
    ints,
    texts,
    splits,
    where,
    seen,
    found,
    order,
    problem,
):
    """Write features of fixed size; count and locate features of variable size.

    Record r is `data[offsets[r]:offsets[r + 1]]`. Outputs:

      floats, ints: Values of the features of fixed size.
      texts: Pairs (position, size) of the texts of features of fixed size. A position
        of -1 - d stands for default text d.
      splits, where: For a variable feature whose column SPLITS is s: row r has
        splits[s + r + 1] - splits[s + r] values, and where[s + r] is (start, end,
        packed) of its Feature message, as `locate` writes it.
      problem: The first problem, if there is one. Offsets that do not increase within
        `data` are one, OUTSIDE.

    `seen`, `found` and `order` are scratch memory.

    Returns:
      An upper bound of the bytes of all texts, without defaults; -1 if there is a
      problem.
    """
    text_bytes = 0
    seen[:] = -1
    for f in range(len(features)):
        if features[f, SIZE] == VARIABLE:
            splits[features[f, SPLITS]] = 0
    # Addresses, for the inner functions: see `memory.py`. The arrays are arguments, so
    # they live until this function returns.
    bytes_, seen_, found_ = address(data), address(seen), address(found)
    keys_, ends_, slots_ = address(keys), address(key_ends), address(slots)
    floats_, ints_, texts_ = address(floats), address(ints), address(texts)
    splits_, where_, order_ = address(splits), address(where), address(order)
    heads_, features_, wrong = address(heads), address(features), address(problem)
    own_floats, own_ints = address(default_floats), address(default_ints)
    regular = 0  # how many entries `order` has; 0 while it is not known
    for row in range(len(offsets) - 1):
        start, end = offsets[row], offsets[row + 1]
        if start < 0 or end < start or end > len(data):
            report(wrong, OUTSIDE, row, -1, 0, 0, 0)
            return -1
        if regular:
            read = _read_regular(
                *(bytes_, start, end, row, regular, features_, order_, heads_),
                *(floats_, ints_, texts_, splits_, where_, own_floats, own_ints),
            )
            if read >= 0:
                text_bytes += read
                continue
        # The general reader: find the entries, then read the value of each feature.
        found[:] = -1
        entries = locate(
            bytes_,
            start,
            end,
            ONE,
            keys_,
            ends_,
            slots_,
            len(slots),
            heads_,
            seen_,
            found_,
        )
        if entries < 0:
            report(wrong, MALFORMED, row, -1, -1 - entries - start, 0, 0)
            return -1
        for f in range(len(features)):
            wanted, size = features[f, KIND], features[f, SIZE]
            out = texts_ if wanted == TEXT else floats_ if wanted == FLOAT else ints_
            to = features[f, BASE] + row * size  # not used if the size is VARIABLE
            kind, count = UNSET, 0
            at, stop, packed = found[f, 0], found[f, 1], found[f, 2]
            if packed >= 0 and _is_simple(bytes_, stop, wanted, size, packed):
                if size != VARIABLE:
                    _put_simple(bytes_, stop - packed, packed, wanted, out, to)
                kind, count = wanted, packed >> 2 if wanted == FLOAT else 1
                text_bytes += packed if wanted == TEXT else 0
            elif at >= 0:
                # A variable feature is only counted here (capacity 0) and read again by
                # `fill`. The size of the whole message bounds the bytes of its texts.
                kind, count = values(bytes_, at, stop, wanted, out, to, max(size, 0))
                text_bytes += stop - at if wanted == TEXT else 0
            if count < 0:
                report(wrong, MALFORMED, row, f, -1 - count - start, 0, 0)
                return -1
            if kind != UNSET and kind != wanted:
                report(wrong, WRONG_KIND, row, f, at - start, wanted, kind)
                return -1
            if size == VARIABLE:
                multiple = features[f, MULTIPLE]
                if multiple != 1 and count % multiple != 0:
                    report(wrong, NOT_MULTIPLE, row, f, at - start, multiple, count)
                    return -1
                s = features[f, SPLITS] + row
                _put_variable(splits_, where_, s, count, at, stop, packed)
            elif kind == UNSET:
                default = features[f, DEFAULT]
                if default == NONE:
                    report(wrong, MISSING, row, f, 0, wanted, 0)
                    return -1
                _put_default(
                    *(wanted, default, size, to, floats_, ints_, texts_),
                    *(own_floats, own_ints),
                )
            elif count != size:
                report(wrong, WRONG_COUNT, row, f, at - start, size, count)
                return -1
        if _find_order(seen_, found_, order_, entries, len(features)):
            regular = entries
    return text_bytes


@njit(forceinline=True)
def _copy_text(data, size, start, length, out, to):
    """Copy a text to `out`, which has 8 spare bytes; return the position behind it."""
    if length <= 8 and start + 8 <= size:
        # Most texts are short. Copy 8 bytes with one load and one store, without a loop
        # over the length; the next text overwrites the excess.
        store64(out, to, load64(data, start))
    else:
        move(out, to, data, start, length)
    return to + length


@njit(forceinline=True)
def _fill_texts(data, size, defaults, default_ends, texts, n, out, to, offsets):
    """Copy n texts that `scan` located to `out[to:]`; return where they end."""
    for i in range(n):
        put(offsets, i, to)
        start, length = get(texts, 2 * i), get(texts, 2 * i + 1)
        if start < 0:  # default text -1 - start, see `_put_default`
            first = get(default_ends, -1 - start)
            length = get(default_ends, -start) - first
            move(out, to, defaults, first, length)
            to += length
        else:
            to = _copy_text(data, size, start, length, out, to)
    put(offsets, n, to)
    return to


@njit(
    types.Tuple((types.int64, _OUT_BYTES))(*_SCANNED, _BYTES, _INT64, _OUT_INT64),
    cache=True,
    nogil=True,
)
def scan_and_fill(
    data,
    record_ends,
    keys,
    key_ends,
    slots,
    heads,
    features,
    default_floats,
    default_ints,
    floats,
    ints,
    texts,
    splits,
    where,
    seen,
    found,
    order,
    problem,
    defaults,
    default_ends,
    offsets,
):
    """Run `scan`, then copy the texts; all features have a fixed size.

    Returns the result of `scan`, and the bytes of the texts of all features. One call
    instead of two, because each return to Python waits for the interpreter lock.
    """
    rows = len(record_ends) - 1
    text_bytes = scan(
        *(data, record_ends, keys, key_ends, slots, heads, features),
        *(default_floats, default_ints, floats, ints, texts, splits, where),
        *(seen, found, order, problem),
    )
    if text_bytes < 0:
        return text_bytes, empty(0, uint8)
    # The bytes that records can have, the defaults that every row can have, and eight
    # spare bytes for `_copy_text`.
    text = empty(text_bytes + rows * len(defaults) + 8, uint8)
    to = int64(0)
    for f in range(len(features)):
        if features[f, KIND] == TEXT:
            to = _fill_texts(
                *(address(data), len(data), address(defaults), address(default_ends)),
                *(address(texts) + 16 * features[f, BASE], rows * features[f, SIZE]),
                *(address(text), to, address(offsets) + 8 * features[f, OFFSETS]),
            )
    return text_bytes, text


@njit(forceinline=True)
def _fill_row(data, size, kind, n, at, stop, packed, out, base, pairs, to, offsets):
    """Write the n values of a row of a variable feature; return where its texts end.

    (at, stop, packed) is the row of `where`. Numbers go to `out` from item `base` on;
    texts go to the bytes of `out` from `to` on, and their offsets to `offsets`.
    """
    if packed >= 0 and _is_simple(data, stop, kind, n, packed):
        if kind != TEXT:
            _put_simple(data, stop - packed, packed, kind, out, base)
            return to
        put(offsets, 0, to)
        return _copy_text(data, size, stop - packed, packed, out, to)
    if kind != TEXT:
        values(data, at, stop, kind, out, base, n)
        return to
    # Several texts: their positions first, into scratch memory, then the bytes.
    values(data, at, stop, kind, pairs, 0, n)
    for i in range(n):
        put(offsets, i, to)
        start, length = get(pairs, 2 * i), get(pairs, 2 * i + 1)
        to = _copy_text(data, size, start, length, out, to)
    return to


@njit(
    types.void(
        *(_BYTES, types.int64, _INT64_2D, _BYTES, _INT64, _INT64, _INT64, _INT64_2D),
        *(_OUT_FLOAT32, _OUT_INT64, _OUT_INT64, _OUT_INT64),
        *(_OUT_BYTES, _OUT_INT64, _OUT_INT64_2D),
    ),
    cache=True,
    nogil=True,
)
def fill(
    data,
    rows,
    features,
    defaults,
    default_ends,
    fixed_texts,
    splits,
    where,
    floats,
    ints,
    longest,
    pairs,
    text,
    offsets,
    indices,
):
    """Write what `scan` counted: variable features, all texts, sparse indices.

    The texts of all features go to `text`, one feature after the other; `text` has 8
    spare bytes. Their offsets go to `offsets` from column OFFSETS on. longest[f] is set
    to the largest number of values in a row of the variable feature f. `pairs` is
    scratch memory of two integers for each text of a variable feature.

    `scan` has validated every message that is read here again, so errors are not
    checked a second time.
    """
    bytes_, text_, offsets_ = address(data), address(text), address(offsets)
    defaults_, ends_ = address(defaults), address(default_ends)
    floats_, ints_, texts_ = address(floats), address(ints), address(fixed_texts)
    splits_, where_, indices_ = address(splits), address(where), address(indices)
    pairs_ = address(pairs)
    to = 0
    for f in range(len(features)):
        kind, base, s = features[f, KIND], features[f, BASE], features[f, SPLITS]
        first_offset = offsets_ + 8 * features[f, OFFSETS]
        if features[f, SIZE] != VARIABLE:
            if kind == TEXT:
                to = _fill_texts(
                    *(bytes_, len(data), defaults_, ends_, texts_ + 16 * base),
                    *(rows * features[f, SIZE], text_, to, first_offset),
                )
            continue
        out = text_ if kind == TEXT else floats_ if kind == FLOAT else ints_
        i, most = features[f, INDICES], 0
        for row in range(features[f, ROWS]):
            first = get(splits_, s + row)
            n = get(splits_, s + row + 1) - first
            if n == 0:
                continue
            most = max(most, n)
            place = where_ + 24 * (s + row)  # three int64s for each row
            to = _fill_row(
                *(bytes_, len(data), kind, n, get(place, 0), get(place, 1)),
                *(get(place, 2), out, base + first, pairs_, to),
                first_offset + 8 * first,
            )
            # Sparse indices are pairs (row, position in the row).
            if i != NONE:
                for k in range(n):
                    put(indices_, 2 * i, row)
                    put(indices_, 2 * i + 1, k)
                    i += 1
        longest[f] = most
        if kind == TEXT:
            put(first_offset, get(splits_, s + features[f, ROWS]), to)
