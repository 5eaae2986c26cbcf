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
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from estimax import staging
from estimax.core.errors import FeatureError
from estimax.core.spec import ModeKeys
from estimax.native import table_rows

TABLES = "tables"  # the Flax collection

# Outside of training, tables of up to so many bytes are copied beside each other, which
# takes less time than a gather for each.
_SMALL = 1 << 14


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
        return take_rows(gathered.rows, jnp.maximum(gathered.all_places, 0))
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
        places=gathered.all_places.reshape(-1, 1),
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
    is_joined = call is not None and (path, call.name) in trace.joined
    trace.lookups.append(
        staging.Lookup(path, table.shape, call, ids, trainable, is_joined)
    )
    if path in trace.row_zeros:
        # The gradient with respect to these zeros is the gradient of the rows.
        return rows + trace.row_zeros[path][place]
    is_constant = trace.cuts_lookups or not trainable
    return jax.lax.stop_gradient(rows) if is_constant else rows


def _is_sharded(path: str) -> bool:
    trace = staging.current()
    return trace is not None and path in trace.readers


def rows_to_join(
    path: str, shape: tuple[int, int], ids: jax.Array
) -> RowsToJoin | None:
    """Return rows of a table for `side_by_side`; None if they are to be read apart.

    In training these are the gathered rows, and the trace remembers that they are
    joined. Otherwise it is the table itself, if it is small.
    """
    trace = staging.current()
    if trace is None:
        return None
    call = trace.call_of(ids)
    if trace.mode != ModeKeys.TRAIN:
        table = _small_table(trace, path)
        if table is None or table.shape != shape:
            return None
        trace.lookups.append(staging.Lookup(path, shape, call, ids, trainable=True))
        return SmallTable(table, ids)
    if call is not None:
        trace.joined.add((path, call.name))
    return gathered_rows(path, ids)


def _small_table(trace: staging.Trace, path: str) -> jax.Array | None:
    """Return a table that is cheap to copy; None if it is large or not made yet."""
    if path in trace.readers:
        return None
    found: Any = trace.variables().get(TABLES, {})
    for name in path.split("/"):
        if not isinstance(found, Mapping) or name not in found:
            return None
        found = found[name]
    table: jax.Array = found
    return table if table.size * table.dtype.itemsize <= _SMALL else None


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
    stack = prepared.stack
    line = None if stack is None else stack.lines.get(call.name)
    places = prepared.inverse[call.name] if line is None else None
    return GatheredRows(prepared.table, ids, prepared.rows, places, stack, line)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class GatheredRows:
    """A table in training, the rows of it that a batch needs, and each example's ids.

    `side_by_side` takes those with at most one id per example: ids and places [B, 1].
    """

    table: jax.Array  # [V, D], or the stack that the table is a part of
    ids: jax.Array  # [B, …] into the table, negative for none
    rows: jax.Array  # [U, D], the rows of the batch; the gradient is taken of these
    # [B, …] into the rows, arbitrary where there is no id; None if they are in `stack`.
    places: jax.Array | None
    stack: staging.StackedRows | None = None
    # The line of `stack.reads`.
    line: int | None = field(default=None, metadata={"static": True})

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the block that the rows make, [B, D]."""
        return self.ids.shape[0], self.rows.shape[1]

    @property
    def all_places(self) -> jax.Array:
        """The place of each id, wherever it is."""
        if self.places is not None:
            return self.places
        assert self.stack is not None
        assert self.stack.reads is not None
        places: jax.Array = self.stack.reads.places[self.line]
        return (places - self.stack.place).reshape(self.ids.shape)


class SmallTable(NamedTuple):
    """A table outside of training, and the one id of each example, negative for none.

    `side_by_side` reads those of one width as one array.
    """

    table: jax.Array  # [V, D]
    ids: jax.Array  # [B, 1]

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the block that the rows make, [B, D]."""
        return self.ids.shape[0], self.table.shape[1]


