"""What the parsing kernels are told: the wanted keys, their kinds, sizes and defaults.

    plan = Plan([Wanted("age", "float32", size=1), Wanted("tags", "string")])
    raw = plan.run(records)
    raw.fixed(0), raw.variable(1)

A plan is made once for a set of features and used for every batch, by any thread.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.input.parsing_errors import Names, raise_problem
from estimax.native import loading

DTYPES = {"string": 1, "float32": 2, "int64": 3}  # by their field numbers
_TEXT, _FLOAT, _INT = 1, 2, 3
# Between columns of one array: columns a power of two apart would share few sets of
# the processor's first cache and push each other out of it.
_GAP = 16
# Beyond it, entries have lengths of two bytes, and no head is made.
_LONGEST_KEY = 110

Values = NDArray[Any] | Strings


@dataclass(frozen=True, eq=False)
class Wanted:
    """A key to read: `size` values, or any number (None) that `multiple` divides."""

    key: str
    dtype: str
    size: int | None = None
    default: Any = None  # `size` values for examples that lack the key
    multiple: int = 1
    indices: bool = False


@dataclass(frozen=True, eq=False)
class Variable:
    """The values of all rows, and where each row begins."""

    values: Values
    splits: NDArray[np.int64]
    longest: int


@dataclass(frozen=True, eq=False)
class _Layout:
    """The kernels' table for so many rows, and as lists, which Python reads faster."""

    rows: int
    table: NDArray[np.int64]
    listed: list[list[int]]
    splits: NDArray[np.int64]  # where those of each variable feature begin


