"""The compiled loops over Example messages, a batch at a time.

Parsing takes two calls. `scan` walks the records, writes the numbers of features of
fixed size, remembers where texts and features of variable size lie, and counts those.
`fill` then writes these into arrays of exactly the right size. If all features have a
fixed size, `scan_and_fill` does both.

`native/example_batches.py` allocates the arrays. All features of a kind share a flat
array, and `features`, a table with a row for each feature, says where theirs begin.
"""

# Numba has its own types, in the signatures; annotations would say nothing more.
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

# Columns of the table that describes the wanted features:
#   KIND      TEXT, FLOAT or INT
#   SIZE      how many values a row has, or VARIABLE
#   BASE      the first value in the array of its kind (and fixed or variable size)
#   OFFSETS   the first of the offsets of its texts
#   SPLITS    the first of its row splits and of its rows in `where`, if variable
#   INDICES   the first of its sparse indices, or NONE
#   DEFAULT   the first of its default values among all of its kind, or NONE
#   MULTIPLE  what must divide the number of values, if variable
#   ROWS      the number of its rows, if variable
KIND, SIZE, BASE, OFFSETS, SPLITS, INDICES, DEFAULT, MULTIPLE, ROWS = range(9)
COLUMNS = 9
VARIABLE = -1  # as SIZE: any number of values
NONE = -1  # as DEFAULT: the feature is required; as INDICES: not wanted

# Used by `native.example_batches` and `native.sequences`, too.
__all__ = ["PROBLEM", "REMEMBERED"]


@njit(types.void(_BYTES, _INT64, _OUT_INT64), cache=True)
def fill_key_slots(keys, key_ends, slots):
    """Enter distinct keys into open-addressed slots, which are -1 where free."""
    data, ends, table = address(keys), address(key_ends), address(slots)
    for f in range(len(key_ends) - 1):
        at, n = key_ends[f], key_ends[f + 1] - key_ends[f]
        slots[find_slot(data, at, n, data, ends, table, len(slots))] = f


@njit(forceinline=True)
def _is_simple(data, stop, kind, size, packed):
    """Return whether the packed values can be copied without a look at them.

    These are the bytes of an entry's only list, which end at `stop`: one text, floats
    of the right number, or one integer below 128.
    """
    if kind == TEXT:
        return size == 1 or size == VARIABLE
    if kind == FLOAT:
        return packed == 4 * size or (size == VARIABLE and packed & 3 == 0)
    is_one = packed == 1 and load8(data, stop - 1) < uint64(128)
    return is_one and (size == 1 or size == VARIABLE)


@njit(forceinline=True)
def _put_simple(data, at, packed, kind, out, to):
    """Write the values of a row for which `_is_simple`."""
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
    """Write how many values a row of a variable feature has, and where they lie."""
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
            # Negative: the number of a default, in place of a place in a record.
            put(texts, 2 * (to + i), -1 - (default + i))


