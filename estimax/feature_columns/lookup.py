"""From ids to floats on the device: a column's variables, their rows, and counts.

    rows = table_rows(layer, place, (V, D), initializer, ids.ids, trainable=True)
    block = combine(rows, ids, "mean")                          # [B, D]

A variable is named after its column: `<layer>/<column>/embedding_weights`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from estimax.core.errors import FeatureError, did_you_mean
from estimax.core.sparse import Ids
from estimax.feature_columns.column import variable_scope
from estimax.staging import variables
from estimax.staging.variables.declare import PARAMS, UNTRAINED, Initializer

COMBINERS = ("mean", "sqrtn", "sum")

# Up to here, comparing with every bucket is faster than XLA's scatter, which adds the
# ids one by one.
_COMPARED_BUCKETS = 128


@dataclass(frozen=True)
class VariablePlace:
    """Where a variable is: under its column in the layer, or at the top of the model.

    At the top (`column` is None) all layers that use the name share one variable.
    """

    column: str | None
    name: str

    @property
    def display_name(self) -> str:
        """The table's name in messages."""
        return self.name if self.column is None else self.column

    def path(self, layer: nn.Module) -> str:
        """Return the full name of the variable for a column of this layer."""
        if self.column is None:
            top = variables.model_top()
            return f"{top}/{self.name}" if top else self.name
        return "/".join((*layer.path, variable_scope(self.column), self.name))

    def declare(self, layer: nn.Module, build: Callable[[nn.Module], Any]) -> Any:
        """Call `build` with a module in which the variable is declared by its name."""
        assert layer.scope is not None, "columns compute inside a bound layer only"
        if self.column is None:
            scope: Any = layer.scope.root.rewound()
            for name in filter(None, variables.model_top().split("/")):
                scope = scope.push(name, reuse=True)
        else:
            # Not a submodule of that name: Flax refuses names that its modules have as
            # attributes, and features are often called "name" or "path". Reused, since
            # shared tables, and embeddings in a linear model, are declared twice.
            scope = layer.scope.push(variable_scope(self.column), reuse=True)
        return _Variables(build, parent=scope)()


class _Variables(nn.Module):
    """Holds the variables that a function declares."""

    build: Callable[[nn.Module], Any]

    @nn.compact
    def __call__(self) -> Any:
        return self.build(self)


def table_rows(
    layer: nn.Module,
    place: VariablePlace,
    shape: tuple[int, int],
    initializer: Initializer,
    ids: jax.Array,
    *,
    trainable: bool,
) -> jax.Array:
    """Look up ids [B, …] in a table that is updated by row; return rows [B, …, D]."""
    if variables.is_pure(initializer):
        initializer = variables.apart(initializer)

    def start(key: jax.Array, size: tuple[int, int]) -> Any:
        return initializer(key, size, jnp.float32)

    rows: jax.Array = place.declare(
        layer,
        lambda module: variables.lookup(
            module, place.name, shape, start, ids, trainable=trainable
        ),
    )
    return rows


def weight_rows(
    layer: nn.Module,
    place: VariablePlace,
    shape: tuple[int, int],
    initializer: Initializer,
    ids: jax.Array,
) -> jax.Array:
    """Look up ids [B, …] in an ordinary parameter, which is updated as a whole."""
    table = place.declare(
        layer, lambda module: module.param(place.name, initializer, shape, jnp.float32)
    )
    return jnp.take(table, jnp.maximum(ids, 0), axis=0, mode="clip")


def zeros(
    layer: nn.Module, name: str, shape: tuple[int, ...], *, trainable: bool
) -> jax.Array:
    """Declare a variable that is zero at first; return its value."""
    collection = PARAMS if trainable else UNTRAINED
    return variables.declare_variable(
        layer, name, lambda _: jnp.zeros(shape), collection
    )


def layer_name(given: str | None, usual: str) -> str:
    """Return the name given, or the usual one with the next free number behind it."""
    if given is not None:
        return given
    scope = variables.current_module(usual).scope
    name, count = usual, 0
    while scope.name_reserved(name):
        count += 1
        name = f"{usual}_{count}"
    return name


def check_combiner(combiner: str, where: str) -> None:
    """Raise unless a combiner is mean, sqrtn or sum; `where` begins the message."""
    if combiner not in COMBINERS:
        raise FeatureError(
            f"{where}: unknown combiner {combiner!r}"
            f"{did_you_mean(str(combiner), COMBINERS)}"
        )


def combine(
    rows: jax.Array, ids: Ids, combiner: str, *, prune: bool = True
) -> jax.Array:
    """Combine the rows [..., L, D] of each example's ids into one row, [..., D].

    Entries without an id do not count. Entries with a weight ≤ 0 or NaN do not count
    for mean and sqrtn, unless `prune` is off; a sum keeps them.
    """
    present = ids.ids >= 0
    if ids.weights is None:
        weights = present.astype(rows.dtype)
    else:
        if prune and combiner != "sum":
            present &= ids.weights > 0
        weights = jnp.where(present, ids.weights, 0)
    # An absent entry has read an arbitrary row. Mask it, since 0 times NaN is NaN.
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
    # Weights that add up to zero give zeros, as in TensorFlow.
    return jnp.where(norm == 0, 0, total / jnp.where(norm == 0, 1, norm))


def clip_norm(rows: jax.Array, max_norm: float) -> jax.Array:
    """Scale rows [..., D] whose norm exceeds `max_norm` down to it."""
    # Compare squares: the square root has no finite gradient at a row of zeros.
    square = jnp.sum(jnp.square(rows), axis=-1, keepdims=True)
    return rows * (max_norm * jax.lax.rsqrt(jnp.maximum(square, max_norm**2)))


def count(ids: Ids, num_buckets: int) -> jax.Array:
    """Return how often (or with which total weight) each id occurs: [..., buckets]."""
    given = ids.ids
    weights = jnp.ones(given.shape, jnp.float32) if ids.weights is None else ids.weights
    if given.shape[-1] == 1 or num_buckets <= _COMPARED_BUCKETS:
        is_bucket = given[..., None] == jnp.arange(num_buckets, dtype=given.dtype)
        return jnp.sum(jnp.where(is_bucket, weights[..., None], 0), axis=-2)
    # A negative index would count from the end; one past the end is dropped.
    column = jnp.where(given < 0, num_buckets, given)
    rows = column.reshape(-1, column.shape[-1])
    row = jnp.arange(rows.shape[0])[:, None]
    zeros = jnp.zeros((rows.shape[0], num_buckets), jnp.float32)
    counts = zeros.at[row, rows].add(weights.reshape(rows.shape), mode="drop")
    return counts.reshape(*given.shape[:-1], num_buckets)
