"""Embedding lookups, gradient sums and table updates by kernels that XLA calls.

    if table_rows.has_lookup_kernels():
        laid = table_rows.concat_rows([(table, ids, starts), ...])      # [B, N]

On a CPU, XLA gathers the rows of each table into an array, selects the rows of each
example, concatenates them, and does the reverse for the gradient. Each of these passes
reads and writes memory that is not in a cache. The kernels copy, sum or update a row in
one pass, and prefetch the next rows meanwhile.

Measured on the step of the Criteo-shaped benchmark (26 tables of 100,000 rows of 16,
batches of 1,024, Adagrad; nine rounds in turns): 5.4 ms of CPU time with the kernels,
6.5 ms without. The update saves 9 % of the step, the lookups another 7 %; without the
update kernel the lookups save nothing.

Adam changes every row at every step. The same step with Adam takes 21 ms of CPU time
with its kernel and 115 ms without. The kernel alone takes 15 to 28 ms, depending on
where the arrays lie; reading and writing 1 GB takes 15 ms.

These functions are called while a program is traced. Call them only if
`has_lookup_kernels`, `has_update_kernel` or `has_adam_kernel` returns true: then the
kernels agreed with NumPy on a tiny case in this process.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from estimax.native import loading


def has_lookup_kernels() -> bool:
    """Return whether `concat_rows` and `sum_row_gradients` may be used here."""
    return _has_cpu() and _found("lookups", _lookups_agree)


def has_update_kernel() -> bool:
    """Return whether `update_adagrad` may be used in this process."""
    return _has_cpu() and _found("adagrad", _adagrad_agrees)


def has_adam_kernel() -> bool:
    """Return whether `update_adam` may be used in this process.

    Wait for its compiler, about 3 seconds: XLA's update rounds in another way, and a
    run that was interrupted must end with the same bits when it goes on later.
    """
    return _has_cpu() and _found("adam", _adam_agrees, waits=True)


def _found(name: str, proof: loading.Proof, *, waits: bool = False) -> bool:
    # A program is traced once. All programs of a process use the same kernels, so those
    # that are compiled meanwhile are for the next process.
    return loading.kernels(name, proof, waits=waits, replaces=False) is not None


class AdamNumbers(NamedTuple):
    """The numbers of one Adam step, scalars, in the order that the kernel reads."""

    beta_1: Any
    rest_1: Any  # the weight of the gradient in m
    beta_2: Any
    rest_2: Any  # the weight of the squared gradient in v
    rate: Any  # the learning rate with both bias corrections
    epsilon: Any
    shrinkage: Any  # by which part of itself the table shrinks first; usually 0


def concat_rows(
    parts: Sequence[tuple[jax.Array, jax.Array, Sequence[int]]],
) -> jax.Array:
    """Return the rows of several tables side by side.

    Args:
      parts: Each is a table, float32 [V, D] with V > 0; ids, int32 [n, B]; and n
        columns of the result, at which the rows of each line of ids begin. A negative
        id gives zeros, an id beyond the table gives the last row.

    Returns:
      float32 [B, N], where N is the sum of the widths, n times D, of all parts. Each
      column must be in one part.
    """
    size, filled = parts[0][1].shape[1], np.zeros(0, np.int64)
    arguments: list[Any] = []
    for table, ids, starts in parts:
        _check("table", table, np.float32, (None, None))
        _check("ids", ids, np.int32, (len(starts), size))
        if size and not table.shape[0]:
            raise ValueError("table: expected at least one row")
        columns = np.add.outer(starts, np.arange(table.shape[1])).reshape(-1)
        filled = np.concatenate([filled, columns])
        arguments += [table, ids, np.array(starts, np.int32)]
    if not np.array_equal(np.sort(filled), np.arange(filled.size)):
        raise ValueError("starts: expected each column of the result once")
    return _call("estimax_lay_rows", (size, filled.size), *arguments)


def sum_row_gradients(
    grads: jax.Array,
    starts: Sequence[int],
    ids: jax.Array,
    places: jax.Array,
    shape: tuple[int, int],
    after: jax.Array,
) -> jax.Array:
    """Return the sums of the gradients of a table's rows.

    Args:
      grads: Gradient of the result of `concat_rows`, float32 [B, N].
      starts: The n columns in it at which the rows of the table begin.
      ids: int32 [n, B]; an example with a negative id adds nothing.
      places: int32 [n, B]; the row of the result that each example adds to.
      shape: The shape of the result, [U, D].
      after: The result of `concat_rows`. The kernel does not read it. It makes XLA run
        the lookup before the update that uses these sums; otherwise XLA would copy the
        tables, because it could not update them in place.
    """
    _check("grads", grads, np.float32, (None, None))
    _check("ids", ids, np.int32, (len(starts), grads.shape[0]))
    _check("places", places, np.int32, (len(starts), grads.shape[0]))
    for start in starts:
        if not 0 <= start <= start + shape[1] <= grads.shape[1]:
            raise ValueError(f"columns {start}+{shape[1]} are not in {grads.shape}")
    firsts = np.array(starts, np.int32)
    return _call("estimax_add_rows", shape, grads, firsts, ids, places, after)


def update_adagrad(
    table: jax.Array,
    accumulator: jax.Array,
    ids: jax.Array,
    grads: jax.Array,
    rate: jax.Array,
    epsilons: tuple[float, float],
) -> tuple[jax.Array, jax.Array]:
    """Update some rows of a table and its accumulator in place; return both.

    The update is `rate * grad / (sqrt(accumulator + inner) + outer)`.

    Args:
      table: float32 [V, D].
      accumulator: Sums of squared gradients, float32 [V, D].
      ids: Distinct ids, int32 [U]; ids outside the table are padding.
      grads: Gradients of the rows, float32 [U, D].
      rate: The learning rate.
      epsilons: The pair (inner, outer).
    """
    _check("table", table, np.float32, (None, None))
    _check("accumulator", accumulator, np.float32, table.shape)
    _check("ids", ids, np.int32, (None,))
    _check("grads", grads, np.float32, (ids.shape[0], table.shape[1]))
    numbers = [jnp.asarray(value, jnp.float32) for value in (rate, *epsilons)]
    whole = _struct(table.shape)
    call = jax.ffi.ffi_call(
        "estimax_adagrad", (whole, whole), input_output_aliases={5: 0, 6: 1}
    )
    updated, squares = call(ids, grads, *numbers, table, accumulator)
    return updated, squares


def update_adam(
    table: jax.Array,
    m: jax.Array,
    v: jax.Array,
    ids: jax.Array,
    grads: jax.Array,
    numbers: AdamNumbers,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Update a table and both moments in place, where a few rows have a gradient.

    All other rows are updated with a gradient of 0. The change is
    `rate * m / (sqrt(v) + epsilon)`, with the new moments.

    Args:
      table: float32 [V, D].
      m: The first moment, float32 [V, D].
      v: The second moment, float32 [V, D].
      ids: Distinct ids, int32 [U], ascending; ids outside the table are padding.
      grads: Gradients of the rows, float32 [U, D].
      numbers: The numbers of this step.

    Returns:
      The new table, m and v.
    """
    _check("table", table, np.float32, (None, None))
    _check("m", m, np.float32, table.shape)
    _check("v", v, np.float32, table.shape)
    _check("ids", ids, np.int32, (None,))
    _check("grads", grads, np.float32, (ids.shape[0], table.shape[1]))
    whole = _struct(table.shape)
    first = 2 + len(numbers)
    call = jax.ffi.ffi_call(
        "estimax_adam",
        (whole, whole, whole),
        input_output_aliases={first + i: i for i in range(3)},
    )
    scalars = [jnp.asarray(value, jnp.float32) for value in numbers]
    new, new_m, new_v = call(ids, grads, *scalars, table, m, v)
    return new, new_m, new_v


