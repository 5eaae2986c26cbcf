"""Embedding tables: outside `params`, looked up here, updated by row.

    rows = tables.lookup(self, "embedding_weights", (V, D), init, ids)     # [B, L, D]

`jax.grad` of a lookup makes a gradient as large as the table. So in training the step
gathers the rows that the batch needs *before* the gradient is taken, and this lookup
reads from those; the gradient is then [U, D], duplicates already summed, whatever V is.
A step's cost does not grow with the vocabulary.
"""

from __future__ import annotations

import itertools
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
    """Look up ids [B, …] in the table `name` of a module; returns [B, …, D].

    Negative ids give an arbitrary row: mask them out. Pass the ids just as
    `staging.stage` returned them, so that the step knows which rows to gather.
    """
    path, trace = _path(module, name), staging.current()
    ready = ready_rows(module, name, ids)
    if ready is not None:
        return take_rows(ready.rows, jnp.maximum(ready.places, 0))
    table = module.variable(
        TABLES, name, lambda: initializer(module.make_rng("params"), shape)
    ).value
    if table.shape != shape:
        raise FeatureError(
            f"table {path} has shape {table.shape}, but another column asks for "
            f"{shape}. Columns that share a table need as many ids and one dimension."
        )
    if trace is not None:
        call = trace.call_of(ids)
        trace.lookups.append(staging.Lookup(path, shape, call, ids, trainable))
    rows: jax.Array = jnp.take(table, jnp.maximum(ids, 0), axis=0, mode="clip")
    return rows if trainable else jax.lax.stop_gradient(rows)


def ready_rows(module: nn.Module, name: str, ids: jax.Array) -> ReadyRows | None:
    """What a training step has gathered of a table for ids that the host has made.

    None where the table is to be read: outside of training, and for tables that are
    updated as wholes.
    """
    path, trace = _path(module, name), staging.current()
    if trace is None or path not in trace.rows:
        return None
    call = trace.call_of(ids)
    assert call is not None, f"row-wise table {path} was given computed ids"
    prepared = trace.rows[path]
    places = prepared.inverse[call.name]
    return ReadyRows(prepared.table, ids, prepared.rows, places)


def _path(module: nn.Module, name: str) -> str:
    return "/".join((*module.path, name))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ReadyRows:
    """A table in training, and which of its rows each example has.

    For `side_by_side` that is one or none: ids and places [B, 1].
    """

    table: jax.Array  # [V, D]
    ids: jax.Array  # [B, …] into the table, negative for none
    rows: jax.Array  # [U, D]: those of the batch, which the gradient is taken of
    places: jax.Array  # [B, …] into the rows; arbitrary where there is no id

    @property
    def shape(self) -> tuple[int, int]:
        """Of the block that they make."""
        return self.ids.shape[0], self.rows.shape[1]


Part = ReadyRows | jax.Array  # [B, D]


def side_by_side(parts: Sequence[Part]) -> jax.Array:
    """All parts of a batch, [B, N]; an example without an id has zeros there."""
    if not any(isinstance(part, ReadyRows) for part in parts) or any(
        numbers.dtype != jnp.float32 for numbers in _numbers(parts)
    ):
        return _by_xla(parts)
    for part in parts:
        _check(part, parts[0].shape[0])
    laid: jax.Array = _lay(_joined(parts))
    return laid


def _check(part: Part, size: int) -> None:
    """Raise `ValueError` unless a part has one row for each example."""
    if part.shape[0] != size:
        raise ValueError(f"side_by_side: {part.shape[0]} rows beside {size}")
    if isinstance(part, ReadyRows):
        for which in (part.ids, part.places):
            if which.shape != (size, 1) or which.dtype != jnp.int32:
                raise ValueError(
                    "side_by_side: expected one int32 id for each example, "
                    f"[{size}, 1]; got {which.dtype} {list(which.shape)}"
                )


def _joined(parts: Sequence[Part]) -> list[Part]:
    """The same with neighbouring blocks in one, as most numbers are."""
    joined: list[Part] = []
    for width, run in itertools.groupby(parts, _table_width):
        some: list[Any] = list(run)
        joined += [jnp.concatenate(some, axis=1)] if width is None else some
    return joined


