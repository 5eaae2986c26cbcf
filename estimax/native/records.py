"""TFRecord frames: find the records in a buffer, and write records as frames.

    count, at, status, offsets = unframe(buffer, 0, size, check=True, least=1, most=100)
    framed = frame(Strings.of([b"one", b"two"]))

A frame is, little-endian: uint64 length, uint32 masked CRC-32C of the length, the data,
uint32 masked CRC-32C of the data.
"""

from __future__ import annotations

from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from estimax.core.strings import Strings
from estimax.native import loading
from estimax.native.reference import records as reference
from estimax.native.reference.records import (
    ABSURD_LENGTH,
    BAD_DATA_CRC,
    BAD_LENGTH_CRC,
    FOOTER,
    HEADER,
    NEEDS_MORE,
)
from estimax.native.string_arrays import check_spans, outside, text_of

__all__ = ["ABSURD_LENGTH", "BAD_DATA_CRC", "BAD_LENGTH_CRC", "NEEDS_MORE"]

FRAME_BYTES = HEADER + FOOTER  # around every record
HEADER_BYTES = HEADER


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
      buffer: Bytes of a file, flat and writable. Changed by the call.
      start: Where the first frame begins.
      size: Where the bytes read so far end.
      check: Whether to verify checksums.
      least: If fewer complete records than this are found, the buffer is left as it is
        and the count is 0.
      most: The largest number of records to find.

    Returns:
      A tuple (count, next, status, offsets). `next` is where the next frame begins;
      `status` says whether that frame is incomplete (NEEDS_MORE) or how it is broken.
      Record i is `buffer[offsets[i]:offsets[i + 1]]`.

    Raises:
      ValueError: The buffer has another type, or [start, size) is not within it.
    """
    if buffer.dtype != np.uint8 or buffer.ndim != 1 or not buffer.flags.carray:
        raise ValueError("the buffer must be flat, contiguous, writable uint8")
    if not 0 <= start <= size <= len(buffer) or most < 0:
        raise ValueError(
            f"[{start}, {size}) is not within a buffer of {len(buffer)} bytes"
        )
    kernels = record_kernels()
    if kernels is None:
        return reference.unframe(buffer, start, size, check, least, most)
    offsets = np.empty(most + 1, np.int64)
    arguments = (buffer, start, size, check, least, most, offsets)
    count, at, status = kernels.unframe(*arguments)
    return count, at, status, offsets[: count + 1]


def frame(records: Strings) -> NDArray[np.uint8]:
    """Return every record with its length and checksums, one after the other.

    Raises:
      InputError: The offsets of the records do not increase within their data.
    """
    data, offsets = text_of(records)
    kernels = record_kernels()
    if kernels is None:
        check_spans(data, offsets)
        return reference.frame(data, offsets)
    if not 0 <= offsets[0] <= offsets[-1] <= len(data):
        check_spans(data, offsets)
    # This size is right if the offsets increase, which the kernel checks first.
    size = max(int(offsets[-1] - offsets[0]), 0) + FRAME_BYTES * records.size
    out = np.empty(size, np.uint8)
    bad = kernels.frame(data, offsets, out)
    if bad >= 0:
        raise outside(data, offsets, bad)
    return out


def record_kernels(*, waits: bool = False) -> ModuleType | None:
    """Return the kernels for records, or None if the reference must be used.

    `waits` is for work that takes the reference longer than the compiler.
    """
    return loading.kernels("records", _agrees, waits=waits)


def _agrees(kernels: ModuleType) -> bool:
    """Return whether the kernels frame, find and check four tiny records correctly."""
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
        arguments = (0, len(given), True, 1, 8)
        found = kernels.unframe(ours, *arguments, offsets)
        *expected, ends = reference.unframe(theirs, *arguments)
        if list(found) != expected or not np.array_equal(offsets[: len(ends)], ends):
            return False
        if not np.array_equal(ours, theirs):
            return False
    return True
