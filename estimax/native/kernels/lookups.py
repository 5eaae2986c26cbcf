"""Compiled loops that copy rows of tables to a network's input, and sum gradients.

Called by XLA; `native/table_rows.py` puts the calls into programs.
"""

# Numba has its own types; annotations would say nothing more.
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
    # Sixteen bytes are one load and one store; a loop over single numbers is slower.
    whole = size & ~15
    for at in range(0, whole, 16):
        move(to, at, source, at, 16)
    for at in range(whole, size, 4):
        move(to, at, source, at, 4)


@njit(forceinline=True)
def _add(source, to, size):
    whole = size & ~15
    for at in range(0, whole, 16):
        add_four(to, at, source, at)
    for at in range(whole, size, 4):
        add_one(to, at, source, at)


@njit(error_model="numpy")
def _lay_part(table, which, out, step):
    """Copy the rows of ids to places `step` bytes apart; returns a row's bytes."""
    wanted, last = ids(which), dimension(table, 0) - 1
    size, start = 4 * dimension(table, 1), address(table)
    for i in range(len(wanted)):
        if i + ROWS_AHEAD < len(wanted):
            prefetch_to_read(start + np.int64(wanted[i + ROWS_AHEAD]) * size, size)
        to = out + i * step
        if wanted[i] < 0:
            for at in range(0, size, 4):
                store32(to, at, np.uint64(0))
        else:
            row = start + min(np.int64(wanted[i]), last) * size
            _copy(row, to, size)
    return size


@njit
def _can_lay(frame):
    """Whether every part is a table with rows and an id for each row of the output."""
    if not is_call(frame, 2, 1) or arguments(frame) & 1:
        return False
    out, width = output(frame, 0), 0
    if not is_matrix(out):
        return False
    for part in range(0, arguments(frame), 2):
        table = argument(frame, part)
        if not is_matrix(table) or (dimension(table, 0) < 1 and dimension(out, 0)):
            return False
        if not is_ids(argument(frame, part + 1), dimension(out, 0)):
            return False
        width += dimension(table, 1)
    return width == dimension(out, 1)


@cfunc(call_frames.SIGNATURE, cache=True)
def lay(frame):
    """(table [V, D], ids [B]) for each part -> the rows of all, side by side [B, N].

    A negative id has no row, and gives zeros.
    """
    if describes_itself(frame):
        return 0
    if not _can_lay(frame):
        return refusal(frame)
    out, step = address(output(frame, 0)), 4 * dimension(output(frame, 0), 1)
    for part in range(0, arguments(frame), 2):
        out += _lay_part(argument(frame, part), argument(frame, part + 1), out, step)
    return 0


@njit
def _can_add(frame):
    """Whether the gradients hold what the output sums, from `start` on."""
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
def add(frame):
    """(grads [B, N], start, ids [B], places [B], …) -> sums of rows' grads [U, D].

    The row's numbers begin at `start` of an example's. A negative id has no row, and
    neither has one beyond the table, whose place may be outside.
    """
    if describes_itself(frame):
        return 0
    if not _can_add(frame):
        return refusal(frame)
    grads, step = address(argument(frame, 0)), 4 * dimension(argument(frame, 0), 1)
    grads += 4 * np.int64(ids(argument(frame, 1))[0])
    wanted, places = ids(argument(frame, 2)), ids(argument(frame, 3))
    matrix(output(frame, 0))[:] = 0
    rows, size = dimension(output(frame, 0), 0), 4 * dimension(output(frame, 0), 1)
    sums = address(output(frame, 0))
    for i in range(len(wanted)):
        # Beyond the last row too: a prefetch may name any address.
        prefetch_to_read(grads + (i + ROWS_AHEAD) * step, size)
        if wanted[i] >= 0 and 0 <= places[i] < rows:
            _add(grads + i * step, sums + places[i] * size, size)
    return 0


call_frames.register("estimax_lay_rows", lay)
call_frames.register("estimax_add_rows", add)