@njit(forceinline=True)
def _skip_known(data, at, end, key, n):
    """Return the place behind an entry that has this key and a value; else -1."""
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

    Entry j of `order` is (place of the key, its size, its feature or -1). Features that
    have a default or a variable size may be missing. Returns -1 for a record that has
    anything else: the general reader then writes all of its values again.
    """
    if at >= end or load8(data, at) != ONE:
        return -1
    at, stop = message_end(data, at + 1, end)
    if at < 0 or stop != end:
        return -1
    text_bytes = 0
    for j in range(n):
        f = get(order, 3 * j + 2)
        if f < 0:
            key, size = get(order, 3 * j), get(order, 3 * j + 1)
            behind = _skip_known(data, at, end, key, size)
            at = behind if behind >= 0 else at
            continue
        head, feature = heads + 8 * get(heads, f), features + 8 * COLUMNS * f
        packed = match_head(data, at, end, head)
        kind, size = get(feature, KIND), get(feature, SIZE)
        to = get(feature, BASE) + row * size
        if packed < 0:
            # The feature is missing, or is written in another form. In that case `at`
            # stays before it, so that the end of the record is not reached below.
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
    """Return whether a record has each of the n features once; then set `order`."""
    if entries > REMEMBERED:
        return False
    for j in range(entries):
        f = get(seen, 3 * j + 2)
        if f >= 0:
            # A feature that is taken away cannot come twice.
            if get(found, 3 * f) < 0:
                return False
            put(found, 3 * f, -1)
            n -= 1
    if n != 0:
        return False
    # A copy, as later records may change what was seen.
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
    """Write the features of fixed size, count and locate the variable ones.

    Row r of a variable feature, whose column SPLITS is s, has splits[s + r + 1] -
    splits[s + r] values; where[s + r] is (start, end, packed) of its Feature message,
    as `locate` has it. Text i of the features of fixed size is at texts[2 * i] and has
    texts[2 * i + 1] bytes. `seen`, `found` and `order` are scratch memory.

    Offsets that do not increase within `data` are a problem, OUTSIDE.

    Returns how many bytes the texts have at most, without defaults; -1 if there is a
    `problem`.
    """
    text_bytes = 0
    seen[:] = -1
    for f in range(len(features)):
        if features[f, SIZE] == VARIABLE:
            splits[features[f, SPLITS]] = 0
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
            # Nearly all records of nearly all files have the entries of one before.
            read = _read_regular(
                *(bytes_, start, end, row, regular, features_, order_, heads_),
                *(floats_, ints_, texts_, splits_, where_, own_floats, own_ints),
            )
            if read >= 0:
                text_bytes += read
                continue
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
            to = features[f, BASE] + row * size
            kind, count = UNSET, 0
            at, stop, packed = found[f, 0], found[f, 1], found[f, 2]
            if packed >= 0 and _is_simple(bytes_, stop, wanted, size, packed):
                if size != VARIABLE:
                    _put_simple(bytes_, stop - packed, packed, wanted, out, to)
                kind, count = wanted, packed >> 2 if wanted == FLOAT else 1
                text_bytes += packed if wanted == TEXT else 0
            elif at >= 0:
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
    """Copy a text to `out`, which has 8 bytes to spare; return the place behind it."""
    if length <= 8 and start + 8 <= size:
        # Most are short: 8 bytes at once, and the next one overwrites the excess.
        store64(out, to, load64(data, start))
    else:
        move(out, to, data, start, length)
    return to + length


@njit(forceinline=True)
def _fill_texts(data, size, defaults, default_ends, texts, n, out, to, offsets):
    """Copy n texts that `scan` located to `out` from place `to`; return their end."""
    for i in range(n):
        put(offsets, i, to)
        start, length = get(texts, 2 * i), get(texts, 2 * i + 1)
        if start < 0:
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
    """Return the result of `scan`, and the texts of all features, which have a size.

    One call in place of two: each return to Python waits for its lock.
    """
    rows = len(record_ends) - 1
    text_bytes = scan(
        *(data, record_ends, keys, key_ends, slots, heads, features),
        *(default_floats, default_ints, floats, ints, texts, splits, where),
        *(seen, found, order, problem),
    )
    if text_bytes < 0:
        return text_bytes, empty(0, uint8)
    # Eight bytes more than there can be: short texts are copied eight at once.
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
    """Write the n values of a row of a variable feature; return where its texts end."""
    if packed >= 0 and _is_simple(data, stop, kind, n, packed):
        if kind != TEXT:
            _put_simple(data, stop - packed, packed, kind, out, base)
            return to
        put(offsets, 0, to)
        return _copy_text(data, size, stop - packed, packed, out, to)
    if kind != TEXT:
        values(data, at, stop, kind, out, base, n)
        return to
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
    """Write what `scan` has counted: variable features, all texts, sparse indices.

    The texts of all features go to `text`, which has 8 bytes to spare, one feature
    after the other, and their `offsets` to the places that column OFFSETS says.
    longest[f] is set to the most values that a row of the variable feature f has.
    `pairs` is scratch memory of two integers for each of the variable texts.
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
            place = where_ + 24 * (s + row)
            to = _fill_row(
                *(bytes_, len(data), kind, n, get(place, 0), get(place, 1)),
                *(get(place, 2), out, base + first, pairs_, to),
                first_offset + 8 * first,
            )
            if i != NONE:
                for k in range(n):
                    put(indices_, 2 * i, row)
                    put(indices_, 2 * i + 1, k)
                    i += 1
        longest[f] = most
        if kind == TEXT:
            put(first_offset, get(splits_, s + features[f, ROWS]), to)
