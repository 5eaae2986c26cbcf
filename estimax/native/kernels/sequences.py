"""The compiled loops over the feature lists of SequenceExamples, a batch at a time.

`scan_lists` finds the lists and counts their steps. `scan_steps` finds the steps of one
feature and counts their values. `examples.fill` then writes the values, with a step for
each row.
"""

# Numba has its own types, in the signatures; annotations would say nothing more.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

from numba import njit, types
from numpy import int64

from estimax.native.kernels.memory import address
from estimax.native.kernels.protos import (
    MALFORMED,
    ONE,
    OUTSIDE,
    TWO,
    UNSET,
    WRONG_COUNT,
    WRONG_KIND,
    locate,
    message_end,
    report,
    skip,
    values,
    varint,
)

_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_INT64 = types.Array(types.int64, 1, "C", readonly=True)
_INT64_2D = types.Array(types.int64, 2, "C", readonly=True)
_OUT_INT64 = types.Array(types.int64, 1, "C")
_OUT_INT64_2D = types.Array(types.int64, 2, "C")
_OUT_INT64_3D = types.Array(types.int64, 3, "C")
VARIABLE = -1


@njit(forceinline=True)
def _next_step(data, at, end):
    """Read a field of a FeatureList; return the place behind it.

    The second value is where its step begins, or -1 if it is another field.
    """
    tag, at = varint(data, at, end)
    if at < 0:
        return at, int64(-1)
    if tag != ONE:
        return skip(data, tag, at, end), int64(-1)
    start, stop = message_end(data, at, end)
    return stop, start


@njit(
    types.boolean(
        *(_BYTES, _INT64, _BYTES, _INT64, _INT64),
        *(_OUT_INT64_2D, _OUT_INT64_3D, _OUT_INT64_2D, _OUT_INT64_2D, _OUT_INT64),
    ),
    cache=True,
    nogil=True,
)
def scan_lists(
    data, offsets, keys, key_ends, slots, splits, where, seen, found, problem
):
    """Find the wanted feature lists of SequenceExamples, and count their steps.

    Row r of feature f has splits[f, r + 1] - splits[f, r] steps; where[f, r] is (start,
    end) of its FeatureList, or -1 if the record has none. `seen` and `found` are
    scratch memory, as `locate` takes them. Returns False if there is a `problem`.
    """
    seen[:] = -1
    splits[:, 0] = 0
    bytes_, seen_, found_ = address(data), address(seen), address(found)
    keys_, ends_, slots_ = address(keys), address(key_ends), address(slots)
    wrong = address(problem)
    for row in range(len(offsets) - 1):
        start, end = offsets[row], offsets[row + 1]
        if start < 0 or end < start or end > len(data):
            report(wrong, OUTSIDE, row, -1, 0, 0, 0)
            return False
        found[:] = -1
        at = locate(
            bytes_, start, end, TWO, keys_, ends_, slots_, len(slots), 0, seen_, found_
        )
        if at < 0:
            report(wrong, MALFORMED, row, -1, -1 - at - start, 0, 0)
            return False
        for f in range(len(key_ends) - 1):
            at, stop, count = found[f, 0], found[f, 1], 0
            where[f, row, 0], where[f, row, 1] = at, stop
            while 0 <= at < stop:
                at, step = _next_step(bytes_, at, stop)
                if at < 0:
                    report(wrong, MALFORMED, row, f, -1 - at - start, 0, 0)
                    return False
                count += step >= 0
            splits[f, row + 1] = splits[f, row] + count
    return True


@njit(
    types.boolean(
        *(_BYTES, _INT64, _INT64_2D, types.int64, types.int64, types.int64),
        *(_OUT_INT64, _OUT_INT64_2D, _OUT_INT64),
    ),
    cache=True,
    nogil=True,
)
def scan_steps(data, offsets, where, f, kind, size, counts, steps, problem):
    """Find the steps of feature f and set `counts` to the splits of their values.

    `where` is that of the feature, `size` how many values every step must have, or
    VARIABLE. steps[i] is set to (start, end, -1) of a Feature message, as `fill` takes
    it. Returns False if there is a `problem`.
    """
    bytes_, wrong = address(data), address(problem)
    i = 0
    counts[0] = 0
    for row in range(len(where)):
        at, stop = where[row, 0], where[row, 1]
        while 0 <= at < stop and i < len(steps):
            at, step = _next_step(bytes_, at, stop)
            if step < 0:
                continue
            found, count = values(bytes_, step, at, kind, 0, 0, 0)
            if count < 0:
                report(wrong, MALFORMED, row, f, -1 - count - offsets[row], 0, 0)
                return False
            if found != UNSET and found != kind:
                report(wrong, WRONG_KIND, row, f, step - offsets[row], kind, found)
                return False
            if size != VARIABLE and count != size:
                report(wrong, WRONG_COUNT, row, f, step - offsets[row], size, count)
                return False
            steps[i, 0], steps[i, 1], steps[i, 2] = step, at, -1
            counts[i + 1] = counts[i] + count
            i += 1
    return True
