"""The trees of a model as arrays, in one of two layouts that XLA evaluates quickly.

    arrays = arrays_of(forest, numbers=5, categories=2, sizes=(40, 7))
    layout = layout_of({name: array.shape for name, array in arrays.items()})

- *paths*, for trees of up to 32 leaves: all splits of a tree are compared at once, and
  a matrix product with the path to each leaf tells which leaf is reached.
- *walk*, for deep trees: each row goes from node to node, level by level.

Both compare rows of a matrix R with thresholds. Its first rows are the numbers; behind
them is one row for each categorical split, which is 0 where the id goes left and 1
elsewhere, so that a categorical split is a number with the threshold 0.5.

Shapes are rounded up, so that a model that grows does not compile again at every
checkpoint. A tree of padding has the value 0 in every leaf.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from estimax.formats.lightgbm_models import (
    MISSING_NAN,
    MISSING_NONE,
    MISSING_ZERO,
    Forest,
    Tree,
)

Arrays = dict[str, NDArray[Any]]
# For 1,024 rows on a CPU, paths take 2.1 ms and the walk 3.2 with 31 leaves, and 5.9
# and 3.7 with 64.
_MOST_LEAVES_OF_PATHS = 32
GROUP = 8  # trees that are evaluated together


class TreeLayout(NamedTuple):
    """The shapes of the arrays, on which the compiled function depends.

    Attributes:
      shapes: Name, shape and dtype of each array.
      is_walk: Whether the layout is the walk.
    """

    shapes: tuple[tuple[str, tuple[int, ...], str], ...]
    is_walk: bool


def layout_of(forms: Mapping[str, tuple[tuple[int, ...], str]]) -> TreeLayout:
    """Return the layout of arrays with these shapes and dtypes."""
    shapes = tuple((name, *forms[name]) for name in sorted(forms))
    return TreeLayout(shapes, "left" in forms)


def arrays_of(
    forest: Forest, numbers: int, sizes: Sequence[int], iterations: int | None = None
) -> Arrays:
    """Return the trees as arrays.

    Args:
      forest: The model. Its features are `numbers` numbers, then the categories.
      numbers: How many features are numbers.
      sizes: The number of ids of each category.
      iterations: How many iterations to take; None takes all.
    """
    count = forest.iterations if iterations is None else iterations
    trees = forest.trees[: count * forest.outputs]
    scale = 1.0 / max(count, 1) if forest.is_average else 1.0
    categories = _categories(trees, numbers, sizes)
    places = iter(range(numbers, numbers + len(categories["split_category"])))
    rows = [_rows_of(tree, places) for tree in trees]
    most = max((len(tree.value) for tree in trees), default=1)
    total = _rounded(max(len(trees), 1))
    lay = _paths if most <= _MOST_LEAVES_OF_PATHS else _walk
    arrays = lay(trees, rows, total, most, scale)
    output = np.arange(total, dtype=np.int32) % forest.outputs
    return {
        **arrays,
        **categories,
        "output": output,
        "zero_is_missing": _zero_is_missing(trees, numbers),
    }


def _rounded(size: int) -> int:
    """Return a size rounded up to a multiple of 8, or of an eighth if it is large.

    >>> [_rounded(size) for size in (1, 8, 100, 1_000)]
    [8, 8, 104, 1024]
    """
    step = max(GROUP, (1 << (size - 1).bit_length()) // 16)
    return -(-size // step) * step


def _zero_is_missing(trees: Sequence[Tree], numbers: int) -> NDArray[np.bool_]:
    """Return for which numbers 0 counts as missing, bool [F]."""
    found = np.zeros(numbers, np.bool_)
    for tree in trees:
        found[tree.feature[~tree.is_categorical & (tree.missing == MISSING_ZERO)]] = 1
    return found


# --------------------------------------------------------------------------- categories
def _categories(trees: Sequence[Tree], numbers: int, sizes: Sequence[int]) -> Arrays:
    """Return the sets of categorical splits.

    - `place`: for every id of every category, its place among the ids that some split
      sends left; 0 for the others, int32 [sum of sizes].
    - `split_category`: the category of each categorical split, int32 [C].
    - `goes_right`: 0 for places that go left at a split and 1 for others, [C, P].
    """
    splits = [
        (int(tree.feature[index]) - numbers, ids)
        for tree in trees
        for index, ids in enumerate(tree.left_ids)
        if ids is not None
    ]
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    place = np.zeros(int(offsets[-1]), np.int32)
    most = 0
    for category, size in enumerate(sizes):
        sets = [ids for which, ids in splits if which == category]
        used = np.unique(np.concatenate(sets)) if sets else np.zeros(0, np.int64)
        used = used[used < size]
        place[offsets[category] + used] = np.arange(1, len(used) + 1)
        most = max(most, len(used))
    count = _rounded(len(splits)) if splits else 0
    goes_right = np.ones((count, _rounded(most + 1) if splits else 1), np.float32)
    split_category = np.zeros(count, np.int32)
    for index, (category, ids) in enumerate(splits):
        inside = ids[ids < sizes[category]]
        goes_right[index, place[offsets[category] + inside]] = 0.0
        split_category[index] = category
    return {"place": place, "split_category": split_category, "goes_right": goes_right}


class _Rows(NamedTuple):
    """The splits of a tree as comparisons of rows of R, each [S]."""

    row: NDArray[np.int32]
    threshold: NDArray[np.float32]
    nan_left: NDArray[np.bool_]


def _rows_of(tree: Tree, places: Any) -> _Rows:
    """Return the comparisons of a tree; `places` yields rows of categorical splits."""
    is_set = tree.is_categorical
    row = tree.feature.copy()
    row[is_set] = [next(places) for _ in range(int(is_set.sum()))]
    threshold = np.where(is_set, 0.5, round_down(tree.threshold)).astype(np.float32)
    # NaN counts as 0 for a feature that had no missing value in training.
    as_zero = (tree.threshold >= 0) & (tree.missing == MISSING_NONE)
    known = np.isin(tree.missing, (MISSING_ZERO, MISSING_NAN))
    nan_left = np.where(known, tree.default_left, as_zero) & ~is_set
    return _Rows(row, threshold, nan_left)


def round_down(numbers: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return the largest float32 that is not above each number.

    For every float32 x, `x <= number` is then the same as `x <= round_down(number)`.

    >>> round_down(np.array([0.1, 0.5, 1e300])).tolist()
    [0.09999999403953552, 0.5, 3.4028234663852886e+38]
    """
    with np.errstate(over="ignore"):
        near = numbers.astype(np.float32)
    low = np.nextafter(near, np.float32(-np.inf))
    return np.where(near.astype(np.float64) > numbers, low, near)


