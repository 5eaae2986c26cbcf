"""Embedding tables: kept outside `params`, looked up here, updated by row.

    rows = tables.lookup(self, "embedding_weights", (V, D), init, ids)     # [B, L, D]

`jax.grad` of a lookup makes a gradient as large as the table. So in training the step
gathers the rows that the batch needs *before* it takes the gradient, and this lookup
reads from those: the gradient is then [U, D], duplicates already summed, for any V. The
cost of a step does not grow with the vocabulary.

`side_by_side` joins the blocks of a layer's columns. It takes embeddings as
`GatheredRows`, so that one kernel writes all of them to their place in the result.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from estimax import staging
from estimax.core.errors import FeatureError
from estimax.native import table_rows

TABLES = "tables"  # the Flax collection


def lookup(
    module: nn.Module,
    name: str,
    shape: tuple[int, int],
    initializer: Callable[[jax.Array, tuple[int, int]], jax.Array],
    ids: jax.Array,
    *,
    trainable: bool = True,
) -> jax.Array:
    """Look up ids [B, …] in the table `name` of a module; return rows [B, …, D].

    A negative id gives an arbitrary row: mask it out. Pass the very array that
    `staging.stage` returned, so that the step knows which rows to gather.
    """
    path = "/".join((*module.path, name))
    gathered = gathered_rows(path, ids)
    if gathered is not None:
        return take_rows(gathered.rows, jnp.maximum(gathered.places, 0))
    table: jax.Array = module.variable(
        TABLES, name, lambda: initializer(module.make_rng("params"), shape)
    ).value
    if table.shape != shape and not _is_sharded(path):  # those may have padding
        raise FeatureError(
            f"table {path} has shape {table.shape}, but another column asks for "
            f"{shape}. Columns that share a table need equal num_buckets and dimension."
        )
    return _read_rows(path, table, ids, trainable=trainable)


def lookup_declared(path: str, table: jax.Array, ids: jax.Array) -> jax.Array:
    """Look up ids [B, …] in a trained variable that `get_variable` returned.

    Return rows [B, …, D] for a table [V, D], or values [B, …] for a table [V]. As for
    `lookup`, a negative id gives an arbitrary row.
    """
    gathered = gathered_rows(path, ids)
    if gathered is None:
        return _read_rows(path, table, ids, trainable=True)
    flat = GatheredRows(
        table=_as_matrix(gathered.table),
        ids=ids.reshape(-1, 1),
        rows=_as_matrix(gathered.rows),
        places=gathered.places.reshape(-1, 1),
    )
    return side_by_side([flat]).reshape(*ids.shape, *table.shape[1:])


def _as_matrix(table: jax.Array) -> jax.Array:
    return table.reshape(table.shape[0], math.prod(table.shape[1:]))


def _read_rows(
    path: str, table: jax.Array, ids: jax.Array, *, trainable: bool
) -> jax.Array:
    """Read rows from the table itself, and record the lookup."""
    trace = staging.current()
    rows: jax.Array
    if trace is not None and path in trace.readers:
        rows = trace.readers[path](table, ids)
    else:
        rows = jnp.take(table, jnp.maximum(ids, 0), axis=0, mode="clip")
    if trace is None:
        return rows if trainable else jax.lax.stop_gradient(rows)
    place = sum(use.table == path for use in trace.lookups)
    call = trace.call_of(ids)
    trace.lookups.append(staging.Lookup(path, table.shape, call, ids, trainable))
    if path in trace.row_zeros:
        # The gradient with respect to these zeros is the gradient of the rows.
        return rows + trace.row_zeros[path][place]
    is_constant = trace.cuts_lookups or not trainable
    return jax.lax.stop_gradient(rows) if is_constant else rows


def _is_sharded(path: str) -> bool:
    trace = staging.current()
    return trace is not None and path in trace.readers


def gathered_rows(path: str, ids: jax.Array) -> GatheredRows | None:
    """Return the rows of a table that the training step has gathered for these ids.

    Return None if the table itself is to be read: outside of training, and for a table
    that is updated as a whole.
    """
    trace = staging.current()
    if trace is None or path not in trace.rows:
        return None
    call = trace.call_of(ids)
    assert call is not None, f"row-wise table {path} was given computed ids"
    prepared = trace.rows[path]
    places = prepared.inverse[call.name]
    return GatheredRows(prepared.table, ids, prepared.rows, places)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class GatheredRows:
    """A table in training, the rows of it that a batch needs, and each example's ids.

    `side_by_side` takes those with at most one id per example: ids and places [B, 1].
    """

    table: jax.Array  # [V, D]
    ids: jax.Array  # [B, …] into the table, negative for none
    rows: jax.Array  # [U, D], the rows of the batch; the gradient is taken of these
    places: jax.Array  # [B, …] into the rows; arbitrary where there is no id

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the block that the rows make, [B, D]."""
        return self.ids.shape[0], self.rows.shape[1]


