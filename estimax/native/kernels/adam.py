"""The compiled Adam update of a whole embedding table, in place and in one pass.

XLA calls `update` through its foreign function interface (see `call_frames.py`);
`native.table_rows.update_adam` puts the call into a program. A row without a gradient
changes too: its moments decay, and it moves by what is left of them. So each step reads
and writes table and moments whole, and takes as long as memory does. XLA also writes
and reads a gradient as large as the table, and reads the moments once for each output.
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

_NUMBERS = 7  # arguments 2 to 8
_ARRAYS = 3  # table, m and v: arguments 9 to 11, and the outputs


@njit
def _can_update(frame):
    """Return whether the shapes agree and the outputs share the arguments' memory."""
    # Arguments 0 and 1 are ids [U] and gradients [U, D].
    arguments = 2 + _NUMBERS + _ARRAYS
    if not is_call(frame, arguments, _ARRAYS) or not is_matrix(argument(frame, 1)):
        return False
    for i in range(_NUMBERS):
        if not is_number(argument(frame, 2 + i)):
            return False
    size, width = dimension(argument(frame, 1), 0), dimension(argument(frame, 1), 1)
    if not is_ids(argument(frame, 0), size):
        return False
    # Table and moments [V, D] are declared as aliases of the outputs. They are read
    # from the outputs' memory: compare the addresses.
    for i in range(_ARRAYS):
        given, out = argument(frame, 2 + _NUMBERS + i), output(frame, i)
        if not is_matrix(given) or not is_matrix(out):
            return False
        if address(given) != address(out) or dimension(out, 1) != width:
            return False
        if dimension(out, 0) != dimension(output(frame, 0), 0):
            return False
    return _ascend(ids(argument(frame, 0)), dimension(output(frame, 0), 0))


@njit
def _ascend(rows, count):
    """Return whether each id of the table is larger than those before it."""
    last = -1
    for row in rows:
        if 0 <= row < count:
            if row <= last:
                return False
            last = row
    return True


# "contract" lets LLVM fuse a multiplication and an addition, as XLA does. No other
# liberty of fastmath is granted.
@njit(error_model="numpy", fastmath={"contract"})
def _decay(w, m, v, beta_1, beta_2, rate, epsilon, shrinkage):
    """Update values without a gradient."""
    # Two loops, because a value times a shrinkage of 0 is not 0 if it is infinite.
    if shrinkage != 0:
        for i in range(len(w)):
            w[i] -= shrinkage * w[i]
    for i in range(len(w)):
        first, second = beta_1 * m[i], beta_2 * v[i]
        m[i], v[i] = first, second
        w[i] -= rate * first / (np.sqrt(second) + epsilon)


@cfunc(call_frames.SIGNATURE, cache=True, error_model="numpy", fastmath={"contract"})
def update(frame):
    """Update a table: (ids, grads, numbers, table, m, v) -> (table, m, v).

    The outputs are in the memory of the arguments. The numbers are those of
    `native.table_rows.AdamNumbers`, in its order. Ids outside the table are padding and
    are skipped; the others must ascend.
    """
    if describes_itself(frame):
        return 0
    if not _can_update(frame):
        return refusal(frame)
    rows, grads = ids(argument(frame, 0)), matrix(argument(frame, 1))
    beta_1, rest_1 = number(argument(frame, 2)), number(argument(frame, 3))
    beta_2, rest_2 = number(argument(frame, 4)), number(argument(frame, 5))
    rate, epsilon = number(argument(frame, 6)), number(argument(frame, 7))
    shrinkage = number(argument(frame, 8))
    table = matrix(output(frame, 0))
    count, width = table.shape
    w = table.reshape(-1)
    m, v = matrix(output(frame, 1)).reshape(-1), matrix(output(frame, 2)).reshape(-1)
    done = 0  # values before this place are updated
    for i in range(len(rows)):
        row = rows[i]
        if row < 0 or row >= count:
            continue
        start = np.int64(row) * width
        a, b, c = w[done:start], m[done:start], v[done:start]
        _decay(a, b, c, beta_1, beta_2, rate, epsilon, shrinkage)
        for d in range(width):
            at, g = start + d, grads[i, d]
            first = beta_1 * m[at] + rest_1 * g
            second = beta_2 * v[at] + rest_2 * (g * g)
            m[at], v[at] = first, second
            value = w[at]
            if shrinkage != 0:
                value -= shrinkage * value
            w[at] = value - rate * first / (np.sqrt(second) + epsilon)
        done = start + width
    a, b, c = w[done:], m[done:], v[done:]
    _decay(a, b, c, beta_1, beta_2, rate, epsilon, shrinkage)
    return 0


call_frames.register("estimax_adam", update)
