"""A layer's variables, each under its column's name: `<column>/embedding_weights`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from estimax import variables
from estimax.core.errors import FeatureError, did_you_mean
from estimax.core.sparse import Ids
from estimax.feature_columns.column import variable_scope

Initializer = Callable[..., jax.Array]  # (key, shape, dtype) -> array


@dataclass(frozen=True)
class Place:
    """Where a variable is: under its column in the layer, or at the top of the model.

    At the top (`column` None) it is one variable for every layer that names it.
    """

    column: str | None
    name: str

    @property
    def shown(self) -> str:
        """What to call the table in messages."""
        return self.name if self.column is None else self.column


def table_rows(
    layer: nn.Module,
    place: Place,
    shape: tuple[int, int],
    initializer: Initializer,
    ids: jax.Array,
    *,
    trainable: bool,
) -> jax.Array:
    """Look up ids [B, …] in a table updated by row; returns rows [B, …, D]."""

    def build(module: nn.Module) -> jax.Array:
        def start(key: jax.Array, size: tuple[int, int]) -> jax.Array:
            return initializer(key, size, jnp.float32)

        return variables.lookup(
            module, place.name, shape, start, ids, trainable=trainable
        )

    found: jax.Array = _in_scope(layer, place, build)
    return found


def ready_rows(
    layer: nn.Module, place: Place, ids: jax.Array
) -> variables.ReadyRows | None:
    """What a training step has gathered of a table; see `variables.ready_rows`."""
    found: variables.ReadyRows | None = _in_scope(
        layer, place, lambda m: variables.ready_rows(m, place.name, ids)
    )
    return found


def dense_rows(
    layer: nn.Module,
    place: Place,
    shape: tuple[int, int],
    initializer: Initializer,
    ids: jax.Array,
) -> jax.Array:
    """Look up ids [B, …] in ordinary weights, which an optimizer moves as a whole."""
    table = _in_scope(
        layer, place, lambda m: m.param(place.name, initializer, shape, jnp.float32)
    )
    return jnp.take(table, jnp.maximum(ids, 0), axis=0, mode="clip")


def weights(
    layer: nn.Module, column: str, shape: tuple[int, int], *, trainable: bool
) -> jax.Array:
    """A column's ordinary weights, zero at first."""
    found: jax.Array = _in_scope(
        layer,
        Place(column, "weights"),
        lambda m: zeros(m, "weights", shape, trainable=trainable),
    )
    return found


def zeros(
    layer: nn.Module, name: str, shape: tuple[int, ...], *, trainable: bool
) -> jax.Array:
    """A variable that is zero at first."""
    return variables.declare_variable(
        layer, name, lambda _: jnp.zeros(shape), trainable=trainable
    )


def layer_name(given: str | None, usual: str) -> str:
    """The name given, or the usual one, numbered if this scope has such a layer."""
    if given is not None:
        return given
    scope = variables.current_module(usual).scope
    name, count = usual, 0
    while scope.name_reserved(name):
        count += 1
        name = f"{usual}_{count}"
    return name


def _in_scope(layer: nn.Module, place: Place, build: Callable[[nn.Module], Any]) -> Any:
    # Not a submodule of that name: Flax refuses names that its modules have as
    # attributes, and features are called "name" or "path" often enough. Reused, since
    # shared tables and an embedding in a linear model come here twice.
    assert layer.scope is not None, "columns compute inside a bound layer only"
    if place.column is None:
        scope: Any = layer.scope.root.rewound()
    else:
        scope = layer.scope.push(variable_scope(place.column), reuse=True)
    return _Variables(build, parent=scope)()


class _Variables(nn.Module):
    """Holds the variables that a function declares."""

    build: Callable[[nn.Module], Any]

    @nn.compact
    def __call__(self) -> Any:
        return self.build(self)


COMBINERS = ("mean", "sqrtn", "sum")

# Up to here, comparing with every bucket beats XLA's scatter, which adds one by one.
_COMPARED_BUCKETS = 128


def check_combiner(combiner: str, column: str) -> None:
    """Raise unless a combiner is one of the three."""
    if combiner not in COMBINERS:
        raise FeatureError(
            f"column {column!r}: unknown combiner {combiner!r}"
            f"{did_you_mean(str(combiner), COMBINERS)}"
        )


def combine(
    rows: jax.Array, ids: Ids, combiner: str, *, prune: bool = True
) -> jax.Array:
    """Combine the rows [..., L, D] of each bag of ids into one: [..., D].

    Entries without an id do not count. Those with a weight ≤ 0 (or NaN) do not count
    for mean and sqrtn, unless `prune` is off; a sum keeps them.
    """
    present = ids.ids >= 0
    if ids.weights is None:
        weights = present.astype(rows.dtype)
    else:
        if prune and combiner != "sum":
            present &= ids.weights > 0
        weights = jnp.where(present, ids.weights, 0)
    # An absent entry reads an arbitrary row, which may hold NaN: zero times it is NaN.
    kept = jnp.where(present[..., None], rows, 0)
    if ids.weights is None and rows.shape[-2] == 1:
        return kept[..., 0, :]
    total = jnp.sum(kept * weights[..., None], axis=-2)
    if combiner == "sum":
        return total
    power = weights if combiner == "mean" else jnp.square(weights)
    norm = jnp.sum(power, axis=-1, keepdims=True)
    if combiner == "sqrtn":
        norm = jnp.sqrt(jnp.where(norm > 0, norm, 1))
    return total / jnp.where(norm == 0, 1, norm)


def clip_norm(rows: jax.Array, max_norm: float) -> jax.Array:
    """Scale rows [..., D] longer than `max_norm` down to it."""
    # Through the square: the root of a zero row would have no gradient.
    square = jnp.sum(jnp.square(rows), axis=-1, keepdims=True)
    return rows * (max_norm * jax.lax.rsqrt(jnp.maximum(square, max_norm**2)))


def count(ids: Ids, num_buckets: int) -> jax.Array:
    """How often (or with which weight) each id is in its bag: [..., num_buckets]."""
    given = ids.ids
    weights = jnp.ones(given.shape, jnp.float32) if ids.weights is None else ids.weights
    if given.shape[-1] == 1 or num_buckets <= _COMPARED_BUCKETS:
        is_bucket = given[..., None] == jnp.arange(num_buckets, dtype=given.dtype)
        return jnp.sum(jnp.where(is_bucket, weights[..., None], 0), axis=-2)
    # A negative index would count from the end; past the end it is dropped.
    column = jnp.where(given < 0, num_buckets, given)
    bags = column.reshape(-1, column.shape[-1])
    row = jnp.arange(bags.shape[0])[:, None]
    zeros = jnp.zeros((bags.shape[0], num_buckets), jnp.float32)
    counts = zeros.at[row, bags].add(weights.reshape(bags.shape), mode="drop")
    return counts.reshape(*given.shape[:-1], num_buckets)
