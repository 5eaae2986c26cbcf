"""Chunks: how elements travel between the stages of a dataset, many at a time.

    Columns({"x": array, "city": Strings}, rows=4096)   # examples, before batch()
    Elements([batch, batch])                            # anything else, after it

Both answer the same questions, so a shuffle or a take is written once. Elements that
are rows of equal shape travel as Columns, and nobody loops over them in Python.
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
        """Some of the rows, sharing memory where possible."""
        if start == 0 and stop >= self.rows and step == 1:
            return self
        stop = min(stop, self.rows)
        rows = len(range(start, stop, step))
        tree = map_leaves(lambda c: columns.slice_rows(c, start, stop, step), self.tree)
        return Columns(tree, rows)

    def take(self, index: NDArray[np.int64]) -> Columns:
        """The rows at `index`, in that order."""
        tree = map_leaves(lambda c: columns.take_rows(c, index), self.tree)
        return Columns(tree, len(index))

    def element(self, i: int) -> Structure:
        """One row."""
        return map_leaves(lambda column: columns.row_of(column, i), self.tree)

    def stacked(self) -> Structure:
        """All rows as one batch."""
        return self.tree

    def rearranged(self, fn: Callable[..., Any]) -> Columns:
        """Apply a function of ours that only moves columns about."""
        return Columns(call(fn, self.tree), self.rows)

    def map_blocks(self, fn: Callable[..., Any]) -> Columns:
        """Apply a vectorised function, which must keep the number of rows."""
        return columns_of(call(fn, self.tree), expected_rows=self.rows)


@dataclass(frozen=True, eq=False)
class Elements:
    """Elements that are kept apart: batches, or whatever a generator yields."""

    items: Sequence[Structure]

    def __len__(self) -> int:
        return len(self.items)

    def slice(self, start: int, stop: int, step: int = 1) -> Elements:
        """Some of the elements."""
        return Elements(self.items[start:stop:step])

    def take(self, index: NDArray[np.int64]) -> Elements:
        """The elements at `index`, in that order."""
        return Elements([self.items[i] for i in index.tolist()])

    def element(self, i: int) -> Structure:
        """One element."""
        return self.items[i]

    def stacked(self) -> Structure:
        """All elements as one batch."""
        try:
            return map_leaves(lambda *rows: columns.stack(rows), *self.items)
        except InputError as error:
            _stack_by_name(self.items)
            raise error

    def rearranged(self, fn: Callable[..., Any]) -> Elements:
        """Apply a function of ours that only moves columns about."""
        return Elements([call(fn, item) for item in self.items])

    def map_blocks(self, fn: Callable[..., Any]) -> Elements:
        """Apply the function to each element: a batch is a block of its own."""
        return Elements([as_element(call(fn, item)) for item in self.items])


def _stack_by_name(items: Sequence[Structure]) -> None:
    """Raise the error of `Elements.stacked` again, with the name of its leaf."""
    rows: list[tuple[Any, ...]] = []
    map_leaves(lambda *leaves: rows.append(leaves), *items)
    for (name, _), leaves in zip(named_leaves(items[0]), rows, strict=True):
        try:
            columns.stack(leaves)
        except InputError as error:
            raise InputError(f"{name}: {error}" if name else str(error)) from error


Chunk = Columns | Elements


def columns_of(tree: Structure, *, expected_rows: int | None = None) -> Columns:
    """Check and convert what a user calls a block of rows."""
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
    """Convert every leaf of an element to a column; returned lists become tuples.

    `name` is its place, for errors.
    """
    if columns.is_column(tree) or tree is None or is_dataset(tree):  # of a window
        return tree
    if isinstance(tree, Mapping):
        # Nearly all are columns already, forty in a batch: no name is made for them.
        return {
            key: leaf
            if columns.is_column(leaf)
            else as_element(leaf, f"{name}[{key!r}]")
            for key, leaf in tree.items()
        }
    if not isinstance(tree, tuple | list):
        frame = frame_columns(tree)
        if frame is not None:
            return as_element(frame, name)
        return columns.as_column(tree, name)
    is_named = hasattr(tree, "_fields")  # in such a tuple, a list is an array
    parts = [
        columns.as_column(part, f"{name}[{i}]")
        if is_named and isinstance(part, list)
        else as_element(part, f"{name}[{i}]")
        for i, part in enumerate(tree)
    ]
    make: Any = type(tree)
    return make(*parts) if is_named else tuple(parts)


def concatenate(chunks: Sequence[Chunk]) -> Chunk:
    """Put chunks of one dataset one after the other."""
    if len(chunks) == 1:
        return chunks[0]
    blocks = [chunk for chunk in chunks if isinstance(chunk, Columns)]
    if len(blocks) < len(chunks):
        return Elements([c.element(i) for c in chunks for i in range(len(c))])
    trees = [block.tree for block in blocks]
    tree = map_leaves(lambda *parts: columns.join(parts), *trees)
    return Columns(tree, sum(block.rows for block in blocks))