@jax.custom_vjp
def _lay(parts: list[Part]) -> jax.Array:
    if not table_rows.can_lay():
        return _by_xla(parts)
    laid: jax.Array = jax.lax.platform_dependent(parts, cpu=_by_loop, default=_by_xla)
    return laid


def _forward(parts: list[Part]) -> tuple[jax.Array, tuple[list[Part], jax.Array]]:
    laid = _lay(parts)
    return laid, (parts, laid)


def _backward(kept: tuple[list[Part], jax.Array], grads: jax.Array) -> tuple[list[Any]]:
    parts, laid = kept
    if table_rows.can_lay():
        found = jax.lax.platform_dependent(
            parts, grads, laid, cpu=_grads_by_loop, default=_grads_by_xla
        )
    else:
        found = _grads_by_xla(parts, grads, laid)
    nothing = ReadyRows(*[None] * 4)  # type: ignore[arg-type]  # no gradient
    return (
        [
            replace(nothing, rows=grad) if isinstance(part, ReadyRows) else grad
            for part, grad in zip(parts, found, strict=True)
        ],
    )


_lay.defvjp(_forward, _backward)


def _by_loop(parts: Sequence[Part]) -> jax.Array:
    pairs: list[tuple[jax.Array, jax.Array]] = []
    for part in parts:
        if isinstance(part, ReadyRows):
            pairs.append((part.table, part.ids.reshape(-1)))
        else:  # a table with one row for each example
            pairs.append((part, jnp.arange(part.shape[0], dtype=jnp.int32)))
    return table_rows.lay_rows(pairs)


def _grads_by_loop(
    parts: Sequence[Part], grads: jax.Array, laid: jax.Array
) -> list[jax.Array]:
    found: list[jax.Array] = []
    start = 0
    for part in parts:
        end = start + part.shape[1]
        if isinstance(part, ReadyRows):
            which = part.ids.reshape(-1), part.places.reshape(-1)
            shape = (part.rows.shape[0], part.rows.shape[1])
            sums = table_rows.add_rows(grads, start, *which, shape, after=laid)
            found.append(sums)
        else:
            found.append(grads[:, start:end])
        start = end
    return found


def _by_xla(parts: Sequence[Part]) -> jax.Array:
    blocks: list[Any] = []
    for width, run in itertools.groupby(parts, _table_width):
        some = list(run)
        blocks += some if width is None else [_looked_up(some)]
    return jnp.concatenate(blocks, axis=1)


def _grads_by_xla(
    parts: Sequence[Part], grads: jax.Array, laid: jax.Array
) -> list[jax.Array]:
    def lay(numbers: list[jax.Array]) -> jax.Array:
        return _by_xla(
            [
                replace(part, rows=mine) if isinstance(part, ReadyRows) else mine
                for part, mine in zip(parts, numbers, strict=True)
            ]
        )

    found: list[jax.Array] = jax.vjp(lay, _numbers(parts))[1](grads)[0]
    return found


def _table_width(part: Part) -> int | None:
    return part.shape[1] if isinstance(part, ReadyRows) else None


def _looked_up(tables: Sequence[Any]) -> jax.Array:  # ReadyRows of one width
    """The rows of several tables, [B, n · D].

    Many small lookups, each with its gradient, take longer than a large one.
    """
    starts = np.cumsum([0] + [len(table.rows) for table in tables])[:-1]
    ids = jnp.concatenate([table.ids for table in tables], axis=1)
    places = jnp.concatenate([table.places for table in tables], axis=1)
    rows = jnp.concatenate([table.rows for table in tables])
    found = take_rows(rows, jnp.maximum(places, 0) + starts.astype(np.int32))
    # An absent entry has read an arbitrary row, which may hold NaN.
    width = sum(table.shape[1] for table in tables)
    return jnp.where(ids[..., None] >= 0, found, 0).reshape(ids.shape[0], width)


def take_rows(rows: jax.Array, places: jax.Array) -> jax.Array:
    """Rows [U, D] at places [B, …] that the host has made: [B, …, D]."""
    # None of them is outside, and XLA need not look.
    found: jax.Array = rows.at[places].get(
        mode="promise_in_bounds", wrap_negative_indices=False
    )
    return found


def _numbers(parts: Sequence[Part]) -> list[jax.Array]:
    """What the gradient is taken of."""
    return [part.rows if isinstance(part, ReadyRows) else part for part in parts]
