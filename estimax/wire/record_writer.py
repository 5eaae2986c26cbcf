"""Writing TFRecord files: as a stream, or whole at once.

with TFRecordWriter("train-00.tfrecord.gz", "GZIP") as writer:
    writer.write(record)            # bytes
    writer.write_all(records)       # Strings or a list: many at once

write_records(path, records)        # there whole, or not at all
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import BinaryIO

from estimax.core.errors import InputError
from estimax.core.strings import Strings
from estimax.native import records as frames
from estimax.wire import atomic
from estimax.wire.compression import check_compression, compressor
from estimax.wire.files import Pathish, is_remote, open_to_write

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
