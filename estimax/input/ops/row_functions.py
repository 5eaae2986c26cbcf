"""RowFunction: a function of one element, called for blocks of rows where possible.

    mapper = RowFunction(parse, convert=lists_to_tuples)
    mapper(chunk)          # the results for a chunk, the same as row by row
    mapper.obstacle        # why the function is called for every row, or None

The first 16 rows are mapped one by one. A copy of the function is then called for the
block of all rows of the chunk, with `BlockValue`s in place of the
values of a row, in a `Sandbox` that lets it learn nothing but its row. If anything
refuses, if the call changes a variable, or if the results for the first 16 rows differ
in a bit or a type, all further rows are mapped one by one, as the first ones were: so
every row has been passed to the function once and in order.

Every later block is called in the sandbox as well. Single rows of it are compared: one
in the blocks 1, 2, 4, … 64 and in every 64th, and one for each outcome of a comparison
of text that was not compared yet, because `x is True` cannot be noticed. The first
difference ends the blocks.

If a block fails, its rows are mapped one by one, so that errors, and what was read
before them, are the same as in a map without blocks.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.input.ops.sandbox import Sandbox, is_isolating
from estimax.input.streams.block_values import BlockCall, BlockValue, RowForm
from estimax.input.streams.chunks import Chunk, Columns, ElementList, MappedRows
from estimax.input.streams.columns import DataColumn, stack
from estimax.input.streams.stream import ROWS_AT_ONCE
from estimax.input.streams.structure import (
    Structure,
    arguments_of,
    call,
    is_dataset,
    leaves,
    map_leaves,
)

_ROWS_CHECKED = 16  # rows whose results are compared before blocks are trusted
_CHECK_EVERY = 64  # later, one row of every 64th block is compared
_LEAST_ROWS = 2
_SPREAD = 0x9E3779B1  # places the compared row somewhere in its block
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
        self._outcomes: set[tuple[int, bool]] = (
            set()
        )  # flags of rows that were compared
        # Sandboxes between two calls. Every call takes one out, because a parallel map
        # calls this object from several threads.
        self._sandboxes: list[Sandbox] = []
        self._obstacle: str | None = None
        if inspect.iscoroutinefunction(fn):
            self._obstacle = "is a coroutine"
        elif inspect.isgeneratorfunction(fn):
            self._obstacle = "is a generator"
        elif not is_isolating():
            self._obstacle = "cannot be isolated in this interpreter"

    def __getstate__(self) -> dict[str, Any]:
        # A dataset may be pickled for a worker process, and sandboxes cannot be.
        return vars(self) | {"_sandboxes": []}

    @property
    def obstacle(self) -> str | None:
        """Why the function is called for every row; None as long as blocks work."""
        return self._obstacle

    @property
    def maps_blocks(self) -> bool:
        """Whether reading many rows at a time is likely to pay; results do not differ.

        Before the first block this is a guess: a function that refers to files or other
        modules is probably called for every row and slow, and reading a thousand rows
        ahead would delay the first one.
        """
        is_proven = self._checked >= _ROWS_CHECKED
        return self.obstacle is None and (is_proven or self._is_promising)

    @cached_property
    def _is_promising(self) -> bool:
        try:
            return not Sandbox(self._fn).is_doubtful
        except Exception:  # objects of the user may raise whatever is asked of them
            return False

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
        if not isinstance(chunk, Columns | MappedRows):
            return ElementList(self._rows(chunk))
        if len(chunk) >= _LEAST_ROWS and self.obstacle is None:
            return self._map_rows(chunk)
        self.single_rows += len(chunk)
        return ElementList(self._rows(chunk))

    def _rows(self, chunk: Chunk, start: int = 0, stop: int | None = None) -> list[Any]:
        """Return the results of calling the function for rows from `start`."""
        stop = len(chunk) if stop is None else stop
        return [self._row(chunk, i) for i in range(start, stop)]

    def _row(self, chunk: Chunk, i: int) -> Structure:
        return self._convert(call(self._fn, chunk.element(i)))

    def _map_rows(self, chunk: Columns | MappedRows) -> Chunk:
        """Return the results of a block, or of its rows if they can differ."""
        # Rows come before the block: what the function does besides its result, such
        # as counting, has then happened for these rows as if there were no blocks.
        trial = min(len(chunk), max(0, _ROWS_CHECKED - self._checked))
        rows = self._rows(chunk, 0, trial) if trial else []
        block = BlockCall(len(chunk))
        try:
            mapped = self._call_block(block, chunk, is_trial=trial > 0)
        except Exception as error:
            if block.refusal is None:
                # A bad row, or a function that does not work for blocks. A bad row
                # raises here again, and says nothing about the function.
                rows += self._rows(chunk, trial)
                self._obstacle = f"fails for a block of rows ({error})"
                return ElementList(rows)
            self._obstacle = block.refusal
        else:
            if block.refusal is not None:
                self._obstacle = block.refusal
            elif block.failure is not None:
                self._obstacle = "handles exceptions"
            elif self.obstacle is None and not self._agrees(block, mapped, chunk, rows):
                self._obstacle = "gives other results for a block of rows"
            if self.obstacle is None:
                self._blocks += 1
                return mapped
        self.single_rows += len(chunk)
        return ElementList(rows + self._rows(chunk, trial))

    def _agrees(
        self, block: BlockCall, mapped: MappedRows, chunk: Chunk, rows: list[Any]
    ) -> bool:
        """Return whether rows of a block have the results of single calls."""
        number = self._blocks
        is_due = number % _CHECK_EVERY == 0 or (
            number < _CHECK_EVERY and number & (number - 1) == 0
        )
        if not (is_due or rows or block.flags):
            return True
        expected = dict(enumerate(rows))
        samples = {_SPREAD * number % len(chunk)} if is_due else set()
        outcomes = _new_outcomes(block, self._outcomes)
        for i in (samples | set(outcomes.values())) - expected.keys():
            try:
                expected[i] = self._row(chunk, i)
            except Exception:  # the caller maps the rows one by one, and raises it
                return False
        if not all(is_same(mapped.element(i), row) for i, row in expected.items()):
            return False
        self._outcomes.update(outcomes)
        self._checked += len(expected)
        return True

    def _call_block(
        self, block: BlockCall, chunk: Columns | MappedRows, *, is_trial: bool
    ) -> MappedRows:
        """Call a copy of the function with all rows of a chunk."""
        # In a trial arrays are copied: a write shows, also if the error is caught.
        if is_trial:
            sandbox = Sandbox(self._fn, copies_arrays=True)
        else:
            sandbox = self._take_sandbox()
        sandbox.block = block
        values = arguments_of(_block_values(block, chunk, sandbox))
        block.is_running = True
        try:
            result = sandbox.function(*values)
        finally:
            block.is_running = False
        change = sandbox.change()
        if change is not None:
            block.refuse(change)
        made = _ResultColumns(block, sandbox, self._converts)
        tree, forms = made.split(result)
        if not made.depends_on_row:
            block.refuse("returns nothing that depends on the row")
        if not is_trial:
            self._sandboxes.append(sandbox)
        return MappedRows(Columns(tree, block.rows), forms)

    def _take_sandbox(self) -> Sandbox:
        """Return a sandbox in which variables have their present values."""
        try:
            sandbox = self._sandboxes.pop()
        except IndexError:
            return Sandbox(self._fn)
        return sandbox if sandbox.is_current() else Sandbox(self._fn)


def _block_values(
    block: BlockCall, chunk: Columns | MappedRows, sandbox: Sandbox
) -> Structure:
    """Return the argument of the function, for all rows of a chunk."""
    if isinstance(chunk, Columns):
        return map_leaves(lambda c: block.value(c, is_own=False), chunk.tree)
    forms = iter(leaves(chunk.forms))

    def value(column: DataColumn) -> Any:
        form = next(forms)
        if form.kind == "constant":  # the object itself, for `y is None`
            return sandbox.copy(form.row(column, 0), "a constant")
        return block.value(column, form, is_own=False)

    return map_leaves(value, chunk.columns.tree)


def _new_outcomes(
    block: BlockCall, known: set[tuple[int, bool]]
) -> dict[tuple[int, bool], int]:
    """Return a row for each outcome of a flag that is not among the known ones."""
    found: dict[tuple[int, bool], int] = {}
    if len(known) == 2 * len(block.flags):
        return found
    for number, flags in enumerate(block.flags):
        for outcome in (False, True):
            if (number, outcome) not in known:
                row = int(np.argmax(flags == outcome))
                if flags[row] == outcome:
                    found[number, outcome] = row
    return found


class _ResultColumns:
    """Turns what a function returned for a block into columns that no one else has."""

    def __init__(self, block: BlockCall, sandbox: Sandbox, converts: bool) -> None:
        self.depends_on_row = False
        self._block = block
        self._sandbox = sandbox
        self._converts = converts
        self._seen: set[int] = set()

    def split(self, result: Structure, is_named: bool = False) -> tuple[Any, Any]:
        """Return a structure of columns and one of their forms; lists become tuples.

        One pass, which asks for the exact type of a leaf first: `isinstance` with a
        `BlockValue` is slow, and a third of the time of a block went into it.
        """
        if type(result) is BlockValue:
            return self._column(result)
        if result is None:
            return None, None
        if isinstance(result, Mapping):
            parts = {key: self.split(part) for key, part in result.items()}
            columns = {key: column for key, (column, _) in parts.items()}
            return columns, {key: form for key, (_, form) in parts.items()}
        # As in `lists_to_tuples`, a list in a namedtuple is an array.
        if isinstance(result, tuple) or (type(result) is list and not is_named):
            named = hasattr(result, "_fields")
            pairs = [self.split(part, is_named or named) for part in result]
            make: Any = type(result)._make if named else tuple  # type: ignore[union-attr] # a namedtuple
            return make([c for c, _ in pairs]), make([form for _, form in pairs])
        is_text = isinstance(result, str) and not is_named
        return self._constant(result.encode() if is_text else result)

    def _column(self, value: BlockValue) -> tuple[DataColumn, RowForm]:
        self.depends_on_row = True
        form, column = value.form, value.column
        if self._converts and not form.as_column:
            form = RowForm(form.kind, form.constant, as_column=True)
        if not isinstance(column, np.ndarray):
            return column, form
        # A batch may be written to, so it must not share memory with the source or with
        # another column.
        is_alone = value.is_own and column.base is None and id(column) not in self._seen
        self._seen.add(id(column))
        is_free = is_alone and column.flags.writeable
        return (column if is_free else column.copy()), form

    def _constant(self, leaf: Any) -> tuple[DataColumn, RowForm]:
        if is_dataset(leaf) or isinstance(leaf, list):
            self._block.refuse(f"returns a {type(leaf).__name__}")
        leaf = self._sandbox.original(leaf)
        form = RowForm("constant", leaf, as_column=self._converts)
        return stack([leaf] * self._block.rows), form


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
