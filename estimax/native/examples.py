"""Parse Example messages to columns, a batch at a time.

    age, tags = FeatureRequest("age", "float32", 1), FeatureRequest("tags", "string")
    plan = ExamplePlan([age, tags])
    found = plan.run(records)                 # Columns, or a Problem
    found.fixed(0, ()), found.variable(1)

A plan is made once for a set of features and used for every batch. Threads may share
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import InputError
from estimax.core.strings import Strings
from estimax.native import loading
from estimax.native.example_batches import CompiledPlan
from estimax.native.example_types import (
    FLOAT,
    INT,
    TEXT,
    FeatureRequest,
    FeatureValues,
    ParsedColumns,
    Problem,
    check_requests,
)
from estimax.native.reference import examples as reference
from estimax.native.reference.protos import encode_varint, entry, field
from estimax.native.string_arrays import text_of

_LARGE_BYTES = 50 << 20


class ExamplePlan:
    """A parser of batches of Examples.

    Args:
      wanted: The features to parse.

    Raises:
      InputError: A description in `wanted` is invalid.
    """

    def __init__(self, wanted: Sequence[FeatureRequest]) -> None:
        check_requests(wanted)
        self.wanted = tuple(wanted)
        # Made at first use. Two threads may both make it, which is harmless.
        self._compiled: CompiledPlan | None = None

    def run(self, records: Strings) -> ParsedColumns | Problem:
        """Parse a batch; return its columns, or the first problem of a record.

        Raises:
          InputError: The offsets of the records do not increase within their data.
        """
        data, offsets = record_arrays(records)
        # The reference parses 5 MB a second; the compiler takes 10 seconds.
        kernels = example_kernels(waits=len(data) > _LARGE_BYTES)
        if kernels is None:
            return reference.parse(self.wanted, data, offsets)
        if self._compiled is None:
            self._compiled = CompiledPlan(kernels, self.wanted)
        return self._compiled.run(data, offsets)


def example_kernels(*, waits: bool = False) -> ModuleType | None:
    """Return the kernels for Examples, or None if the reference must be used.

    `waits` is for work that takes the reference longer than the compiler.
    """
    return loading.kernels("examples", _agrees, waits=waits)


def record_arrays(
    records: Strings,
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return data and offsets of a vector of records as contiguous arrays.

    The kernels and the reference compare the offsets with the size of the data.

    Raises:
      InputError: The records are not a vector.
    """
    data, offsets = text_of(records)
    if records.shape != (len(offsets) - 1,):
        raise InputError(
            f"expected a vector of records, one for each of the {len(offsets) - 1} "
            f"pairs of offsets, found shape {records.shape}."
        )
    return data, offsets


def is_same(one: FeatureValues, other: FeatureValues) -> bool:
    """Return whether two columns have the same dtype, shape and bits, NaNs included."""
    if isinstance(one, Strings) or isinstance(other, Strings):
        both_texts = isinstance(one, Strings) and isinstance(other, Strings)
        return (
            both_texts and one.shape == other.shape and one.tolist() == other.tolist()
        )
    return (
        one.dtype == other.dtype
        and one.shape == other.shape
        and one.tobytes() == other.tobytes()  # a NaN is equal to itself here
    )


_LONG_KEY = "a key of more than a hundred bytes " * 4
_SIZED = (
    FeatureRequest("f", "float32", 1),
    FeatureRequest("g", "float32", 2, [0.5, float("nan")]),
    FeatureRequest("i", "int64", 1),
    FeatureRequest("j", "int64", 2, [-1, 1 << 40]),
    FeatureRequest("s", "string", 1, [b"a default"]),
    FeatureRequest(_LONG_KEY, "string", 2, [b"", b"b"]),
)
_ANY = (
    FeatureRequest("f", "float32"),
    FeatureRequest("g", "float32", multiple=2, indices=True),
    FeatureRequest("i", "int64", indices=True),
    FeatureRequest("j", "int64", 2, [3, 4]),
    FeatureRequest("s", "string", indices=True),
    FeatureRequest(_LONG_KEY, "string", 2, [b"", b"b"]),
)


def _agrees(kernels: ModuleType) -> bool:
    """Return whether the kernels parse a few records as the reference does."""
    batches = [text_of(Strings.of(records)) for records in _proof_batches()]
    for wanted in (_SIZED, _ANY):
        plan = CompiledPlan(kernels, wanted)
        for data, offsets in batches:
            found = plan.run(data, offsets)
            if not _is_same_batch(
                found, reference.parse(wanted, data, offsets), wanted
            ):
                return False
    return True


def _proof_batches() -> list[list[bytes]]:
    """Return a batch of valid records, and batches with one problem each."""
    one = np.float32(1.5).tobytes()
    regular = [
        entry(b"f", FLOAT, [one]),
        entry(b"g", FLOAT, [one, b"\x01\x00\xa0\x7f"]),  # a NaN with bits of its own
        entry(b"i", INT, [7]),
        entry(b"another", TEXT, [b"is skipped"]),
        entry(b"s", TEXT, [b"a text"]),
    ]
    # Keys in another order; a lone float; numbers of several bytes; texts of several
    # lengths; a key that comes twice; fields that no Example has.
    lone_float = field(2, b"\x0d" + one)
    odd = [
        entry(_LONG_KEY.encode(), TEXT, [b"0123456789", b""]),
        entry(b"s", TEXT, [b"hidden by the next"]),
        entry(b"s", TEXT, [b"longer than eight bytes"]),
        entry(b"j", INT, [-(1 << 63), 300]),
        field(1, field(1, b"f") + field(2, lone_float) + field(9, b"unknown")),
        b"\x18" + encode_varint(1 << 50),
        entry(b"i", INT, [-2]),
    ]
    good, other = field(1, b"".join(regular)), field(1, b"".join(odd))
    lacking = field(1, b"".join(regular[:1] + regular[2:]))
    return [
        [good, lacking, other, good],
        [good[:-3]],
        [field(1, entry(b"f", INT, [1]))],
        [field(1, regular[0] + regular[2] + entry(b"g", FLOAT, [one] * 3))],
        [field(1, field(1, field(1, b"f") + field(2, field(2, b"\x0a\x03abc"))))],
        [b""],
    ]


def _is_same_batch(
    found: ParsedColumns | Problem,
    expected: ParsedColumns | Problem,
    wanted: Sequence[FeatureRequest],
) -> bool:
    if isinstance(found, Problem) or isinstance(expected, Problem):
        return found == expected
    for f, one in enumerate(wanted):
        if one.size is not None:
            shape = (one.size,)
            if not is_same(found.fixed(f, shape), expected.fixed(f, shape)):
                return False
            continue
        rows, others = found.variable(f), expected.variable(f)
        same = is_same(rows.values, others.values) and rows.longest == others.longest
        if not same or not is_same(rows.splits, others.splits):
            return False
        if one.indices:
            a, b = found.sparse(f), expected.sparse(f)
            if a.dense_shape != b.dense_shape or not is_same(a.indices, b.indices):
                return False
    return found.rows == expected.rows
