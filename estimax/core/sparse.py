"""Values that not every row has: sparse triples on the host, padded ids on the device.

    Sparse(indices=[[0, 0], [1, 0]], values=Strings.of(["a", "b"]), dense_shape=(2, 1))
    Ids(ids=[[4, -1], [7, 2]], weights=None)     # -1: nothing here

Sparse is what a reader makes of a variable-length feature. Ids is what a column's host
half makes of it: a rectangle, L rounded up to a power of two, so few shapes compile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import FeatureError
from estimax.core.strings import Strings


@dataclass(frozen=True, eq=False, init=False)
class Sparse:
    """A sparse tensor: row-major `indices` [n, rank], `values` [n], `dense_shape`."""

    indices: NDArray[np.int64]
    values: NDArray[Any] | Strings
    dense_shape: tuple[int, ...]

    def __init__(
        self,
        indices: NDArray[np.int64],
        values: NDArray[Any] | Strings,
        dense_shape: tuple[int, ...],
    ) -> None:
        # As in Strings: a frozen dataclass's own would be slow.
        own = self.__dict__
        own["indices"], own["values"], own["dense_shape"] = indices, values, dense_shape

    def __len__(self) -> int:
        return self.dense_shape[0]

    @staticmethod
    def of_rows(rows: Any) -> Sparse:  # Any: lists of lists, at any depth
        """Make a sparse tensor of ragged rows, each value at its place in its list.

        >>> Sparse.of_rows([["a", "b"], [], ["c"]]).dense_shape
        (3, 2)
        >>> Sparse.of_rows([[[1, 2], [3]], [[4]]]).indices.tolist()
        [[0, 0, 0], [0, 0, 1], [0, 1, 0], [1, 0, 0]]
        """
        found: list[tuple[tuple[int, ...], Any]] = []
        sizes: list[int] = []
        _collect(rows, (), found, sizes)
        rank = len(sizes)
        if rank < 2 or any(len(place) != rank for place, _ in found):
            raise FeatureError(
                "Sparse.of_rows: expected a list of rows, each a list of values (or "
                "each a list of such lists), all values at one depth."
            )
        places = np.array([place for place, _ in found], np.int64).reshape(-1, rank)
        values = [value for _, value in found]
        is_text = bool(values) and isinstance(values[0], str | bytes)
        array = Strings.of(values) if is_text else np.array(values)
        return Sparse(places, array, tuple(sizes))


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Ids:
    """Padded ids [B, L] (int32, -1 where there is none) and optional weights [B, L]."""

    ids: Any  # jax.Array on the device, ndarray on the host
    weights: Any = None


def _collect(
    value: Any,
    place: tuple[int, ...],
    found: list[tuple[tuple[int, ...], Any]],
    sizes: list[int],
) -> None:
    """Every value with its place, and the longest list at each depth."""
    if not isinstance(value, list | tuple | np.ndarray):
        found.append((place, value))
        return
    depth = len(place)
    if depth == len(sizes):
        sizes.append(0)
    sizes[depth] = max(sizes[depth], len(value))
    for index, inner in enumerate(value):
        _collect(inner, (*place, index), found, sizes)


def padded_length(longest: int) -> int:
    """Round a length up to a power of two (at least 1), so that few shapes compile.

    >>> [padded_length(n) for n in (0, 1, 3, 4, 9)]
    [1, 1, 4, 4, 16]
    """
    return 1 if longest <= 1 else 1 << (longest - 1).bit_length()
