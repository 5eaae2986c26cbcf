"""Protocol buffer messages read field by field, where there are few of them.

for number, value in fields(message): ...
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the fields of a message: varints as int, all others as bytes.

    Raises ValueError if the message is cut or is no message.

    >>> list(fields(bytes([0x08, 0x96, 0x01, 0x12, 0x01, 0x61])))
    [(1, 150), (2, b'a')]
    """
    place = 0
    while place < len(message):
        tag, place = varint(message, place)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            value, place = varint(message, place)
            yield number, value
            continue
        if kind == 2:
            size, place = varint(message, place)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError(f"a message holds a field of unknown kind {kind}")
        if size > len(message) - place:
            raise ValueError(f"field {number} of a message is cut short")
        yield number, message[place : place + size]
        place += size


def varint(data: bytes, place: int) -> tuple[int, int]:
    """Return the number at a place, and the place behind it.

    Raises ValueError if the data ends within the number or it has over 64 bits.

    >>> varint(bytes([0x96, 0x01]), 0)
    (150, 2)
    """
    value = 0
    for i, byte in enumerate(data[place : place + 10]):
        value |= (byte & 0x7F) << 7 * i
        if byte < 0x80 and value < 2**64:
            return value, place + i + 1
    raise ValueError(f"expected a number of at most 64 bits at {place}")
