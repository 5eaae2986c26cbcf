"""Features with any number of values per row: `Sparse` and `Ids`.

    Sparse(indices=[[0, 0], [1, 0]], values=Strings.of(["a", "b"]), dense_shape=(2, 1))
    Sparse.of_lists(np.array([7, 8, 9]), offsets=np.array([0, 2, 3]))
    Ids(ids=[[4, -1], [7, 2]], weights=None)     # -1: nothing here

Readers return a variable-length feature as `Sparse`, on the host. The host transform of
a feature column turns it into `Ids`: a padded array [B, L], with L rounded up to a
power of two so that few shapes are compiled.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import FeatureError
from estimax.core.strings import Strings


@dataclass(frozen=True, eq=False, init=False)
class Sparse:
    """A feature with any number of values in each row, as a sparse tensor.

    Use it for multi-valued features, such as the tags of an article. Readers make it
    from variable-length features; `Sparse.of_rows` makes it from Python lists. It is
    the counterpart of `tf.SparseTensor`, with the same three fields.

    Args:
      indices: Position of each value, int64 [n, rank], sorted by row: (row, column) for
        rank 2.
      values: The values, a NumPy array or `Strings` [n].
      dense_shape: The shape with all positions filled, e.g. (rows, longest row).

    Example:
      >>> tags = Sparse.of_rows([["a", "b"], [], ["c"]])
      >>> tags
      Sparse(values=[b'a', b'b', b'c'], indices=[[0, 0], [0, 1], [2, 0]],
        dense_shape=(3, 2))
      >>> len(tags), tags.rows(0, 1).values.tolist()
      (3, [b'a', b'b'])
    """

    values: NDArray[Any] | Strings
    dense_shape: tuple[int, ...]
    is_lists: bool  # made by `of_lists`: no gaps in a row, so `starts` is sufficient
    _offsets: NDArray[Any]  # set by `of_lists` only

    def __init__(
        self,
        indices: NDArray[np.int64],
        values: NDArray[Any] | Strings,
        dense_shape: tuple[int, ...],
    ) -> None:
        # The constructor that a frozen dataclass generates would be slow, see Strings.
        own = self.__dict__
        own["indices"], own["values"], own["dense_shape"] = indices, values, dense_shape
        own["is_lists"] = False

    @staticmethod
    def of_lists(
        values: NDArray[Any] | Strings,
        offsets: NDArray[np.integer[Any]],
        longest: int | None = None,
    ) -> Sparse:
        """Make a sparse matrix from lists in one array, as Arrow stores them.

        Row i has the values from `offsets[i] - offsets[0]` to
        `offsets[i + 1] - offsets[0]`. The indices are computed when they are first
        read.

        Args:
          values: The values of all lists [n].
          offsets: Where each list begins, and where the last one ends: [rows + 1].
          longest: The second size of `dense_shape`; by default the length of the
            longest list.

        Returns:
          A `Sparse` of rank 2.

        >>> lists = Sparse.of_lists(np.array([7, 8, 9]), np.array([0, 2, 2, 3]))
        >>> lists.indices.tolist(), lists.dense_shape
        ([[0, 0], [0, 1], [2, 0]], (3, 2))
        """
        if longest is None:
            longest = int(np.diff(offsets).max(initial=0))
        made = object.__new__(Sparse)
        own = made.__dict__
        own["values"], own["dense_shape"] = values, (len(offsets) - 1, longest)
        own["_offsets"], own["is_lists"] = offsets, True
        return made

    @cached_property
    def indices(self) -> NDArray[np.int64]:
        """The position of every value: [n, rank]."""
        # Only reached for lists; other tensors are given their indices.
        starts = self.starts
        rows = np.repeat(np.arange(len(self)), np.diff(starts))
        return np.stack([rows, np.arange(len(rows)) - starts[rows]], axis=1)

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Where the values of each row begin, and where the last end: [rows + 1]."""
        if self.is_lists:
            return self._offsets.astype(np.int64) - int(self._offsets[0])
        return row_starts(np.asarray(self.indices)[:, 0], len(self))

    @property
    def nbytes(self) -> int:
        """The bytes that values and positions take in memory."""
        places = self._offsets if self.is_lists else self.indices
        return self.values.nbytes + int(places.nbytes)

    def with_values(self, values: NDArray[Any] | Strings) -> Sparse:
        """Return a copy with other values at the same positions.

        Args:
          values: As many values as before, a NumPy array or `Strings` [n].
        """
        if self.is_lists:
            return Sparse.of_lists(values, self._offsets, self.dense_shape[1])
        return Sparse(self.indices, values, self.dense_shape)

    def rows(self, start: int, stop: int) -> Sparse:
        """Return some of the rows; those of lists share memory with this object.

        Args:
          start: The first row.
          stop: The row behind the last.
        """
        if self.is_lists:
            offsets = self._offsets[start : stop + 1]
            base = int(self._offsets[0])
            values = self.values[int(offsets[0]) - base : int(offsets[-1]) - base]
            return Sparse.of_lists(values, offsets, self.dense_shape[1])
        first, last = self.indices[:, 0].searchsorted([start, stop]).tolist()
        indices = self.indices[first:last].copy()
        indices[:, 0] -= start
        shape = (stop - start, *self.dense_shape[1:])
        return Sparse(indices, self.values[first:last], shape)

    def to_dense(self, default_value: Any = None) -> NDArray[Any] | Strings:
        """Return all positions, with `default_value` where there is no value.

        Args:
          default_value: A number or text, like the values. By default 0, or empty text.

        Raises:
          FeatureError: The default is text and the values are numbers, or the other way
            round.
        """
        values: Any = self.values
        is_text = isinstance(values, Strings)
        if default_value is None:
            default_value = b"" if is_text else 0
        if isinstance(default_value, str | bytes) != is_text:
            given = "text" if not is_text else "a number"
            kind = "text" if is_text else "numbers"
            raise FeatureError(
                f"Sparse: default_value is {given}, {default_value!r}, but the values "
                f"are {kind}."
            )
        numbers = None if is_text else np.asarray(values)
        dtype = object if numbers is None else numbers.dtype
        dense = np.full(self.dense_shape, default_value, dtype)
        places = tuple(np.asarray(self.indices).reshape(-1, dense.ndim).T)
        dense[places] = values.tolist() if numbers is None else numbers
        return Strings.of(dense) if is_text else dense

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        return np.asarray(self.to_dense(), dtype)

    def __len__(self) -> int:
        return self.dense_shape[0]

    def __repr__(self) -> str:
        few: Any = self.values[:4]  # also a list, if one was given
        texts = few.tolist() if hasattr(few, "tolist") else list(few)
        values = [repr(value) for value in texts]
        indices = [str(place) for place in np.asarray(self.indices[:4]).tolist()]
        more = len(self.values) - len(values)
        values += [f"… {more:,} more"] if more else []
        indices += ["…"] if more else []
        return (
            f"Sparse(values=[{', '.join(values)}], indices=[{', '.join(indices)}],\n"
            f"  dense_shape={self.dense_shape})"
        )

    @staticmethod
    def of_rows(rows: Any) -> Sparse:  # Any: lists of lists, at any depth
        """Make a sparse tensor from ragged rows.

        Args:
          rows: A list of rows, each a list of values. Lists may be nested further; the
            result then has a higher rank. All values have the same depth.

        Returns:
          A `Sparse` whose values are at their positions in the lists.

        Raises:
          FeatureError: A value is at another depth than the others.

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
    """Padded ids [B, L], int32 with -1 as padding, and optional weights [B, L]."""

    ids: Any  # jax.Array on the device, NumPy array on the host
    weights: Any = None


def sparse_tensor_to_dense(
    sp_input: Any, default_value: Any = None
) -> NDArray[Any] | Strings:
    """Return a sparse feature as an array, with a default where there is no value.

    Use it in an `input_fn`, in `Dataset.map` for instance. It runs on the host: in a
    `model_fn`, sparse features go through a column or `ex.embedding_lookup_sparse`.
    `np.asarray(sparse)` does the same with the default 0, or empty text.

    Args:
      sp_input: The sparse feature.
      default_value: A number or text, like the values. By default 0, or empty text.

    Returns:
      A NumPy array, or `Strings` for text, of the shape `sp_input.dense_shape`.

    Raises:
      FeatureError: `sp_input` is not a `Sparse`, or the default does not fit its
        values.

    Example:
      >>> tags = Sparse.of_rows([[7, 8], [], [9]])
      >>> sparse_tensor_to_dense(tags, default_value=-1).tolist()
      [[7, 8], [-1, -1], [9, -1]]
    """
    if isinstance(sp_input, Sparse):
        return sp_input.to_dense(default_value)
    origin = getattr(sp_input, "origin", None)  # of a feature that a model_fn is given
    if origin is not None:
        raise FeatureError(
            f"sparse_tensor_to_dense: the feature {origin.short_name!r} stays on the "
            "host and cannot be made dense in a model_fn. Do it in the input_fn: "
            "dataset.map(lambda features, labels: …) with ex.sparse_tensor_to_dense. "
            "Or give the feature to a column or to ex.embedding_lookup_sparse."
        )
    raise FeatureError(
        f"sparse_tensor_to_dense: expected ex.Sparse, got {type(sp_input).__name__}."
    )


def _collect(
    value: Any,
    place: tuple[int, ...],
    found: list[tuple[tuple[int, ...], Any]],
    sizes: list[int],
) -> None:
    """Collect every value with its position, and the longest list at each depth."""
    if not isinstance(value, list | tuple | np.ndarray):
        found.append((place, value))
        return
    depth = len(place)
    if depth == len(sizes):
        sizes.append(0)
    sizes[depth] = max(sizes[depth], len(value))
    for index, inner in enumerate(value):
        _collect(inner, (*place, index), found, sizes)


def row_starts(rows: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return where the entries of each of `count` rows begin, and the last end.

    `rows` are the row numbers of the entries, sorted.

    >>> row_starts(np.array([0, 0, 2]), 3)
    array([0, 2, 2, 3])
    """
    starts = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(rows, minlength=count), out=starts[1:])
    return starts


def padded_length(longest: int) -> int:
    """Round a length up to a power of two, at least 1, so that few shapes compile.

    >>> [padded_length(n) for n in (0, 1, 3, 4, 9)]
    [1, 1, 4, 4, 16]
    """
    return 1 if longest <= 1 else 1 << (longest - 1).bit_length()
