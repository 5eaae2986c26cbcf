"""TFRecord files, read in blocks of records: one kernel call a block.

    for block in iter_record_blocks("train-00.tfrecord"):
        block.records              # Strings: the records, checked
        block.offsets[i]           # where record i begins in the file

    reader = RecordReader(path, "GZIP", offset=saved_offset, record=saved_number)
    block = reader.read_block()    # None at the end

A position is the byte at which a record begins and its number in the file. Bytes of
compressed files are counted after decompression: going to a place in one means
decompressing up to it, without looking at the records on the way.

The framing is, little-endian: uint64 length, uint32 CRC of the length, the data,
uint32 CRC of the data. Records before a damaged one are delivered, then the error. A
file that ends inside a header ends there, with a warning, as TensorFlow reads it.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import InputError
from estimax.core.strings import Strings
from estimax.native import records as frames
from estimax.native.buffers import BufferPool
from estimax.native.records import FRAME_BYTES, HEADER_BYTES
from estimax.wire import atomic
from estimax.wire.compression import (
    LONGEST_COMPRESSED,
    check_compression,
    compressor,
    source_of,
)
from estimax.wire.files import Pathish, is_remote, open_to_read, open_to_write

_log = logging.getLogger(__name__)

# Larger ones fall out of the processor's caches before they are parsed. Where so many
# rows are wanted that they need more, the next one is larger.
BLOCK_BYTES, _MOST_BYTES = 1 << 20, 8 << 20


class RecordError(InputError):
    """A damaged record; `record` is its number, `offset` the byte where it begins."""

    def __init__(self, message: str, record: int, offset: int) -> None:
        super().__init__(message)
        self.record = record
        self.offset = offset


@dataclass(frozen=True, eq=False)
class RecordBlock:
    """Records that follow each other in a file.

    `start` is the byte at which the first begins and `first` its number in the file.
    """

    path: str
    records: Strings
    start: int
    first: int

    def __len__(self) -> int:
        return len(self.records)

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Where each record begins in the file, and last, where the next block does."""
        sizes = self.records.offsets - self.records.offsets[0]
        frames = FRAME_BYTES * np.arange(len(sizes), dtype=np.int64)
        offsets: NDArray[np.int64] = self.start + sizes + frames
        return offsets

    @property
    def end(self) -> int:
        """Where the next block begins in the file."""
        size = self.records.offsets[-1] - self.records.offsets[0]
        return int(self.start + size + FRAME_BYTES * len(self))

    def name(self, i: int) -> str:
        """Where record i of the block comes from, for messages."""
        return f"{self.path}, record {self.first + i} (byte {self.offsets[i]})"


def iter_record_blocks(
    path: Pathish,
    compression: str | None = None,
    start_offset: int = 0,
    *,
    start_record: int = 0,
    block_bytes: int = BLOCK_BYTES,
) -> Iterator[RecordBlock]:
    """Read a file from a record's beginning to the end, about `block_bytes` at once.

    >>> import os, tempfile
    >>> from estimax.wire.records import write_records
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "a.tfrecord")
    ...     write_records(path, [b"one", b"three"])
    ...     [(b.records.tolist(), b.end) for b in iter_record_blocks(path)]
    [([b'one', b'three'], 40)]
    """
    with RecordReader(
        path,
        compression,
        offset=start_offset,
        record=start_record,
        block_bytes=block_bytes,
    ) as reader:
        while (block := reader.read_block()) is not None:
            yield block


def read_records(path: Pathish, compression: str | None = None) -> Strings:
    """All records of a file at once."""
    from estimax.core.strings import concatenate

    blocks = [block.records for block in iter_record_blocks(path, compression)]
    return concatenate(blocks) if blocks else Strings.of([])


def find_record(
    paths: Iterable[Pathish],
    data: bytes,
    compression: str | None = None,
    *,
    seconds: float = math.inf,
) -> str | None:
    """Where a record is, by its bytes: file, number and byte; None if nowhere.

    For errors about an example that has come through shuffles and batches. The search
    ends without a result after `seconds`.

    >>> import os, tempfile
    >>> from estimax.wire.records import write_records
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "a.tfrecord")
    ...     write_records(path, [b"one", b"two"])
    ...     find_record([path], b"two").removeprefix(folder)
    '/a.tfrecord, record 1 (byte 19)'
    """
    deadline = time.monotonic() + seconds
    for path in paths:
        for block in iter_record_blocks(path, compression):
            if time.monotonic() > deadline:
                return None
            for i in np.flatnonzero(block.records.lengths == len(data)).tolist():
                if block.records[i] == data:
                    return block.name(i)
    return None


