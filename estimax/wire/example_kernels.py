"""The compiled loops over Example messages, a batch at a time.

Import this only through `compiled.load`, which announces the compilation. Parsing is
two calls: `scan` walks the records, writes what has a fixed size and counts the rest;
`fill` writes the rest into arrays that then have exactly the right size.
"""

# Numba has its own types, in the signatures; annotations would say nothing more.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

from numba import njit, types
from numpy import uint64

from estimax.wire.loads import (
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
from estimax.wire.proto_kernels import (
    FLOAT,
    INT,
    MALFORMED,
    MISSING,
    NOT_MULTIPLE,
    ONE,
    TEXT,
    UNSET,
    WRONG_COUNT,
    WRONG_KIND,
    locate,
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

# Columns of the table that describes the wanted features.
KIND, SIZE, BASE, OFFSETS, SPLITS, INDICES, DEFAULT, MULTIPLE, ROWS = range(9)
COLUMNS = 9
VARIABLE = -1  # as SIZE: any number of values
NONE = -1  # as DEFAULT: the feature is required; as INDICES: not wanted


@njit(forceinline=True)
def _is_simple(data, stop, kind, size, packed):
    """Whether the packed values before `stop` are one, or floats of the right count."""
    if kind == TEXT:
        return size == 1 or size == VARIABLE
    if kind == FLOAT:
        return packed == 4 * size or (size == VARIABLE and packed & 3 == 0)
    is_one = packed == 1 and load8(data, stop - 1) < uint64(128)
    return is_one and (size == 1 or size == VARIABLE)


@njit(forceinline=True)
def _put_simple(data, at, packed, kind, out, to, size):
    """Write the simple values of a fixed feature; those of others wait for `fill`."""
    if size == VARIABLE:
        return
    if kind == TEXT:
        put(out, 2 * to, at)
        put(out, 2 * to + 1, packed)
    elif kind == FLOAT and packed == 4:
        store32(out, 4 * to, load32(data, at))
    elif kind == FLOAT:
        move(out, 4 * to, data, at, packed)
    else:
        put(out, to, load8(data, at))


@njit(
    types.int64(
        *(_BYTES, _INT64, _BYTES, _INT64, _INT64, _INT64, _INT64_2D, _FLOAT32, _INT64),
        *(_OUT_FLOAT32, _OUT_INT64, _OUT_INT64, _OUT_INT64, _OUT_INT64_2D),
        *(_OUT_INT64, _OUT_INT64_2D, _OUT_INT64_2D, _OUT_INT64),
    ),
    cache=True,
    nogil=True,
)
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
    longest,
    seen,
    found,
    problem,
):
    """Walk the records: write fixed features, count and remember the variable ones.

    Row r of a variable feature has splits[s + r + 1] - splits[s + r] values, with s
    in its column SPLITS, and lies at where[s + r], as `locate` says; no row has more
    than longest[f]. Text i of the fixed ones lies at texts[2 * i], and is
    texts[2 * i + 1] long. `seen` and `found` are room to work in.

    Returns how many bytes the texts have at most, defaults aside; -1 if there is a
    `problem`.
    """
    text_bytes = 0
    seen[:] = -1
    longest[:] = 0
    for f in range(len(features)):
        if features[f, SIZE] == VARIABLE:
            splits[features[f, SPLITS]] = 0
    bytes_, seen_, found_ = address(data), address(seen), address(found)
    keys_, ends_, slots_ = address(keys), address(key_ends), address(slots)
    floats_, ints_, texts_ = address(floats), address(ints), address(texts)
    heads_, wrong = address(heads), address(problem)
    for row in range(len(offsets) - 1):
        start, end = offsets[row], offsets[row + 1]
        if start < 0 or end < start or end > len(data):
            report(wrong, MALFORMED, row, -1, 0, 0, 0)
            return -1
        found[:] = -1
        at = locate(
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
        if at < 0:
            report(wrong, MALFORMED, row, -1, -1 - at - start, 0, 0)
            return -1
        for f in range(len(features)):
            wanted, size = features[f, KIND], features[f, SIZE]
            out = texts_ if wanted == TEXT else floats_ if wanted == FLOAT else ints_
            to = features[f, BASE] + row * size
            kind, count = UNSET, 0
            at, stop, packed = found[f, 0], found[f, 1], found[f, 2]
            if packed >= 0 and _is_simple(bytes_, stop, wanted, size, packed):
                # Nearly all: one value, or an unknown number of which one comes.
                _put_simple(bytes_, stop - packed, packed, wanted, out, to, size)
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
                s, multiple = features[f, SPLITS] + row, features[f, MULTIPLE]
                if multiple != 1 and count % multiple != 0:
                    report(wrong, NOT_MULTIPLE, row, f, at - start, multiple, count)
                    return -1
                splits[s + 1] = splits[s] + count
                longest[f] = max(longest[f], count)
                where[s, 0], where[s, 1], where[s, 2] = at, stop, packed
            elif kind == UNSET:
                default = features[f, DEFAULT]
                if default == NONE:
                    report(wrong, MISSING, row, f, 0, wanted, 0)
                    return -1
                for i in range(size):
                    if wanted == FLOAT:
                        floats[to + i] = default_floats[default + i]
                    elif wanted == INT:
                        ints[to + i] = default_ints[default + i]
                    else:
                        # Negative: the number of a default, not a place in a record.
                        texts[2 * (to + i)] = -1 - (default + i)
            elif count != size:
                report(wrong, WRONG_COUNT, row, f, at - start, size, count)
                return -1
    return text_bytes


@njit(forceinline=True)
def _gather(data, size, defaults, default_ends, texts, n, out, to, offsets):
    """Put texts one behind the other into `out` from `to`, and where each begins."""
    for i in range(n):
        put(offsets, i, to)
        start, length = get(texts, 2 * i), get(texts, 2 * i + 1)
        if start < 0:
            first = get(default_ends, -1 - start)
            length = get(default_ends, -start) - first
            move(out, to, defaults, first, length)
        elif length <= 8 and start + 8 <= size:
            # Most are short: 8 bytes at once, and the next one overwrites the excess.
            store64(out, to, load64(data, start))
        else:
            move(out, to, data, start, length)
        to += length
    put(offsets, n, to)
    return to


@njit(
    types.void(
        *(_BYTES, types.int64, _INT64_2D, _BYTES, _INT64, _INT64, _INT64, _INT64_2D),
        *(_OUT_FLOAT32, _OUT_INT64, _OUT_INT64),
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
    texts,
    text,
    offsets,
    indices,
):
    """Write what `scan` has counted: variable features, all texts, sparse indices.

    The strings go to `text` one feature after the other, with their `offsets` in it;
    it has 8 bytes to spare.
    """
    bytes_, text_, offsets_ = address(data), address(text), address(offsets)
    defaults_, ends_ = address(defaults), address(default_ends)
    floats_, ints_, texts_ = address(floats), address(ints), address(texts)
    to = 0
    for f in range(len(features)):
        kind, base, s = features[f, KIND], features[f, BASE], features[f, SPLITS]
        places, n = texts_, rows * features[f, SIZE]
        if features[f, SIZE] != VARIABLE:
            places = address(fixed_texts)
        else:
            out = texts_ if kind == TEXT else floats_ if kind == FLOAT else ints_
            i = features[f, INDICES]
            for row in range(features[f, ROWS]):
                first = splits[s + row]
                n = splits[s + row + 1] - first
                if n == 0:
                    continue
                at, stop = where[s + row, 0], where[s + row, 1]
                packed = where[s + row, 2]
                if packed >= 0 and _is_simple(bytes_, stop, kind, n, packed):
                    _put_simple(
                        bytes_, stop - packed, packed, kind, out, base + first, n
                    )
                else:
                    values(bytes_, at, stop, kind, out, base + first, n)
                if i != NONE:
                    for k in range(n):
                        indices[i, 0], indices[i, 1] = row, k
                        i += 1
            n = splits[s + features[f, ROWS]]
        if kind == TEXT:
            to = _gather(
                bytes_,
                len(data),
                defaults_,
                ends_,
                places + 16 * base,
                n,
                text_,
                to,
                offsets_ + 8 * features[f, OFFSETS],
            )
