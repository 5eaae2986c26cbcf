"""Find and read the feature lists of SequenceExamples in Python."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from estimax.native.example_types import (
    KINDS,
    Flaw,
    Problem,
    SequenceSteps,
    Steps,
    Wanted,
)
from estimax.native.reference import protos
from estimax.native.reference.examples import (
    array_of,
    read_feature,
    records_of,
    splits_of,
)
from estimax.native.reference.protos import BrokenMessageError, Span


def find_lists(
    wanted: Sequence[Wanted], data: NDArray[np.uint8], offsets: NDArray[np.int64]
) -> SequenceSteps | Problem:
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
        return _read(records, found[f], f, wanted[f], size)

    splits = [splits_of([len(steps or ()) for steps in rows]) for rows in found]
    missing = [[steps is None for steps in rows] for rows in found]
    return SequenceSteps(
        np.array(splits, np.int64).reshape((len(wanted), len(records) + 1)),
        np.array(missing, np.bool_).reshape((len(wanted), len(records))),
        read,
    )


def _read(
    records: Sequence[bytes],
    lists: Sequence[list[Span] | None],
    f: int,
    one: Wanted,
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
