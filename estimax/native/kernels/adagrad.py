"""The compiled update of Adagrad: each row is read, updated and written once.

Called by XLA; `native/table_rows.py` puts the call into programs.
"""

# Numba has its own types; annotations would say nothing more.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

import numpy as np
from numba import cfunc, njit

from estimax.native.kernels import call_frames
from estimax.native.kernels.call_frames import (
    address,
    argument,
    describes_itself,
    dimension,
    ids,
    is_call,
    is_ids,
    is_matrix,
    is_number,
    matrix,
    number,
    output,
    refusal,
)
from estimax.native.kernels.memory import ROWS_AHEAD, prefetch_to_write


@njit
def _can_update(frame):
    """Whether the shapes agree, and the outputs are in the memory of the arguments."""
    if not is_call(frame, 7, 2) or not is_matrix(argument(frame, 1)):
        return False
    for i in range(2, 5):
        if not is_number(argument(frame, i)):
            return False
    size, width = dimension(argument(frame, 1), 0), dimension(argument(frame, 1), 1)
    if not is_ids(argument(frame, 0), size):
        return False
    for i in range(2):
        given, out = argument(frame, 5 + i), output(frame, i)
        if not is_matrix(given) or not is_matrix(out):
            return False
        if address(given) != address(out) or dimension(out, 1) != width:
            return False
    return dimension(output(frame, 0), 0) == dimension(output(frame, 1), 0)


# Contracted as XLA does it: a table that is updated as a whole gets the same bits.
@cfunc(call_frames.SIGNATURE, cache=True, error_model="numpy", fastmath={"contract"})
def update(frame):
    """(ids, grads, rate, inner, outer, table, accumulator) -> (table, accumulator).

    Both are outputs in the memory of the arguments. Ids outside the table are padding.
    """
    if describes_itself(frame):
        return 0
    if not _can_update(frame):
        return refusal(frame)
    rows, grads = ids(argument(frame, 0)), matrix(argument(frame, 1))
    rate, inner = number(argument(frame, 2)), number(argument(frame, 3))
    outer = number(argument(frame, 4))
    table, squares = matrix(output(frame, 0)), matrix(output(frame, 1))
    table_at, squares_at = address(output(frame, 0)), address(output(frame, 1))
    size = 4 * table.shape[1]
    for i in range(len(rows)):
        if i + ROWS_AHEAD < len(rows):  # a prefetch may name any address
            start = np.int64(rows[i + ROWS_AHEAD]) * size
            prefetch_to_write(table_at + start, size)
            prefetch_to_write(squares_at + start, size)
        row = rows[i]
        if row < 0 or row >= len(table):
            continue
        for d in range(table.shape[1]):
            g = grads[i, d]
            a = squares[row, d] + g * g
            squares[row, d] = a
            table[row, d] -= rate * g / (np.sqrt(a + inner) + outer)
    return 0


call_frames.register("estimax_adagrad", update)
