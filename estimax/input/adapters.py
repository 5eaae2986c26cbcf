"""Convert what an `input_fn` returned to an iterator of `(features, labels)`.

    for features, labels in as_batches(input_fn()): ...

An `input_fn` may return a Dataset, constant arrays, a generator, a torch loader, or an
iterator of Grain or tf.data. The iterator converts tensors to columns and checks that
all columns of a batch have the same number of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from estimax.core.errors import InputError, SpecError
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.input.dataset import Dataset
from estimax.input.ops.sharding import INFINITE
from estimax.input.sources.arrays import lists_to_columns
from estimax.input.streams.chunks import as_element
from estimax.input.streams.columns import is_value
from estimax.input.streams.positions import Cursor, Resume, once
from estimax.input.streams.ragged import Ragged
from estimax.input.streams.stream import State
from estimax.input.streams.structure import Structure, leaves, map_leaves, named_leaves

# Why an input never ends, and how to make it end; `Feed.endless`.
_REPEATED = "a Dataset that repeats without end. To read it once, leave out repeat()"
_CONSTANT = (
    "plain arrays, which are one batch repeated without end. To use them once, "
    "return iter([(features, labels)])"
)

LabeledBatch = tuple[Structure, Structure]  # features, and labels or None


class BatchIterator(Protocol):
    """An iterator of `(features, labels)` whose position can be saved and restored.

    `as_batches` returns one. Training saves its state in every checkpoint.

    Example:
      >>> from estimax.input import as_batches
      >>> batches = as_batches(Dataset.range(6).batch(2))
      >>> _ = next(batches)
      >>> position = batches.get_state()
      >>> again = as_batches(Dataset.range(6).batch(2))
      >>> again.set_state(position)
      >>> next(again)
      (array([2, 3]), None)
    """

    def __iter__(self) -> Iterator[LabeledBatch]:
        """Return the iterator itself."""

    def __next__(self) -> LabeledBatch:
        """Return the next `(features, labels)`."""

    def get_state(self) -> State:
        """Return the position after the last batch, as values that JSON can hold."""

    def set_state(self, state: State) -> None:
        """Continue from a saved position.

        Args:
          state: What `get_state` returned, from an iterator over the same input.

        Raises:
          InputError: The position belongs to another input, or cannot be restored.
        """

    def close(self) -> None:
        """Stop the threads and close the files."""


def as_batches(
    returned: Any, *, resume: Resume = "skip", seed: int | None = None
) -> BatchIterator:
    """Convert what an `input_fn` returned to an iterator of `(features, labels)`.

    Estimators call it; call it to see the batches that a model will get.

    Args:
      returned: One of
        - a `Dataset` or another iterable of batches, each `(features, labels)` or
          features alone; in a list, every batch must be a tuple of two;
        - `(features, labels)` as arrays, or features alone: one batch, which the
          iterator repeats without end.
      resume: How to restore the position of a plain iterator, which cannot seek:
        "skip" reads up to the position again, "refuse" raises.
      seed: The seed of those shuffles of a Dataset that were given none.

    Returns:
      A `BatchIterator`. Labels are None where a batch has features alone.

    Raises:
      SpecError: `returned` is none of these, or a batch is not `(features, labels)`.
      InputError: The columns of a batch have different numbers of rows.

    Example:
      >>> batches = as_batches([{"x": [1.0, 2.0]}, [0, 1]])
      >>> next(batches)
      ({'x': array([1., 2.])}, array([0, 1]))
    """
    return _CheckedBatches(open_source(returned, resume=resume, seed=seed))


class BatchSource(Protocol):
    """An iterator of unchecked batches with a position: what `open_source` returns."""

    def __next__(self) -> Any: ...

    def get_state(self) -> State: ...

    def set_state(self, state: State) -> None: ...

    def close(self) -> None: ...


def open_source(
    returned: Any, *, resume: Resume = "skip", seed: int | None = None
) -> BatchSource:
    """Open what an `input_fn` returned. `check_batch` checks the elements.

    A Dataset is read by its own `DatasetIterator`, any other iterable by a `Cursor`.
    Arguments and errors are those of `as_batches`.
    """
    if isinstance(returned, Dataset):
        return returned.iterator(seed=seed)
    if _is_one_batch(returned):
        return ConstantSource(check_batch(returned))
    if _is_iterable(returned):
        # An iterator of another library keeps its own position if it has one.
        return Cursor(once(returned), resume=resume)
    if callable(returned):
        raise SpecError(
            "input_fn returned a function. Return what that function returns, or "
            "Dataset.from_batches(f)."
        )
    raise SpecError(
        f"input_fn returned {type(returned).__name__}; expected a Dataset, "
        "(features, labels), features, or an iterable of batches."
    )


def as_pair(element: Any) -> LabeledBatch:
    """Return an element as `(features, labels)`; raise unless a tuple has two parts.

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


