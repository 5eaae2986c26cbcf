"""The compiled readers of the feature lists of SequenceExamples, a batch at a time.

A SequenceExample has feature lists in field 2: a map from a key to a FeatureList, which
is a sequence of Feature messages, one for each time step. (Field 1, the context, has
the layout of an Example and is read by `examples.py`.) Three calls read a list:

1. `scan_lists` finds the lists of all features and counts their steps.
2. `scan_steps` finds the steps of one feature and counts their values.
3. `examples.fill` writes the values of that feature, with a step as a row.
"""

# Numba reads the types from the signatures, so annotations are left out.
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
    """Read a field of a FeatureList; return where it ends, and where its step begins.

    The step is -1 if the field is something else.
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

    Record r has splits[f, r + 1] - splits[f, r] steps of feature f. where[f, r] is
    (start, end) of the FeatureList, or (-1, -1) if the record has none, which differs
    from an empty list. `seen` and `found` are scratch memory for `locate`. Returns
    False if there is a `problem`.
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
        # Heads are not matched here (0): the values of a FeatureList are messages.
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
    """Find the steps of feature f in all records, and count the values of each step.

    `where` [rows, 2] is the feature's part of what `scan_lists` wrote. `size` is how
    many values every step must have, or VARIABLE. Step i of the batch has
    counts[i + 1] - counts[i] values; steps[i] is set to (start, end, -1) of its Feature
    message, which is a row of `where` for `examples.fill`. Returns False if there is a
    `problem`.
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
            # Capacity 0: count the values, and write none (so no output is given).
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