class RecordReader:
    """One pass over a file, from `offset`, at which record number `record` begins.

    `compression` is None, "GZIP" or "ZLIB". `check=False` leaves out the checksums of
    files whose storage has its own; lengths are always kept within the file.
    """

    def __init__(
        self,
        path: Pathish,
        compression: str | None = None,
        *,
        offset: int = 0,
        record: int = 0,
        block_bytes: int = BLOCK_BYTES,
        check: bool = True,
    ) -> None:
        self._path = str(path)
        self._compression = check_compression(compression, self._path)
        self._block_bytes = max(int(block_bytes), FRAME_BYTES)
        self._check = check
        self._offset, self._record = int(offset), int(record)
        self._file = open_to_read(path)
        self._source = source_of(self._file, self._compression)
        self._buffers = BufferPool(np.uint8)
        self._buffer = np.empty(0, np.uint8)
        # What is read already and not given out yet: the buffer between these.
        self._at = self._size = 0
        self._is_end = False  # of the file
        self._error: RecordError | None = None
        self._has_warned = False
        self._skip_to_offset()

    @property
    def position(self) -> tuple[int, int]:
        """The byte at which the next block begins, and its first record's number."""
        return self._offset, self._record

    def read_block(self, rows: int | None = None) -> RecordBlock | None:
        """The next records, at least one; None at the end of the file.

        There are `rows` of them if so many fit the buffer, else as many as do. A
        damaged file gives the records before the damage, then a `RecordError`.
        """
        if self._error is not None:
            raise self._error
        while True:
            room = (self._size - self._at) // FRAME_BYTES
            most = room if rows is None else min(rows, room)
            # Half a block now and half from the next buffer would have to be joined.
            least = 1 if self._at == 0 or self._is_end else rows or room + 1
            count, at, status, offsets = frames.unframe(
                *(self._buffer, self._at, self._size),
                check=self._check,
                least=least,
                most=most,
            )
            if count or status or self._is_end:
                break
            # From 0 on, it is one record larger than the buffer.
            is_large = self._at == 0 and self._size > 0
            self._fill(max(self._block_bytes, self._larger() if is_large else 0))
        if rows is not None and self._at == 0 and count < rows:
            larger = min(2 * self._block_bytes, _MOST_BYTES)
            self._block_bytes = max(self._block_bytes, larger)
        block = self._block(self._buffer, offsets.copy())
        self._offset, self._record = self._offset + at - self._at, self._record + count
        self._at = at
        is_rest = count < most or most == room
        is_cut = self._is_end and is_rest and self._size - at >= HEADER_BYTES
        if status or is_cut or (self._is_end and is_rest and self._source.failure):
            error = self._fail(self._describe(status, at))
            if not count:
                raise error
        elif not count and self._size > at:
            self._warn_of_cut_header(self._size - at)
        return block if count else None

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> RecordReader:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _skip_to_offset(self) -> None:
        try:
            self._source.skip(self._offset)
        except (EOFError, OSError) as error:
            self.close()
            raise RecordError(
                f"{self._where()}: cannot go to this position: {error}. Has the file "
                "changed?",
                self._record,
                self._offset,
            ) from error

    def _fill(self, size: int) -> None:
        """Go on in a buffer of what is left of this one, and what follows it."""
        rest = self._buffer[self._at : self._size]
        buffer = self._buffers.take(max(size, len(rest) + FRAME_BYTES))
        buffer[: len(rest)] = rest
        self._size = len(rest) + self._source.readinto(buffer.data[len(rest) :])
        self._buffer, self._at = buffer, 0
        self._is_end = self._size < len(buffer)

    def _larger(self) -> int:
        """How large a buffer the record at the beginning of this one needs.

        A damaged length must not ask for memory that the file does not fill: a plain
        file is asked for its size, and a compressed one gets twice what it has filled.
        """
        length = self._length(0)
        needed = length + FRAME_BYTES
        left = self._source.left()
        if left is not None:
            if needed > self._size + left:
                raise self._fail(_cut_off(length, self._size + left - HEADER_BYTES))
            return needed
        if self._compression and length > LONGEST_COMPRESSED:
            raise self._fail(
                f"it should have {length} bytes; in a compressed file a record may "
                f"have {LONGEST_COMPRESSED >> 20} MB. Decompress the file if it is "
                "right."
            )
        return min(needed, 2 * len(self._buffer))

    def _length(self, at: int) -> int:
        """The length that the header in the buffer says."""
        return int(self._buffer[at : at + 8].view("<u8")[0])

    def _fail(self, what: str) -> RecordError:
        """Return the error to raise, now and at every further read."""
        self._error = RecordError(
            f"{self._where()}: {what}", self._record, self._offset
        )
        return self._error

    def _warn_of_cut_header(self, left: int) -> None:
        if self._has_warned:
            return
        self._has_warned = True
        _log.warning(
            "%s: the file ends inside the header of a record, so it was probably cut "
            "off. Its last %d bytes are ignored, as TensorFlow does; %d records were "
            "read.",
            *(self._where(), left, self._record),
        )

    def _block(
        self, buffer: NDArray[np.uint8], offsets: NDArray[np.int64]
    ) -> RecordBlock:
        records = Strings(buffer, offsets, (len(offsets) - 1,))
        return RecordBlock(self._path, records, self._offset, self._record)

    def _describe(self, status: int, at: int) -> str:
        """What is wrong with the record at a place of the buffer."""
        if status == frames.BAD_DATA_CRC:
            return "the checksum of its data is wrong: the file is damaged."
        if status:
            return (
                "its length and the checksum of its length do not agree. The file is "
                "damaged, is compressed (pass compression 'GZIP' or 'ZLIB'), or holds "
                "no TFRecords."
            )
        if self._source.failure:
            return self._source.failure
        return _cut_off(self._length(at), self._size - at - HEADER_BYTES)

    def _where(self) -> str:
        return f"{self._path}, record {self._record} (byte {self._offset})"