RowsToJoin = GatheredRows | SmallTable
ColumnBlock = RowsToJoin | jax.Array  # [B, D]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class _Reads:
    """Columns of one array: those of a table, or of several tables of a stack."""

    table: jax.Array  # [V, D]
    ids: jax.Array  # [n, B] into the table, negative for none
    rows: jax.Array  # [U, D]
    places: jax.Array  # [n, B] into the rows
    starts: tuple[int, ...] = field(metadata={"static": True})  # in the result

    @property
    def width(self) -> int:
        return self.rows.shape[1]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class _Numbers:
    """Neighbouring columns that are arrays."""

    rows: jax.Array  # [B, D]
    starts: tuple[int] = field(metadata={"static": True})


_Part = _Reads | _Numbers


def side_by_side(blocks: Sequence[ColumnBlock]) -> jax.Array:
    """Concatenate blocks [B, D] to [B, N]; an example without an id gets zeros."""
    if not any(isinstance(block, GatheredRows) for block in blocks):
        return jnp.concatenate(_read_small_tables(blocks), axis=1)
    for block in blocks:
        _check(block, blocks[0].shape[0])
    trace = staging.current()
    parts = _arrange(blocks)
    if (trace is not None and not trace.uses_kernels) or any(
        part.rows.dtype != jnp.float32 for part in parts
    ):
        return _by_xla(parts)
    laid: jax.Array = _lay(parts)
    return laid


def _read_small_tables(blocks: Sequence[Any]) -> list[jax.Array]:
    """Return the blocks in order as arrays; those of neighbours may be one array."""
    alike: dict[Any, list[int]] = {}
    pieces: dict[int, jax.Array] = {}
    for place, block in enumerate(blocks):
        if isinstance(block, SmallTable):
            key = block.table.shape[1], block.table.dtype
            alike.setdefault(key, []).append(place)
        else:
            pieces[place] = block
    for places in alike.values():
        rows = _rows_of_small_tables([blocks[place] for place in places])
        firsts = [i for i, at in enumerate(places) if i == 0 or places[i - 1] + 1 != at]
        sizes = np.diff([*firsts, len(places)]).tolist()
        for first, run in zip(firsts, jax.lax.split(rows, sizes, axis=1), strict=True):
            pieces[places[first]] = run.reshape(run.shape[0], math.prod(run.shape[1:]))
    return [pieces[place] for place in sorted(pieces)]


def _rows_of_small_tables(blocks: Sequence[SmallTable]) -> jax.Array:
    """Return the rows of n tables of one width, [B, n, D]; zeros where no id is."""
    lengths = np.array([block.table.shape[0] for block in blocks], np.int32)
    firsts = np.cumsum([0, *lengths[:-1]], dtype=np.int32)
    # Flat, because XLA then finds that ids which are beside each other in the packed
    # batch are one array. A slice of the batch for each takes 17 ms to compile.
    flat = jnp.concatenate([block.ids.reshape(-1) for block in blocks])
    ids = flat.reshape(len(blocks), blocks[0].ids.shape[0]).T
    table = jnp.concatenate([block.table for block in blocks])
    rows = take_rows(table, jnp.clip(ids, 0, lengths - 1) + firsts)
    return jnp.where(ids[..., None] >= 0, rows, 0)


def _check(block: ColumnBlock, size: int) -> None:
    """Raise `ValueError` unless a block has one row for each example.

    The compiled kernel does not check bounds, so check shapes and types here.
    """
    if block.shape[0] != size:
        raise ValueError(f"side_by_side: {block.shape[0]} rows beside {size}")
    if isinstance(block, GatheredRows):
        arrays = [block.ids, *([] if block.places is None else [block.places])]
        for which in arrays:
            if which.shape != (size, 1) or which.dtype != jnp.int32:
                raise ValueError(
                    "side_by_side: expected one int32 id for each example, "
                    f"[{size}, 1]; got {which.dtype} {list(which.shape)}"
                )


