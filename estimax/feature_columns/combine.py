"""From ids to floats, on the device: rows combined, or ids counted."""

import jax
import jax.numpy as jnp

from estimax.core.errors import FeatureError, did_you_mean
from estimax.core.sparse import Ids

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
