"""TFRecord files: read in blocks of records, and written.

    for block in iter_record_blocks("train-00.tfrecord"):
        block.records              # Strings: the records, verified
        block.offsets[i]           # where record i begins in the file

    reader = RecordReader(path, "GZIP", offset=saved_offset, record=saved_number)
    block = reader.read_block()    # None at the end

    with TFRecordWriter("a.tfrecord") as writer:
        writer.write(b"one")
    write_records("b.tfrecord", [b"one", b"two"])    # the whole file or nothing

The framing is, little-endian: uint64 length, uint32 CRC of the length, the data,
uint32 CRC of the data. One kernel call unpacks a block of records.

A position is the byte at which a record begins and its number in the file. In a
compressed file, bytes are counted after decompression: going to a position decompresses
everything before it, but does not look at the records.

The records before a damaged one are returned first, then the error is raised. A file
that ends inside a header ends there with a warning, as in TensorFlow.
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
from estimax.storage import atomic
from estimax.storage.compression import (
    LONGEST_COMPRESSED,
    check_compression,
    compressor,
    source_of,
)
from estimax.storage.files import Pathish, is_remote, open_to_read, open_to_write

_log = logging.getLogger(__name__)

# The size of a block. A larger one leaves the processor's caches before it is parsed.
# If more rows are requested than fit, the size doubles up to `_MOST_BYTES`.
BLOCK_BYTES, _MOST_BYTES = 1 << 20, 8 << 20
# How many bytes a TFRecordWriter collects before it frames them in one kernel call.
_PENDING_BYTES = 1 << 20


class RecordError(InputError):
    """A record of a TFRecord file that is damaged or cut off.

    Attributes:
      record: The number of the record in its file, from 0.
      offset: The byte at which it begins, after decompression.
    """

    def __init__(self, message: str, record: int, offset: int) -> None:
        super().__init__(message)
        self.record = record
        self.offset = offset


@dataclass(frozen=True, eq=False)
class RecordBlock:
    """Consecutive records of a file."""

    path: str
    records: Strings
    start: int  # the byte at which the first record begins
    first: int  # the number of the first record in the file

    def __len__(self) -> int:
        return len(self.records)

    @property
    def offsets(self) -> NDArray[np.int64]:
        """The byte at which each record begins; the last one is that of the next block.

        The array has one item more than there are records.
        """
        sizes = self.records.offsets - self.records.offsets[0]
        frames = FRAME_BYTES * np.arange(len(sizes), dtype=np.int64)
        offsets: NDArray[np.int64] = self.start + sizes + frames
        return offsets

    @property
    def end(self) -> int:
        """The byte at which the next block begins."""
        size = self.records.offsets[-1] - self.records.offsets[0]
        return int(self.start + size + FRAME_BYTES * len(self))

    def name(self, i: int) -> str:
        """Return the file, number and byte of record i of the block, for messages."""
        return f"{self.path}, record {self.first + i} (byte {self.offsets[i]})"

    def __repr__(self) -> str:
        return f"RecordBlock({self.name(0)}: {len(self)} records)"


def iter_record_blocks(
    path: Pathish,
    compression: str | None = None,
    start_offset: int = 0,
    *,
    start_record: int = 0,
    block_bytes: int = BLOCK_BYTES,
) -> Iterator[RecordBlock]:
    """Yield the records of a file in blocks of about `block_bytes` bytes.

    Reading starts at byte `start_offset`, where record number `start_record` begins.

    >>> import os, tempfile
    >>> from estimax.formats.records import write_records
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
    """Return all records of a file."""
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
    """Find a record by its bytes; return its file, number and byte, for messages.

    Errors about an example that went through shuffles and batches use it. Return None
    if no file has the record, or if the search takes more than `seconds`.

    >>> import os, tempfile
    >>> from estimax.formats.records import write_records
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
    """Reads a file in blocks, from byte `offset`, where record number `record` begins.

    `compression` is None, "GZIP" or "ZLIB". `check=False` does not verify checksums,
    for files whose storage has checksums of its own; lengths are always checked against
    the file.
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
        # `_buffer[_at:_size]` is read from the file and not yet returned.
        self._at = self._size = 0
        self._is_end = False  # of the file
        self._error: RecordError | None = None
        self._has_warned = False
        self._skip_to_offset()

    @property
    def position(self) -> tuple[int, int]:
        """The byte at which the next block begins, and the number of its first row."""
        return self._offset, self._record

    def read_block(self, rows: int | None = None) -> RecordBlock | None:
        """Return the next records, at least one; None at the end of the file.

        The block has `rows` records if they fit the buffer, else as many as fit. In a
        damaged file, the records before the damage are returned, and the next call
        raises `RecordError`.
        """
        if self._error is not None:
            raise self._error
        while True:
            # An upper bound on the records in the buffer: each needs its frame.
            capacity = (self._size - self._at) // FRAME_BYTES
            most = capacity if rows is None else min(rows, capacity)
            # Return fewer than `rows` only if a refill would not help. Otherwise a
            # batch would have to be joined from two blocks, which copies it.
            least = 1 if self._at == 0 or self._is_end else rows or capacity + 1
            count, at, status, offsets = frames.unframe(
                *(self._buffer, self._at, self._size),
                check=self._check,
                least=least,
                most=most,
            )
            if count or status or self._is_end:
                break
            # The whole buffer holds no complete record: that record needs a larger one.
            is_large = self._at == 0 and self._size > 0
            self._fill(max(self._block_bytes, self._larger() if is_large else 0))
        if rows is not None and self._at == 0 and count < rows:
            larger = min(2 * self._block_bytes, _MOST_BYTES)
            self._block_bytes = max(self._block_bytes, larger)
        block = self._block(self._buffer, offsets.copy())
        self._offset, self._record = self._offset + at - self._at, self._record + count
        self._at = at
        # Whether the kernel stopped at the end of the data, and not at `rows` records.
        is_rest = count < most or most == capacity
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
                f"{self._where()}: cannot resume from this position: {error}. Has the "
                "file changed?",
                self._record,
                self._offset,
            ) from error

    def _fill(self, size: int) -> None:
        """Replace the buffer by one with its unread rest, filled up from the file."""
        rest = self._buffer[self._at : self._size]
        buffer = self._buffers.take(max(size, len(rest) + FRAME_BYTES))
        buffer[: len(rest)] = rest
        self._size = len(rest) + self._source.readinto(buffer.data[len(rest) :])
        self._buffer, self._at = buffer, 0
        self._is_end = self._size < len(buffer)

    def _larger(self) -> int:
        """Return how large a buffer the record at the start of the present one needs.

        A damaged length must not allocate memory that the file cannot fill. For a plain
        file, the length is checked against its size. For a compressed file, the buffer
        doubles as long as the file fills it.
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
                f"its length is {length} bytes; in a compressed file the limit is "
                f"{LONGEST_COMPRESSED >> 20} MB. If the length is right, decompress "
                "the file first."
            )
        return min(needed, 2 * len(self._buffer))

    def _length(self, at: int) -> int:
        """Return the length in the header at a byte of the buffer."""
        return int(self._buffer[at : at + 8].view("<u8")[0])

    def _fail(self, what: str) -> RecordError:
        """Return the error to raise, and keep it for every further read."""
        self._error = RecordError(
            f"{self._where()}: {what}", self._record, self._offset
        )
        return self._error

    def _warn_of_cut_header(self, left: int) -> None:
        if self._has_warned:
            return
        self._has_warned = True
        _log.warning(
            "%s: the file ends inside the header of a record; it was probably cut "
            "off. Its last %d bytes are ignored, as in TensorFlow; %d records were "
            "read.",
            *(self._where(), left, self._record),
        )

    def _block(
        self, buffer: NDArray[np.uint8], offsets: NDArray[np.int64]
    ) -> RecordBlock:
        records = Strings(buffer, offsets, (len(offsets) - 1,))
        return RecordBlock(self._path, records, self._offset, self._record)

    def _describe(self, status: int, at: int) -> str:
        """Return what is wrong with the record at a byte of the buffer."""
        if status == frames.BAD_DATA_CRC:
            return "the checksum of its data is wrong: the file is damaged."
        if status:
            return (
                "the checksum of its length is wrong. The file is damaged, is "
                "compressed (pass compression 'GZIP' or 'ZLIB'), or is not a TFRecord "
                "file."
            )
        if self._source.failure:
            return self._source.failure
        return _cut_off(self._length(at), self._size - at - HEADER_BYTES)

    def _where(self) -> str:
        return f"{self._path}, record {self._record} (byte {self._offset})"


def _cut_off(length: int, found: int) -> str:
    return f"expected {length} bytes of data, found {found}: the file was cut off."


@dataclass(frozen=True)
class TFRecordOptions:
    """How a `TFRecordWriter` compresses its file.

    Args:
      compression_type: None or "" for no compression, "GZIP" or "ZLIB".
      compression_level: 0 (fast) to 9 (small); None is the default level of zlib, 6.

    Raises:
      InputError: The compression is unknown.

    Example:
      >>> import os, tempfile
      >>> from estimax.input import TFRecordDataset
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     path = os.path.join(folder, "a.gz")
      ...     with TFRecordWriter(path, TFRecordOptions("GZIP", 9)) as writer:
      ...         writer.write(b"one")
      ...     list(TFRecordDataset(path, "GZIP"))
      [b'one']
    """

    compression_type: str | None = None
    compression_level: int | None = None

    def __post_init__(self) -> None:
        check_compression(self.compression_type, "TFRecordOptions")


class TFRecordWriter:
    """Writes records to a TFRecord file.

    Use it as a context manager, which closes the file. Records are buffered, up to
    1 MB, until `flush` or `close`. `serialize_examples` makes the records.

    Args:
      path: The file to write, local or a URL such as `gs://…`. An existing file is
        overwritten.
      options: `TFRecordOptions`, or the compression alone: None, "GZIP" or "ZLIB".

    Raises:
      InputError: The file cannot be written, or the compression is unknown.

    Example:
      >>> import os, tempfile
      >>> from estimax.input import TFRecordDataset
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     path = os.path.join(folder, "a.tfrecord")
      ...     with TFRecordWriter(path) as writer:
      ...         writer.write(b"abc")
      ...     os.path.getsize(path), list(TFRecordDataset(path))
      (19, [b'abc'])
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
        """Write one record.

        Args:
          record: The bytes of the record.

        Raises:
          InputError: `record` is not bytes, or the writer is closed.
        """
        if not isinstance(record, bytes | bytearray | memoryview):
            raise InputError(
                f"{self._path}: a record must be bytes, got {type(record).__name__}. "
                "Serialize examples first."
            )
        self._check_open()
        self._pending.append(bytes(record))
        self._pending_bytes += len(record)
        if self._pending_bytes > _PENDING_BYTES:
            self._drain()

    def write_all(self, records: Strings | Iterable[bytes]) -> None:
        """Write many records, faster than one by one.

        Args:
          records: `Strings`, or an iterable of bytes.

        Raises:
          InputError: The writer is closed.
        """
        self._check_open()
        self._drain()
        self._frames.write(records)

    def flush(self) -> None:
        """Write what is buffered to the file, so that other processes can read it."""
        self._check_open()
        self._drain()
        self._frames.flush()

    def close(self) -> None:
        """Write what is buffered and close the file. Further writes raise."""
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

    def __repr__(self) -> str:
        closed = ", closed" if self._file is None else ""
        return f"TFRecordWriter({self._path!r}{closed})"

    def _drain(self) -> None:
        """Frame the collected records and write them to the file object."""
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
    """Write a file of records atomically: readers see the old file or the new one.

    On remote storage it depends on the storage when the file becomes visible.
    """
    if not isinstance(options, TFRecordOptions):
        options = TFRecordOptions(options)
    opened = open_to_write(path) if is_remote(path) else atomic.file(path)
    with contextlib.ExitStack() as stack:
        frames = _Frames(stack.enter_context(opened), options)
        frames.write(records)
        frames.finish()


class _Frames:
    """Frames records, compresses them and writes them to a file."""

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
