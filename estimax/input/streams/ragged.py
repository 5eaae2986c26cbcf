"""Rows of different lengths, nested: flat values and where each row begins.

    splits = np.array([0, 2, 2, 3])
    Ragged(np.array([1, 2, 3]), (splits,)).tolist()      # [[1, 2], [], [3]]

Several splits nest, the outermost first. Values may have further, uniform axes.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.core.sparse import Sparse
from estimax.core.strings import Strings


@dataclass(frozen=True, eq=False)
class Ragged:
    """Row i at the outermost level is items `splits[0][i]` to `splits[0][i + 1]`.

    >>> inner, outer = np.array([0, 1, 3]), np.array([0, 0, 2])
    >>> Ragged(np.array([7, 8, 9]), (outer, inner)).tolist()
    [[], [[7], [8, 9]]]
    """

    values: NDArray[Any] | Strings
    row_splits: tuple[NDArray[np.integer[Any]], ...]

    def __len__(self) -> int:
        return len(self.row_splits[0]) - 1

    @property
    def ragged_rank(self) -> int:
        """How many axes have rows of different lengths."""
        return len(self.row_splits)

    def tolist(self) -> list[Any]:
        """Nested lists, with bytes for text."""
        nested: list[Any] = np.asarray(self.values).tolist()
        for splits in reversed(self.row_splits):
            ends = splits.tolist()
            nested = [nested[a:b] for a, b in itertools.pairwise(ends)]
        return nested

    def to_sparse(self) -> Sparse:
        """The same values, each at its place in its row.

        >>> Ragged(np.array([7, 8, 9]), (np.array([0, 2, 2, 3]),)).to_sparse().indices
        array([[0, 0],
               [0, 1],
               [2, 0]])
        """
        item, *inner = np.unravel_index(np.arange(self.values.size), self.values.shape)
        places = list(inner)
        for splits in reversed(self.row_splits):
            lengths = np.diff(splits)
            row = np.repeat(np.arange(len(lengths)), lengths)[item]
            places.insert(0, item - splits[row])
            item = row
        longest = [int(np.diff(each).max(initial=0)) for each in self.row_splits]
        indices = np.stack([item, *places], axis=1).astype(np.int64)
        shape = (len(self), *longest, *self.values.shape[1:])
        return Sparse(indices, self.values.reshape((-1,)), shape)