def _arrange(blocks: Sequence[ColumnBlock]) -> list[_Part]:
    """Return few parts for many blocks: tables of one stack are one.

    Neighbouring arrays, as numeric columns often are, are concatenated.
    """
    ends = list(itertools.accumulate(block.shape[1] for block in blocks))
    starts = [0, *ends[:-1]]
    together: dict[Any, list[tuple[int, ColumnBlock]]] = {}
    seen: Counter[Any] = Counter()
    run = 0
    for place, (start, block) in enumerate(zip(starts, blocks, strict=True)):
        key: Any = place
        if not isinstance(block, GatheredRows):
            key = "numbers", run
        else:
            run += 1
            if block.stack is not None and block.line is not None:
                table = block.stack.name, block.stack.table
                # A table that two columns read is in two parts: the gradients of each
                # are summed first, whether tables are stacked or not.
                key = block.stack.name, seen[table]
                seen[table] += 1
        together.setdefault(key, []).append((start, block))
    return [_join(members) for members in together.values()]


def _join(members: Sequence[tuple[int, ColumnBlock]]) -> _Part:
    first, block = members[0]
    if not isinstance(block, GatheredRows):
        arrays: list[Any] = [array for _, array in members]
        joined = jnp.concatenate(arrays, axis=1) if len(arrays) > 1 else arrays[0]
        return _Numbers(joined, (first,))
    stack = block.stack
    if stack is None or block.line is None:
        ids, places = block.ids.reshape(1, -1), block.all_places.reshape(1, -1)
        if stack is not None:
            ids = jnp.where(ids < 0, -1, ids + stack.first)
        return _Reads(block.table, ids, block.rows, places, (first,))
    assert stack.reads is not None
    ids, places = stack.reads
    lines = [read.line for _, read in members if isinstance(read, GatheredRows)]
    if lines != list(range(len(ids))):
        ids, places = ids[np.array(lines)], places[np.array(lines)]
    return _Reads(
        block.table, ids, stack.rows, places, tuple(start for start, _ in members)
    )


# The gradient is our own, since the kernel has none that jax could derive.
@jax.custom_vjp
def _lay(parts: list[_Part]) -> jax.Array:
    """Concatenate blocks, on a CPU by one kernel that copies each row once."""
    if not table_rows.has_lookup_kernels():
        return _by_xla(parts)
    laid: jax.Array = jax.lax.platform_dependent(parts, cpu=_by_kernel, default=_by_xla)
    return laid


def _forward(parts: list[_Part]) -> tuple[jax.Array, tuple[list[_Part], jax.Array]]:
    laid = _lay(parts)
    return laid, (parts, laid)


def _backward(
    kept: tuple[list[_Part], jax.Array], grads: jax.Array
) -> tuple[list[Any]]:
    parts, laid = kept
    if table_rows.has_lookup_kernels():
        found = jax.lax.platform_dependent(
            parts, grads, laid, cpu=_grads_by_kernel, default=_grads_by_xla
        )
    else:
        found = _grads_by_xla(parts, grads, laid)
    # Only the rows have a gradient: None stands for "zero" in the other fields.
    nothing: Any = {"table": None, "ids": None, "places": None}
    return (
        [
            replace(part, rows=grad, **(nothing if isinstance(part, _Reads) else {}))
            for part, grad in zip(parts, found, strict=True)
        ],
    )


_lay.defvjp(_forward, _backward)


def _by_kernel(parts: Sequence[_Part]) -> jax.Array:
    """Concatenate with the kernel, which reads the tables and not the gathered rows."""
    lookups = []
    for part in parts:
        if isinstance(part, _Reads):
            lookups.append((part.table, part.ids, part.starts))
        else:  # an array is a table with one row for each example
            every = jnp.arange(part.rows.shape[0], dtype=jnp.int32)
            lookups.append((part.rows, every[None], part.starts))
    return table_rows.concat_rows(lookups)


def _grads_by_kernel(
    parts: Sequence[_Part], grads: jax.Array, laid: jax.Array
) -> list[jax.Array]:
    """Return the gradient of each part: summed by row, or its columns of `grads`.

    `laid` is an argument only so that XLA reads the tables before it updates them;
    otherwise it would copy them.
    """
    found: list[jax.Array] = []
    for part in parts:
        if isinstance(part, _Reads):
            shape = (part.rows.shape[0], part.rows.shape[1])
            sums = table_rows.sum_row_gradients(
                grads, part.starts, part.ids, part.places, shape, after=laid
            )
            found.append(sums)
        else:
            (start,) = part.starts
            found.append(grads[:, start : start + part.rows.shape[1]])
    return found


