"""Ragged: rows of different lengths, as flat values and the offsets of the rows.

    splits = np.array([0, 2, 2, 3])
    Ragged(np.array([1, 2, 3]), (splits,)).tolist()      # [[1, 2], [], [3]]

With several splits rows are nested, the outermost level first. Values may have further
axes of uniform size.
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
    """A column of nested rows of different lengths, as tf.RaggedTensor.

    Row i of level k consists of items `row_splits[k][i]` to `row_splits[k][i + 1]` of
    the next level, or of `values` for the last level.

    Attributes:
      values: The items of all innermost rows, one after the other.
      row_splits: For each level, outermost first, the offsets at which rows begin, and
        the total number of items.

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
        """The number of levels with rows of different lengths."""
        return len(self.row_splits)

    def tolist(self) -> list[Any]:
        """Return nested lists, with bytes for text."""
        nested: list[Any] = np.asarray(self.values).tolist()
        for splits in reversed(self.row_splits):
            ends = splits.tolist()
            nested = [nested[a:b] for a, b in itertools.pairwise(ends)]
        return nested

    def to_sparse(self) -> Sparse:
        """Return the same values as `Sparse`, indexed by their place in each row.

        >>> Ragged(np.array([7, 8, 9]), (np.array([0, 2, 2, 3]),)).to_sparse().indices
        array([[0, 0],
               [0, 1],
               [2, 0]])
        """
        # From the innermost level outwards: `item` is the number of the row at the
        # current level, `places` the index of each value within its rows so far.
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
