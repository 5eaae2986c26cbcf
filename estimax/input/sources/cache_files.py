"""A complete pass in files: `<prefix>.data` (buffers) and `<prefix>.index` (JSON).

    CacheFile("cache/train")

Both are written beside and renamed in at the end of a complete pass, the index last, so
a killed run leaves no cache rather than half of one. Every chunk has a CRC-32C in the
index, and the index has one of its own in its last line. Both are checked when they are
read; a cache that is damaged is an error and is never rebuilt by itself, because it may
be the only copy of what it was made from.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import weakref
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import InputError
from estimax.input.sources.column_files import (
    ALIGNMENT,
    DescriptionError,
    pack_chunk,
    unpack_chunk,
)
from estimax.input.streams.chunks import Chunk
from estimax.input.streams.stream import State
from estimax.native import checksum
from estimax.wire import atomic, files, json_text

# 1 had no checksums.
_VERSION = 2


class CacheFile:
    """Where a pass is kept, for every process that names the same prefix."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._open: _Pass | None = None

    def kept(self) -> _Pass | None:
        """The complete pass, if some run has left one."""
        if self._open is None and os.path.exists(f"{self._prefix}.index"):
            self._open = _Pass(self._prefix)
        return self._open

    def start(self, seed: int) -> _FileWriter:
        """Begin to write a pass."""
        return _FileWriter(self._prefix, seed)


class CacheError(InputError):
    """A cache that is damaged, or was written by another version."""

    def __init__(self, path: str, prefix: str, what: str) -> None:
        super().__init__(
            f"{path}: cannot be used as a cache: {what}. Delete {prefix}.index and "
            f"{prefix}.data; the next complete pass writes them again."
        )


@dataclass(frozen=True)
class _Entry:
    """Where a chunk lies in the data, its checksum, and what it is made of."""

    start: int
    size: int
    crc: int
    described: Any


