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
    id_matrix,
    ids,
    is_call,
    is_id_matrix,
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
def _lay_column(table, wanted, out, step):
    """Copy the row of each id to `out`, `step` bytes apart."""
    last = dimension(table, 0) - 1
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


@njit
def _can_lay(frame):
    """Return whether the arguments are (table, ids, starts) that fit the output."""
    # At least one part, three arguments for each, one output.
    if not is_call(frame, 3, 1) or arguments(frame) % 3:
        return False
    out, width = output(frame, 0), 0
    if not is_matrix(out):
        return False
    for part in range(0, arguments(frame), 3):
        table, which = argument(frame, part), argument(frame, part + 1)
        # A table without rows has no last row to clip to.
        if not is_matrix(table) or (dimension(table, 0) < 1 and dimension(out, 0)):
            return False
        if not is_id_matrix(which, dimension(out, 0)):
            return False
        lines, starts = dimension(which, 0), argument(frame, part + 2)
        if not is_ids(starts, lines):
            return False
        if not _are_columns(starts, dimension(table, 1), dimension(out, 1)):
            return False
        width += lines * dimension(table, 1)
    return width == dimension(out, 1)


@njit
def _are_columns(starts, width, count):
    """Return whether `width` columns from each start on are among `count` columns."""
    first = ids(starts)
    fits = True
    for line in range(len(first)):
        fits &= first[line] >= 0 and first[line] + width <= count
    return fits


@cfunc(call_frames.SIGNATURE, cache=True)
def concat(frame):
    """Look up rows: (table [V, D], ids [n, B], starts [n]) for each part -> [B, N].

    Line i of the ids fills D columns of the output from starts[i] on. A negative id
    gives zeros.
    """
    if describes_itself(frame):
        return 0
    if not _can_lay(frame):
        return refusal(frame)
    # Column by column, so that the rows that are prefetched belong to the same table.
    out, step = address(output(frame, 0)), 4 * dimension(output(frame, 0), 1)
    for part in range(0, arguments(frame), 3):
        wanted = id_matrix(argument(frame, part + 1))
        starts = ids(argument(frame, part + 2))
        for line in range(len(starts)):
            to = out + 4 * np.int64(starts[line])
            _lay_column(argument(frame, part), wanted[line], to, step)
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
    starts, which, places = argument(frame, 1), argument(frame, 2), argument(frame, 3)
    size = dimension(grads, 0)
    if not is_id_matrix(which, size) or not is_id_matrix(places, size):
        return False
    lines = dimension(which, 0)
    if not is_ids(starts, lines) or dimension(places, 0) != lines:
        return False
    return _are_columns(starts, dimension(sums, 1), dimension(grads, 1))


@njit
def _add_column(grads, step, wanted, places, out):
    """Add the gradient of each example, `step` bytes apart, to the row at its place."""
    rows, size = dimension(out, 0), 4 * dimension(out, 1)
    sums = address(out)
    for i in range(len(wanted)):
        # No bounds check: a prefetch behind the last row is safe.
        prefetch_to_read(grads + (i + ROWS_AHEAD) * step, size)
        if wanted[i] >= 0 and 0 <= places[i] < rows:
            _add(grads + i * step, sums + places[i] * size, size)


@cfunc(call_frames.SIGNATURE, cache=True)
def sum_gradients(frame):
    """Sum gradients: (grads [B, N], starts [n], ids, places [n, B], …) -> [U, D].

    D columns of `grads` from each start on belong to the table. Row places[line, i] of
    the result gets the gradient of example i there. Examples with a negative id, or
    with a place outside the result, add nothing.
    """
    if describes_itself(frame):
        return 0
    if not _can_add(frame):
        return refusal(frame)
    grads, step = address(argument(frame, 0)), 4 * dimension(argument(frame, 0), 1)
    starts = ids(argument(frame, 1))
    wanted, places = id_matrix(argument(frame, 2)), id_matrix(argument(frame, 3))
    # XLA does not clear the memory of outputs.
    matrix(output(frame, 0))[:] = 0
    for line in range(len(starts)):
        first = grads + 4 * np.int64(starts[line])
        _add_column(first, step, wanted[line], places[line], output(frame, 0))
    return 0


call_frames.register("estimax_lay_rows", concat)
call_frames.register("estimax_add_rows", sum_gradients)