class Plan:
    """The wanted features as the kernels' table; `run` parses a batch."""

    def __init__(self, wanted: Sequence[Wanted]) -> None:
        self.wanted = tuple(wanted)
        kernels = example_kernels()
        self.keys, self.key_ends, self.slots = key_table([w.key for w in wanted])
        self._heads = heads_of(wanted)
        self._table = np.zeros((len(wanted), kernels.COLUMNS), np.int64)
        self._before = np.zeros(len(wanted), np.int64)
        self._set_columns(kernels)
        self._set_defaults(kernels)
        kinds = self._table[:, kernels.KIND]
        variable = self._table[:, kernels.SIZE] == kernels.VARIABLE
        self._variable = np.flatnonzero(variable)
        self._variable_of = {
            k: np.flatnonzero(variable & (kinds == k)) for k in (1, 2, 3)
        }
        self._texts = np.flatnonzero(kinds == _TEXT)
        self._indexed = np.flatnonzero([w.indices for w in wanted])
        self._kept = threading.local()
        # Set whole, so that threads may share a plan.
        self._layout: _Layout | None = None

    def _set_columns(self, kernels: ModuleType) -> None:
        self._fixed_sizes, self._fixed_counts = [0] * 4, [0] * 4
        for f, wanted in enumerate(self.wanted):
            kind = DTYPES[wanted.dtype]
            size = kernels.VARIABLE if wanted.size is None else wanted.size
            row = self._table[f]
            row[kernels.KIND], row[kernels.SIZE] = kind, size
            row[kernels.MULTIPLE] = max(wanted.multiple, 1)
            row[kernels.INDICES] = kernels.NONE
            if wanted.size is not None:
                self._before[f] = self._fixed_sizes[kind]
                row[kernels.BASE] = _GAP * self._fixed_counts[kind]
                self._fixed_sizes[kind] += wanted.size
                self._fixed_counts[kind] += 1

    def _set_defaults(self, kernels: ModuleType) -> None:
        found: dict[int, list[Any]] = {_TEXT: [], _FLOAT: [], _INT: []}
        for f, wanted in enumerate(self.wanted):
            values = found[DTYPES[wanted.dtype]]
            has_default = wanted.default is not None
            self._table[f, kernels.DEFAULT] = (
                len(values) if has_default else kernels.NONE
            )
            values.extend(wanted.default if has_default else ())
        self._default_floats = np.array(found[_FLOAT], np.float32)
        self._default_ints = np.array(found[_INT], np.int64)
        self._default_texts = Strings.of(found[_TEXT])

    def run(self, records: Strings, names: Names = None) -> RawColumns:
        """Parse a batch; an `ExampleError` says which example is wrong, and where."""
        rows, data = records.size, np.ascontiguousarray(records.data)
        layout = self._laid_out(rows)
        places = layout.splits
        # What variable features have is known, and entered, when all are counted.
        table = layout.table.copy() if len(places) else layout.table
        floats = np.empty(self._fixed_room(_FLOAT, rows), np.float32)
        ints = np.empty(self._fixed_room(_INT, rows), np.int64)
        splits = np.empty(len(places) * (rows + 1), np.int64)
        texts = self._scratch("texts", 2 * self._fixed_room(_TEXT, rows))
        where = self._scratch("where", 3 * len(splits)).reshape((-1, 3))
        problem = np.zeros(6, np.int64)
        told = (
            *(data, records.offsets, self.keys, self.key_ends, self.slots, self._heads),
            *(table, self._default_floats, self._default_ints),
            *(floats, ints, texts, splits, where, *self._work_room(), problem),
        )
        raw = RawColumns(table, rows, floats, ints, splits, layout.listed)
        if len(places):
            done = example_kernels().scan(*told)
        else:
            done = self._scan_and_fill(raw, told)
        if done < 0:
            raise_problem(problem, self.wanted, records, names)
        if len(places):
            raw.counts[self._variable] = splits[places + rows]
            self._fill(raw, done, data, texts, where)
            raw.listed = _listed(table)
        return raw

    def _scan_and_fill(self, raw: RawColumns, told: tuple[Any, ...]) -> int:
        size = self._fixed_sizes[_TEXT] * raw.rows + len(self._texts)
        raw.offsets = np.empty(size, np.int64)
        defaults = self._default_texts
        done, raw.text = example_kernels().scan_and_fill(
            *told, defaults.data, defaults.offsets, raw.offsets
        )
        return int(done)

    def _laid_out(self, rows: int) -> _Layout:
        kernels = example_kernels()
        known = self._layout
        # Batches of a dataset have one size, but for the last: made once for all.
        if known is None or known.rows != rows:
            table = self._table.copy()
            table[:, kernels.BASE] += self._before * rows
            table[self._variable, kernels.ROWS] = rows
            places = np.arange(len(self._variable)) * (rows + 1)
            table[self._variable, kernels.SPLITS] = places
            sizes = np.maximum(table[self._texts, kernels.SIZE] * rows, 0) + 1
            _lay_out(table, kernels.OFFSETS, self._texts, sizes)
            known = self._layout = _Layout(rows, table, _listed(table), places)
        return known

    def _work_room(self) -> tuple[NDArray[np.int64], ...]:
        """What the kernels write keys seen, places found and their order into."""
        most = proto_kernels().REMEMBERED
        return (
            self._scratch("seen", 3 * (most + 1)).reshape((-1, 3)),
            self._scratch("found", 3 * len(self._table)).reshape((-1, 3)),
            self._scratch("order", 3 * most),
        )

    def _scratch(self, name: str, size: int) -> NDArray[np.int64]:
        """Room that is free again when the batch is parsed, kept by each thread."""
        kept: NDArray[np.int64] | None = getattr(self._kept, name, None)
        if kept is None or len(kept) < size:
            kept = np.empty(size, np.int64)
            setattr(self._kept, name, kept)
        return kept[:size]

    def _fixed_room(self, kind: int, rows: int) -> int:
        return self._fixed_sizes[kind] * rows + _GAP * self._fixed_counts[kind]

    def _fill(
        self,
        raw: RawColumns,
        text_bytes: int,
        data: NDArray[np.uint8],
        texts: NDArray[np.int64],
        where: NDArray[np.int64],
    ) -> None:
        kernels = example_kernels()
        table, counts = raw.table, raw.counts
        room = {
            k: _lay_out(table, kernels.BASE, f, counts[f])
            for k, f in self._variable_of.items()
        }
        indexed = _lay_out(table, kernels.INDICES, self._indexed, counts[self._indexed])
        fixed = np.maximum(table[self._texts, kernels.SIZE] * raw.rows, 0)
        sizes = fixed + counts[self._texts] + 1
        _lay_out(table, kernels.OFFSETS, self._texts, sizes)
        defaults = self._default_texts
        # Eight more than there can be, as short texts are copied eight at once.
        most = text_bytes + raw.rows * len(defaults.data) + 8
        raw.text = np.empty(most, np.uint8)
        raw.variable_floats = np.empty(room[_FLOAT], np.float32)
        raw.variable_ints = np.empty(room[_INT], np.int64)
        raw.indices = np.empty((indexed, 2), np.int64)
        raw.offsets = np.empty(int(sizes.sum()), np.int64)
        raw.longest = np.empty(len(table), np.int64)
        pairs = self._scratch("pairs", 2 * room[_TEXT])
        kernels.fill(
            *(data, raw.rows, table, defaults.data, defaults.offsets),
            *(texts, raw.splits, where),
            *(raw.variable_floats, raw.variable_ints, raw.longest, pairs),
            *(raw.text, raw.offsets, raw.indices),
        )


