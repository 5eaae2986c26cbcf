"""The compiled Adagrad update of some rows of an embedding table, in place.

XLA calls `update` through its foreign function interface (see `call_frames.py`);
`native.table_rows.update_adagrad` puts the call into a program. Each row of table and
accumulator is read, updated and written once while it is in the cache. The same update
in XLA takes several passes: gather, update, scatter.
"""

# Numba reads the types from the signatures, so annotations are left out.
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
    """Return whether the shapes agree and the outputs share the arguments' memory."""
    # Arguments 0 and 1 are ids [U] and gradients [U, D].
    if not is_call(frame, 7, 2) or not is_matrix(argument(frame, 1)):
        return False
    # Arguments 2 to 4 are the learning rate and the two epsilons.
    for i in range(2, 5):
        if not is_number(argument(frame, i)):
            return False
    size, width = dimension(argument(frame, 1), 0), dimension(argument(frame, 1), 1)
    if not is_ids(argument(frame, 0), size):
        return False
    # Arguments 5 and 6, table and accumulator [V, D], are declared as aliases of the
    # outputs. Rows that are not updated are never copied, so if XLA had allocated a
    # separate output they would be garbage: compare the addresses.
    for i in range(2):
        given, out = argument(frame, 5 + i), output(frame, i)
        if not is_matrix(given) or not is_matrix(out):
            return False
        if address(given) != address(out) or dimension(out, 1) != width:
            return False
    return dimension(output(frame, 0), 0) == dimension(output(frame, 1), 0)


# "contract" lets LLVM fuse a multiplication and an addition, as XLA does. Then rows
# updated here have the same bits as a table that XLA updates as a whole. No other
# liberty of fastmath is granted.
@cfunc(call_frames.SIGNATURE, cache=True, error_model="numpy", fastmath={"contract"})
def update(frame):
    """Update rows: (ids, grads, rate, inner, outer, table, accumulator) -> (…, …).

    The outputs are table and accumulator, in the memory of the arguments. `inner` and
    `outer` are the epsilons inside and outside the square root. Ids outside the table
    are padding and are skipped. Ids must be distinct: a repeated id would be updated
    twice with partial gradients.
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
        # Start fetching a later row of both matrices while this one is computed. A
        # padding id gives an address outside the table, which a prefetch may have.
        if i + ROWS_AHEAD < len(rows):
            start = np.int64(rows[i + ROWS_AHEAD]) * size
            prefetch_to_write(table_at + start, size)
            prefetch_to_write(squares_at + start, size)
        row = rows[i]
        if row < 0 or row >= len(table):
            continue
        for d in range(table.shape[1]):
            # The accumulator is updated first, and the step divides by the new value,
            # as in TensorFlow and optax.
            g = grads[i, d]
            a = squares[row, d] + g * g
            squares[row, d] = a
            table[row, d] -= rate * g / (np.sqrt(a + inner) + outer)
    return 0


call_frames.register("estimax_adagrad", update)