def why_endless(returned: Any) -> str:
    """Return why the batches never end, with advice; "" if they end or may end."""
    if isinstance(returned, Dataset):
        return _REPEATED if returned.cardinality() == INFINITE else ""
    return _CONSTANT if _is_one_batch(returned) else ""


def _is_one_batch(returned: Any) -> bool:
    """Return whether the value is arrays, which are one batch, and not an iterable."""
    if isinstance(returned, tuple | list):
        return not _is_list_of_batches(returned)
    return _is_features(returned)


def _is_list_of_batches(value: Any) -> bool:
    """Return whether a list holds tuples of two, unlike a list `[features, labels]`."""
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


def check_batch(element: Any) -> LabeledBatch:
    """Return `(features, labels)` as columns; raise if their numbers of rows differ."""
    batch = as_pair(element)
    columns = leaves(batch)
    if all(map(is_value, columns)):  # batches of a Dataset need no conversion
        features, labels = batch
    else:
        features, labels = (
            map_leaves(_model_column, as_element(lists_to_columns(part)))
            for part in batch
        )
        columns = leaves((features, labels))
    if features is None:
        raise SpecError("input_fn: features are None; expected arrays, or a dict.")
    # A batch may have hundreds of columns, so names are made for a message only.
    rows = set(map(_rows, columns))
    if len(rows) != 1 or () in rows:
        _explain_rows(features, labels)
    return features, labels


def _model_column(column: Any) -> Any:
    """Convert a ragged column to a sparse one, which is what feature columns read."""
    return column.to_sparse() if isinstance(column, Ragged) else column


def _rows(column: Any) -> tuple[int, ...]:
    """Return `(number of rows,)`, or an empty tuple for a scalar."""
    shape = column.dense_shape if isinstance(column, Sparse) else column.shape
    return tuple(shape[:1])


def _explain_rows(features: Structure, labels: Structure) -> None:
    """Raise an error that lists the number of rows of every column."""
    found = {
        f"{what}{name}": _rows(column)
        for what, part in (("features", features), ("labels", labels))
        for name, column in named_leaves(part)
    }
    if not found:
        raise SpecError("input_fn: a batch has no features.")
    scalars = [name for name, rows in found.items() if not rows]
    if scalars:
        raise InputError(
            f"input_fn: a scalar has no rows: {', '.join(scalars)}. Expected batches. "
            "If these are single examples, end the dataset with .batch(size); give "
            "arrays at least one dimension, the first being the rows."
        )
    sizes = {name: rows[0] for name, rows in found.items()}
    shown = ", ".join(f"{name}: {rows}" for name, rows in sizes.items())
    raise InputError(
        "input_fn: features and labels of a batch must have the same number of "
        f"rows, got {shown}."
    )


class ConstantSource:
    """Repeats one batch without end, as tf.estimator does with plain arrays."""

    def __init__(self, batch: LabeledBatch) -> None:
        self._batch = batch

    def __repr__(self) -> str:
        rows = _rows(leaves(self._batch)[0])[0]
        return f"one batch of {rows} rows, repeated without end"

    def __next__(self) -> LabeledBatch:
        return self._batch

    def get_state(self) -> State:
        return {}

    def set_state(self, state: State) -> None:
        pass

    def close(self) -> None:
        pass


class _CheckedBatches:
    """The `BatchIterator` of `as_batches`: the checked batches of a source."""

    def __init__(self, source: BatchSource) -> None:
        self._source = source
        self.get_state = source.get_state
        self.set_state = source.set_state
        self.close = source.close

    def __repr__(self) -> str:
        return f"BatchIterator({self._source!r})"

    def __iter__(self) -> Iterator[LabeledBatch]:
        return self

    def __next__(self) -> LabeledBatch:
        return check_batch(next(self._source))
