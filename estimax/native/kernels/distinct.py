"""The compiled loop behind `native/distinct.py`: one pass over sorted ids."""

# Numba has its own types, in the signatures; annotations would say nothing more.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

from numba import njit, types

_OUT = types.Array(types.int32, 2, "C")
_LIMITS = types.Array(types.int32, 1, "C", readonly=True)


@njit(
    [
        types.void(
            types.Array(wide, 2, "C", readonly=True), types.int64, _LIMITS, _OUT, _OUT
        )
        for wide in (types.int32, types.int64)
    ],
    cache=True,
    nogil=True,
)
def number_distinct(packed, shift, limits, distinct, places):
    """The distinct ids of each row, padded with its limit, and where each id is there.

    A row of `packed` is sorted: an id above the `shift` bits of its position. Negative
    ids are missing, and get the place -1.
    """
    mask = (1 << shift) - 1
    for row in range(len(packed)):
        last, rank = -1, -1
        for i in range(packed.shape[1]):
            found, position = packed[row, i] >> shift, packed[row, i] & mask
            if found < 0:
                places[row, position] = -1
                continue
            if found != last:
                last, rank = found, rank + 1
                distinct[row, rank] = found
            places[row, position] = rank
        distinct[row, rank + 1 :] = limits[row]