ColumnBlock = GatheredRows | jax.Array  # [B, D]


def side_by_side(blocks: Sequence[ColumnBlock]) -> jax.Array:
    """Concatenate blocks [B, D] to [B, N]; an example without an id gets zeros."""
    trace = staging.current()
    if (
        (trace is not None and not trace.uses_kernels)
        or not any(isinstance(block, GatheredRows) for block in blocks)
        or any(numbers.dtype != jnp.float32 for numbers in _numbers(blocks))
    ):
        return _by_xla(blocks)
    for block in blocks:
        _check(block, blocks[0].shape[0])
    laid: jax.Array = _lay(_merge_neighbours(blocks))
    return laid


def _check(block: ColumnBlock, size: int) -> None:
    """Raise `ValueError` unless a block has one row for each example.

    The compiled kernel does not check bounds, so check shapes and types here.
    """
    if block.shape[0] != size:
        raise ValueError(f"side_by_side: {block.shape[0]} rows beside {size}")
    if isinstance(block, GatheredRows):
        for which in (block.ids, block.places):
            if which.shape != (size, 1) or which.dtype != jnp.int32:
                raise ValueError(
                    "side_by_side: expected one int32 id for each example, "
                    f"[{size}, 1]; got {which.dtype} {list(which.shape)}"
                )


def _merge_neighbours(blocks: Sequence[ColumnBlock]) -> list[ColumnBlock]:
    """Concatenate neighbouring arrays, as numeric columns often are."""
    joined: list[ColumnBlock] = []
    for width, run in itertools.groupby(blocks, _table_width):
        some: list[Any] = list(run)
        joined += [jnp.concatenate(some, axis=1)] if width is None else some
    return joined


# The gradient is our own, since the kernel has none that jax could derive.
@jax.custom_vjp
def _lay(blocks: list[ColumnBlock]) -> jax.Array:
    """Concatenate blocks, on a CPU by one kernel that copies each row once."""
    if not table_rows.has_lookup_kernels():
        return _by_xla(blocks)
    laid: jax.Array = jax.lax.platform_dependent(
        blocks, cpu=_by_kernel, default=_by_xla
    )
    return laid


def _forward(
    blocks: list[ColumnBlock],
) -> tuple[jax.Array, tuple[list[ColumnBlock], jax.Array]]:
    laid = _lay(blocks)
    return laid, (blocks, laid)


def _backward(
    kept: tuple[list[ColumnBlock], jax.Array], grads: jax.Array
) -> tuple[list[Any]]:
    blocks, laid = kept
    if table_rows.has_lookup_kernels():
        found = jax.lax.platform_dependent(
            blocks, grads, laid, cpu=_grads_by_kernel, default=_grads_by_xla
        )
    else:
        found = _grads_by_xla(blocks, grads, laid)
    # Only the rows have a gradient: None stands for "zero" in the other fields.
    nothing = GatheredRows(*[None] * 4)  # type: ignore[arg-type]
    return (
        [
            replace(nothing, rows=grad) if isinstance(block, GatheredRows) else grad
            for block, grad in zip(blocks, found, strict=True)
        ],
    )


