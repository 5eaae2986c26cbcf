"""Cut CSV records into fields and convert numbers in Python, as the kernels do.

The constants are shared with the kernels. `decode` returns None for records that the
kernels leave to the caller: a quote inside a field, a wrong number of fields, a value
that is missing without default, or a number that is not written as plain decimals.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from estimax.core.strings import Strings

# The kinds of a field.
TEXT, INT32, INT64, FLOAT32, FLOAT64 = range(5)
KINDS = {
    "string": TEXT,
    "int32": INT32,
    "int64": INT64,
    "float32": FLOAT32,
    "float64": FLOAT64,
}
# The columns of the kernel's table of fields.
KIND, REQUIRED, SLOT = range(3)
# The states of a value: as it is, with doubled quotes, to be replaced by the default,
# or a number that the kernel cannot round.
PLAIN, QUOTES, DEFAULT, SLOW = range(4)

_INTEGER = re.compile(rb"-?[0-9]{1,18}")
_NUMBER = re.compile(rb"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]{1,3})?")


@dataclass(frozen=True)
class RecordField:
    """A field to decode: its place in a record, its dtype, and what replaces nothing.

    Attributes:
      place: The number of the field in a record.
      dtype: "string", "int32", "int64", "float32" or "float64".
      default: The value of an empty field, bytes for text; None if it is required.
    """

    place: int
    dtype: str
    default: Any = None


def decode(
    records: Strings,
    fields: Sequence[RecordField],
    count: int,
    delimiter: bytes,
    quote: bytes,
    na: bytes,
) -> list[Any] | None:
    """Return a column for each field; None if a record is not plain.

    Args:
      records: The records, of rank 1.
      fields: What to decode.
      count: The number of fields of every record.
      delimiter: The byte between two fields.
      quote: The byte that encloses fields, or b"".
      na: A text that stands for a missing value, in addition to the empty one.
    """
    columns: list[list[Any]] = [[] for _ in fields]
    for record in records.tolist():
        row = _split_fields(record, delimiter, quote)
        if row is None or len(row) != count:
            return None
        for field, column in zip(fields, columns, strict=True):
            text = row[field.place]
            value = field.default if text in (b"", na) else _value(text, field.dtype)
            if value is None:
                return None
            column.append(value)
    pairs = zip(fields, columns, strict=True)
    return [
        Strings.of(column) if field.dtype == "string" else np.array(column, field.dtype)
        for field, column in pairs
    ]


def _split_fields(record: bytes, delimiter: bytes, quote: bytes) -> list[bytes] | None:
    """Return the fields of a record; None if a quote or a line break is misplaced."""
    if not record:
        return None
    q, d = re.escape(quote), re.escape(delimiter)
    plain = rb"(?P<plain>[^" + q + d + rb"\r\n]*)"
    quoted = rb"(?P<quoted>" + q + rb"(?:[^" + q + rb"]|" + q + q + rb")*" + q + rb")"
    pattern = (quoted + rb"|" if quote else b"") + plain
    field = re.compile(rb"(?:" + pattern + rb")(?P<end>" + d + rb"|$)", re.DOTALL)
    fields, at = [], 0
    while True:
        found = field.match(record, at)
        if found is None or (not found["end"] and found.end() < len(record)):
            return None
        enclosed = found["quoted"] if quote else None
        if enclosed is not None:
            fields.append(enclosed[1:-1].replace(quote * 2, quote))
        else:
            fields.append(found["plain"])
        at = found.end()
        if not found["end"]:
            return fields


def _value(text: bytes, dtype: str) -> Any:
    if dtype == "string":
        return text
    text = text.strip(b" \t")
    if dtype.startswith("float"):
        return nearest(text, dtype) if _NUMBER.fullmatch(text) else None
    limits = np.iinfo(dtype)
    if not _INTEGER.fullmatch(text):
        return None
    return int(text) if limits.min <= int(text) <= limits.max else None


def nearest(text: bytes, dtype: str) -> float | None:
    """Return the float of a dtype that is nearest to a decimal number.

    None is returned for what a normal number of the dtype cannot hold, except 0.

    >>> nearest(b"0.1", "float32")
    0.10000000149011612
    """
    value = float(text)
    if dtype == "float64":
        return value if np.isfinite(value) else None
    size = abs(value)
    if value and not 1.2e-38 < size < 3.4e38:
        return None
    single = np.float32(value)
    if float(single) == value:
        # Rounding to float64 and then to float32 is only wrong in the middle of two
        # float32, which is itself not a float32.
        return float(single)
    if Fraction(float(single)) + Fraction(_other(single, value)) == 2 * Fraction(value):
        exact = Fraction(text.decode())
        if exact != Fraction(value):
            up = exact > Fraction(value)
            pair = sorted((float(single), _other(single, value)))
            return pair[1] if up else pair[0]
    return float(single)


def _other(single: np.float32, value: float) -> float:
    """Return the float32 on the other side of a float64."""
    toward = np.float32(np.inf if value > float(single) else -np.inf)
    return float(np.nextafter(single, toward))