@dataclass(eq=False)
class RawColumns:
    """A parsed batch: the flat arrays, and the columns cut from them."""

    table: NDArray[np.int64]
    rows: int
    floats: NDArray[np.float32]
    ints: NDArray[np.int64]
    splits: NDArray[np.int64]
    listed: list[list[int]]  # the table's kind, size, base, offsets, splits, indices
    longest: NDArray[np.int64] | None = None
    variable_floats: NDArray[np.float32] | None = None
    variable_ints: NDArray[np.int64] | None = None
    text: NDArray[np.uint8] | None = None
    offsets: NDArray[np.int64] | None = None
    indices: NDArray[np.int64] | None = None

    @functools.cached_property
    def counts(self) -> NDArray[np.int64]:
        """How many values each variable feature has, to be set."""
        return np.zeros(len(self.table), np.int64)

    @functools.cached_property
    def _counts(self) -> list[int]:
        listed: list[int] = self.counts.tolist()
        return listed

    @functools.cached_property
    def _most(self) -> list[int]:
        assert self.longest is not None
        listed: list[int] = self.longest.tolist()
        return listed

    def fixed(self, f: int, shape: tuple[int, ...]) -> Values:
        """Feature f as `[rows, *shape]`."""
        kind, size, base, first, _, _ = self.listed[f]
        n = self.rows * size
        if kind == _TEXT:
            text, offsets = self.text, self.offsets
            assert text is not None
            assert offsets is not None
            return Strings(text, offsets[first : first + n + 1], (self.rows, *shape))
        flat = self.floats if kind == _FLOAT else self.ints
        values: NDArray[Any] = flat[base : base + n]
        return values.reshape((self.rows, *shape)) if shape else values

    def sparse(self, f: int) -> Sparse:
        """Feature f, whose indices are wanted, as `[rows, longest]`."""
        place = self.listed[f]
        first, n, indices, longest = place[5], self._counts[f], self.indices, self._most
        assert indices is not None
        shape = (self.rows, longest[f])
        return Sparse(indices[first : first + n], self._values(place, n), shape)

    def variable(self, f: int) -> Variable:
        """Feature f as flat values and splits."""
        place = self.listed[f]
        splits = self.splits[place[4] : place[4] + self.rows + 1]
        return Variable(self._values(place, self._counts[f]), splits, self._most[f])

    def _values(self, place: list[int], n: int) -> Values:
        kind, _, base, first, _, _ = place
        if kind == _TEXT:
            text, offsets = self.text, self.offsets
            assert text is not None
            assert offsets is not None
            return Strings(text, offsets[first : first + n + 1], (n,))
        flat = self.variable_floats if kind == _FLOAT else self.variable_ints
        assert flat is not None
        values: NDArray[Any] = flat[base : base + n]
        return values


def key_table(
    keys: Sequence[str],
) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """Keys as bytes, where each ends, and the slots in which the kernels find them."""
    encoded = Strings.of(list(keys))
    # At most a quarter full, so that a probe seldom takes a second step.
    slots = np.full(1 << (4 * len(keys) + 1).bit_length(), -1, np.int64)
    kernels = proto_kernels()
    kernels.fill_key_slots(encoded.data, encoded.offsets, slots)
    return encoded.data, encoded.offsets, slots


def heads_of(wanted: Sequence[Wanted]) -> NDArray[np.int64]:
    """What stands before the values of each feature, for `proto_kernels.locate`.

    First where each head begins in the array; then its size, the size that values must
    stay below, and pairs of words: the bytes, and which of them are lengths; of the
    first eight bytes, the last eight, and then those between.
    """
    out = [0] * len(wanted)
    for f, one in enumerate(wanted):
        key, kind = one.key.encode(), 8 * DTYPES[one.dtype] + 2
        n = len(key)
        out[f] = len(out)
        if n >= _LONGEST_KEY:
            out += [0, 0]
            continue
        head = bytes([10, n + 8, 10, n, *key, 18, 4, kind, 2, 10, 0])
        mask = bytes(i in (1, n + 5, n + 7, n + 9) for i in range(len(head)))
        out += [len(head), 128 - (n + 8)]
        last = len(head) - 8
        for at in (0, last, *range(8, last, 8)):
            for text in (head, mask):
                out.append(int.from_bytes(text[at : at + 8], "little", signed=True))
    return np.array(out, np.int64)


def work_room(features: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """What the kernels write keys seen and places found into."""
    kernels = proto_kernels()
    seen = np.empty((kernels.REMEMBERED + 1, 3), np.int64)
    return seen, np.empty((features, 3), np.int64)


def example_kernels() -> ModuleType:
    """The kernels for Examples."""
    return loading.load("estimax.native.kernels.examples")


def proto_kernels() -> ModuleType:
    """The kernels for keys and values."""
    return loading.load("estimax.native.kernels.protos")


def _listed(table: NDArray[np.int64]) -> list[list[int]]:
    listed: list[list[int]] = table[:, :6].tolist()
    return listed


def _lay_out(
    table: NDArray[np.int64],
    column: int,
    features: NDArray[np.int64],
    sizes: NDArray[np.int64],
) -> int:
    """Give each feature its place in a flat array; the array's size."""
    if not len(features):
        return 0
    ends = sizes.cumsum()
    table[features, column] = ends - sizes
    return int(ends[-1])
