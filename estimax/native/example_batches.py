"""The arrays of the Example kernels: feature tables, outputs, key tables and heads.

    plan = CompiledPlan(kernels, wanted)
    raw = plan.run(data, offsets)             # RawColumns, or a Problem
    raw.fixed(0, ())

- `CompiledPlan` allocates the arrays and calls the kernels; `RawColumns` is the result.
  All features of a kind share one flat array, so that a batch needs few allocations. A
  table has a row for each feature. Its columns (KIND, SIZE, BASE, … in the kernels) say
  where in the flat arrays the feature's values, offsets, splits and indices begin.
- `key_table` is a hash table of the keys; `heads_of` has the bytes that precede the
  values of each feature in a record, with which the parser recognises it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.native.buffers import Scratch
from estimax.native.example_types import (
    FLOAT,
    INT,
    KINDS,
    TEXT,
    FeatureRequest,
    FeatureValues,
    Flaw,
    Problem,
    Variable,
)
from estimax.native.string_arrays import outside

# Items between two columns in a flat array. Without them, columns of batches of 2^n
# rows would be a power of two apart, map to the same few sets of the first-level cache,
# and evict each other.
_GAP = 16

_scratch = Scratch()


@dataclass(frozen=True, eq=False)
class _Layout:
    """The table of the kernels for batches of a number of rows."""

    rows: int
    table: NDArray[np.int64]
    listed: list[list[int]]  # the table as lists, which Python reads faster
    splits: NDArray[np.int64]  # where the splits of each variable feature begin


class CompiledPlan:
    """A parser of batches by the kernels; threads may share it.

    Args:
      kernels: The module of kernels for Examples.
      wanted: The features, which `check_requests` has checked.
    """

    def __init__(self, kernels: ModuleType, wanted: Sequence[FeatureRequest]) -> None:
        self._kernels = kernels
        self._wanted = wanted
        self._key_table = key_table(kernels, tuple(one.key for one in wanted))
        self._heads = heads_of(wanted)
        self._table = np.zeros((len(wanted), kernels.COLUMNS), np.int64)
        self._before = np.zeros(len(wanted), np.int64)
        self._set_columns()
        self._set_defaults()
        kinds = self._table[:, kernels.KIND]
        variable = self._table[:, kernels.SIZE] == kernels.VARIABLE
        self._variable = np.flatnonzero(variable)
        self._variable_of = {
            k: np.flatnonzero(variable & (kinds == k)) for k in (TEXT, FLOAT, INT)
        }
        self._texts = np.flatnonzero(kinds == TEXT)
        self._indexed = np.flatnonzero([one.indices for one in wanted])
        # The layout of the last batch size. Replaced as a whole and never changed, so
        # that threads may share the plan.
        self._layout: _Layout | None = None

    def _set_columns(self) -> None:
        kernels = self._kernels
        self._fixed_sizes, self._fixed_counts = [0] * 4, [0] * 4  # by kind
        for f, wanted in enumerate(self._wanted):
            kind = KINDS[wanted.dtype]
            size = kernels.VARIABLE if wanted.size is None else wanted.size
            row = self._table[f]
            row[kernels.KIND], row[kernels.SIZE] = kind, size
            row[kernels.MULTIPLE] = wanted.multiple
            row[kernels.INDICES] = kernels.NONE
            if wanted.size is not None:
                self._before[f] = self._fixed_sizes[kind]
                row[kernels.BASE] = _GAP * self._fixed_counts[kind]
                self._fixed_sizes[kind] += wanted.size
                self._fixed_counts[kind] += 1

    def _set_defaults(self) -> None:
        kernels = self._kernels
        found: dict[int, list[Any]] = {TEXT: [], FLOAT: [], INT: []}
        for f, wanted in enumerate(self._wanted):
            values = found[KINDS[wanted.dtype]]
            if wanted.default is None:
                self._table[f, kernels.DEFAULT] = kernels.NONE
            else:
                self._table[f, kernels.DEFAULT] = len(values)
                values.extend(wanted.default)
        self._default_floats = np.array(found[FLOAT], np.float32)
        self._default_ints = np.array(found[INT], np.int64)
        self._default_texts = Strings.of(found[TEXT])

    def run(
        self, data: NDArray[np.uint8], offsets: NDArray[np.int64]
    ) -> RawColumns | Problem:
        """Parse records; record i is `data[offsets[i]:offsets[i + 1]]`.

        Both arrays are contiguous. `scan` compares the offsets with the size of the
        data.
        """
        rows = len(offsets) - 1
        layout = self._laid_out(rows)
        places = layout.splits
        # The table is copied if features are variable: `_fill` writes into it where
        # their values begin, when all of them have been counted.
        table = layout.table.copy() if len(places) else layout.table
        floats = np.empty(self._fixed_capacity(FLOAT, rows), np.float32)
        ints = np.empty(self._fixed_capacity(INT, rows), np.int64)
        splits = np.empty(len(places) * (rows + 1), np.int64)
        texts = _scratch.take("texts", 2 * self._fixed_capacity(TEXT, rows))
        where = _scratch.take("where", 3 * len(splits)).reshape((-1, 3))
        order = _scratch.take("order", 3 * self._kernels.REMEMBERED)
        problem = np.zeros(self._kernels.PROBLEM, np.int64)
        arguments = (
            *(data, offsets, *self._key_table, self._heads),
            *(table, self._default_floats, self._default_ints),
            *(floats, ints, texts, splits, where),
            *(*work_arrays(self._kernels, len(table)), order, problem),
        )
        raw = RawColumns(table, rows, floats, ints, splits, layout.listed)
        if len(places):
            done = self._kernels.scan(*arguments)
        else:
            done = self._scan_and_fill(raw, arguments)
        if done < 0:
            return problem_of(problem, data, offsets)
        if len(places):
            raw.counts[self._variable] = splits[places + rows]
            self._fill(raw, done, data, texts, where)
            raw.listed = _as_lists(table)
        return raw

    def _scan_and_fill(self, raw: RawColumns, arguments: tuple[Any, ...]) -> int:
        size = self._fixed_sizes[TEXT] * raw.rows + len(self._texts)
        raw.offsets = np.empty(size, np.int64)
        defaults = self._default_texts
        done, raw.text = self._kernels.scan_and_fill(
            *arguments, defaults.data, defaults.offsets, raw.offsets
        )
        return int(done)

    def _laid_out(self, rows: int) -> _Layout:
        kernels = self._kernels
        known = self._layout
        # All batches of a dataset but the last have the same size, so the layout is
        # made once.
        if known is None or known.rows != rows:
            table = self._table.copy()
            table[:, kernels.BASE] += self._before * rows
            table[self._variable, kernels.ROWS] = rows
            places = np.arange(len(self._variable)) * (rows + 1)
            table[self._variable, kernels.SPLITS] = places
            sizes = np.maximum(table[self._texts, kernels.SIZE] * rows, 0) + 1
            _lay_out(table, kernels.OFFSETS, self._texts, sizes)
            known = self._layout = _Layout(rows, table, _as_lists(table), places)
        return known

    def _fixed_capacity(self, kind: int, rows: int) -> int:
        return self._fixed_sizes[kind] * rows + _GAP * self._fixed_counts[kind]

    def _fill(
        self,
        raw: RawColumns,
        text_bytes: int,
        data: NDArray[np.uint8],
        texts: NDArray[np.int64],
        where: NDArray[np.int64],
    ) -> None:
        kernels = self._kernels
        table, counts = raw.table, raw.counts
        capacity = {
            k: _lay_out(table, kernels.BASE, f, counts[f])
            for k, f in self._variable_of.items()
        }
        indexed = _lay_out(table, kernels.INDICES, self._indexed, counts[self._indexed])
        fixed = np.maximum(table[self._texts, kernels.SIZE] * raw.rows, 0)
        sizes = fixed + counts[self._texts] + 1
        _lay_out(table, kernels.OFFSETS, self._texts, sizes)
        defaults = self._default_texts
        # An upper bound of the bytes of all texts: those of the records, the defaults
        # in every row, and eight spare bytes, because texts are copied eight at a time.
        most = text_bytes + raw.rows * len(defaults.data) + 8
        raw.text = np.empty(most, np.uint8)
        raw.variable_floats = np.empty(capacity[FLOAT], np.float32)
        raw.variable_ints = np.empty(capacity[INT], np.int64)
        raw.indices = np.empty((indexed, 2), np.int64)
        raw.offsets = np.empty(int(sizes.sum()), np.int64)
        raw.longest = np.empty(len(table), np.int64)
        pairs = _scratch.take("pairs", 2 * capacity[TEXT])
        kernels.fill(
            *(data, raw.rows, table, defaults.data, defaults.offsets),
            *(texts, raw.splits, where),
            *(raw.variable_floats, raw.variable_ints, raw.longest, pairs),
            *(raw.text, raw.offsets, raw.indices),
        )


@dataclass(eq=False)
class RawColumns:
    """A parsed batch: the flat arrays, and methods that cut columns from them."""

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
        """The number of values of each variable feature, set after the scan."""
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

    def fixed(self, f: int, shape: tuple[int, ...]) -> FeatureValues:
        """Return feature f as `[rows, *shape]`."""
        kind, size, base, first, _, _ = self.listed[f]
        n = self.rows * size
        if kind == TEXT:
            text, offsets = self.text, self.offsets
            assert text is not None
            assert offsets is not None
            return Strings(text, offsets[first : first + n + 1], (self.rows, *shape))
        flat = self.floats if kind == FLOAT else self.ints
        values: NDArray[Any] = flat[base : base + n]
        return values.reshape((self.rows, *shape)) if shape else values

    def sparse(self, f: int) -> Sparse:
        """Return feature f, made with `indices`, as a tensor `[rows, longest]`."""
        place = self.listed[f]
        first, n, indices, longest = place[5], self._counts[f], self.indices, self._most
        assert indices is not None
        shape = (self.rows, longest[f])
        return Sparse(indices[first : first + n], self._values(place, n), shape)

    def variable(self, f: int) -> Variable:
        """Return feature f as flat values and splits."""
        place = self.listed[f]
        splits = self.splits[place[4] : place[4] + self.rows + 1]
        return Variable(self._values(place, self._counts[f]), splits, self._most[f])

    def _values(self, place: list[int], n: int) -> FeatureValues:
        kind, _, base, first, _, _ = place
        if kind == TEXT:
            text, offsets = self.text, self.offsets
            assert text is not None
            assert offsets is not None
            return Strings(text, offsets[first : first + n + 1], (n,))
        flat = self.variable_floats if kind == FLOAT else self.variable_ints
        assert flat is not None
        values: NDArray[Any] = flat[base : base + n]
        return values


def problem_of(
    problem: NDArray[np.int64],
    data: NDArray[np.uint8],
    offsets: NDArray[np.int64],
) -> Problem:
    """Return the problem that a kernel reported.

    Raises:
      InputError: The offsets of the records do not increase within their data.
    """
    flaw, row, feature, *rest = problem.tolist()
    if flaw == Flaw.OUTSIDE:
        raise outside(data, offsets, row)
    return Problem(Flaw(flaw), row, None if feature < 0 else feature, *rest)


def _as_lists(table: NDArray[np.int64]) -> list[list[int]]:
    listed: list[list[int]] = table[:, :6].tolist()
    return listed


def _lay_out(
    table: NDArray[np.int64],
    column: int,
    features: NDArray[np.int64],
    sizes: NDArray[np.int64],
) -> int:
    """Write where each feature begins in a flat array; return the array's size."""
    if not len(features):
        return 0
    ends = sizes.cumsum()
    table[features, column] = ends - sizes
    return int(ends[-1])