def _by_xla(parts: Sequence[_Part]) -> jax.Array:
    """Concatenate with XLA's operations, for devices without the kernel."""
    pieces: dict[int, jax.Array] = {}  # by their place in the result
    alone: list[_Reads] = []
    for part in parts:
        if isinstance(part, _Numbers):
            pieces[part.starts[0]] = part.rows
        elif len(part.starts) == 1:
            alone.append(part)
        else:
            pieces |= _by_run(part, _take_columns(part))
    for reads in _neighbours(alone):
        pieces[reads[0].starts[0]] = _look_up(reads)
    return jnp.concatenate([pieces[start] for start in sorted(pieces)], axis=1)


def _neighbours(reads: Sequence[_Reads]) -> list[list[_Reads]]:
    """Return runs of tables of one width that stand side by side in the result."""
    runs: list[list[_Reads]] = []
    for one in sorted(reads, key=lambda each: each.starts):
        last = runs[-1][-1] if runs else None
        if (
            last is not None
            and last.width == one.width
            and last.starts[0] + last.width == one.starts[0]
        ):
            runs[-1].append(one)
        else:
            runs.append([one])
    return runs


def _by_run(part: _Reads, found: jax.Array) -> dict[int, jax.Array]:
    """Cut columns [B, n, D] into runs that stand side by side: start -> [B, m · D]."""
    width = part.width
    firsts = [
        place
        for place, start in enumerate(part.starts)
        if place == 0 or part.starts[place - 1] + width != start
    ]
    sizes = np.diff([*firsts, len(part.starts)]).tolist()
    runs = jax.lax.split(found, sizes, axis=1)
    return {
        part.starts[first]: run.reshape(run.shape[0], run.shape[1] * width)
        for first, run in zip(firsts, runs, strict=True)
    }


def _grads_by_xla(
    parts: Sequence[_Part], grads: jax.Array, laid: jax.Array
) -> list[jax.Array]:
    def lay(numbers: list[jax.Array]) -> jax.Array:
        return _by_xla(
            [
                replace(part, rows=mine)
                for part, mine in zip(parts, numbers, strict=True)
            ]
        )

    rows = [part.rows for part in parts]
    found: list[jax.Array] = jax.vjp(lay, rows)[1](grads)[0]
    return found


def _look_up(tables: Sequence[_Reads]) -> jax.Array:
    """Return the rows of n tables of one width, [B, n · D].

    One large lookup and its gradient are faster than many small ones.
    """
    if len(tables) == 1:
        (joined,) = tables
    else:
        lengths = [len(table.rows) for table in tables]
        first = np.cumsum([0, *lengths])[:-1].astype(np.int32)
        places = jnp.concatenate([table.places for table in tables])
        joined = replace(
            tables[0],
            ids=jnp.concatenate([table.ids for table in tables]),
            rows=jnp.concatenate([table.rows for table in tables]),
            places=jnp.maximum(places, 0) + first[:, None],
        )
    lines, size = joined.ids.shape
    return _take_columns(joined).reshape(size, lines * joined.width)


def _take_columns(part: _Reads) -> jax.Array:
    """Return the rows of each example, [B, n, D]; zeros where there is no id."""
    found = take_rows(part.rows, jnp.maximum(part.places, 0).T)
    # An absent entry has read an arbitrary row, which may hold NaN: mask, not multiply.
    return jnp.where(part.ids.T[..., None] >= 0, found, 0)


def take_rows(rows: jax.Array, places: jax.Array) -> jax.Array:
    """Return the rows [U, D] at places [B, …] that the host computed: [B, …, D]."""
    # The host keeps places in range, so XLA need not check them.
    found: jax.Array = rows.at[places].get(
        mode="promise_in_bounds", wrap_negative_indices=False
    )
    return found
