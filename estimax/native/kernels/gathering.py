"""Compiled loops that gather strings by row number.

Two calls, because the size of the output is not known before: `measure_gathered` sums
the lengths, `gather` copies the bytes. `native/string_arrays.py` allocates the arrays.
"""

# Numba reads the types from the signatures, so annotations are left out.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

from numba import njit, types, uint64

from estimax.native.kernels.memory import load64, store64

_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_INT64 = types.Array(types.int64, 1, "C", readonly=True)
_OUT_BYTES = types.Array(types.uint8, 1, "C")
_OUT_INT64 = types.Array(types.int64, 1, "C")


@njit(types.int64(_INT64, _INT64, types.int64, _OUT_INT64), cache=True, nogil=True)
def measure_gathered(offsets, index, size, out):
    """Write where each gathered string begins; return the total number of bytes.

    Returns -1 - row if a row does not exist, or is not within the `size` bytes of data.
    """
    total = 0
    out[0] = 0
    for i in range(len(index)):
        row = index[i]
        if row < 0 or row >= len(offsets) - 1:
            return -1 - max(row, 0)
        start, end = offsets[row], offsets[row + 1]
        if start < 0 or end < start or end > size:
            return -1 - row
        total += end - start
        out[i + 1] = total
    return total


@njit(
    types.void(_BYTES, _INT64, _INT64, _INT64, _OUT_BYTES),
    cache=True,
    nogil=True,
    boundscheck=False,
)
def gather(data, offsets, index, out_offsets, out):
    """Copy the strings to `out`, which has 8 spare bytes at its end.

    Strings are copied in steps of eight bytes. The last step may copy up to seven bytes
    too many. The next string overwrites them, and the spare bytes take those of the
    last string.
    """
    # Eight bytes cannot be read behind this position. Strings that end after it are
    # copied byte by byte.
    last = len(data) - 8
    for i in range(len(index)):
        at = offsets[index[i]]
        length = offsets[index[i] + 1] - at
        to = out_offsets[i]
        if at + length <= last:
            for k in range(0, length, 8):
                store64(out, to + k, uint64(load64(data, at + k)))
        else:
            for k in range(length):
                out[to + k] = data[at + k]
