"""The compiled loops that write Example messages from columns.

`measure` computes the size of each message. `encode` writes the messages one behind the
other. A message begins with its length, so its size must be known before its content is
written; see `protos.py` for the wire format. Neither function checks bounds:
`native/encoding.py` has compared all splits and offsets with the arrays they refer to.

All values of a kind are in one array (`floats`, `ints`, or the offsets of `text`). Row
r of feature f has the values `base + splits[s + r]` to `base + splits[s + r + 1]` of
that array, where base and s are the columns BASE and SPLITS of the table.

An entry is written as below. Every length counts the bytes behind it, up to the end of
the entry or of its own message:

    0A entry-length 0A key-length key 12 value-length kind list-length [0A size] values
"""

# Numba reads the types from the signatures, so annotations are left out.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

from numba import njit, types
from numpy import int64, uint64

from estimax.native.kernels.memory import (
    address,
    get,
    load32,
    load64,
    move,
    store8,
    store32,
)
from estimax.native.kernels.protos import FLOAT, INT, TEXT

_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_INT64 = types.Array(types.int64, 1, "C", readonly=True)
_INT64_2D = types.Array(types.int64, 2, "C", readonly=True)
_FLOAT32 = types.Array(types.float32, 1, "C", readonly=True)
_OUT_BYTES = types.Array(types.uint8, 1, "C")
_OUT_INT64 = types.Array(types.int64, 1, "C")

# Columns of the table: the kind, the index of the first value, of the first row split.
KIND, BASE, SPLITS = range(3)
COLUMNS = 3
_ARRAYS = (_BYTES, _INT64, _INT64_2D, _INT64, _FLOAT32, _INT64, _BYTES, _INT64)


@njit(forceinline=True)
def _varint_size(value):
    """Return how many bytes `_put_varint` writes: one for every seven bits."""
    size = 1
    while value >= uint64(128):
        value >>= uint64(7)
        size += 1
    return size


@njit(forceinline=True)
def _put_varint(out, at, value):
    """Write a varint; return the position behind it."""
    while value >= uint64(128):
        # Seven bits, and the highest bit to say that more follow. `store8` writes the
        # low byte only, so the higher bits of the value need no mask.
        store8(out, at, value | uint64(128))
        value >>= uint64(7)
        at += 1
    store8(out, at, value)
    return at + 1


@njit(forceinline=True)
def _put_head(out, at, tag, length):
    """Write a tag of one byte and a length; return the position behind them."""
    store8(out, at, uint64(tag))
    return _put_varint(out, at + 1, uint64(length))


@njit(forceinline=True)
def _with_head(length):
    """Return the size of a message of `length` bytes, its tag and length included."""
    return 1 + _varint_size(uint64(length)) + length


@njit(forceinline=True)
def _measure_values(kind, first, n, ints, ends):
    """Return the size of n values: packed numbers, or texts with tags and lengths."""
    size = int64(0)
    if kind == FLOAT:
        size = 4 * n
    elif kind == INT:
        for i in range(first, first + n):
            size += _varint_size(load64(ints, 8 * i))
    else:
        for i in range(first, first + n):
            size += _with_head(get(ends, i + 1) - get(ends, i))
    return size


@njit(forceinline=True)
def _list_size(kind, packed):
    """Return the size of a list: numbers are packed in one field, texts are fields."""
    return packed if kind == TEXT or packed == 0 else _with_head(packed)


@njit(forceinline=True)
def _entry_size(key_size, list_size):
    """Return the size of a map entry: key, and value (the Feature around the list)."""
    return _with_head(key_size) + _with_head(_with_head(list_size))


@njit(types.void(*_ARRAYS, _OUT_INT64), cache=True, nogil=True)
def measure(keys, key_ends, table, splits, floats, ints, text, text_offsets, sizes):
    """Write the size of the Features message of every row, without tag and length."""
    for row in range(len(sizes)):
        total = int64(0)
        for f in range(len(table)):
            s = table[f, SPLITS] + row
            n = splits[s + 1] - splits[s]
            if n == 0:
                continue
            kind, first = table[f, KIND], table[f, BASE] + splits[s]
            packed = _measure_values(
                kind, first, n, address(ints), address(text_offsets)
            )
            key_size = key_ends[f + 1] - key_ends[f]
            total += _with_head(_entry_size(key_size, _list_size(kind, packed)))
        sizes[row] = total


@njit(types.void(*_ARRAYS, _INT64, _OUT_BYTES, _OUT_INT64), cache=True, nogil=True)
def encode(
    keys, key_ends, table, splits, floats, ints, text, text_offsets, sizes, out, ends
):
    """Write every row as an Example; row r ends at ends[r + 1].

    `sizes` is what `measure` wrote. Features without values in a row are left out.
    """
    to = address(out)
    at = int64(0)
    ends[0] = 0
    for row in range(len(sizes)):
        at = _put_head(to, at, 10, sizes[row])
        for f in range(len(table)):
            s = table[f, SPLITS] + row
            n = splits[s + 1] - splits[s]
            if n == 0:
                continue
            kind, first = table[f, KIND], table[f, BASE] + splits[s]
            packed = _measure_values(
                kind, first, n, address(ints), address(text_offsets)
            )
            key_size = key_ends[f + 1] - key_ends[f]
            list_size = _list_size(kind, packed)
            # From the outside in: the entry, its key, its value, the list.
            at = _put_head(to, at, 10, _entry_size(key_size, list_size))
            at = _put_head(to, at, 10, key_size)
            move(out, at, keys, key_ends[f], key_size)
            at = _put_head(to, at + key_size, 18, _with_head(list_size))
            # The kind is the number of the list's field in the Feature.
            at = _put_head(to, at, 8 * kind + 2, list_size)
            if kind == TEXT:
                for i in range(first, first + n):
                    start, size = text_offsets[i], text_offsets[i + 1] - text_offsets[i]
                    at = _put_head(to, at, 10, size)
                    move(out, at, text, start, size)
                    at += size
                continue
            # Numbers are packed: one field that holds them all.
            at = _put_head(to, at, 10, packed)
            for i in range(first, first + n):
                if kind == FLOAT:
                    store32(out, at, load32(floats, 4 * i))
                    at += 4
                else:
                    at = _put_varint(to, at, uint64(ints[i]))
        ends[row + 1] = at
