"""What the host does for tables that are one array: ids as rows of that array.

    ids = stack_ids(stack, unique, vocabularies)            # one list of distinct ids
    reads = stack_reads(stack, staged, unique, inverse)     # two matrices for lookups

A compiled step with an array of ids for each of 400 columns takes 15 s of CPU time to
compile, and with two matrices for all of them half a second.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.core.sparse import Ids
from estimax.staging.trace import StackReads

Int32s = NDArray[np.int32]


@dataclass(frozen=True)
class RowStack:
    """Tables that are one array, whose distinct ids are one list.

    Each table has a segment of fixed length in the list: the distinct ids of its row
    group as rows of the stack, padded with `rows`, which is no row. Ids ascend, if
    padding is left out.

    Attributes:
      name: The name of the list in a batch.
      members: The row group and the first row of each table.
      rows: The number of rows of the stack.
      lines: The member and the call of each line of `StackReads`; None if some calls
        give several ids per example.
    """

    name: str
    members: tuple[tuple[str, int], ...]
    rows: int
    lines: tuple[tuple[int, str], ...] | None = None

    @property
    def groups(self) -> tuple[str, ...]:
        """The row group of each table."""
        return tuple(group for group, _ in self.members)


def stack_ids(
    stack: RowStack,
    unique: Mapping[str, Int32s],
    vocabularies: Mapping[str, int],
    count: int = 1,
) -> Int32s:
    """Return the distinct ids of a stack's tables as rows of the stack.

    The ids are those of `count` batches, one after another.

    >>> unique = {"a": np.array([1, 4], np.int32), "b": np.array([0, 2], np.int32)}
    >>> stack = RowStack("s", (("a", 0), ("b", 4)), rows=9)
    >>> stack_ids(stack, unique, {"a": 4, "b": 5})
    array([1, 9, 4, 6], dtype=int32)
    """
    parts = [unique[name].reshape(count, -1) for name in stack.groups]
    lengths = [part.shape[1] for part in parts]
    ids = np.concatenate(parts, axis=1)
    starts = np.array([first for _, first in stack.members], np.int32)
    sizes = np.array([vocabularies[name] for name in stack.groups], np.int32)
    is_padding = ids >= sizes.repeat(lengths)
    ids += starts.repeat(lengths)
    ids[is_padding] = stack.rows
    return ids.reshape(-1)


def stack_reads(
    stack: RowStack,
    staged: Mapping[str, Any],
    unique: Mapping[str, Int32s],
    inverse: Mapping[str, Mapping[str, Int32s]],
    count: int = 1,
) -> StackReads | None:
    """Return what columns with one id per example read from a stack.

    Return None if some calls give several ids.
    """
    # A dense feature [B, 1] may be [B, 2] in the next batch.
    lines = stack.lines
    if lines is None or not all(_is_line(staged[call]) for _, call in lines):
        return None
    lengths = (len(unique[name]) // count for name in stack.groups)
    places = [0, *itertools.accumulate(lengths)]  # of each table in the list
    return StackReads(
        _join_lines(
            [ids_of(staged[call]) for _, call in lines],
            [stack.members[member][1] for member, _ in lines],
            count,
        ),
        _join_lines(
            [inverse[stack.groups[member]][call] for member, call in lines],
            [places[member] for member, _ in lines],
            count,
        ),
    )


def _is_line(staged: Any) -> bool:
    """Return whether the result of a call is one id for each example, [B, 1]."""
    ids = ids_of(staged)
    return ids.ndim == 2 and ids.shape[1] == 1


def _join_lines(columns: Sequence[Int32s], firsts: Sequence[int], count: int) -> Int32s:
    """Return columns [count · B, 1] as lines [count · n, B], each with a number added.

    Negative numbers stay -1.
    """
    joined = np.concatenate(columns, axis=1).reshape(count, -1, len(columns))
    lines = np.ascontiguousarray(joined.transpose(0, 2, 1))
    is_missing = lines < 0
    lines += np.array(firsts, np.int32)[:, None]
    lines[is_missing] = -1
    return lines.reshape(count * len(columns), -1)


def ids_of(staged: Any) -> NDArray[np.int32]:
    """Return the ids in the result of a call: of `Ids`, or the result itself."""
    ids: NDArray[np.int32] = staged.ids if isinstance(staged, Ids) else staged
    return ids
