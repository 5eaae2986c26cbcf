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

from estimax.core.strings import Strings


@dataclass(frozen=True, eq=False)
class Sparse:
    """A sparse tensor: row-major `indices` [n, rank], `values` [n], `dense_shape`."""

    indices: NDArray[np.int64]
    values: NDArray[Any] | Strings
    dense_shape: tuple[int, ...]

    def __len__(self) -> int:
        return self.dense_shape[0]


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Ids:
    """Padded ids [B, L] (int32, -1 where there is none) and optional weights [B, L]."""

    ids: Any  # jax.Array on the device, ndarray on the host
    weights: Any = None


def padded_length(longest: int) -> int:
    """Round a length up to a power of two (at least 1), so that few shapes compile.

    >>> [padded_length(n) for n in (0, 1, 3, 4, 9)]
    [1, 1, 4, 4, 16]
    """
    return 1 if longest <= 1 else 1 << (longest - 1).bit_length()
