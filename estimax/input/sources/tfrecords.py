"""TFRecord files as a source: blocks of records, checked, resumed by byte offset.

FileBlocks(paths, lambda: TFRecordReader("GZIP"), "TFRecordDataset")
"""

from __future__ import annotations

import weakref

from estimax.core.errors import InputError
from estimax.input.sources.file_blocks import Place
from estimax.input.streams.chunks import Columns
from estimax.wire import RecordReader, find_record
from estimax.wire.records import BLOCK_BYTES

# Small batches are cut from a block of so many records.
_MANY, _ROWS = 256, 1024


class TFRecordReader:
    """Blocks of records; a place is (byte, number of the first record)."""

    def __init__(self, compression: str | None) -> None:
        self._compression = compression
        self._path = ""
        self._reader: RecordReader | None = None

    def start(self, path: str) -> Place:
        """The first byte."""
        return (0, 0)

    def read(self, path: str, place: Place, rows: int) -> tuple[Columns, Place] | None:
        """The records there: read on where the file is open, else seek."""
        reader = self._reader
        if reader is None or self._path != path or reader.position != place:
            self.close()
            offset, record = place
            reader = RecordReader(
                path,
                self._compression,
                offset=offset,
                record=record,
                block_bytes=BLOCK_BYTES,
            )
            # An iterator that is merely forgotten must not leave its file open.
            weakref.finalize(self, reader.close)
            self._reader, self._path = reader, path
        # Whole batches, so that large ones need not be joined from two blocks.
        batches = 1 if rows >= _MANY else -(-_ROWS // rows)
        block = reader.read_block(batches * rows)
        if block is None:
            return None
        return Columns(block.records, len(block)), reader.position

    def find(self, path: str, data: bytes, seconds: float) -> str | None:
        """Where a record is, if it is in this file and found in time."""
        try:
            return find_record([path], data, self._compression, seconds=seconds)
        except (InputError, OSError):  # what is damaged or gone does not have it
            return None

    def close(self) -> None:
        """Close the file."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