def _check(
    name: str, array: jax.Array, dtype: Any, shape: tuple[int | None, ...]
) -> None:
    """Raise `ValueError` unless an array has this dtype and shape; None is any size."""
    sizes = zip(shape, array.shape, strict=False)
    fits = array.ndim == len(shape) and all(
        wanted in (None, found) for wanted, found in sizes
    )
    if not fits or array.dtype != dtype:
        wanted = ", ".join("?" if size is None else str(size) for size in shape)
        raise ValueError(
            f"{name}: expected {np.dtype(dtype).name} [{wanted}], got {array.dtype} "
            f"{list(array.shape)}"
        )


def _call(name: str, shape: tuple[int, ...], *arguments: Any) -> jax.Array:
    call: Any = jax.ffi.ffi_call(name, _struct(shape))
    found: jax.Array = call(*arguments)
    return found


def _struct(shape: tuple[int, ...]) -> Any:
    struct: Any = jax.ShapeDtypeStruct  # its constructor is not annotated
    return struct(shape, jnp.float32)


def _lookups_agree(kernels: ModuleType) -> bool:
    """Return whether lookups in two tiny tables and gradients agree with NumPy."""
    numbers = np.arange(12, dtype=np.float32).reshape(4, 3)
    tables = [numbers, np.eye(5, dtype=np.float32)]
    # The second table has two columns, with the first table between them.
    ids = [
        np.array([[3, -1, 0]], np.int32),
        np.array([[4, 4, 9], [1, 2, -1]], np.int32),
    ]
    starts = [(5,), (0, 8)]
    places = np.array([[1, 1, 0], [2, 1, 0]], np.int32)

    def by_kernels(tables: Any, ids: Any, places: Any) -> Any:
        laid = concat_rows(list(zip(tables, ids, starts, strict=True)))
        return laid, sum_row_gradients(laid, starts[1], ids[1], places, (3, 5), laid)

    laid = np.zeros((3, 13), np.float32)
    for table, lines, firsts in zip(tables, ids, starts, strict=True):
        for which, first in zip(lines, firsts, strict=True):
            rows = table[np.minimum(which, len(table) - 1)]
            laid[:, first : first + rows.shape[1]] = np.where(
                which[:, None] < 0, 0, rows
            )
    sums = np.zeros((3, 5), np.float32)
    np.add.at(sums, places[0], laid[:, :5])
    np.add.at(sums, places[1][:2], laid[:2, 8:])
    return _agree(by_kernels, (laid, sums), tables, ids, places)


