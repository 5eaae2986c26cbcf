"""TFRecord frames and CRC-32C in NumPy and Python.

A CRC is linear: it is the XOR of a contribution of each byte, which depends only on the
byte and its distance from the end. A table holds all contributions, so the CRC of a
block is one lookup and one reduction.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

HEADER, FOOTER = 12, 4  # bytes before and behind the data of a record
# The status that `unframe` returns: why it stopped.
NEEDS_MORE, BAD_LENGTH_CRC, BAD_DATA_CRC, ABSURD_LENGTH = 0, 1, 2, 3
LONGEST = 1 << 60  # larger than any file, and sums with it do not overflow int64

_POLYNOMIAL = 0x82F63B78  # Castagnoli's polynomial with reversed bits
_BLOCK = 1024
_SHORT = 64  # bytes; a loop over fewer is faster than NumPy

_Bytes = NDArray[np.uint8]


def crc32c(data: _Bytes) -> int:
    """Return the CRC-32C of the bytes.

    >>> hex(crc32c(np.frombuffer(b"123456789", np.uint8)))
    '0xe3069283'
    """
    state = 0xFFFFFFFF
    for start in range(0, len(data), _BLOCK):
        state = _after(state, data[start : start + _BLOCK])
    return state ^ 0xFFFFFFFF


def masked(crc: int) -> int:
    """Return a CRC as TFRecord stores it: rotated right by 15 bits, plus a constant."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def unframe(
    buffer: _Bytes, start: int, size: int, check: bool, least: int, most: int
) -> tuple[int, int, int, NDArray[np.int64]]:
    """Find records and move them together; see `native.records.unframe`."""
    at, status = start, NEEDS_MORE
    spans: list[tuple[int, int]] = []
    while len(spans) < most and at + HEADER <= size:
        length = int.from_bytes(buffer[at : at + 8].tobytes(), "little")
        if check and not _is_intact(buffer, at, at + 8):
            status = BAD_LENGTH_CRC
            break
        if length > LONGEST:
            status = ABSURD_LENGTH
            break
        end = at + HEADER + length
        if end + FOOTER > size:
            break
        spans.append((at + HEADER, end))
        at = end + FOOTER
    if len(spans) < least and status == NEEDS_MORE:
        return 0, start, status, np.full(1, start, np.int64)
    for i, (begin, end) in enumerate(spans):
        if check and not _is_intact(buffer, begin, end):
            spans, at, status = spans[:i], begin - HEADER, BAD_DATA_CRC
            break
    offsets = np.full(len(spans) + 1, start, np.int64)
    for i, (begin, end) in enumerate(spans):
        offsets[i + 1] = offsets[i] + end - begin
        buffer[offsets[i] : offsets[i + 1]] = buffer[begin:end].copy()
    return len(spans), at, status, offsets


def frame(
    data: _Bytes,
    offsets: NDArray[np.int64],
    checksum: Callable[[_Bytes], int] = crc32c,
) -> _Bytes:
    """Return every record with its length and checksums."""
    parts = []
    for start, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        record = data[start:end]
        length = (end - start).to_bytes(8, "little")
        crcs = [
            masked(checksum(each)).to_bytes(4, "little")
            for each in (np.frombuffer(length, np.uint8), record)
        ]
        parts += [length, crcs[0], record.tobytes(), crcs[1]]
    return np.frombuffer(b"".join(parts), np.uint8)


def _is_intact(buffer: _Bytes, start: int, end: int) -> bool:
    """Return whether the four bytes behind `buffer[start:end]` are its checksum."""
    stored = int.from_bytes(buffer[end : end + 4].tobytes(), "little")
    return masked(crc32c(buffer[start:end])) == stored


def _after(state: int, block: _Bytes) -> int:
    """Return the state of a CRC after a block of bytes, given the state before."""
    length = len(block)
    if length < _SHORT:
        first = _first_row()
        for byte in block.tolist():
            state = (state >> 8) ^ first[(state ^ byte) & 0xFF]
        return state
    # The state before the block acts as if it were XORed into the first four bytes.
    mixed = block.copy()
    mixed[:4] ^= np.array([state], "<u4").view(np.uint8)
    distances = np.arange(length - 1, -1, -1)
    return int(np.bitwise_xor.reduce(_table()[distances, mixed]))


@functools.cache
def _first_row() -> list[int]:
    """Return the contribution of each last byte."""
    row: list[int] = _table()[0].tolist()
    return row


@functools.cache
def _table() -> NDArray[np.uint32]:
    """Return the contribution of each byte with k bytes behind it: [_BLOCK, 256]."""
    first = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        first = np.where(first & 1, first >> 1 ^ np.uint32(_POLYNOMIAL), first >> 1)
    rows = [first]
    for _ in range(_BLOCK - 1):
        rows.append(rows[-1] >> 8 ^ first[rows[-1] & 0xFF])
    table: NDArray[np.uint32] = np.stack(rows)
    return table
