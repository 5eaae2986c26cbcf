"""The compiled loop of `native.distinct.distinct_ids`: one pass over sorted ids."""

# Numba reads the types from the signatures, so annotations are left out.
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
    """Write the distinct ids of each row, and the place of every id among them.

    Each item of `packed` [R, S] holds an id and its position in the row:
    `id << shift | position`. Every row is sorted, so equal ids are neighbours and their
    positions say where they came from. `distinct` [R, S] gets the distinct ids in
    rising order, padded with limits[row]. `places` [R, S] gets, at the position of an
    id, its index in `distinct`; or -1 for a missing (negative) id.
    """
    mask = (1 << shift) - 1
    for row in range(len(packed)):
        # Valid ids are at least 0, so -1 differs from the first of them.
        last, rank = -1, -1
        for i in range(packed.shape[1]):
            # The shift is arithmetic: a negative id stays negative. `& mask` is right
            # for it too, since two's complement keeps the low bits.
            found, position = packed[row, i] >> shift, packed[row, i] & mask
            if found < 0:
                places[row, position] = -1
                continue
            if found != last:
                last, rank = found, rank + 1
                distinct[row, rank] = found
            places[row, position] = rank
        distinct[row, rank + 1 :] = limits[row]
