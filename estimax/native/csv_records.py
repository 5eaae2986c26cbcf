"""Decode CSV records in memory: `decode(records, fields, count)`.

fields = [RecordField(0, "float32", 0.0), RecordField(2, "string", b"")]
age, city = decode(Strings.of(["31,x,Oslo", ",y,Rome"]), fields, count=3)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.core.strings import Strings
from estimax.native import loading
from estimax.native.reference import csv_records as reference
from estimax.native.reference.csv_records import (
    FLOAT32,
    KINDS,
    SLOW,
    TEXT,
    RecordField,
    nearest,
)
from estimax.native.string_arrays import text_of


@dataclass(frozen=True)
class RecordFormat:
    """The fields of a record and the bytes that separate and enclose them.

    Args:
      fields: What to decode.
      count: The number of fields of every record.
      delimiter: The byte between two fields.
      quote: The byte that encloses fields, or b"" if quotes are ordinary characters.
      na: A text that stands for a missing value, in addition to the empty one.

    >>> fields = (RecordField(0, "int32", -1), RecordField(1, "string", b""))
    >>> RecordFormat(fields, 2).decode(Strings.of(["1,x", ",y"]))
    [array([ 1, -1], dtype=int32), Strings([b'x', b'y'], shape=(2,))]
    """

    fields: tuple[RecordField, ...]
    count: int
    delimiter: bytes = b","
    quote: bytes = b'"'
    na: bytes = b""

    def __post_init__(self) -> None:
        places = [field.place for field in self.fields]
        if places != sorted(set(places)) or not all(
            0 <= place < self.count for place in places
        ):
            raise ValueError(f"fields must ascend below {self.count}, got {places}")
        if any(field.dtype not in KINDS for field in self.fields):
            raise ValueError(f"dtypes must be of {list(KINDS)}, got {self.fields}")
        if len(self.delimiter) != 1 or len(self.quote) > 1:
            raise ValueError("delimiter must be one byte, quote at most one")

    def decode(self, records: Strings) -> list[Any] | None:
        """Return a column for each field; None if a record is not plain.

        Not plain are a misplaced quote, a wrong number of fields, a required value that
        is missing, and numbers that are not written as up to 18 digits or as a decimal
        fraction. The caller parses such records in another way.
        """
        data, offsets = text_of(records)
        # The reference decodes 5 MB a second; the compiler takes 3 seconds.
        waits = len(data) > 16 << 20
        kernels = loading.kernels("csv_records", _agrees, waits=waits)
        if kernels is None:
            arguments = (self.count, self.delimiter, self.quote, self.na)
            return reference.decode(records, self.fields, *arguments)
        return self.run(kernels, data, offsets)

    def run(
        self, kernels: ModuleType, data: NDArray[np.uint8], offsets: NDArray[np.int64]
    ) -> list[Any] | None:
        """Decode with compiled code."""
        table, rows = self._table, len(offsets) - 1
        ints = np.empty((table.ints, rows), np.int64)
        floats = np.empty((table.floats, rows), np.float64)
        spans = np.empty((2, len(self.fields), rows), np.int64)
        states = np.empty((len(self.fields), rows), np.uint8)
        starts, ends = spans
        marks = (ord(self.delimiter), ord(self.quote) if self.quote else -1)
        outputs = (ints, floats, starts, ends, states)
        found = kernels.decode(
            data, offsets, *marks, table.na, *table.arguments, *outputs
        )
        if found >= 0:
            return None
        for f, row in np.argwhere(states == SLOW) if table.floats else ():
            text = data[starts[f, row] : ends[f, row]].tobytes()
            value = nearest(text.strip(b" \t"), self.fields[f].dtype)
            if value is None:
                return None
            floats[table.slots[f], row] = value
        columns: list[Any] = []
        for f, field in enumerate(self.fields):
            if field.dtype == "string":
                where = (starts[f], ends[f], states[f])
                columns.append(_text(kernels, data, marks[1], field.default, *where))
            else:
                numbers = floats if table.is_float[f] else ints
                columns.append(numbers[table.slots[f]].astype(field.dtype))
        return columns

    @cached_property
    def _table(self) -> _Table:
        return _Table.of(self)


@dataclass(frozen=True, eq=False)
class _Table:
    """The description of the fields as arrays, for the kernel."""

    arguments: tuple[NDArray[Any], ...]  # places, fields, int and float defaults
    na: NDArray[np.uint8]
    slots: list[int]  # the row of `ints` or `floats` that takes a field's values
    is_float: list[bool]
    ints: int  # the number of integer fields
    floats: int

    @staticmethod
    def of(form: RecordFormat) -> _Table:
        places = np.full(form.count, -1, np.int64)
        places[[field.place for field in form.fields]] = range(len(form.fields))
        kinds = [KINDS[field.dtype] for field in form.fields]
        is_float = [kind >= FLOAT32 for kind in kinds]
        is_int = [TEXT < kind < FLOAT32 for kind in kinds]
        slots = [
            sum(is_float[:f]) if is_float[f] else sum(is_int[:f])
            for f in range(len(kinds))
        ]
        required = [field.default is None for field in form.fields]
        fields = np.array([kinds, required, slots], np.int64).T.copy()
        numbers = [
            0 if kind == TEXT or field.default is None else field.default
            for kind, field in zip(kinds, form.fields, strict=True)
        ]
        whole = np.array([n if i else 0 for n, i in zip(numbers, is_int, strict=True)])
        return _Table(
            (places, fields, whole.astype(np.int64), np.array(numbers, np.float64)),
            np.frombuffer(form.na, np.uint8),
            slots,
            is_float,
            sum(is_int),
            sum(is_float),
        )


def _text(
    kernels: ModuleType,
    data: NDArray[np.uint8],
    quote: int,
    default: bytes | None,
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    states: NDArray[np.uint8],
) -> Strings:
    """Gather a column of text."""
    filler = np.frombuffer(default or b"", np.uint8)
    offsets = np.empty(len(starts) + 1, np.int64)
    where = (starts, ends, states)
    total = kernels.text_offsets(data, quote, len(filler), *where, offsets)
    out = np.empty(total, np.uint8)
    kernels.copy_text(data, quote, filler, *where, out)
    return Strings(out, offsets, (len(starts),))


_PROOF = RecordFormat(
    (
        RecordField(0, "int32", -1),
        RecordField(1, "string", b"none"),
        RecordField(3, "float32", 0.5),
        RecordField(4, "float64"),
        RecordField(5, "int64"),
    ),
    count=6,
    na=b"NA",
)


def _agrees(kernels: ModuleType) -> bool:
    """Return whether records with quotes, defaults and long numbers are decoded."""
    good = Strings.of(
        [
            '12,"a ""b"", c",skipped,1.5,-2.25e3,-9',
            ",,,NA,0.1234567890123456789,123456789012345678",
            ' -7 ,"NA",x,16777217.0000000001,1e-300,0',
        ]
    )
    bad = Strings.of(['1,a,b,1,2,3"'])
    text = text_of(good)
    found, form = _PROOF.run(kernels, *text), _PROOF
    arguments = (form.count, form.delimiter, form.quote, form.na)
    expected = reference.decode(good, form.fields, *arguments)
    if found is None or expected is None or form.run(kernels, *text_of(bad)):
        return False
    pairs = zip(found, expected, strict=True)
    return all(
        a.tolist() == b.tolist() and getattr(a, "dtype", 0) == getattr(b, "dtype", 0)
        for a, b in pairs
    )
