"""Parse the feature lists of SequenceExamples, a batch at a time.

    lists = find_lists([FeatureRequest("clicks", "int64")], records)    # or a Problem
    lists.splits[0]                     # where the steps of each record begin
    lists.read(0, None)                 # the values of all steps, or a Problem

The context of a SequenceExample is field 1, like the features of an Example, so
`ExamplePlan` reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import InputError
from estimax.core.strings import Strings
from estimax.native import loading
from estimax.native.example_batches import key_table, problem_of, work_arrays
from estimax.native.example_types import (
    FLOAT,
    INT,
    KINDS,
    TEXT,
    FeatureListBatch,
    FeatureRequest,
    FeatureValues,
    Problem,
    Steps,
    check_requests,
)
from estimax.native.examples import example_kernels, is_same, record_arrays
from estimax.native.reference import examples as reference
from estimax.native.reference.protos import feature, field
from estimax.native.string_arrays import text_of


def find_lists(
    wanted: Sequence[FeatureRequest], records: Strings
) -> FeatureListBatch | Problem:
    """Find the wanted feature lists; only key and dtype of each request are used.

    Raises:
      InputError: The offsets of the records do not increase within their data.
    """
    check_requests(wanted)
    data, offsets = record_arrays(records)
    filling = example_kernels()  # `fill` of these writes the values of the steps
    kernels = None if filling is None else loading.kernels("sequences", _agrees)
    if filling is None or kernels is None:
        return reference.find_lists(wanted, data, offsets)
    return _find_lists((kernels, filling), wanted, data, offsets)


def _find_lists(
    kernels: tuple[ModuleType, ModuleType],
    wanted: Sequence[FeatureRequest],
    data: NDArray[np.uint8],
    offsets: NDArray[np.int64],
) -> FeatureListBatch | Problem:
    scanning, filling = kernels
    features, rows = len(wanted), len(offsets) - 1
    splits = np.empty((features, rows + 1), np.int64)
    where = np.empty((features, rows, 2), np.int64)
    problem = np.zeros(filling.PROBLEM, np.int64)
    keys = tuple(one.key for one in wanted)
    if not scanning.scan_lists(
        *(data, offsets, *key_table(filling, keys)),
        *(splits, where, *work_arrays(filling, features), problem),
    ):
        return problem_of(problem, data, offsets)

    def read(f: int, size: int | None) -> Steps | Problem:
        kind, steps = KINDS[wanted[f].dtype], int(splits[f, -1])
        if size is not None and size < 0:
            raise InputError(f"expected a size that is not negative, found {size}.")
        counts = np.empty(steps + 1, np.int64)
        places = np.empty((steps, 3), np.int64)
        if not scanning.scan_steps(
            *(data, offsets, where[f], f, kind),
            *(scanning.VARIABLE if size is None else size, counts, places, problem),
        ):
            return problem_of(problem, data, offsets)
        return Steps(_fill(filling, kind, data, counts, places), counts)

    return FeatureListBatch(splits, where[:, :, 0] < 0, read)


def _fill(
    kernels: ModuleType,
    kind: int,
    data: NDArray[np.uint8],
    counts: NDArray[np.int64],
    places: NDArray[np.int64],
) -> FeatureValues:
    """Return the values of a feature, by `fill` with the steps as rows of a table."""
    table = np.zeros((1, kernels.COLUMNS), np.int64)
    columns = [kernels.KIND, kernels.SIZE, kernels.ROWS, kernels.INDICES]
    table[0, columns] = kind, kernels.VARIABLE, len(places), kernels.NONE
    n = int(counts[-1])
    floats = np.empty(n if kind == FLOAT else 0, np.float32)
    ints = np.empty(n if kind == INT else 0, np.int64)
    # Eight spare bytes, because `fill` copies short texts eight bytes at a time.
    text = np.empty(len(data) + 8 if kind == TEXT else 0, np.uint8)
    offsets = np.empty(n + 1 if kind == TEXT else 0, np.int64)
    pairs = np.empty(2 * n if kind == TEXT else 0, np.int64)
    nothing = np.zeros(1, np.int64)
    kernels.fill(
        *(data, 0, table, text, nothing, nothing, counts, places),
        *(floats, ints, np.empty(1, np.int64), pairs),
        *(text, offsets, np.empty((0, 2), np.int64)),
    )
    if kind == TEXT:
        return Strings(text, offsets, (n,))
    return floats if kind == FLOAT else ints


def _agrees(kernels: ModuleType) -> bool:
    """Return whether the kernels find and read a few lists as the reference does."""
    filling = example_kernels()
    if filling is None:
        return False
    wanted = [
        FeatureRequest("f", "float32"),
        FeatureRequest("i", "int64"),
        FeatureRequest("s", "string"),
    ]
    for records in _proof_batches():
        data, offsets = text_of(Strings.of(records))
        found = _find_lists((kernels, filling), wanted, data, offsets)
        expected = reference.find_lists(wanted, data, offsets)
        if not _is_same_batch(found, expected, len(wanted)):
            return False
    return True


def _proof_batches() -> list[list[bytes]]:
    one = np.float32(1.5).tobytes()
    good = field(1, b"") + field(
        2,
        _list(b"s", [feature(TEXT, [b"ab", b"longer than eight bytes"]), b""])
        + _list(b"f", [feature(FLOAT, [one]), feature(FLOAT, [one])])
        + _list(b"another", [feature(INT, [1])])
        + _list(b"i", [feature(INT, [-1, 300]), feature(INT, []), feature(INT, [2])]),
    )
    broken_step = field(2, _list(b"f", [b"\x12\x05\x0a\x03abc"]))
    wrong_kind = field(2, _list(b"s", [feature(INT, [1])]))
    return [[good, b"", good], [good, good[:-2]], [broken_step], [wrong_kind], []]


def _list(key: bytes, steps: Sequence[bytes]) -> bytes:
    return field(1, field(1, key) + field(2, b"".join(field(1, s) for s in steps)))


def _is_same_batch(
    found: FeatureListBatch | Problem,
    expected: FeatureListBatch | Problem,
    features: int,
) -> bool:
    if isinstance(found, Problem) or isinstance(expected, Problem):
        return found == expected
    same = is_same(found.splits, expected.splits)
    if not same or not is_same(found.is_missing, expected.is_missing):
        return False
    for f in range(features):
        for size in (None, 1):
            one, other = found.read(f, size), expected.read(f, size)
            if not _is_same_steps(one, other):
                return False
    return True


def _is_same_steps(one: Steps | Problem, other: Steps | Problem) -> bool:
    if isinstance(one, Problem) or isinstance(other, Problem):
        return one == other
    return is_same(one.values, other.values) and is_same(one.splits, other.splits)
