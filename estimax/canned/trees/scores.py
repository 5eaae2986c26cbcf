"""Evaluate trees with XLA: raw scores of rows, for any batch size and device.

    scores = raw_scores(arrays, numbers, ids, sizes, outputs=1)      # [B, 1]

See `arrays.py` for the two layouts. Comparisons are exact: numbers and thresholds are
float32, and thresholds are rounded down.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from estimax.canned.trees.arrays import GROUP

# LightGBM counts numbers this close to 0 as 0.
_ZERO = 1e-35


def raw_scores(
    arrays: Mapping[str, jax.Array],
    numbers: jax.Array,
    ids: jax.Array,
    sizes: Sequence[int],
    outputs: int,
) -> jax.Array:
    """Return the sum of the leaves that each row reaches, float32 [B, outputs].

    Args:
      arrays: What `arrays_of` returned.
      numbers: The numbers of each row, float32 [B, F]; NaN if missing.
      ids: The id of each category, int32 [B, K]; -1 if missing.
      sizes: The number of ids of each category.
      outputs: The number of scores of a row.
    """
    rows = _rows(arrays, numbers, ids, sizes)  # [R, B]
    walks = "left" in arrays
    groups = {
        name: arrays[name].reshape(-1, GROUP, *arrays[name].shape[1:])
        for name in ("row", "threshold", "nan_left", "value", "output")
        + (("left",) if walks else ("path", "depth"))
    }

    def add(total: jax.Array, group: dict[str, jax.Array]) -> tuple[jax.Array, None]:
        levels = arrays.get("levels")
        found = _reach(group, rows) if levels is None else _walk(group, rows, levels)
        if outputs == 1:
            return total + jnp.sum(found, axis=0, keepdims=True), None
        member = group["output"][None, :] == jnp.arange(outputs)[:, None]
        each = jnp.where(member[:, :, None], found[None], 0.0)  # [outputs, G, B]
        return total + jnp.sum(each, axis=1), None

    # A group of trees at a time: all trees at once would need memory for every split of
    # every row.
    start = jnp.zeros((outputs, numbers.shape[0]), jnp.float32)
    total, _ = jax.lax.scan(add, start, groups)
    return total.T


def _rows(
    arrays: Mapping[str, jax.Array],
    numbers: jax.Array,
    ids: jax.Array,
    sizes: Sequence[int],
) -> jax.Array:
    """Return what splits compare: numbers, then a row for each categorical split."""
    is_zero = jnp.abs(numbers) <= _ZERO
    missing = is_zero & arrays["zero_is_missing"][None]
    known = jnp.where(missing, jnp.nan, numbers).T
    if not arrays["split_category"].shape[0]:
        return known
    offsets = np.concatenate([[0], np.cumsum(sizes)])[:-1].astype(np.int32)
    limits = np.asarray(sizes, np.int32)
    is_id = (ids >= 0) & (ids < limits[None])
    place = arrays["place"][jnp.where(is_id, ids + offsets[None], 0)]
    place = jnp.where(is_id, place, 0).T  # [K, B]
    by_split = place[arrays["split_category"]]  # [C, B]
    sides = jnp.take_along_axis(arrays["goes_right"], by_split, axis=1)
    return jnp.concatenate([known, sides], axis=0)


def _goes_left(group: Mapping[str, jax.Array], values: jax.Array) -> jax.Array:
    """Return whether values [..., B] go left at splits [...]."""
    threshold = group["threshold"][..., None]
    # Both are false or true for NaN, so that no third comparison is needed.
    nan_right, nan_left = values <= threshold, jnp.logical_not(values > threshold)
    return jnp.where(group["nan_left"][..., None], nan_left, nan_right)


def _reach(group: Mapping[str, jax.Array], rows: jax.Array) -> jax.Array:
    """Return the value of the leaf of each tree that each row reaches, [G, B]."""
    left = _goes_left(group, rows[group["row"]])  # [G, S, B]
    side = jnp.where(left, 1.0, -1.0)
    path = group["path"].astype(jnp.float32)
    # Sums of up to 31 ones: exact in any precision of a matrix product.
    agreed = jnp.einsum("gls,gsb->glb", path, side)
    reached = agreed == group["depth"][..., None]
    return jnp.sum(jnp.where(reached, group["value"][..., None], 0.0), axis=1)


def _walk(
    group: Mapping[str, jax.Array], rows: jax.Array, levels: jax.Array
) -> jax.Array:
    """Return the same as `_reach`, by walking down all trees level by level."""
    trees, nodes = group["row"].shape
    flat = {name: group[name].reshape(-1) for name in group if name != "output"}
    base = (jnp.arange(trees, dtype=jnp.int32) * nodes)[:, None]
    batch = jnp.arange(rows.shape[1], dtype=jnp.int32)[None]

    def step(_: jax.Array, node: jax.Array) -> jax.Array:
        at = base + node
        values = rows[flat["row"][at], batch]
        threshold = flat["threshold"][at]
        left = jnp.where(
            flat["nan_left"][at],
            jnp.logical_not(values > threshold),
            values <= threshold,
        )
        return flat["left"][at] + jnp.logical_not(left)

    start = jnp.zeros((trees, rows.shape[1]), jnp.int32)
    node = jax.lax.fori_loop(0, levels, step, start)
    return flat["value"][base + node]
