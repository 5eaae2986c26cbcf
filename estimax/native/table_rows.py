"""Calls that XLA programs for a CPU make to compiled code: rows of embedding tables.

    if table_rows.can_lay():
        laid = table_rows.lay_rows([(table, ids), ...])      # [B, N]

XLA gathers the rows of each table into an array, takes from those what each example
has, lays all of it together, and goes back the same way with the gradient. Each pass
goes through memory that no cache holds. Here a row is copied, summed or updated while
it is at hand, and the next ones are fetched meanwhile.

The functions are traced; a program holds a call only if `can_lay` or `can_update` said,
in this process, that the kernels gave the results of XLA on a tiny case.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from estimax.native import loading


def can_lay() -> bool:
    """Return whether `lay_rows` and `add_rows` may be used in this process."""
    return _has_cpu() and loading.kernels("lookups", _lookups_agree) is not None


def can_update() -> bool:
    """Return whether `update_adagrad` may be used in this process."""
    return _has_cpu() and loading.kernels("adagrad", _adagrad_agrees) is not None


def lay_rows(parts: Sequence[tuple[jax.Array, jax.Array]]) -> jax.Array:
    """Return the rows of several tables side by side.

    Args:
      parts: Pairs of a table, float32 [V, D], V > 0, and ids, int32 [B]. A negative
        id gives zeros, one beyond the table its last row.

    Returns:
      float32 [B, N], N being the sum of the tables' widths.
    """
    size = parts[0][1].shape[0]
    for table, ids in parts:
        _check("table", table, np.float32, (None, None))
        _check("ids", ids, np.int32, (size,))
        if size and not table.shape[0]:
            raise ValueError("table: expected at least one row")
    width = sum(table.shape[1] for table, _ in parts)
    arguments = [array for part in parts for array in part]
    return _call("estimax_lay_rows", (size, width), *arguments)


def add_rows(
    grads: jax.Array,
    start: int,
    ids: jax.Array,
    places: jax.Array,
    shape: tuple[int, int],
    after: jax.Array,
) -> jax.Array:
    """Return the sums of the gradients of a table's rows.

    Args:
      grads: Of what `lay_rows` returned, float32 [B, N].
      start: Where the table's columns begin in it.
      ids: int32 [B]; an example with a negative id adds nothing.
      places: int32 [B]; which row of the result an example adds to, if it has one.
      shape: [U, D], of the result.
      after: What `lay_rows` returned. It is not read: it tells XLA that tables are read
        before what follows from these sums, their update. Otherwise it would copy them.
    """
    _check("grads", grads, np.float32, (None, None))
    _check("ids", ids, np.int32, (grads.shape[0],))
    _check("places", places, np.int32, (grads.shape[0],))
    if not 0 <= start <= start + shape[1] <= grads.shape[1]:
        raise ValueError(f"columns {start}+{shape[1]} are not in {grads.shape}")
    first = jnp.full(1, start, jnp.int32)
    return _call("estimax_add_rows", shape, grads, first, ids, places, after)


def update_adagrad(
    table: jax.Array,
    accumulator: jax.Array,
    ids: jax.Array,
    grads: jax.Array,
    rate: jax.Array,
    epsilons: tuple[float, float],
) -> tuple[jax.Array, jax.Array]:
    """Return a table and its accumulator with some rows updated, in place.

    The update is `rate * grad / (sqrt(accumulator + inner) + outer)`.

    Args:
      table: float32 [V, D].
      accumulator: Sums of squared gradients, float32 [V, D].
      ids: Distinct int32 [U]; those outside the table are padding.
      grads: float32 [U, D].
      rate: The learning rate.
      epsilons: (inner, outer).
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


def _check(
    name: str, array: jax.Array, dtype: Any, shape: tuple[int | None, ...]
) -> None:
    """Raise unless an array is as the kernels read it; None stands for any size."""
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


def _call(name: str, shape: tuple[int, ...], *arguments: jax.Array) -> jax.Array:
    call: Any = jax.ffi.ffi_call(name, _struct(shape))
    found: jax.Array = call(*arguments)
    return found


def _struct(shape: tuple[int, ...]) -> Any:
    struct: Any = jax.ShapeDtypeStruct  # its constructor is not annotated
    return struct(shape, jnp.float32)


def _lookups_agree(kernels: ModuleType) -> bool:
    """Return whether rows of two tiny tables, and their gradients, are XLA's."""
    numbers = np.arange(12, dtype=np.float32).reshape(4, 3)
    tables = [numbers, np.eye(5, dtype=np.float32)]
    ids = [np.array([3, -1, 0], np.int32), np.array([4, 4, 9], np.int32)]
    places = np.array([1, 1, 0], np.int32)

    def by_kernels(tables: Any, ids: Any, places: Any) -> Any:
        laid = lay_rows(list(zip(tables, ids, strict=True)))
        return laid, add_rows(laid, 3, ids[1], places, (2, 5), laid)

    def by_xla(tables: Any, ids: Any, places: Any) -> Any:
        rows = [
            jnp.where(which[:, None] >= 0, table.at[which].get(mode="clip"), 0)
            for table, which in zip(tables, ids, strict=True)
        ]
        laid = jnp.concatenate(rows, axis=1)
        return laid, jnp.zeros((2, 5)).at[places].add(laid[:, 3:])

    return _agree(by_kernels, by_xla, tables, ids, places)


def _adagrad_agrees(kernels: ModuleType) -> bool:
    """Return whether two rows of a tiny table are updated as by XLA."""
    table = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
    squares = np.full((4, 3), 0.1, np.float32)
    ids = np.array([1, 3, 4, 7], np.int32)  # the last two are padding
    grads = np.linspace(1, 2, 12, dtype=np.float32).reshape(4, 3)

    def by_kernels(table: Any, squares: Any, ids: Any, grads: Any) -> Any:
        rate, epsilons = jnp.float32(0.5), (1e-3, 1e-4)
        return update_adagrad(table, squares, ids, grads, rate, epsilons)

    def by_xla(table: Any, squares: Any, ids: Any, grads: Any) -> Any:
        some = squares.at[ids].get(mode="clip") + grads**2
        step = 0.5 * grads / (jnp.sqrt(some + 1e-3) + 1e-4)
        new = table.at[ids].add(-step, mode="drop")
        return new, squares.at[ids].set(some, mode="drop")

    return _agree(by_kernels, by_xla, table, squares, ids, grads)


def _agree(by_kernels: Any, by_xla: Any, *arguments: Any) -> bool:
    """Return whether two functions give the same on a CPU, up to rounding."""
    # A model is being traced: without this the tiny case would become part of it.
    cpu = jax.local_devices(backend="cpu")[0]
    with jax.ensure_compile_time_eval(), jax.default_device(cpu):
        found = jax.jit(by_kernels)(*arguments)
        expected = jax.jit(by_xla)(*arguments)
        pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
        return all(np.allclose(a, b, rtol=1e-6, atol=1e-7) for a, b in pairs)


@functools.cache
def _has_cpu() -> bool:
    """Return whether programs for the CPU can run; JAX_PLATFORMS may leave it out."""
    try:
        return bool(jax.local_devices(backend="cpu"))
    except RuntimeError:
        return False
