"""Where the clusters of k-means start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from estimax.core.errors import SpecError, did_you_mean

# key, points [B, D] -> clusters [K, D], or [B, D] while there are too few points
Start = Callable[[jax.Array, jax.Array], jax.Array]


def start_of(
    initial_clusters: Any, num_clusters: int, num_retries: int, seed: int | None
) -> Start:
    """What makes the first clusters: chosen by name, given, or made by a function."""
    if callable(initial_clusters):
        return lambda key, points: _given(
            initial_clusters(points, num_clusters), num_clusters, points
        )
    if not isinstance(initial_clusters, str):
        return lambda key, points: _given(initial_clusters, num_clusters, points)
    if initial_clusters not in _CHOICES:
        near = did_you_mean(initial_clusters, _CHOICES)
        raise SpecError(f"KMeans: unknown initial_clusters {initial_clusters!r}{near}")
    choose = _CHOICES[initial_clusters]

    def start(key: jax.Array, points: jax.Array) -> jax.Array:
        key = key if seed is None else jax.random.key(seed)
        return choose(key, points, min(num_clusters, points.shape[0]), num_retries)

    return start


def random_rows(
    key: jax.Array, points: jax.Array, num_clusters: int, num_retries: int = 0
) -> jax.Array:
    """Different rows, all equally likely."""
    rows = jax.random.choice(key, points.shape[0], (num_clusters,), replace=False)
    return points[rows]


def far_rows(
    key: jax.Array, points: jax.Array, num_clusters: int, num_retries: int
) -> jax.Array:
    """k-means++: rows drawn by their squared distance to those drawn before.

    Each time `num_retries` more are drawn, and the one kept that leaves the points
    nearest to a cluster.
    """
    first_key, key = jax.random.split(key)
    first = points[jax.random.randint(first_key, (), 0, points.shape[0])]
    clusters = jnp.zeros((num_clusters, points.shape[1]), points.dtype).at[0].set(first)

    def draw(index: Any, carry: tuple[jax.Array, jax.Array]) -> Any:
        clusters, nearest = carry
        # Where all points are clusters already, any row will do.
        logits = jnp.where(jnp.any(nearest > 0), jnp.log(nearest), 0.0)
        tries = jax.random.categorical(
            jax.random.fold_in(key, index), logits, shape=(1 + num_retries,)
        )
        left = jnp.minimum(nearest, _squares(points[tries], points))  # [tries, B]
        best = jnp.argmin(jnp.sum(left, axis=1))
        return clusters.at[index].set(points[tries[best]]), left[best]

    start = (clusters, _squares(first[None], points)[0])
    made: jax.Array = jax.lax.fori_loop(1, num_clusters, draw, start)[0]
    return made


def _squares(some: jax.Array, points: jax.Array) -> jax.Array:
    """Squared distances [N, B]."""
    return jnp.sum(jnp.square(some[:, None] - points[None]), axis=-1)


def _given(value: Any, num_clusters: int, points: jax.Array) -> jax.Array:
    clusters = jnp.asarray(value, points.dtype)
    expected = (num_clusters, points.shape[1])
    if clusters.shape != expected:
        raise SpecError(
            f"KMeans: initial_clusters has shape {clusters.shape}; {num_clusters} "
            f"clusters of these features need {expected}."
        )
    return clusters


_CHOICES = {"random": random_rows, "kmeans_plus_plus": far_rows}
