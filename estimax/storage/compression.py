"""Read plain, GZIP and ZLIB files into buffers, and make compressors for writing.

    source = source_of(files.open_to_read("a.gz"), "GZIP")
    filled = source.readinto(view)        # short only at the end, or at a failure
    source.failure                        # what is wrong with the file, or None

Several compressed members in a row are read as one, as in files joined with `cat`.
Reading allocates 256 KB of the file and what the caller requests, however large the
decompressed data is.
"""

from __future__ import annotations

import zlib
from typing import BinaryIO, Protocol

from estimax.core.errors import InputError, did_you_mean
from estimax.storage.files import size_of

# The most bytes that a record of a compressed file may have. A few kilobytes can
# decompress to gigabytes, so the size of the file does not limit the size of a record.
LONGEST_COMPRESSED = 256 << 20
_PIECE = 1 << 18
# zlib's "window bits" tell the formats apart: 15 is ZLIB, and 16 more is GZIP.
_WINDOW_BITS = {"GZIP": 31, "ZLIB": 15}


class ByteSource(Protocol):
    """The bytes of a file, decompressed if need be, read in order."""

    failure: str | None  # a sentence on why the last read failed, or None

    def readinto(self, view: memoryview) -> int:
        """Fill the view; return fewer bytes only at the end or at a failure."""

    def skip(self, count: int) -> None:
        """Skip `count` bytes; raise `EOFError` if the data ends before."""

    def left(self) -> int | None:
        """Return how many bytes are left; None if that is unknown."""


def check_compression(compression: str | None, where: str) -> str:
    """Return the name, "" for None; raise `InputError` if it is unknown."""
    name = compression or ""
    if name and name not in _WINDOW_BITS:
        near = did_you_mean(name, _WINDOW_BITS)
        raise InputError(
            f"{where}: compression must be None, '', 'GZIP' or 'ZLIB', got {name!r}"
            f"{near}"
        )
    return name


def source_of(file: BinaryIO, compression: str) -> ByteSource:
    """Return the bytes of a file, decompressed unless `compression` is ""."""
    return _Inflated(file, compression) if compression else _Plain(file)


def compressor(compression: str, level: int = -1) -> zlib._Compress:
    """Return a compressor with the methods `compress` and `flush`."""
    return zlib.compressobj(level, zlib.DEFLATED, _WINDOW_BITS[compression])


class _Plain:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._size = size_of(file)  # None for remote files
        self.failure: str | None = None

    def readinto(self, view: memoryview) -> int:
        filled = 0
        # Raw and remote files may return less than was asked for before the end.
        while filled < len(view):
            got = self._file.readinto(view[filled:])  # type: ignore[attr-defined]
            if not got:
                self.failure = _shrunk(self._file, self._size)
                break
            filled += got
        return filled

    def skip(self, count: int) -> None:
        at = self._file.tell()
        if self._size is not None and at + count > self._size:
            raise EOFError(f"the file has {self._size} bytes")
        self._file.seek(count, 1)

    def left(self) -> int | None:
        size = size_of(self._file)
        return None if size is None else max(size - self._file.tell(), 0)


class _Inflated:
    def __init__(self, file: BinaryIO, compression: str) -> None:
        self._file = file
        self._size = size_of(file)
        self.failure: str | None = None
        self._compression = compression
        self._stream = zlib.decompressobj(_WINDOW_BITS[compression])
        self._has_begun = False  # whether the present member has produced bytes
        self._input = b""

    def readinto(self, view: memoryview) -> int:
        filled = 0
        # The bytes before a failure are good, and are returned.
        while filled < len(view) and self.failure is None:
            # In pieces, because `decompress` returns a copy in addition to the view.
            piece = self._some(min(len(view) - filled, _PIECE))
            if not piece:
                break
            view[filled : filled + len(piece)] = piece
            filled += len(piece)
        return filled

    def skip(self, count: int) -> None:
        while count:
            piece = self._some(min(count, _PIECE))
            if not piece:
                raise EOFError(self.failure or "the data ends before this position")
            count -= len(piece)

    def left(self) -> int | None:
        return None

    def _some(self, most: int) -> bytes:
        """Return 1 to `most` bytes; none at the end or at a failure."""
        # Each turn feeds the decompressor the input at hand, at most 256 KB. A turn may
        # yield no bytes: a member may end, or begin with a header only.
        while True:
            if not self._input:
                self._input = self._file.read(_PIECE)
            if self._stream.eof:
                # Zeros between and after members are padding, as on tapes.
                self._input = self._input.lstrip(b"\0")
                if self._input:
                    self._stream = zlib.decompressobj(_WINDOW_BITS[self._compression])
                    self._has_begun = False
                    continue
                self._input = self._file.read(_PIECE)
                if not self._input:
                    self.failure = _shrunk(self._file, self._size)
                    return b""
                continue
            if not self._input and not self._has_begun:
                return b""
            at_end = not self._input
            # The byte of the file at which this input begins, for messages.
            at = self._file.tell() - len(self._input)
            try:
                piece = self._stream.decompress(self._input, most)
            except zlib.error as error:
                self.failure = (
                    f"the file is not {self._compression}, or is damaged, at or after "
                    f"byte {at} of the file ({error}). Pass the compression that the "
                    "file was written with; uncompressed bytes may not follow."
                )
                return b""
            self._has_begun = True
            self._input = self._stream.unconsumed_tail or self._stream.unused_data
            if piece:
                return piece
            if at_end and not self._stream.eof:
                self.failure = _shrunk(self._file, self._size) or (
                    f"the compressed data is cut off at byte {at} of the file, where "
                    "the file ends. Restore the whole file."
                )
                return b""


def _shrunk(file: BinaryIO, size_before: int | None) -> str | None:
    """Return a sentence if the file is shorter than when it was opened, else None."""
    size = size_of(file)
    if size_before is None or size is None or size >= size_before:
        return None
    return (
        f"the file had {size_before} bytes when it was opened and has {size} now: it "
        "was changed while it was being read. Read it again from the beginning."
    )
