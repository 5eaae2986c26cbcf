"""Flax's `nn.Embed` in a training model: its rows are looked up and updated by row.

    with embeds_by_row(trace):
        spec = module.apply(variables, features)

`nn.Embed` indexes its table, so its gradient is as large as the table. In training, the
rows are read as `ex.embedding_lookup` reads them; the variable and its initial value
are those of Flax. Results are the same: a negative id counts from the end, and an id
beyond the table gives NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax.core import tracers
from flax.linen.dtypes import promote_dtype

from estimax import staging
from estimax.core.spec import ModeKeys
from estimax.feature_columns.transforms import Vocabulary
from estimax.feature_columns.transforms.embedding_lookups import IndexIds
from estimax.staging import variables


@contextmanager
def embeds_by_row(trace: staging.Trace) -> Iterator[None]:
    """Read the rows of `nn.Embed` by lookups, inside a `with` block, in mode TRAIN."""
    if trace.mode != ModeKeys.TRAIN:
        yield
        return
    level = tracers.current_trace()

    def look_up(
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        context: nn.module.InterceptorContext,
    ) -> Any:
        module: Any = context.module
        is_call = type(module) is nn.Embed and context.method_name == "__call__"
        # Within `vmap` or a loop, ids are of another trace, and the step cannot
        # read them.
        if is_call and len(args) == 1 and tracers.current_trace() == level:
            rows = _rows_of(module, args[0])
            if rows is not None:
                return rows
        return function(*args, **kwargs)

    with nn.intercept_methods(look_up):
        yield


def _rows_of(module: Any, ids: Any) -> jax.Array | None:
    """Return what a layer returns for ids, or None if it must compute this itself."""
    is_usual = module.num_embeddings > 1 and (
        module.promote_dtype is promote_dtype
    )
    if not is_usual or not jnp.issubdtype(ids.dtype, jnp.integer):
        return None
    table = module.embedding
    named = variables.declared_name(table)
    # The array may also be another one, as in `nn.remat`, or have no optimizer.
    if named is None or not named[1] or table.shape[0] != module.num_embeddings:
        return None
    where = _index_ids(ids, module.num_embeddings)
    rows = variables.lookup_declared(named[0], table, where)
    rows = jnp.where(where[..., None] >= 0, rows, jnp.nan)
    (found,) = module.promote_dtype(rows, dtype=module.dtype, inexact=False)
    cast: jax.Array = found
    return cast


def _index_ids(ids: Any, size: int) -> jax.Array:
    """Return ids in [0, size) as int32, and -1 for those beyond the table."""
    trace = staging.current()
    origin = trace.origin(ids) if trace is not None else None
    if origin is not None:
        key = origin.part if origin.key is None else str(origin.key)
        staged: jax.Array = staging.stage(IndexIds(key, size), {key: ids})
        return staged
    if trace is not None and _is_in_range(trace.call_of(ids), size):
        words: jax.Array = ids  # the same object: the host knows its distinct ids
        return words
    ids = jnp.asarray(ids).astype(jnp.int32)
    ids = jnp.where(ids < 0, ids + size, ids)
    return jnp.where((ids >= 0) & (ids < size), ids, -1)


def _is_in_range(call: staging.HostCall | None, size: int) -> bool:
    """Return whether a call finds words, all of them at an index in [0, size)."""
    if call is None or not isinstance(call.transform, Vocabulary):
        return False
    first, last = call.transform.id_range
    return first >= 0 and last < size
