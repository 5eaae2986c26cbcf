"""GZIP and ZLIB streams, read into buffers and written piece by piece.

Several members in a row read as one, as files that were joined with `cat` have them.
"""

from __future__ import annotations

import zlib
from typing import BinaryIO, Protocol

from estimax.core.errors import InputError, did_you_mean

_PIECE = 1 << 18
# zlib's "window bits" tell the formats apart: 15 is ZLIB, and 16 more is GZIP.
_WINDOW_BITS = {"GZIP": 31, "ZLIB": 15}


class Source(Protocol):
    """Bytes that are read in order."""

    failure: zlib.error | None  # why the last read ended early, if not by the end

    def readinto(self, view: memoryview) -> int:
        """Fill the view; less than its length only at the end or at a failure."""

    def skip(self, count: int) -> None:
        """Go on `count` bytes further."""


def check_compression(compression: str | None, where: str) -> str:
    """The name, with None as ""; anything but "", "GZIP" and "ZLIB" is refused."""
    name = compression or ""
    if name and name not in _WINDOW_BITS:
        near = did_you_mean(name, _WINDOW_BITS)
        raise InputError(
            f"{where}: compression must be None, '', 'GZIP' or 'ZLIB', got {name!r}"
            f"{near}"
        )
    return name


def source_of(file: BinaryIO, compression: str) -> Source:
    """Read a file's bytes, or what they decompress to."""
    if compression:
        return _Inflated(file, _WINDOW_BITS[compression])
    return _Plain(file)


def compressor(compression: str, level: int = -1) -> zlib._Compress:
    """What turns pieces into a compressed stream."""
    return zlib.compressobj(level, zlib.DEFLATED, _WINDOW_BITS[compression])


class _Plain:
    failure: zlib.error | None = None

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def readinto(self, view: memoryview) -> int:
        filled = 0
        # Raw and remote files may return less than was asked for before the end.
        while filled < len(view):
            got = self._file.readinto(view[filled:])  # type: ignore[attr-defined]
            if not got:
                break
            filled += got
        return filled

    def skip(self, count: int) -> None:
        self._file.seek(count, 1)


class _Inflated:
    def __init__(self, file: BinaryIO, window_bits: int) -> None:
        self._file = file
        self.failure: zlib.error | None = None
        self._window_bits = window_bits
        self._stream = zlib.decompressobj(window_bits)
        self._has_begun = False  # the present member
        self._input = b""

    def readinto(self, view: memoryview) -> int:
        filled = 0
        while filled < len(view):
            try:
                piece = self._some(len(view) - filled)
            except zlib.error as error:
                # What came before it is good, and wanted.
                self.failure = error
                break
            if not piece:
                break
            view[filled : filled + len(piece)] = piece
            filled += len(piece)
        return filled

    def skip(self, count: int) -> None:
        while count:
            piece = self._some(min(count, _PIECE))
            if not piece:
                raise zlib.error("the data ends before the position")
            count -= len(piece)

    def _some(self, most: int) -> bytes:
        """Between 1 and `most` bytes; none at the end."""
        while True:
            if not self._input:
                self._input = self._file.read(_PIECE)
            if self._stream.eof:
                # Zeros between and behind members are padding, as of tapes.
                self._input = self._input.lstrip(b"\0")
                if self._input:
                    self._stream = zlib.decompressobj(self._window_bits)
                    self._has_begun = False
                    continue
                self._input = self._file.read(_PIECE)
                if not self._input:
                    return b""
                continue
            if not self._input and not self._has_begun:
                return b""
            at_end = not self._input
            piece = self._stream.decompress(self._input, most)
            self._has_begun = True
            self._input = self._stream.unconsumed_tail or self._stream.unused_data
            if piece:
                return piece
            if at_end and not self._stream.eof:
                raise zlib.error("the compressed data is cut off")
