"""Example messages in Python: writing fields, and reading them place by place.

    data = field(1, b"abc")                        # tag, length and content
    [(tag, data[a:b]) for tag, a, b in fields(data, 0, len(data))]

Readers take a message and the span (start, end) in it that they shall read. What they
cannot read is a `BrokenMessageError`, which has the place, as in the compiled readers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from estimax.core.errors import InputError
from estimax.native.features import FLOAT, INT, TEXT

# Wire types: the lowest three bits of a tag.
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
# Field 1 as bytes, which packed numbers are too; as a lone varint; as a lone float.
ONE, _LONE_INT, _LONE_FLOAT = 1 << 3 | _BYTES, 1 << 3 | _VARINT, 1 << 3 | _FOUR
_MASK = 0xFFFFFFFFFFFFFFFF

Span = tuple[int, int]


class BrokenMessageError(InputError):
    """Bytes that are no Example message; `at` is the first that makes no sense."""

    def __init__(self, at: int) -> None:
        super().__init__("not a valid Example message.")
        self.at = at


def field(number: int, content: bytes) -> bytes:
    """Return a length-delimited field."""
    return encode_varint(number << 3 | _BYTES) + encode_varint(len(content)) + content


def encode_varint(value: int) -> bytes:
    """Return seven bits a byte, the low ones first; negative numbers as 64 bits."""
    value &= _MASK
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def entry(key: bytes, kind: int, values: list[Any]) -> bytes:
    """Return the map entry of a feature: texts as bytes, floats as 4 bytes, or ints."""
    return field(1, field(1, key) + field(2, feature(kind, values)))


def feature(kind: int, values: list[Any]) -> bytes:
    """Return a Feature message: one list of values, numbers packed."""
    if kind == TEXT:
        return field(kind, b"".join([field(1, value) for value in values]))
    parts = values if kind == FLOAT else [encode_varint(value) for value in values]
    return field(kind, field(1, b"".join(parts)) if values else b"")


def varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return the number at a place, of at most 64 bits, and the place behind it."""
    if at < end and data[at] < 0x80:  # nearly all are of one byte
        return data[at], at + 1
    value, start = 0, at
    for shift in range(0, 70, 7):
        if at >= end:
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _MASK, at
    raise BrokenMessageError(start)


def fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield the tag of every field of a message, and the span of its content."""
    while at < end:
        tag, start = varint(data, at, end)
        wire = tag & 7
        if tag < 8:  # field number 0
            raise BrokenMessageError(start)
        if wire == _BYTES:
            size, content = varint(data, start, end)
            at = content + size
        elif wire == _VARINT:
            content, (_, at) = start, varint(data, start, end)
        elif wire in (_EIGHT, _FOUR):
            content, at = start, start + (8 if wire == _EIGHT else 4)
        else:
            raise BrokenMessageError(start)
        if at > end:
            raise BrokenMessageError(start)
        yield tag, content, at


def entries(data: bytes, number: int) -> dict[bytes, Span]:
    """Return where each key's value lies in the map that is field `number` of a record.

    The field may come several times. The last value of a key counts.
    """
    found: dict[bytes, Span] = {}
    for tag, start, end in fields(data, 0, len(data)):
        if tag == number << 3 | _BYTES:
            for inner, first, last in fields(data, start, end):
                if inner == ONE:
                    key, value = _entry(data, first, last)
                    found[key] = value
    return found


def _entry(data: bytes, at: int, end: int) -> tuple[bytes, Span]:
    key, value = b"", (at, at)
    for tag, start, stop in fields(data, at, end):
        if tag == ONE:
            key = data[start:stop]
        elif tag == 2 << 3 | _BYTES:
            value = (start, stop)
    return key, value


def messages(data: bytes, span: Span) -> list[Span]:
    """Return the spans of all messages in field 1: the steps of a FeatureList."""
    return [(start, stop) for tag, start, stop in fields(data, *span) if tag == ONE]


def values(
    data: bytes, span: Span, wanted: int | None = None
) -> tuple[int | None, list[Any]]:
    """Return the kind of a Feature, None if none is set, and its values.

    Texts are bytes, floats their 4 bytes (so that every NaN stays what it is), ints
    are int. A list of the same kind adds values, one of another kind replaces them. The
    content of other kinds than `wanted` is not read, unless that is None.
    """
    kind: int | None = None
    found: list[Any] = []
    for tag, start, stop in fields(data, *span):
        if tag & 7 != _BYTES or not TEXT <= tag >> 3 <= INT:
            continue
        if tag >> 3 != kind:
            kind, found = tag >> 3, []
        if wanted is None or kind == wanted:
            found += _listed(data, start, stop, kind)
    return kind, found


def _listed(data: bytes, at: int, end: int, kind: int) -> list[Any]:
    found: list[Any] = []
    for tag, start, stop in fields(data, at, end):
        if kind == TEXT and tag == ONE:
            found.append(data[start:stop])
        elif kind == FLOAT and tag in (ONE, _LONE_FLOAT):
            if (stop - start) % 4:
                raise BrokenMessageError(start)
            found += [data[i : i + 4] for i in range(start, stop, 4)]
        elif kind == INT and tag in (ONE, _LONE_INT):
            while start < stop:
                value, start = varint(data, start, stop)
                found.append(value - (1 << 64) if value >> 63 else value)
    return found
