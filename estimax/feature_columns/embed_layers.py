"""Flax's `nn.Embed` in a training model: large tables are read and updated by row.

    with embeds_by_row(trace, frozenset({"words/embedding"})):
        spec = module.apply(variables, features)

`nn.Embed` indexes its table, so its gradient is as large as the table. In training, the
rows of the named tables are read as `ex.embedding_lookup` reads them; the variable and
its initial value are those of Flax. Results are the same: a negative id counts from the
end, and an id beyond the table gives NaN. `training/recording.py` decides which tables
these are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax.core import tracers
from flax.linen.dtypes import promote_dtype

from estimax import staging
from estimax.core.spec import ModeKeys
from estimax.feature_columns.transforms import Vocabulary
from estimax.feature_columns.transforms.embedding_lookups import IndexIds
from estimax.staging import variables

# Tables with fewer numbers are left to Flax: updating all of their rows takes less than
# half a millisecond.
_LEAST_NUMBERS = 100_000


@contextmanager
def embeds_by_row(trace: staging.Trace, names: Set[str]) -> Iterator[None]:
    """Read the rows of some `nn.Embed` tables by lookups, inside a `with` block.

    All large tables of such layers are added to `trace.embeds`, by name. Only mode
    TRAIN is changed.
    """
    if trace.mode != ModeKeys.TRAIN:
        yield
        return
    # Flax leaves it without types.
    current_trace: Callable[[], object] = tracers.current_trace
    level = current_trace()

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
        if is_call and len(args) == 1 and current_trace() == level:
            name = _table_name(module, args[0])
            if name is not None:
                trace.embeds.add(name)
                if name in names:
                    return _rows_of(module, name, args[0])
        return function(*args, **kwargs)

    with nn.intercept_methods(look_up):
        yield


def _table_name(module: Any, ids: Any) -> str | None:
    """Return the name of a large table that a layer indexes; None if it does more."""
    dtype: Any = getattr(ids, "dtype", None)
    is_usual = (
        module.num_embeddings > 1
        and module.num_embeddings * module.features >= _LEAST_NUMBERS
        # A cast would round gradients before those of equal ids are summed.
        and module.dtype in (None, module.param_dtype)
        and module.promote_dtype is promote_dtype
    )
    is_integer = dtype is not None and jnp.issubdtype(dtype, jnp.integer)
    if not is_usual or not is_integer or not np.can_cast(dtype, np.int32):
        return None
    if module.is_initializing():
        return "/".join((*module.path, "embedding"))
    # The array may also be another one, as in `nn.remat`, or have no optimizer.
    named = variables.declared_name(module.embedding)
    return named[0] if named is not None and named[1] else None


def _rows_of(module: Any, name: str, ids: Any) -> jax.Array:
    """Return what a layer returns for ids."""
    where = _index_ids(ids, module.num_embeddings)
    rows = variables.lookup_declared(name, module.embedding, where)
    return jnp.where(where[..., None] >= 0, rows, jnp.nan)


def _index_ids(ids: Any, size: int) -> jax.Array:
    """Return ids in [0, size) as int32, and -1 for those beyond the table."""
    trace = staging.current()
    origin = trace.origin(ids) if trace is not None else None
    if origin is not None:
        key = origin.part if origin.key is None else str(origin.key)
        staged: jax.Array = staging.stage(IndexIds(key, size), {key: ids})
        return staged
    if trace is not None and is_in_range(trace.call_of(ids), size):
        words: jax.Array = ids  # the same object: the host knows its distinct ids
        return words
    ids = jnp.asarray(ids).astype(jnp.int32)
    ids = jnp.where(ids < 0, ids + size, ids)
    return jnp.where((ids >= 0) & (ids < size), ids, -1)


def is_in_range(call: staging.HostCall | None, size: int) -> bool:
    """Return whether a call finds words, all of them at an index in [0, size)."""
    if call is None or not isinstance(call.transform, Vocabulary):
        return False
    first, last = call.transform.id_range
    return first >= 0 and last < size
