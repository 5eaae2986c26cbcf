"""Parse and encode batches of Example messages in Python.

The results are those of the compiled code: of the parsers of Examples and of the
feature lists of SequenceExamples, and of the encoder.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.native.example_types import (
    FLOAT,
    KINDS,
    TEXT,
    FeatureListBatch,
    FeatureRequest,
    FeatureValues,
    Flaw,
    Problem,
    Steps,
    Variable,
)
from estimax.native.reference import protos
from estimax.native.reference.protos import BrokenMessageError, Span, entry, field
from estimax.native.string_arrays import outside

_Cell = list[Any]  # the values of a feature in a record, as `protos.values` returns


def parse(
    wanted: Sequence[FeatureRequest],
    data: NDArray[np.uint8],
    offsets: NDArray[np.int64],
) -> ReferenceColumns | Problem:
    """Parse all records; return their columns, or the first problem.

    Record i is `data[offsets[i]:offsets[i + 1]]`.
    """
    keys = [one.key.encode() for one in wanted]
    defaults = [_default_of(one) for one in wanted]
    rows = []
    for row, record in enumerate(records_of(data, offsets)):
        try:
            found = protos.entries(record, 1)
        except BrokenMessageError as broken:
            return Problem(Flaw.MALFORMED, row, None, broken.at)
        cells = []
        for f, one in enumerate(wanted):
            cell = _read(record, found.get(keys[f]), one, defaults[f], (row, f))
            if isinstance(cell, Problem):
                return cell
            cells.append(cell)
        rows.append(cells)
    by_feature = [[cells[f] for cells in rows] for f in range(len(wanted))]
    return ReferenceColumns([KINDS[one.dtype] for one in wanted], by_feature, len(rows))


def records_of(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> Iterator[bytes]:
    """Yield every record; raise `InputError` if one is not within the data."""
    for row, (start, end) in enumerate(itertools.pairwise(offsets.tolist())):
        if not 0 <= start <= end <= len(data):
            raise outside(data, offsets, row)
        yield data[start:end].tobytes()


def read_feature(
    record: bytes, span: Span, dtype: str, place: tuple[int, int]
) -> tuple[int | None, _Cell] | Problem:
    """Return kind and values of a Feature; `place` is (row, f), for problems."""
    wanted = KINDS[dtype]
    try:
        kind, cell = protos.values(record, span, wanted)
    except BrokenMessageError as broken:
        return Problem(Flaw.MALFORMED, *place, broken.at)
    if kind not in (None, wanted):
        return Problem(Flaw.WRONG_KIND, *place, span[0], wanted, kind)
    return kind, cell


def array_of(kind: int, cells: Sequence[_Cell]) -> FeatureValues:
    """Return the values of all cells, flat."""
    values = list(itertools.chain.from_iterable(cells))
    if kind == TEXT:
        return Strings.of(values)
    if kind == FLOAT:
        return np.frombuffer(b"".join(values), "<f4").astype(np.float32)
    return np.array(values, np.int64)


def splits_of(counts: Sequence[int]) -> NDArray[np.int64]:
    """Return where rows of these lengths begin, and where the last ends."""
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])


def _read(
    record: bytes,
    span: Span | None,
    one: FeatureRequest,
    default: _Cell | None,
    place: tuple[int, int],
) -> _Cell | Problem:
    kind: int | None = None
    cell: _Cell = []
    at = 0
    if span is not None:
        at = span[0]
        found = read_feature(record, span, one.dtype, place)
        if isinstance(found, Problem):
            return found
        kind, cell = found
    if one.size is None:
        if len(cell) % one.multiple:
            return Problem(Flaw.NOT_MULTIPLE, *place, at, one.multiple, len(cell))
        return cell
    if kind is None:
        if default is None:
            return Problem(Flaw.MISSING, *place, 0, KINDS[one.dtype])
        return default
    if len(cell) != one.size:
        return Problem(Flaw.WRONG_COUNT, *place, at, one.size, len(cell))
    return cell


def _default_of(one: FeatureRequest) -> _Cell | None:
    if one.default is None:
        return None
    if one.dtype == "string":
        return Strings.of(list(one.default)).tolist()
    if one.dtype == "float32":
        return [np.array(value, "<f4").tobytes() for value in one.default]
    return [int(value) for value in one.default]


class ReferenceColumns:
    """A parsed batch: `cells[f][row]` are the values of feature f in a record."""

    def __init__(
        self, kinds: Sequence[int], cells: Sequence[Sequence[_Cell]], rows: int
    ) -> None:
        self._kinds = kinds
        self._cells = cells
        self.rows = rows

    def fixed(self, f: int, shape: tuple[int, ...]) -> FeatureValues:
        """Return feature f as `[rows, *shape]`."""
        return array_of(self._kinds[f], self._cells[f]).reshape((self.rows, *shape))

    def sparse(self, f: int) -> Sparse:
        """Return feature f as `[rows, longest]`."""
        counts = [len(cell) for cell in self._cells[f]]
        places = [(row, k) for row, n in enumerate(counts) for k in range(n)]
        indices = np.array(places, np.int64).reshape((-1, 2))
        values = array_of(self._kinds[f], self._cells[f])
        return Sparse(indices, values, (self.rows, max(counts, default=0)))

    def variable(self, f: int) -> Variable:
        """Return feature f as flat values and splits."""
        counts = [len(cell) for cell in self._cells[f]]
        values = array_of(self._kinds[f], self._cells[f])
        return Variable(values, splits_of(counts), max(counts, default=0))


def find_lists(
    wanted: Sequence[FeatureRequest],
    data: NDArray[np.uint8],
    offsets: NDArray[np.int64],
) -> FeatureListBatch | Problem:
    """Find the steps of the wanted lists in all records."""
    records: list[bytes] = []
    found: list[list[list[Span] | None]] = [[] for _ in wanted]  # by feature and row
    for row, record in enumerate(records_of(data, offsets)):
        records.append(record)
        try:
            lists = protos.entries(record, 2)
        except BrokenMessageError as broken:
            return Problem(Flaw.MALFORMED, row, None, broken.at)
        for f, one in enumerate(wanted):
            span = lists.get(one.key.encode())
            try:
                steps = None if span is None else protos.messages(record, span)
            except BrokenMessageError as broken:
                return Problem(Flaw.MALFORMED, row, f, broken.at)
            found[f].append(steps)

    def read(f: int, size: int | None) -> Steps | Problem:
        return _read_steps(records, found[f], f, wanted[f], size)

    splits = [splits_of([len(steps or ()) for steps in rows]) for rows in found]
    missing = [[steps is None for steps in rows] for rows in found]
    return FeatureListBatch(
        np.array(splits, np.int64).reshape((len(wanted), len(records) + 1)),
        np.array(missing, np.bool_).reshape((len(wanted), len(records))),
        read,
    )


def _read_steps(
    records: Sequence[bytes],
    lists: Sequence[list[Span] | None],
    f: int,
    one: FeatureRequest,
    size: int | None,
) -> Steps | Problem:
    cells = []
    for row, steps in enumerate(lists):
        for span in steps or ():
            found = read_feature(records[row], span, one.dtype, (row, f))
            if isinstance(found, Problem):
                return found
            cell = found[1]
            if size is not None and len(cell) != size:
                return Problem(
                    Flaw.WRONG_COUNT, row, f, span[0], expected=size, found=len(cell)
                )
            cells.append(cell)
    values = array_of(KINDS[one.dtype], cells)
    return Steps(values, splits_of([len(cell) for cell in cells]))


@dataclass(frozen=True, eq=False)
class Lists:
    """A checked column: flat values (`Strings`, float32 or int64) and row splits."""

    key: bytes
    kind: int
    values: FeatureValues
    splits: NDArray[np.int64]


def encode(columns: Sequence[Lists]) -> Strings:
    """Return an Example for every row; features without values are left out."""
    rows = [b""] * (len(columns[0].splits) - 1)
    for column in columns:
        values = _as_values(column)
        for row, (start, stop) in enumerate(itertools.pairwise(column.splits.tolist())):
            if start < stop:
                rows[row] += entry(column.key, column.kind, values[start:stop])
    return Strings.of([field(1, features) for features in rows])


def _as_values(column: Lists) -> list[Any]:
    """Return the values in the form that `protos.feature` expects."""
    if column.kind != FLOAT:
        return column.values.tolist()
    packed = np.asarray(column.values, "<f4").tobytes()
    return [packed[i : i + 4] for i in range(0, len(packed), 4)]
