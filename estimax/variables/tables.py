"""Embedding tables: outside `params`, looked up here, updated by row.

    rows = tables.lookup(self, "embedding_weights", (V, D), init, ids)     # [B, L, D]

`jax.grad` of a lookup makes a gradient as large as the table. So in training the step
gathers the rows that the batch needs *before* the gradient is taken, and this lookup
reads from those; the gradient is then [U, D], duplicates already summed, whatever V is.
A step's cost does not grow with the vocabulary.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import linen as nn

from estimax import staging
from estimax.core.errors import FeatureError
from estimax.variables.side_by_side import ReadyRows, take_rows

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