def _cut_off(length: int, found: int) -> str:
    return (
        f"it should have {length} bytes and the file ends after {found}: it was cut "
        "off."
    )


_PENDING_BYTES = 1 << 20


@dataclass(frozen=True)
class TFRecordOptions:
    """How a file is compressed: None, "GZIP" or "ZLIB"; levels as in zlib.

    >>> TFRecordOptions("GZIP").compression_type
    'GZIP'
    """

    compression_type: str | None = None
    compression_level: int | None = None

    def __post_init__(self) -> None:
        check_compression(self.compression_type, "TFRecordOptions")


class TFRecordWriter:
    """Writes records to a file, which grows as they come; `close` completes it.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "a.tfrecord")
    ...     with TFRecordWriter(path) as writer:
    ...         writer.write(b"abc")
    ...     os.path.getsize(path)
    19
    """

    def __init__(
        self, path: Pathish, options: TFRecordOptions | str | None = None
    ) -> None:
        if not isinstance(options, TFRecordOptions):
            options = TFRecordOptions(options)
        self._file: BinaryIO | None = open_to_write(path)
        self._frames = _Frames(self._file, options)
        self._path = str(path)
        self._pending: list[bytes] = []
        self._pending_bytes = 0

    def write(self, record: bytes) -> None:
        """Add one record."""
        if not isinstance(record, bytes | bytearray | memoryview):
            raise InputError(
                f"{self._path}: a record must be bytes, got {type(record).__name__}; "
                "serialise examples first."
            )
        self._check_open()
        self._pending.append(bytes(record))
        self._pending_bytes += len(record)
        if self._pending_bytes > _PENDING_BYTES:
            self._drain()

    def write_all(self, records: Strings | Iterable[bytes]) -> None:
        """Add many records."""
        self._check_open()
        self._drain()
        self._frames.write(records)

    def flush(self) -> None:
        """Hand everything written so far to the system, readable by others."""
        self._check_open()
        self._drain()
        self._frames.flush()

    def close(self) -> None:
        """Complete the file; further writes are an error."""
        if self._file is None:
            return
        with self._file:
            self._drain()
            self._frames.finish()
        self._file = None

    def __enter__(self) -> TFRecordWriter:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _drain(self) -> None:
        if self._pending:
            self._frames.write(self._pending)
            self._pending, self._pending_bytes = [], 0

    def _check_open(self) -> None:
        if self._file is None:
            raise InputError(f"{self._path}: the writer is closed.")


def write_records(
    path: Pathish,
    records: Strings | Iterable[bytes],
    options: TFRecordOptions | str | None = None,
) -> None:
    """Write a file of records whole; readers see all of it or what was there before.

    On remote storage the file appears as that storage lets it.
    """
    if not isinstance(options, TFRecordOptions):
        options = TFRecordOptions(options)
    opened = open_to_write(path) if is_remote(path) else atomic.file(path)
    with contextlib.ExitStack() as stack:
        frames = _Frames(stack.enter_context(opened), options)
        frames.write(records)
        frames.finish()


class _Frames:
    """Framed, then compressed, records on their way into a file."""

    def __init__(self, file: BinaryIO, options: TFRecordOptions) -> None:
        self._file = file
        level = options.compression_level
        kind = options.compression_type
        self._packer = (
            compressor(kind, -1 if level is None else level) if kind else None
        )

    def write(self, records: Strings | Iterable[bytes]) -> None:
        if not isinstance(records, Strings):
            records = Strings.of(list(records))
        data = frames.frame(records).data
        self._file.write(self._packer.compress(data) if self._packer else data)

    def flush(self) -> None:
        if self._packer:
            self._file.write(self._packer.flush(zlib.Z_SYNC_FLUSH))
        self._file.flush()

    def finish(self) -> None:
        if self._packer:
            self._file.write(self._packer.flush())
