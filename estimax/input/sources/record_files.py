"""Readers of files of byte records: lines, records of fixed length, TFRecords.

    FileBlocks(paths, lambda: LineReader(None), "TextLineDataset")
    FileBlocks(paths, lambda: TFRecordReader("GZIP"), "TFRecordDataset")

Each reader returns blocks of whole records as `Strings`. Nothing is decoded: a line is
bytes. A line ends at LF alone, and every CR is removed, as in TensorFlow.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import InputError
from estimax.core.strings import Strings
from estimax.formats.records import BLOCK_BYTES as RECORD_BLOCK_BYTES
from estimax.formats.records import RecordReader, find_record
from estimax.input.sources.file_blocks import (
    LONGEST_ROW,
    BlockStart,
    OpenFile,
    UnreadableError,
)
from estimax.input.streams.chunks import Columns

BLOCK_BYTES = 4 << 20
_LF, _CR = 0x0A, 0x0D
# For batches below `_MANY` records, a TFRecord block has about `_ROWS` records, and
# several batches are cut from it.
_MANY, _ROWS = 256, 1024


class LineReader:
    """Reads whole lines; a block starts at (byte, number of its first line)."""

    def __init__(self, compression: str | None) -> None:
        self._open = OpenFile(compression)
        self._is_compressed = bool(compression)

    def start(self, path: str) -> BlockStart:
        """Return the position of the first byte."""
        return (0, 1)

    def read(
        self, path: str, start: BlockStart, rows: int
    ) -> tuple[Columns, BlockStart] | None:
        """Return as many whole lines as fit a block, at least one."""
        offset, line = start
        size = BLOCK_BYTES
        while True:
            data = self._open.get(path).read_at(offset, size)
            if not data:
                return None
            end = data.rfind(b"\n") + 1 if len(data) == size else len(data)
            if end:
                break
            # One line is longer than the block. In a plain file it cannot be longer
            # than the file; in a compressed file it may decompress to any length.
            if self._is_compressed and size >= LONGEST_ROW:
                raise UnreadableError(
                    f"{path}, line {line} (byte {offset}): the line is longer than "
                    f"{LONGEST_ROW >> 20} MB, the limit in a compressed file. Is this "
                    "a text file? Decompress it to read longer lines."
                )
            size *= 2
        lines = split_lines(np.frombuffer(data, np.uint8)[:end])
        return Columns(lines, len(lines)), (offset + end, line + len(lines))

    def close(self) -> None:
        """Close the file."""
        self._open.close()


def split_lines(data: NDArray[np.uint8]) -> Strings:
    r"""Split bytes at LF and remove every CR; the last line needs no LF.

    >>> split_lines(np.frombuffer(b"a\r\n\nb", np.uint8)).tolist()
    [b'a', b'', b'b']
    """
    breaks = np.flatnonzero(data == _LF)
    if len(data) and (not len(breaks) or breaks[-1] != len(data) - 1):
        breaks = np.append(breaks, len(data))  # where the missing LF would be
    is_text = data != _LF
    if (data == _CR).any():
        is_text &= data != _CR
        ends = np.concatenate([[0], np.cumsum(is_text)])[breaks]
    else:
        ends = breaks - np.arange(len(breaks))
    offsets = np.concatenate([[0], ends]).astype(np.int64)
    return Strings(data[is_text], offsets, (len(breaks),))


@dataclass(frozen=True)
class FixedLength:
    """The layout of a file: a header, records of one length, a footer."""

    record_bytes: int
    header_bytes: int = 0
    footer_bytes: int = 0
    compression: str | None = None


@dataclass(eq=False)
class FixedLengthReader:
    """Reads records of one length; a block starts at (byte, number of its record)."""

    form: FixedLength
    _open: OpenFile = field(init=False)

    def __post_init__(self) -> None:
        self._open = OpenFile(self.form.compression)

    def start(self, path: str) -> BlockStart:
        """Return the position after the header; raise if the file is shorter."""
        size = self.form.header_bytes
        found = len(self._open.get(path).read_at(0, size))
        if found and found < size:
            raise UnreadableError(
                f"{path}: expected a header of {size} bytes, found a file of {found}. "
                "Was the file cut off?"
            )
        return (min(size, found), 0)

    def read(
        self, path: str, start: BlockStart, rows: int
    ) -> tuple[Columns, BlockStart] | None:
        """Return as many records as fit a block, without the footer."""
        offset, number = start
        length, footer = self.form.record_bytes, self.form.footer_bytes
        size = max(1, BLOCK_BYTES // length) * length
        data = self._open.get(path).read_at(offset, size + footer)
        usable = len(data) - footer
        if usable <= 0:
            return None
        count = usable // length
        if len(data) < size + footer and usable % length:
            raise UnreadableError(
                f"{path}, record {number + count} (byte {offset + count * length}): "
                f"expected records of {length} bytes and a footer of {footer}, found "
                f"{usable % length} bytes too many. Was the file cut off?"
            )
        records = np.frombuffer(data, np.uint8)[: count * length]
        offsets = np.arange(count + 1, dtype=np.int64) * length
        after = (offset + count * length, number + count)
        return Columns(Strings(records, offsets, (count,)), count), after

    def close(self) -> None:
        """Close the file."""
        self._open.close()


class TFRecordReader:
    """Reads TFRecords; a block starts at (byte, number of its first record)."""

    def __init__(self, compression: str | None) -> None:
        self._compression = compression
        self._path = ""
        self._reader: RecordReader | None = None

    def start(self, path: str) -> BlockStart:
        """Return the position of the first byte."""
        return (0, 0)

    def read(
        self, path: str, start: BlockStart, rows: int
    ) -> tuple[Columns, BlockStart] | None:
        """Return a block of records; reopen the file unless it is at that position."""
        reader = self._reader
        if reader is None or self._path != path or reader.position != start:
            self.close()
            offset, record = start
            reader = RecordReader(
                path,
                self._compression,
                offset=offset,
                record=record,
                block_bytes=RECORD_BLOCK_BYTES,
            )
            # Close the file also if the iterator is garbage-collected without close().
            weakref.finalize(self, reader.close)
            self._reader, self._path = reader, path
        # Whole batches, so that no large batch must be joined from two blocks.
        batches = 1 if rows >= _MANY else -(-_ROWS // rows)
        block = reader.read_block(batches * rows)
        if block is None:
            return None
        return Columns(block.records, len(block)), reader.position

    def find(self, path: str, data: bytes, seconds: float) -> str | None:
        """Return where a record is, if this file has it and it is found in time."""
        try:
            return find_record([path], data, self._compression, seconds=seconds)
        except (InputError, OSError):  # the file is damaged or gone
            return None

    def close(self) -> None:
        """Close the file."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