def _adagrad_agrees(kernels: ModuleType) -> bool:
    """Return whether an update of two rows of a tiny table agrees with NumPy."""
    table = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
    squares = np.full((4, 3), 0.1, np.float32)
    ids = np.array([1, 3, 4, 7], np.int32)  # the last two are padding
    grads = np.linspace(1, 2, 12, dtype=np.float32).reshape(4, 3)

    def by_kernels(table: Any, squares: Any, ids: Any, grads: Any) -> Any:
        rate, epsilons = jnp.float32(0.5), (1e-3, 1e-4)
        return update_adagrad(table, squares, ids, grads, rate, epsilons)

    new, new_squares = table.copy(), squares.copy()
    new_squares[[1, 3]] += grads[:2] ** 2
    step = 0.5 * grads[:2] / (np.sqrt(new_squares[[1, 3]] + 1e-3) + 1e-4)
    new[[1, 3]] -= step
    return _agree(by_kernels, (new, new_squares), table, squares, ids, grads)


def _adam_agrees(kernels: ModuleType) -> bool:
    """Return whether an update of a tiny table agrees with NumPy."""
    table = np.linspace(-1, 1, 15, dtype=np.float32).reshape(5, 3)
    m, v = table[::-1] / 7, table * table
    ids = np.array([1, 3, 5, 7], np.int32)  # the last two are padding
    grads = np.linspace(1, 2, 12, dtype=np.float32).reshape(4, 3)
    numbers = AdamNumbers(0.9, 0.2, 0.99, 0.03, 0.5, 1e-3, 0.125)

    def by_kernels(table: Any, m: Any, v: Any, ids: Any, grads: Any) -> Any:
        return update_adam(table, m, v, ids, grads, numbers)

    whole = np.zeros_like(table)
    whole[[1, 3]] = grads[:2]
    new_m, new_v = 0.9 * m + 0.2 * whole, 0.99 * v + 0.03 * whole**2
    new = table - 0.125 * table - 0.5 * new_m / (np.sqrt(new_v) + 1e-3)
    return _agree(by_kernels, (new, new_m, new_v), table, m, v, ids, grads)


def _agree(by_kernels: Any, expected: Any, *arguments: Any) -> bool:
    """Return whether a function gives the expected arrays on a CPU, up to rounding."""
    # This may be called while a model is traced. `ensure_compile_time_eval` keeps the
    # tiny case from becoming part of the model.
    cpu = jax.local_devices(backend="cpu")[0]
    with jax.ensure_compile_time_eval(), jax.default_device(cpu):
        found = jax.jit(by_kernels)(*arguments)
        pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
        return all(np.allclose(a, b, rtol=1e-6, atol=1e-7) for a, b in pairs)


@functools.cache
def _has_cpu() -> bool:
    """Return whether JAX has a CPU device; JAX_PLATFORMS may exclude it."""
    try:
        return bool(jax.local_devices(backend="cpu"))
    except RuntimeError:
        return False
