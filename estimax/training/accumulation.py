"""One update of several batches: gradients added up part by part.

    found, named = accumulate(of_part, state, parts)

A mean loss over n parts of b examples gives the gradient of one batch of n·b, in the
memory of a single part. Parts are weighed by their examples, so that a short last one
changes nothing about that. Batch statistics see the parts one after the other.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from estimax.core.state import TrainState
from estimax.training.model import rows_of


def accumulate(
    of_part: Callable[[TrainState, Any], tuple[Any, Any]],
    state: TrainState,
    parts: Sequence[Any],
) -> tuple[Any, Any]:
    """Add up `of_part(state, part)`, a tuple of gradients and named values.

    Loss and gradients are averaged, `touched` joined, `model_state` handed on; named
    values are the last part's.
    """
    total = sum(rows_of(part) for part in parts)
    shapes = jax.eval_shape(lambda: of_part(state, parts[0])[0])
    found = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    found = found._replace(model_state=state.model_state)
    named: Any = {}
    index = 0
    # Parts of one shape run as a loop, which compiles once however many they are.
    for _, same in itertools.groupby(parts, key=_shapes):
        run = list(same)
        share = rows_of(run[0]) / total

        def add(found: Any, item: Any, share: float = share) -> tuple[Any, Any]:
            place, part = item
            now = replace(for_part(state, place), model_state=found.model_state)
            new, named = of_part(now, part)
            return _sum(found, new, share), named

        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *run)
        places = jnp.arange(index, index + len(run))
        found, every_named = jax.lax.scan(add, found, (places, stacked))
        named = jax.tree.map(lambda leaf: leaf[-1], every_named)
        index += len(run)
    return found, named


def for_part(state: TrainState, place: Any) -> TrainState:
    """The state with a random key of the part's own."""
    return replace(state, key=jax.random.fold_in(state.key, place))


def _sum(found: Any, new: Any, share: float) -> Any:
    def add(old: Any, leaf: Any) -> Any:
        return old + leaf * jnp.asarray(share, leaf.dtype)

    return new._replace(
        loss=add(found.loss, new.loss),
        whole=jax.tree.map(add, found.whole, new.whole),
        rows=jax.tree.map(add, found.rows, new.rows),
        touched=jax.tree.map(jnp.logical_or, found.touched, new.touched),
    )


def _shapes(part: Any) -> tuple[Any, ...]:
    leaves, treedef = jax.tree.flatten(part)
    return treedef, tuple((leaf.shape, leaf.dtype) for leaf in leaves)
