"""Compiled embedding lookups: `concat` copies rows, `sum_gradients` their gradients.

XLA calls these through its foreign function interface (see `call_frames.py`);
`native/table_rows.py` puts the calls into programs. All rows that an example looks up
are written side by side into one row of the output, float32 [B, N], where N is the sum
of the tables' widths:

    example 0:  | row of table 0 | row of table 1 | … |
    example 1:  | row of table 0 | row of table 1 | … |

`sum_gradients` takes the gradient of that array and sums, for one table, the parts of
all examples that looked up the same row.
"""

# Numba reads the types from the signatures, so annotations are left out.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

import numpy as np
from numba import cfunc, njit

from estimax.native.kernels import call_frames
from estimax.native.kernels.call_frames import (
    address,
    argument,
    arguments,
    describes_itself,
    dimension,
    ids,
    is_call,
    is_ids,
    is_matrix,
    matrix,
    output,
    refusal,
)
from estimax.native.kernels.memory import (
    ROWS_AHEAD,
    add_four,
    add_one,
    move,
    prefetch_to_read,
    store32,
)


@njit(forceinline=True)
def _copy(source, to, size):
    """Copy a row of `size` bytes, a multiple of 4, between two addresses."""
    # Sixteen bytes are one load and one store, which is faster than a loop over single
    # numbers. The count is a constant, so that `move` becomes no call of memmove.
    whole = size & ~15
    for at in range(0, whole, 16):
        move(to, at, source, at, 16)
    for at in range(whole, size, 4):
        move(to, at, source, at, 4)


@njit(forceinline=True)
def _add(source, to, size):
    """Add a row of float32s, `size` bytes, to another."""
    whole = size & ~15
    for at in range(0, whole, 16):
        add_four(to, at, source, at)
    for at in range(whole, size, 4):
        add_one(to, at, source, at)


@njit(error_model="numpy")
def _lay_part(table, which, out, step):
    """Copy the row of each id to `out`, `step` bytes apart; return a row's bytes."""
    wanted, last = ids(which), dimension(table, 0) - 1
    size, start = 4 * dimension(table, 1), address(table)
    for i in range(len(wanted)):
        if i + ROWS_AHEAD < len(wanted):
            prefetch_to_read(start + np.int64(wanted[i + ROWS_AHEAD]) * size, size)
        to = out + i * step
        # The output is not initialised, so a missing id must write its zeros.
        if wanted[i] < 0:
            for at in range(0, size, 4):
                store32(to, at, np.uint64(0))
        else:
            # An id beyond the table gives the last row, as XLA's gather does ("clip").
            row = start + min(np.int64(wanted[i]), last) * size
            _copy(row, to, size)
    return size


@njit
def _can_lay(frame):
    """Return whether the arguments are pairs (table, ids) that fit the output."""
    # At least one pair, an even number of arguments, one output.
    if not is_call(frame, 2, 1) or arguments(frame) & 1:
        return False
    out, width = output(frame, 0), 0
    if not is_matrix(out):
        return False
    for part in range(0, arguments(frame), 2):
        table = argument(frame, part)
        # A table without rows has no last row to clip to.
        if not is_matrix(table) or (dimension(table, 0) < 1 and dimension(out, 0)):
            return False
        if not is_ids(argument(frame, part + 1), dimension(out, 0)):
            return False
        width += dimension(table, 1)
    return width == dimension(out, 1)


@cfunc(call_frames.SIGNATURE, cache=True)
def concat(frame):
    """Look up rows: (table [V, D], ids [B]) for each part -> all rows [B, N].

    A negative id gives zeros.
    """
    if describes_itself(frame):
        return 0
    if not _can_lay(frame):
        return refusal(frame)
    # Table by table, so that the rows that are prefetched belong to the same table.
    # `out` moves to the right by the width of each table.
    out, step = address(output(frame, 0)), 4 * dimension(output(frame, 0), 1)
    for part in range(0, arguments(frame), 2):
        out += _lay_part(argument(frame, part), argument(frame, part + 1), out, step)
    return 0


@njit
def _can_add(frame):
    """Return whether the gradients have the columns that the output sums."""
    # Arguments behind the fourth are not read; they only make XLA wait for them.
    if not is_call(frame, 4, 1):
        return False
    grads, sums = argument(frame, 0), output(frame, 0)
    if not is_matrix(grads) or not is_matrix(sums):
        return False
    size = dimension(grads, 0)
    if not is_ids(argument(frame, 1), 1) or not is_ids(argument(frame, 2), size):
        return False
    start = np.int64(ids(argument(frame, 1))[0])
    fits = start >= 0 and start + dimension(sums, 1) <= dimension(grads, 1)
    return fits and is_ids(argument(frame, 3), size)


@cfunc(call_frames.SIGNATURE, cache=True)
def sum_gradients(frame):
    """Sum gradients: (grads [B, N], start, ids [B], places [B], …) -> sums [U, D].

    Columns `start` to `start + D` of `grads` belong to the table. Row places[i] of the
    result gets the gradient of example i. Examples with a negative id, or with a place
    outside the result, add nothing.
    """
    if describes_itself(frame):
        return 0
    if not _can_add(frame):
        return refusal(frame)
    grads, step = address(argument(frame, 0)), 4 * dimension(argument(frame, 0), 1)
    grads += 4 * np.int64(ids(argument(frame, 1))[0])
    wanted, places = ids(argument(frame, 2)), ids(argument(frame, 3))
    # XLA does not clear the memory of outputs.
    matrix(output(frame, 0))[:] = 0
    rows, size = dimension(output(frame, 0), 0), 4 * dimension(output(frame, 0), 1)
    sums = address(output(frame, 0))
    for i in range(len(wanted)):
        # No bounds check: a prefetch behind the last row is safe.
        prefetch_to_read(grads + (i + ROWS_AHEAD) * step, size)
        if wanted[i] >= 0 and 0 <= places[i] < rows:
            _add(grads + i * step, sums + places[i] * size, size)
    return 0


call_frames.register("estimax_lay_rows", concat)
call_frames.register("estimax_add_rows", sum_gradients)