_lay.defvjp(_forward, _backward)


def _by_kernel(blocks: Sequence[ColumnBlock]) -> jax.Array:
    """Concatenate with the kernel, which reads the tables and not the gathered rows."""
    pairs: list[tuple[jax.Array, jax.Array]] = []
    for block in blocks:
        if isinstance(block, GatheredRows):
            pairs.append((block.table, block.ids.reshape(-1)))
        else:  # an array is a table with one row for each example
            pairs.append((block, jnp.arange(block.shape[0], dtype=jnp.int32)))
    return table_rows.concat_rows(pairs)


def _grads_by_kernel(
    blocks: Sequence[ColumnBlock], grads: jax.Array, laid: jax.Array
) -> list[jax.Array]:
    """Return the gradient of each block: summed by row, or its columns of `grads`.

    `laid` is an argument only so that XLA reads the tables before it updates them;
    otherwise it would copy them.
    """
    found: list[jax.Array] = []
    start = 0
    for block in blocks:
        end = start + block.shape[1]
        if isinstance(block, GatheredRows):
            which = block.ids.reshape(-1), block.places.reshape(-1)
            shape = (block.rows.shape[0], block.rows.shape[1])
            sums = table_rows.sum_row_gradients(grads, start, *which, shape, after=laid)
            found.append(sums)
        else:
            found.append(grads[:, start:end])
        start = end
    return found


def _by_xla(blocks: Sequence[ColumnBlock]) -> jax.Array:
    """Concatenate with XLA's operations, for devices without the kernel."""
    arrays: list[Any] = []
    for width, run in itertools.groupby(blocks, _table_width):
        some = list(run)
        arrays += some if width is None else [_look_up(some)]
    return jnp.concatenate(arrays, axis=1)


def _grads_by_xla(
    blocks: Sequence[ColumnBlock], grads: jax.Array, laid: jax.Array
) -> list[jax.Array]:
    def lay(numbers: list[jax.Array]) -> jax.Array:
        return _by_xla(
            [
                replace(block, rows=mine) if isinstance(block, GatheredRows) else mine
                for block, mine in zip(blocks, numbers, strict=True)
            ]
        )

    found: list[jax.Array] = jax.vjp(lay, _numbers(blocks))[1](grads)[0]
    return found


def _table_width(block: ColumnBlock) -> int | None:
    """Return the width of a table, None for an array; neighbours are grouped by it."""
    return block.shape[1] if isinstance(block, GatheredRows) else None


def _look_up(tables: Sequence[Any]) -> jax.Array:  # GatheredRows of one width
    """Return the rows of n tables of one width, [B, n · D].

    One large lookup and its gradient are faster than many small ones.
    """
    starts = np.cumsum([0] + [len(table.rows) for table in tables])[:-1]
    ids = jnp.concatenate([table.ids for table in tables], axis=1)
    places = jnp.concatenate([table.places for table in tables], axis=1)
    rows = jnp.concatenate([table.rows for table in tables])
    found = take_rows(rows, jnp.maximum(places, 0) + starts.astype(np.int32))
    # An absent entry has read an arbitrary row, which may hold NaN: mask, not multiply.
    width = sum(table.shape[1] for table in tables)
    return jnp.where(ids[..., None] >= 0, found, 0).reshape(ids.shape[0], width)


def take_rows(rows: jax.Array, places: jax.Array) -> jax.Array:
    """Return the rows [U, D] at places [B, …] that the host computed: [B, …, D]."""
    # The host keeps places in range, so XLA need not check them.
    found: jax.Array = rows.at[places].get(
        mode="promise_in_bounds", wrap_negative_indices=False
    )
    return found


def _numbers(blocks: Sequence[ColumnBlock]) -> list[jax.Array]:
    """Return the arrays that the gradient is taken of."""
    return [
        block.rows if isinstance(block, GatheredRows) else block for block in blocks
    ]