# Entries with keys of this size or more have lengths of two bytes; they have no head.
_LONGEST_KEY = 110


@functools.lru_cache(maxsize=64)
def key_table(
    kernels: ModuleType, keys: tuple[str, ...]
) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """Return the keys as bytes, their offsets, and the slots of a hash table.

    A slot holds the number of a key, or -1 if it is free. The arrays are cached and
    must not be changed.

    Args:
      kernels: The module of kernels for Examples.
      keys: Distinct keys.
    """
    encoded = Strings.of(list(keys))
    # At most a quarter of the slots is used, so that a lookup rarely needs a second
    # probe.
    slots = np.full(1 << (4 * len(keys) + 1).bit_length(), -1, np.int64)
    kernels.fill_key_slots(encoded.data, encoded.offsets, slots)
    return encoded.data, encoded.offsets, slots


def heads_of(wanted: Sequence[FeatureRequest]) -> NDArray[np.int64]:
    """Return the bytes that precede the values of each feature, for `match_head`.

    Item f of the array is the index at which the description of feature f begins:

        0     the size of the head in bytes; 0 if the feature has no head
        1     the values must have fewer bytes than this, so that all lengths fit into
              one byte
        2, 3  the first 8 bytes of the head and their mask, as little-endian words
        4, 5  the last 8 bytes and their mask
        6…    each further 8 bytes between them and their mask

    The head is made for values of 0 bytes. Its mask has a 1 in every byte that is a
    length or the size. Each of these grows by one with every byte of values, so the
    head of an entry with `size` bytes of values is `bytes + size * mask`.
    """
    out = [0] * len(wanted)
    for f, one in enumerate(wanted):
        key, kind = one.key.encode(), 8 * KINDS[one.dtype] + 2
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


def work_arrays(
    kernels: ModuleType, features: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return scratch memory for `locate`: the arrays `seen` and `found`."""
    return (
        _scratch.take("seen", 3 * (kernels.REMEMBERED + 1)).reshape((-1, 3)),
        _scratch.take("found", 3 * features).reshape((-1, 3)),
    )
