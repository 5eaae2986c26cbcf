"""TFRecord frames: finding records in a buffer, and writing them.

    count, at, status, offsets = unframe(buffer, 0, size, check=True, least=1, most=100)
    framed = frame(Strings.of([b"one", b"two"]))

A frame is, little-endian: uint64 length, uint32 CRC of the length, the data, uint32 CRC
of the data.
"""

from __future__ import annotations

from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from estimax.core.strings import Strings
from estimax.native import loading
from estimax.native.checks import check_spans, outside, text_of
from estimax.native.reference import records as reference
from estimax.native.reference.records import (
    ABSURD_LENGTH,
    BAD_DATA_CRC,
    BAD_LENGTH_CRC,
    FOOTER,
    HEADER,
    NEEDS_MORE,
)

__all__ = ["ABSURD_LENGTH", "BAD_DATA_CRC", "BAD_LENGTH_CRC", "NEEDS_MORE"]

FRAME_BYTES = HEADER + FOOTER  # around every record
HEADER_BYTES = HEADER


def crc32c(data: NDArray[np.uint8]) -> int:
    """Return the CRC-32C of flat bytes."""
    flat = np.ascontiguousarray(data, np.uint8).reshape(-1)
    kernels = _kernels()
    return reference.crc32c(flat) if kernels is None else int(kernels.crc32c(flat))


def unframe(
    buffer: NDArray[np.uint8],
    start: int,
    size: int,
    *,
    check: bool,
    least: int,
    most: int,
) -> tuple[int, int, int, NDArray[np.int64]]:
    """Find up to `most` records in `buffer[start:size]` and move them together there.

    Args:
      buffer: Flat and writable.
      start: Where the first frame begins.
      size: Where what is read of the file ends.
      check: Whether checksums are compared.
      least: Fewer intact records than this are left as they are; the count is then 0.
      most: The most records to find.

    Returns:
      The number of records; where the next frame begins; whether that one is incomplete
      (NEEDS_MORE) or how it is broken; and the offsets: record i is
      `buffer[offsets[i]:offsets[i + 1]]`.
    """
    if buffer.dtype != np.uint8 or buffer.ndim != 1 or not buffer.flags.carray:
        raise ValueError("the buffer must be flat, contiguous, writable uint8")
    if not 0 <= start <= size <= len(buffer) or most < 0:
        raise ValueError(
            f"[{start}, {size}) is not within a buffer of {len(buffer)} bytes"
        )
    kernels = _kernels()
    if kernels is None:
        return reference.unframe(buffer, start, size, check, least, most)
    offsets = np.empty(most + 1, np.int64)
    told = (buffer, start, size, check, least, most, offsets)
    count, at, status = kernels.unframe(*told)
    return count, at, status, offsets[: count + 1]


def frame(records: Strings) -> NDArray[np.uint8]:
    """Return every record with its length and checksums, one after the other."""
    data, offsets = text_of(records)
    kernels = _kernels()
    if kernels is None:
        check_spans(data, offsets)
        return reference.frame(data, offsets)
    if not 0 <= offsets[0] <= offsets[-1] <= len(data):
        check_spans(data, offsets)
    # Right if the offsets increase, which the kernel checks before it writes.
    size = max(int(offsets[-1] - offsets[0]), 0) + FRAME_BYTES * records.size
    out = np.empty(size, np.uint8)
    bad = kernels.frame(data, offsets, out)
    if bad >= 0:
        raise outside(data, offsets, bad)
    return out


def _kernels() -> ModuleType | None:
    return loading.kernels("records", _agrees)


def _agrees(kernels: ModuleType) -> bool:
    """Return whether four tiny records are framed, found and checked as they must."""
    text = Strings.of([b"one", b"", bytes(range(100)), b"four"])
    framed = reference.frame(text.data, text.offsets)
    written = np.empty(len(framed), np.uint8)
    if kernels.frame(text.data, text.offsets, written) != -1:
        return False
    if not np.array_equal(written, framed) or kernels.crc32c_by_table(framed) != (
        kernels.crc32c(framed)
    ):
        return False
    broken = framed.copy()
    broken[FRAME_BYTES + 3 + FRAME_BYTES + HEADER + 5] ^= 1
    for given in (framed, broken):
        ours, theirs = given.copy(), given.copy()
        offsets = np.empty(9, np.int64)
        told = (0, len(given), True, 1, 8)
        found = kernels.unframe(ours, *told, offsets)
        *expected, ends = reference.unframe(theirs, *told)
        if list(found) != expected or not np.array_equal(offsets[: len(ends)], ends):
            return False
        if not np.array_equal(ours, theirs):
            return False
    return True