# ------------------------------------------------------------------------------ layouts
def _paths(
    trees: Sequence[Tree], rows: Sequence[_Rows], total: int, most: int, scale: float
) -> Arrays:
    """Return arrays [T, S], [T, L, S] and [T, L] of the layout *paths*."""
    splits = max(most - 1, 1)
    row = np.zeros((total, splits), np.int32)
    threshold = np.zeros((total, splits), np.float32)
    nan_left = np.zeros((total, splits), np.bool_)
    path = np.zeros((total, most, splits), np.int8)
    # No path reaches a leaf of padding: the sum over a path is never below -S.
    depth = np.full((total, most), -splits - 1, np.int32)
    value = np.zeros((total, most), np.float32)
    for index, (tree, own) in enumerate(zip(trees, rows, strict=True)):
        size = len(own.row)
        row[index, :size] = own.row
        threshold[index, :size] = own.threshold
        nan_left[index, :size] = own.nan_left
        value[index, : size + 1] = tree.value * scale
        _lay_paths(tree, path[index], depth[index])
    return {
        "row": row,
        "threshold": threshold,
        "nan_left": nan_left,
        "path": path,
        "depth": depth,
        "value": value,
    }


def _lay_paths(tree: Tree, path: NDArray[np.int8], depth: NDArray[np.int32]) -> None:
    """Write the path to each leaf: 1 where it goes left, -1 where it goes right."""
    if not len(tree.feature):
        depth[0] = 0
        return
    waiting = [(0, np.zeros(path.shape[1], np.int8), 0)]
    while waiting:
        split, so_far, level = waiting.pop()
        for child, side in ((tree.left[split], 1), (tree.right[split], -1)):
            now = so_far.copy()
            now[split] = side
            if child < 0:
                path[~child], depth[~child] = now, level + 1
            else:
                waiting.append((int(child), now, level + 1))


def _walk(
    trees: Sequence[Tree], rows: Sequence[_Rows], total: int, most: int, scale: float
) -> Arrays:
    """Return arrays [T, N] of the layout *walk*, and the number of levels.

    Nodes are numbered level by level, so that the right child follows the left one. A
    leaf is its own child: every comparison there goes left, to itself.
    """
    nodes = _rounded(2 * most - 1)
    row = np.zeros((total, nodes), np.int32)
    threshold = np.full((total, nodes), np.inf, np.float32)
    nan_left = np.ones((total, nodes), np.bool_)
    left = np.tile(np.arange(nodes, dtype=np.int32), (total, 1))
    value = np.zeros((total, nodes), np.float32)
    levels = 1
    for index, (tree, own) in enumerate(zip(trees, rows, strict=True)):
        order, child, depth = _by_level(tree)
        levels = max(levels, depth)
        is_split = order >= 0
        at, splits = np.flatnonzero(is_split), order[is_split]
        row[index, at] = own.row[splits]
        threshold[index, at] = own.threshold[splits]
        nan_left[index, at] = own.nan_left[splits]
        left[index, at] = child[is_split]
        leaves = np.flatnonzero(~is_split)
        value[index, leaves] = tree.value[~order[~is_split]] * scale
    return {
        "row": row,
        "threshold": threshold,
        "nan_left": nan_left,
        "left": left,
        "value": value,
        "levels": np.array(levels, np.int32),
    }


def _by_level(tree: Tree) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Return the nodes of a tree by level, their left children, and the depth.

    A node is the index of its split, or ~index of its leaf.
    """
    if not len(tree.feature):
        return np.array([-1]), np.array([0]), 0
    levels: list[NDArray[np.int64]] = [np.array([0], np.int64)]
    children: list[NDArray[np.int64]] = []
    count = 1
    while True:
        nodes = levels[-1]
        is_split = nodes >= 0
        first = np.zeros(len(nodes), np.int64)
        splits = nodes[is_split]
        first[is_split] = count + 2 * np.arange(len(splits))
        children.append(first)
        if not len(splits):
            break
        pairs = np.stack([tree.left[splits], tree.right[splits]], axis=1)
        levels.append(pairs.reshape(-1).astype(np.int64))
        count += 2 * len(splits)
    return np.concatenate(levels), np.concatenate(children), len(levels) - 1
