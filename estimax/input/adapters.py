"""Whatever an `input_fn` returned, as an iterator of `(features, labels)`.

    for features, labels in as_batches(input_fn()): ...

Datasets, constant arrays, generators, torch loaders, Grain and tf.data iterators all
end here, with columns instead of tensors and the first dimensions checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from estimax.core.errors import InputError, SpecError
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.input.dataset import Dataset
from estimax.input.sources.arrays import lists_to_columns
from estimax.input.streams.chunks import as_element
from estimax.input.streams.columns import is_column, row_count
from estimax.input.streams.positions import END, Cursor, Resume, once
from estimax.input.streams.ragged import Ragged
from estimax.input.streams.stream import State
from estimax.input.streams.structure import Structure, leaves, map_leaves, named_leaves

Batch = tuple[Structure, Structure]


class BatchIterator(Protocol):
    """Batches with a position."""

    def __iter__(self) -> Iterator[Batch]:
        """Itself."""

    def __next__(self) -> Batch:
        """The next `(features, labels)`."""

    def get_state(self) -> State:
        """The position behind the last batch, for `json.dumps`."""

    def set_state(self, state: State) -> None:
        """Go on behind a saved position."""

    def close(self) -> None:
        """Stop threads and let go of files."""


def as_batches(
    returned: Any, *, resume: Resume = "skip", seed: int | None = None
) -> BatchIterator:
    """Turn what an `input_fn` returned into an iterator of `(features, labels)`.

    - a `Dataset`, or any iterable of batches: each element is `(features, labels)`, a
      tuple or list of exactly two, or features alone; in a list, tuples of two;
    - `(features, labels)` as arrays, or features alone: that batch, for ever.

    `resume` says whether a plain iterator, which cannot seek, may be run up to a saved
    position again; `seed` is for a Dataset's shuffles that were given none.

    >>> batches = as_batches([{"x": [1.0, 2.0]}, [0, 1]])
    >>> next(batches)
    ({'x': array([1., 2.])}, array([0, 1]))
    """
    if isinstance(returned, Dataset):
        return _Batches(returned.iterator(seed=seed))
    if isinstance(returned, tuple | list) and not _is_list_of_batches(returned):
        return _Constant(as_pair(returned))
    if _is_features(returned):
        return _Constant((returned, None))
    if _is_iterable(returned):
        return _Batches(_CursorIterator(Cursor(once(returned), resume=resume)))
    if callable(returned):
        raise SpecError(
            "input_fn returned a function; call it, or return Dataset.from_batches(f)."
        )
    raise SpecError(
        f"input_fn returned {type(returned).__name__}; expected a Dataset, "
        "(features, labels), features, or an iterable of batches."
    )


def as_pair(element: Any) -> Batch:
    """Split an element into features and labels; a list or tuple must have two parts.

    >>> as_pair({"x": 1})
    ({'x': 1}, None)
    """
    if not isinstance(element, tuple | list):
        return element, None
    if len(element) != 2:
        raise SpecError(
            f"input_fn: a batch must be (features, labels) or features, got a "
            f"{type(element).__name__} of {len(element)}. Put several features into "
            "a dict; a list of ready batches holds tuples (features, labels)."
        )
    return element[0], element[1]


def _is_list_of_batches(value: Any) -> bool:
    """A list of pairs is no `[features, labels]`: neither is ever a pair itself."""
    if not isinstance(value, list) or not value:
        return False
    return all(isinstance(part, tuple) and len(part) == 2 for part in value)


def _is_features(value: Any) -> bool:
    return isinstance(value, Mapping | Strings | Sparse) or any(
        hasattr(value, name) for name in ("__array__", "dense_shape", "iloc")
    )


def _is_iterable(value: Any) -> bool:
    if isinstance(value, str | bytes):
        return False
    return hasattr(value, "__iter__") or hasattr(value, "__getitem__")


def _checked(batch: Batch) -> Batch:
    """Convert to columns and check that all have the same number of rows."""
    columns = leaves(batch)
    if all(map(is_column, columns)):  # our own datasets' batches need no conversion
        features, labels = batch
    else:
        features, labels = (
            map_leaves(_model_column, as_element(lists_to_columns(part)))
            for part in batch
        )
        columns = leaves((features, labels))
    if features is None:
        raise SpecError("input_fn: features are None; expected arrays, or a dict.")
    # Names are made for a message only: a batch of a wide model has a hundred columns.
    rows = set(map(_rows, columns))
    if len(rows) != 1 or () in rows:
        _explain_rows(features, labels)
    return features, labels


def _model_column(column: Any) -> Any:
    """Columns of models read values at places, and know nothing of nested rows."""
    return column.to_sparse() if isinstance(column, Ragged) else column


def _rows(column: Any) -> tuple[int, ...]:
    """The number of rows in a tuple, empty for a scalar."""
    shape = column.dense_shape if isinstance(column, Sparse) else column.shape
    return tuple(shape[:1])


def _explain_rows(features: Structure, labels: Structure) -> None:
    """Raise what is wrong with the numbers of rows of a batch."""
    sizes = {
        f"{what}{name}": row_count(column, f"{what}{name}")
        for what, part in (("features", features), ("labels", labels))
        for name, column in named_leaves(part)
    }
    if not sizes:
        raise SpecError("input_fn: a batch without any feature.")
    shown = ", ".join(f"{name}: {rows}" for name, rows in sizes.items())
    raise InputError(
        "input_fn: features and labels of a batch must have the same number of "
        f"rows, got {shown}."
    )


class _Constant:
    """The same batch for ever, as tf.estimator does with plain arrays."""

    is_endless = True

    def __init__(self, batch: Batch) -> None:
        self._batch = _checked(batch)

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        return self._batch

    def get_state(self) -> State:
        return {}

    def set_state(self, state: State) -> None:
        pass

    def close(self) -> None:
        pass


class _Positioned(Protocol):
    def __next__(self) -> Any: ...

    def get_state(self) -> State: ...

    def set_state(self, state: State) -> None: ...

    def close(self) -> None: ...


class _Batches:
    """Elements of a positioned iterator, as checked pairs."""

    def __init__(self, elements: _Positioned) -> None:
        self._elements = elements

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        return _checked(as_pair(self._elements.__next__()))

    def get_state(self) -> State:
        return self._elements.get_state()

    def set_state(self, state: State) -> None:
        self._elements.set_state(state)

    def close(self) -> None:
        self._elements.close()


class _CursorIterator:
    """A cursor with the methods of an iterator."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self.get_state = cursor.get_state
        self.set_state = cursor.set_state
        self.close = cursor.close

    def __next__(self) -> Any:
        element = self._cursor.next()
        if element is END:
            raise StopIteration
        return element