class _Pass:
    """The index, and the data, which is read a chunk at a time."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._path = f"{prefix}.data"
        index = _read_index(prefix)
        self._file = files.open_to_read(self._path)
        weakref.finalize(self, self._file.close)
        self._lock = threading.Lock()  # several iterators may read at once
        try:
            self.seed = _integer(index["seed"])
            self.states: Sequence[State] = _list_of(index["states"], dict)
            self._chunks = [_entry(one) for one in _list_of(index["chunks"], list)]
            if len(self._chunks) != len(self.states):
                raise ValueError("it has not as many positions as chunks")
            expected = sum(entry.size for entry in self._chunks)
        except (KeyError, TypeError, ValueError) as error:
            raise self._damaged(f"the index is malformed ({error})") from error
        size = files.size_of(self._file)
        if size != expected:
            raise self._damaged(f"expected {expected} bytes, found {size}")

    def chunk(self, number: int) -> Chunk:
        """Read a chunk and check it; its arrays cannot be written to."""
        entry = self._chunks[number]
        size = files.size_of(self._file) or 0
        if not 0 <= entry.start <= entry.start + entry.size <= size:
            raise self._damaged(
                f"chunk {number} lies at bytes {entry.start} to "
                f"{entry.start + entry.size} of {size}"
            )
        buffer = _aligned(entry.size)
        with self._lock:
            self._file.seek(entry.start)
            found = _fill(self._file, buffer)
        if found < entry.size or checksum.crc32c(buffer.data) != entry.crc:
            raise self._damaged(
                f"the checksum of chunk {number} (bytes {entry.start} to "
                f"{entry.start + entry.size}) is wrong"
            )
        buffer.flags.writeable = False
        try:
            return unpack_chunk(buffer, entry.described)
        except DescriptionError as error:
            raise self._damaged(f"chunk {number}: {error}") from error

    def _damaged(self, what: str) -> CacheError:
        return CacheError(self._path, self._prefix, what)


def _read_index(prefix: str) -> dict[str, Any]:
    """The index, whose last line is the checksum of the one before it."""
    path = f"{prefix}.index"
    with files.open_to_read(path) as file:
        data = file.read()
    if data.startswith(b'{"version": 1,'):
        raise CacheError(path, prefix, "an earlier version wrote it, without checksums")
    text, _, seal = data.removesuffix(b"\n").rpartition(b"\n")
    if seal != _checksum_line(text):
        raise CacheError(path, prefix, "its checksum is wrong")
    try:
        index = json.loads(text)
        version = index["version"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        what = f"it holds no index ({type(error).__name__}: {error})"
        raise CacheError(path, prefix, what) from error
    if version != _VERSION:
        raise CacheError(path, prefix, f"version {version!r}, expected {_VERSION}")
    found: dict[str, Any] = index
    return found


def _entry(record: Any) -> _Entry:
    """Return the entry of a chunk; ValueError if it holds no whole numbers."""
    start, size, crc, described = record
    numbers = {"start": start, "size": size, "checksum": crc}
    start, size, crc = (json_text.whole(numbers, key) for key in numbers)
    return _Entry(start, size, crc, described)


def _integer(value: Any) -> int:
    """Return a whole number of any size and sign; TypeError if it is none."""
    if type(value) is not int:
        raise TypeError(f"expected a whole number, found {value!r:.60}")
    return value


def _list_of(value: Any, kind: type) -> list[Any]:
    """Return a value of the index that must be a list of `kind`; TypeError if not."""
    if not isinstance(value, list) or not all(isinstance(v, kind) for v in value):
        raise TypeError(f"expected a list of {kind.__name__}, found {value!r:.60}")
    return value


def _checksum_line(text: bytes) -> bytes:
    return b"crc32c %08x" % checksum.crc32c(text)


def _aligned(size: int) -> NDArray[np.uint8]:
    """An uninitialised buffer that begins at a multiple of `ALIGNMENT`."""
    raw = np.empty(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size]


def _fill(file: BinaryIO, buffer: NDArray[np.uint8]) -> int:
    filled = 0
    while filled < len(buffer):
        got = file.readinto(buffer.data[filled:])  # type: ignore[attr-defined]
        if not got:
            break
        filled += got
    return filled


class _FileWriter:
    def __init__(self, prefix: str, seed: int) -> None:
        self._prefix = prefix
        folder = os.path.dirname(prefix) or "."
        os.makedirs(folder, exist_ok=True)
        atomic.remove_leftovers(folder)
        # The temporary name is unique: two iterators may fill the cache at once.
        self._opened = atomic.file(f"{prefix}.data")
        self._file: BinaryIO = self._opened.__enter__()
        # Remove the unfinished file also when this writer is merely forgotten.
        self._forget = weakref.finalize(self, _discard, self._opened)
        self._seed = seed
        self._states: list[State] = []
        self._chunks: list[Any] = []

    def add(self, before: State, chunk: Chunk) -> None:
        data, described = pack_chunk(chunk)
        self._states.append(before)
        entry = (self._file.tell(), len(data), checksum.crc32c(data), described)
        self._chunks.append(entry)
        with atomic.names_file(f"{self._prefix}.data"):
            self._file.write(data)

    def finish(self) -> None:
        if os.path.exists(f"{self._prefix}.index"):
            self._forget()  # another iterator was first, and may be read already
            return
        self._forget.detach()
        self._opened.__exit__(None, None, None)
        index = {
            "version": _VERSION,
            "seed": self._seed,
            "states": self._states,
            "chunks": self._chunks,
        }
        text = json.dumps(index).encode()
        sealed = b"%b\n%b\n" % (text, _checksum_line(text))
        # Renamed in after the data: an index describes what is there.
        atomic.write_bytes(f"{self._prefix}.index", sealed)

    def abandon(self) -> None:
        self._forget()


class _AbandonedError(Exception):
    """A pass that ended before its source did."""


def _discard(opened: AbstractContextManager[BinaryIO]) -> None:
    # Closing writes what is still buffered, which fails when the disk is full.
    with contextlib.suppress(OSError):
        opened.__exit__(_AbandonedError, _AbandonedError(), None)
