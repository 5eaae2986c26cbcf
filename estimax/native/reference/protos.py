"""Write and read the fields of Example messages in Python.

    data = field(1, b"abc")                        # tag, length and content
    [(tag, data[a:b]) for tag, a, b in fields(data, 0, len(data))]

A reader takes the bytes of a record and the span (start, end) of a message in it. It
raises `BrokenMessageError` with the position of what it cannot read, which is the
position that the compiled readers report. `kernels/protos.py` explains the wire format.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from estimax.core.errors import InputError
from estimax.native.example_types import FLOAT, INT, TEXT

# Wire types: the lowest three bits of a tag.
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
# Tags of field 1: with a length (also packed numbers), a single varint, a single float.
ONE, _LONE_INT, _LONE_FLOAT = 1 << 3 | _BYTES, 1 << 3 | _VARINT, 1 << 3 | _FOUR
_MASK = 0xFFFFFFFFFFFFFFFF

Span = tuple[int, int]


class BrokenMessageError(InputError):
    """Bytes are not a valid Example message; `at` is the position of the first."""

    def __init__(self, at: int) -> None:
        super().__init__("not a valid Example message.")
        self.at = at


def field(number: int, content: bytes) -> bytes:
    """Return a field with a length: tag, length and content."""
    return encode_varint(number << 3 | _BYTES) + encode_varint(len(content)) + content


def encode_varint(value: int) -> bytes:
    """Return a varint: seven bits per byte, lowest first; negative ones as 64 bits."""
    value &= _MASK
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def entry(key: bytes, kind: int, values: list[Any]) -> bytes:
    """Return the map entry of a feature; `values` are as `feature` expects them."""
    return field(1, field(1, key) + field(2, feature(kind, values)))


def feature(kind: int, values: list[Any]) -> bytes:
    """Return a Feature message with one list of values, numbers packed.

    Args:
      kind: TEXT, FLOAT or INT.
      values: Texts as bytes, floats as their 4 bytes, or integers.
    """
    if kind == TEXT:
        return field(kind, b"".join([field(1, value) for value in values]))
    parts = values if kind == FLOAT else [encode_varint(value) for value in values]
    return field(kind, field(1, b"".join(parts)) if values else b"")


def varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return the varint at a position, and the position behind it."""
    if at < end and data[at] < 0x80:  # nearly all varints have one byte
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
    """Return the span of each key's value in the map in field `number` of a record.

    The field may occur several times. The last value of a key counts.
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
    """Return the kind of a Feature (None if none is set) and its values.

    Texts are bytes, floats are their 4 bytes (which keeps the bits of every NaN), and
    integers are int. A list of the same kind adds values to those before; a list of
    another kind replaces them. Only lists of the kind `wanted` are read; None reads
    all.
    """
    kind: int | None = None
    found: list[Any] = []
    for tag, start, stop in fields(data, *span):
        if tag & 7 != _BYTES or not TEXT <= tag >> 3 <= INT:
            continue
        if tag >> 3 != kind:
            kind, found = tag >> 3, []
        if wanted is None or kind == wanted:
            found += _read_list(data, start, stop, kind)
    return kind, found


def _read_list(data: bytes, at: int, end: int, kind: int) -> list[Any]:
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
