"""RowFunction: a function of one element, called for blocks of rows where possible.

    mapper = RowFunction(parse, convert=lists_to_tuples)
    mapper(chunk)          # the results for a chunk, the same as row by row
    mapper.obstacle        # why the function is called for every row, or None

The function is called once for each block, with `BlockValue`s in place of the values of
a row. This is done only if the function cannot depend on anything but its row
(`purity.py`), and if the results for the first 16 rows are the same, bit by bit and in
type, as those of calling it for each of them. Later blocks are compared in one row: the
blocks 1, 2, 4, … 64, and then every 64th. The first difference, and anything that a
block cannot do, ends it: all further rows are mapped one by one.

If a block fails, its rows are mapped one by one, so that errors, and what was read
before them, are those of a map without blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.input.ops import purity
from estimax.input.streams.block_rows import BlockCall, BlockValue
from estimax.input.streams.chunks import Chunk, Columns, Elements, MappedRows
from estimax.input.streams.columns import DataColumn, stack
from estimax.input.streams.row_forms import ROW, RowForm
from estimax.input.streams.stream import ROWS_AT_ONCE
from estimax.input.streams.structure import (
    Structure,
    call,
    is_dataset,
    leaves,
    lists_to_tuples,
    map_leaves,
)

_ROWS_CHECKED = 16  # rows whose results are compared before blocks are trusted
_CHECK_EVERY = 64  # later, one row of every 64th block is compared
_LEAST_ROWS = 2
# Elements per task of a parallel map that is called for every row: with fewer, waking
# a thread costs more than the work that it is given.
_ROWS_PER_CALL = 16


class RowFunction:
    """Maps chunks with a function of one element.

    Args:
      fn: The function.
      converts: Whether results are converted to columns, as elements that are not rows
        of a source are.
      convert: What is done with the result of each call.
    """

    def __init__(
        self, fn: Callable[..., Any], convert: Callable[[Any], Any], *, converts: bool
    ) -> None:
        self._fn = self.__wrapped__ = fn  # recipes compare what is wrapped
        self._convert = convert
        self._converts = converts
        self.single_rows = 0  # rows of a source that were mapped one by one
        self._checked = 0  # rows whose results were compared
        self._blocks = 0  # blocks that were mapped
        self._obstacle: str | None = None
        self._is_inspected = False

    @property
    def obstacle(self) -> str | None:
        """Why the function is called for every row; None if blocks are possible."""
        if not self._is_inspected:
            self._obstacle = purity.obstacle_of(self._fn)
            self._is_inspected = True
        return self._obstacle

    @property
    def advice(self) -> str:
        """What would make the function faster; "" if it is called for blocks."""
        if not self.single_rows or self.obstacle is None:
            return ""
        name = getattr(self._fn, "__name__", type(self._fn).__name__)
        return f"calls {name} for every row, because it {self.obstacle}"

    @property
    def at_once(self) -> int:
        """How many rows a task of a parallel map should have."""
        is_proven = self._checked >= _ROWS_CHECKED and self.obstacle is None
        return ROWS_AT_ONCE if is_proven else _ROWS_PER_CALL

    def __call__(self, chunk: Chunk) -> Chunk:
        """Return the results for all elements of a chunk."""
        if isinstance(chunk, Columns | MappedRows):
            if len(chunk) >= _LEAST_ROWS and self.obstacle is None:
                mapped = self._by_block(chunk)
                if mapped is not None:
                    return mapped
            self.single_rows += len(chunk)
        return Elements([self._row(chunk, i) for i in range(len(chunk))])

    def _row(self, chunk: Chunk, i: int) -> Structure:
        return self._convert(call(self._fn, chunk.element(i)))

    def _by_block(self, chunk: Columns | MappedRows) -> Chunk | None:
        """Return the results of a block; None if rows must be mapped one by one."""
        is_new = self._checked < _ROWS_CHECKED
        before = purity.snapshot(self._fn) if is_new else None
        block = BlockCall(len(chunk))
        try:
            mapped = self._called(block, chunk)
        except Exception as error:
            if block.refusal is not None:
                self._obstacle = block.refusal
                return None
            # A bad row, or a function that does not work for blocks. A bad row raises
            # here again.
            rows = Elements([self._row(chunk, i) for i in range(len(chunk))])
            self._obstacle = f"fails for a block of rows ({error})"
            return rows
        if block.refusal is not None:
            self._obstacle = block.refusal
        elif is_new and not block.is_released:
            self._obstacle = "keeps values of rows"
        elif is_new and purity.snapshot(self._fn) != before:
            self._obstacle = "changes variables outside"
        elif not self._agrees(mapped, chunk):
            self._obstacle = "gives other results for a block of rows"
        self._blocks += 1
        return mapped if self._obstacle is None else None

    def _agrees(self, mapped: MappedRows, chunk: Chunk) -> bool:
        """Return whether some rows of a block have the results of single calls."""
        number = self._blocks
        is_due = number % _CHECK_EVERY == 0 or (
            number < _CHECK_EVERY and number & (number - 1) == 0
        )
        rows = min(len(chunk), max(_ROWS_CHECKED - self._checked, int(is_due)))
        for i in range(rows):
            try:
                expected = self._row(chunk, i)
            except Exception:  # the caller maps the rows one by one, and raises it
                return False
            if not is_same(mapped.element(i), expected):
                return False
        self._checked += rows
        return True

    def _called(self, block: BlockCall, chunk: Columns | MappedRows) -> MappedRows:
        """Call the function with all rows of a chunk."""
        forms, tree = None, chunk.stacked() if isinstance(chunk, Columns) else None
        if isinstance(chunk, MappedRows):
            forms, tree = iter(leaves(chunk.forms)), chunk.columns.tree
        values = map_leaves(
            lambda column: block.value(
                column, next(forms) if forms else ROW, is_own=False
            ),
            tree,
        )
        result = lists_to_tuples(call(self._fn, values))
        del values
        found = leaves(result)
        if not any(isinstance(leaf, BlockValue) for leaf in found):
            block.refuse("returns nothing that depends on the row")
        columns = _Columns(block, self._converts)
        tree = map_leaves(columns.column, result)
        made = iter(columns.forms)
        return MappedRows(
            Columns(tree, block.rows), map_leaves(lambda _: next(made), result)
        )


class _Columns:
    """Turns what a function returned for a block into columns that no one else has."""

    def __init__(self, block: BlockCall, converts: bool) -> None:
        self.forms: list[RowForm] = []
        self._block = block
        self._converts = converts
        self._seen: set[int] = set()

    def column(self, leaf: Any) -> DataColumn:
        """Return the column of a leaf, and remember its form."""
        if not isinstance(leaf, BlockValue):
            return self._constant(leaf)
        form = leaf.form
        self.forms.append(RowForm(form.kind, form.constant, self._as_column(form)))
        column: DataColumn = leaf.column
        if not isinstance(column, np.ndarray):
            return column
        # A batch may be written to, so it must not share memory with the source or with
        # another column.
        is_alone = leaf.is_own and column.base is None and id(column) not in self._seen
        self._seen.add(id(column))
        return column if is_alone and column.flags.writeable else column.copy()

    def _constant(self, leaf: Any) -> DataColumn:
        if is_dataset(leaf) or isinstance(leaf, list):
            self._block.refuse(f"returns a {type(leaf).__name__}")
        form = RowForm("constant", leaf)
        self.forms.append(RowForm("constant", leaf, self._as_column(form)))
        return stack([leaf] * self._block.rows)

    def _as_column(self, form: RowForm) -> bool:
        return self._converts or form.as_column


def is_same(a: Structure, b: Structure) -> bool:
    """Return whether two elements are equal in structure, types and every bit."""
    if type(a) is not type(b):
        return False
    if isinstance(a, Mapping):
        return list(a) == list(b) and all(is_same(a[key], b[key]) for key in a)
    if isinstance(a, tuple):
        pairs = zip(a, b, strict=False)
        return len(a) == len(b) and all(is_same(x, y) for x, y in pairs)
    if isinstance(a, Sparse):
        same = a.dense_shape == b.dense_shape
        return same and is_same(a.indices, b.indices) and is_same(a.values, b.values)
    if isinstance(a, Strings):
        return bool(a.shape == b.shape and a.tolist() == b.tolist())
    if isinstance(a, np.ndarray | np.generic):
        return bool(
            (a.dtype, a.shape) == (b.dtype, b.shape) and a.tobytes() == b.tobytes()
        )
    if isinstance(a, bool | int | float | str | bytes):
        return repr(a) == repr(b)  # tells 0.0 from -0.0, and nan is like nan
    return a is b
