"""Chunks: several elements at a time, as they pass between the stages of a dataset.

    Columns({"x": array, "city": Strings}, rows=4096)   # examples, before batch()
    ElementList([batch, batch])                         # anything else, after batch()
    MappedRows(columns, forms)                          # results of a map over examples

The classes have the same methods, so a shuffle or a take is written once. Rows of
equal shape are kept as Columns, and no code loops over them in Python. `MappedRows` act
as an `ElementList` whose values are in columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import InputError
from estimax.core.raw_values import frame_columns
from estimax.input.streams import columns
from estimax.input.streams.structure import (
    Structure,
    call,
    is_dataset,
    leaves,
    map_leaves,
    named_leaves,
)


@dataclass(frozen=True, eq=False)
class Columns:
    """Rows as a structure of columns."""

    tree: Structure
    rows: int

    def __len__(self) -> int:
        return self.rows

    def slice(self, start: int, stop: int, step: int = 1) -> Columns:
        """Return rows start, start + step, … below stop, sharing memory if possible."""
        if start == 0 and stop >= self.rows and step == 1:
            return self
        stop = min(stop, self.rows)
        rows = len(range(start, stop, step))
        tree = map_leaves(lambda c: columns.slice_rows(c, start, stop, step), self.tree)
        return Columns(tree, rows)

    def take(self, index: NDArray[np.int64]) -> Columns:
        """Return the rows at `index`, in that order."""
        tree = map_leaves(lambda c: columns.take_rows(c, index), self.tree)
        return Columns(tree, len(index))

    def element(self, i: int) -> Structure:
        """Return one row."""
        return map_leaves(lambda column: columns.row_of(column, i), self.tree)

    def to_batch(self) -> Structure:
        """Return all rows as one batch."""
        return self.tree

    def rearrange(self, fn: Callable[..., Any]) -> Columns:
        """Apply a function of estimax that only moves columns; nothing is checked."""
        return Columns(call(fn, self.tree), self.rows)

    def map_blocks(self, fn: Callable[..., Any]) -> Columns:
        """Apply a vectorised function, which must keep the number of rows."""
        return columns_of(call(fn, self.tree), expected_rows=self.rows)


@dataclass(frozen=True, eq=False)
class ElementList:
    """Elements as separate objects: batches, or what a generator yields."""

    items: Sequence[Structure]

    def __len__(self) -> int:
        return len(self.items)

    def slice(self, start: int, stop: int, step: int = 1) -> ElementList:
        """Return elements start, start + step, … below stop."""
        return ElementList(self.items[start:stop:step])

    def take(self, index: NDArray[np.int64]) -> ElementList:
        """Return the elements at `index`, in that order."""
        return ElementList([self.items[i] for i in index.tolist()])

    def element(self, i: int) -> Structure:
        """Return one element."""
        return self.items[i]

    def to_batch(self) -> Structure:
        """Return all elements as one batch; raise `InputError` if shapes differ."""
        try:
            return map_leaves(lambda *rows: columns.stack(rows), *self.items)
        except InputError as error:
            _stack_by_name(self.items)
            raise error

    def rearrange(self, fn: Callable[..., Any]) -> ElementList:
        """Apply a function of estimax that only moves columns; nothing is checked."""
        return ElementList([call(fn, item) for item in self.items])

    def map_blocks(self, fn: Callable[..., Any]) -> ElementList:
        """Apply the function to each element: a batch is one block."""
        return ElementList([as_element(call(fn, item)) for item in self.items])


@dataclass(frozen=True, eq=False)
class MappedRows:
    """The results of a function for many rows, as columns.

    It has the methods and `items` of the `ElementList` that calling the function for
    every row would give.

    Attributes:
      columns: The values of all rows.
      forms: A `RowForm` for each leaf, in the same structure.
    """

    columns: Columns
    forms: Structure

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def items(self) -> Sequence[Structure]:
        """The elements as separate objects."""
        return [self.element(i) for i in range(len(self))]

    def slice(self, start: int, stop: int, step: int = 1) -> MappedRows:
        """Return elements start, start + step, … below stop."""
        return MappedRows(self.columns.slice(start, stop, step), self.forms)

    def take(self, index: NDArray[np.int64]) -> MappedRows:
        """Return the elements at `index`, in that order."""
        return MappedRows(self.columns.take(index), self.forms)

    def element(self, i: int) -> Structure:
        """Return one element."""
        forms = iter(leaves(self.forms))
        return map_leaves(lambda c: next(forms).row(c, i), self.columns.tree)

    def to_batch(self) -> Structure:
        """Return all elements as one batch."""
        forms = iter(leaves(self.forms))
        return map_leaves(lambda c: next(forms).batch(c), self.columns.tree)

    def rearrange(self, fn: Callable[..., Any]) -> MappedRows:
        """Apply a function of estimax that only moves columns; nothing is checked."""
        return MappedRows(self.columns.rearrange(fn), call(fn, self.forms))

    def map_blocks(self, fn: Callable[..., Any]) -> ElementList:
        """Apply the function to each element, as it is not a row of a source."""
        return ElementList(self.items).map_blocks(fn)

    def is_like(self, other: MappedRows) -> bool:
        """Return whether both can be joined to one chunk."""
        forms = zip(leaves(self.forms), leaves(other.forms), strict=False)
        return self._layout() == other._layout() and all(
            mine.is_like(form) for mine, form in forms
        )

    def _layout(self) -> list[Any]:
        """Return name, type, dtype and shape of the values of a row."""
        return [
            (
                name,
                type(column),
                getattr(column, "dtype", None),
                getattr(column, "shape", (0,))[1:],
            )
            for name, column in named_leaves(self.columns.tree)
        ]


def _stack_by_name(items: Sequence[Structure]) -> None:
    """Raise the error of `ElementList.to_batch` again, with the name of the leaf."""
    rows: list[tuple[Any, ...]] = []
    map_leaves(lambda *values: rows.append(values), *items)
    for (name, _), values in zip(named_leaves(items[0]), rows, strict=True):
        try:
            columns.stack(values)
        except InputError as error:
            raise InputError(f"{name}: {error}" if name else str(error)) from error


Chunk = Columns | ElementList | MappedRows


def columns_of(tree: Structure, *, expected_rows: int | None = None) -> Columns:
    """Convert a structure of array-likes to columns, and check the number of rows."""
    tree = as_element(tree)
    sizes = {name: columns.row_count(c, name) for name, c in named_leaves(tree)}
    if not sizes and expected_rows is None:
        raise InputError("a dataset needs at least one array, got an empty structure.")
    if len(set(sizes.values())) > 1:
        shown = ", ".join(f"{name or 'array'}: {n}" for name, n in sizes.items())
        raise InputError(f"all columns must have the same number of rows, got {shown}.")
    rows = next(iter(sizes.values()), expected_rows)
    assert rows is not None
    if expected_rows is not None and rows != expected_rows:
        raise InputError(
            f"map_blocks: the function got {expected_rows} rows and returned {rows}. "
            "It must return one row for each; use filter_blocks to drop rows."
        )
    return Columns(tree, rows)


def as_element(tree: Structure, name: str = "") -> Structure:
    """Convert every leaf of an element by `as_value`; lists become tuples.

    `name` is the place of `tree` in the element, for error messages.
    """
    # A window() has datasets as leaves.
    if columns.is_value(tree) or tree is None or is_dataset(tree):
        return tree
    if isinstance(tree, Mapping):
        # Most leaves are columns already, some forty in a batch: for those no name is
        # formatted and no further call is made.
        return {
            key: leaf
            if columns.is_value(leaf)
            else as_element(leaf, f"{name}[{key!r}]")
            for key, leaf in tree.items()
        }
    if not isinstance(tree, tuple | list):
        frame = frame_columns(tree)
        if frame is not None:
            return as_element(frame, name)
        return columns.as_value(tree, name)
    is_named = hasattr(tree, "_fields")  # in a namedtuple, a list is an array
    parts = [
        columns.as_value(part, f"{name}[{i}]")
        if is_named and isinstance(part, list)
        else as_element(part, f"{name}[{i}]")
        for i, part in enumerate(tree)
    ]
    make: Any = type(tree)
    return make(*parts) if is_named else tuple(parts)


def concatenate(chunks: Sequence[Chunk]) -> Chunk:
    """Return the chunks of one dataset as one chunk."""
    if len(chunks) == 1:
        return chunks[0]
    mapped = [chunk for chunk in chunks if isinstance(chunk, MappedRows)]
    if len(mapped) == len(chunks) and all(map(mapped[0].is_like, mapped)):
        joined = concatenate([chunk.columns for chunk in mapped])
        assert isinstance(joined, Columns)
        return MappedRows(joined, mapped[0].forms)
    blocks = [chunk for chunk in chunks if isinstance(chunk, Columns)]
    if len(blocks) < len(chunks):
        return ElementList([c.element(i) for c in chunks for i in range(len(c))])
    trees = [block.tree for block in blocks]
    tree = map_leaves(lambda *parts: columns.join(parts), *trees)
    return Columns(tree, sum(block.rows for block in blocks))
