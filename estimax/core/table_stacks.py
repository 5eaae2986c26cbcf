"""Tables that share one array, each a range of its rows, read by their own names.

    tables = TableStacks({"stack": rows}, StackLayout.of({"stack": {"a": 50, "b": 20}}))
    tables["b"]                          # rows 50 to 70
    tables.arrays["stack"]               # what a compiled step gathers from and updates

A program with an array for each of 400 tables takes minutes to compile. A `TableStacks`
is a mapping by the name of the table for all who read a state, and a pytree with one
array for each stack for what is compiled. It has no values of its own: the slots of
tables are one as well, whose entries are dicts of arrays.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class RowRange(NamedTuple):
    """The rows of one table in its stack: `rows` of them, from `start` on."""

    stack: str
    start: int
    rows: int


class StackLayout(Mapping[str, RowRange]):
    """Where each table is. Compared by value, with a hash that is computed once.

    Args:
      ranges: The range of each table by its name.

    Example:
      >>> StackLayout.of({"s": {"a": 50, "b": 20}})["b"]
      RowRange(stack='s', start=50, rows=20)
    """

    def __init__(self, ranges: Mapping[str, RowRange]) -> None:
        self._ranges = dict(ranges)
        self._hash = hash(tuple(self._ranges.items()))

    @classmethod
    def of(cls, stacks: Mapping[str, Mapping[str, int]]) -> StackLayout:
        """Return the layout of stacks: name -> table -> rows, one behind another."""
        ranges = {}
        for stack, tables in stacks.items():
            start = 0
            for name, rows in tables.items():
                ranges[name] = RowRange(stack, start, rows)
                start += rows
        return cls(dict(sorted(ranges.items())))

    @functools.cached_property
    def tables(self) -> dict[str, tuple[str, ...]]:
        """The tables of each stack, in the order of their rows."""
        found: dict[str, list[tuple[int, str]]] = {}
        for name, (stack, start, _) in self._ranges.items():
            found.setdefault(stack, []).append((start, name))
        return {
            stack: tuple(name for _, name in sorted(members))
            for stack, members in sorted(found.items())
        }

    def __getitem__(self, name: str) -> RowRange:
        return self._ranges[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._ranges)

    def __len__(self) -> int:
        return len(self._ranges)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        # Every call of a compiled function compares the layouts of its arguments.
        if self is other:
            return True
        if not isinstance(other, StackLayout):
            return NotImplemented
        return self._hash == other._hash and self._ranges == other._ranges

    def __repr__(self) -> str:
        return f"StackLayout({self._ranges})"


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class TableStacks(Mapping[str, Any]):
    """A mapping from the name of a table to its rows; `arrays` holds the stacks.

    An entry of `arrays` is one array, or a dict of arrays for slots. Reading a table
    copies its rows, unless it is alone in its stack.

    Example:
      >>> layout = StackLayout.of({"s": {"a": 2, "b": 1}})
      >>> tables = TableStacks({"s": np.eye(3)}, layout)
      >>> sorted(tables), tables["b"].tolist()
      (['a', 'b'], [[0.0, 0.0, 1.0]])
    """

    arrays: dict[str, Any]
    layout: StackLayout = field(metadata={"static": True})

    def __getitem__(self, name: str) -> Any:
        stack, start, rows = self.layout[name]
        return jax.tree.map(lambda a: _rows_of(a, start, rows), self.arrays[stack])

    def __iter__(self) -> Iterator[str]:
        return iter(self.layout)

    def __len__(self) -> int:
        return len(self.layout)

    def __or__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        return {**self, **other}

    def __ror__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        return {**other, **self}

    def by_table(self) -> dict[str, Any]:
        """Return all tables by name. Arrays on a device are split in one operation."""
        found: dict[str, Any] = self._split(_split_rows)
        return found

    def on_host(self) -> dict[str, Any]:
        """Return all tables by name, as views of memory of the host.

        On a CPU nothing is copied: the views are of the memory of the stack, which the
        next step overwrites. A stack on another device is copied once. Entries without
        values (shapes, or tracers) are as those of `by_table`.
        """
        for leaf in jax.tree.leaves(self.arrays):
            if _has_values(leaf):
                leaf.copy_to_host_async()
        found: dict[str, Any] = self._split(_split_on_host)
        return found

    def with_arrays(self, arrays: dict[str, Any]) -> TableStacks:
        """Return the same tables with other arrays, by stack."""
        return TableStacks(arrays, self.layout)

    def _split(self, split: Callable[[Any, list[RowRange]], list[Any]]) -> Any:
        found: dict[str, Any] = {}
        for stack, names in self.layout.tables.items():
            ranges = [self.layout[name] for name in names]
            leaves, treedef = jax.tree.flatten(self.arrays[stack])
            parts = [split(leaf, ranges) for leaf in leaves]
            for place, name in enumerate(names):
                mine = [of_leaf[place] for of_leaf in parts]
                found[name] = jax.tree.unflatten(treedef, mine)
        return dict(sorted(found.items()))


Tables = Mapping[str, Any]  # a dict, or `TableStacks`


def stack_arrays(tables: Tables) -> dict[str, Any]:
    """Return the arrays that hold tables: by stack, or by table if none is stacked."""
    return dict(tables.arrays if isinstance(tables, TableStacks) else tables)


def with_stack_arrays(tables: Tables, arrays: dict[str, Any]) -> Tables:
    """Return tables that are held as `tables` are, with other arrays."""
    return tables.with_arrays(arrays) if isinstance(tables, TableStacks) else arrays


def stacked(tables: Mapping[str, Any], layout: StackLayout | None) -> Tables:
    """Return tables, given by name, in the arrays of a layout; None is one for each."""
    if layout is None:
        return tables
    arrays = {
        stack: tables[names[0]]
        if len(names) == 1
        else jnp.concatenate([tables[name] for name in names])
        for stack, names in layout.tables.items()
    }
    return TableStacks(arrays, layout)


def by_table(tables: Tables) -> dict[str, Any]:
    """Return tables by name, as a dict."""
    return tables.by_table() if isinstance(tables, TableStacks) else dict(tables)


def on_host(tables: Tables) -> dict[str, Any]:
    """Return tables by name; those of a stack as views of memory of the host."""
    return tables.on_host() if isinstance(tables, TableStacks) else dict(tables)


def _rows_of(array: Any, start: int, rows: int) -> Any:
    """Return some rows of an array, or their shape if it is a shape."""
    if array.shape[0] == rows:
        return array
    if isinstance(array, jax.ShapeDtypeStruct):
        return _form(array, rows)
    if _has_values(array):
        devices = array.devices()
        if len(devices) == 1 and next(iter(devices)).platform == "cpu":
            # A copy, because the next step overwrites the stack. It needs no program.
            part = np.asarray(array)[start : start + rows]
            return jax.device_put(part, array.sharding, may_alias=False)
        # The start is an argument: a constant would be a program for each table.
        return _dynamic_rows(array, start, rows)
    return array[start : start + rows]


def _split_rows(array: Any, ranges: list[RowRange]) -> list[Any]:
    if len(ranges) > 1 and isinstance(array, jax.core.Tracer):
        sizes = tuple(mine.rows for mine in ranges)
        return list(jax.lax.split(array, sizes))
    return [_rows_of(array, mine.start, mine.rows) for mine in ranges]


def _split_on_host(array: Any, ranges: list[RowRange]) -> list[Any]:
    if len(ranges) == 1 or not _has_values(array):
        return _split_rows(array, ranges)
    host = np.asarray(array)
    return [host[mine.start : mine.start + mine.rows] for mine in ranges]


def _has_values(array: Any) -> bool:
    return isinstance(array, jax.Array) and not isinstance(array, jax.core.Tracer)


def _form(array: Any, rows: int) -> Any:
    form: Any = jax.ShapeDtypeStruct  # its constructor is not annotated
    return form((rows, *array.shape[1:]), array.dtype, sharding=array.sharding)


@functools.partial(jax.jit, static_argnums=2)
def _dynamic_rows(array: jax.Array, start: int, rows: int) -> jax.Array:
    return jax.lax.dynamic_slice_in_dim(array, start, rows)
