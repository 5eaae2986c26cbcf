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
import math
import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import InputError
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.input.streams.chunks import Chunk, Columns, Elements
from estimax.input.streams.columns import as_column, row_count
from estimax.input.streams.ragged import Ragged
from estimax.input.streams.stream import State
from estimax.input.streams.structure import Structure, named_leaves
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


# Arrays begin at multiples of this in their chunk, as every dtype and SIMD load likes.
ALIGNMENT = 64
# Structures of examples are a few levels deep.
_DEEPEST = 64


class DescriptionError(InputError):
    """A description that is damaged, or does not fit its buffer."""


def pack_chunk(chunk: Chunk) -> tuple[bytearray, Any]:
    """Return a chunk's bytes, and what `unpack_chunk` needs to find it in them."""
    data = bytearray()
    if isinstance(chunk, Columns):
        return data, {"rows": len(chunk), "tree": _pack(data, chunk.tree)}
    return data, {"items": [_pack(data, item) for item in chunk.items]}


def unpack_chunk(buffer: NDArray[np.uint8], described: Any) -> Chunk:
    """Return a chunk whose arrays are views of the buffer.

    Raises:
      DescriptionError: The description is malformed or does not fit the buffer.
    """
    try:
        if "rows" not in described:
            return Elements([_unpack(buffer, item) for item in described["items"]])
        rows = _count(described["rows"])
        tree = _unpack(buffer, described["tree"])
        for name, column in named_leaves(tree):
            found = row_count(column, name)
            _check(found == rows, f"{name or 'a column'} has {found} rows, not {rows}")
        return Columns(tree, rows)
    except DescriptionError:
        raise
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise DescriptionError(f"its description is malformed ({error})") from error


def _pack(data: bytearray, tree: Structure) -> Any:
    if isinstance(tree, Mapping):
        return {"dict": [[key, _pack(data, value)] for key, value in tree.items()]}
    if isinstance(tree, tuple):
        return {"tuple": [_pack(data, value) for value in tree]}
    if tree is None:
        return {"none": True}
    if isinstance(tree, bytes):
        return {"bytes": _pack(data, np.frombuffer(tree, np.uint8))}
    column = as_column(tree)
    if isinstance(column, Sparse):
        both = [_pack(data, np.ascontiguousarray(column.indices))]
        both.append(_pack(data, column.values))
        return {"sparse": both, "shape": [int(n) for n in column.dense_shape]}
    if isinstance(column, Ragged):
        parts = [_pack(data, part) for part in (column.values, *column.row_splits)]
        return {"ragged": parts}
    if isinstance(column, Strings):
        first, last = column.offsets[0], column.offsets[-1]
        both = [_pack(data, column.data[first:last])]
        both.append(_pack(data, column.offsets - first))
        return {"text": both, "shape": list(column.shape)}
    array = column
    data += bytes(-len(data) % ALIGNMENT)
    start = len(data)
    data += np.ascontiguousarray(array).tobytes()
    return {"array": [array.dtype.str, list(array.shape), start]}


def _unpack(buffer: NDArray[np.uint8], saved: Any, depth: int = 0) -> Structure:
    _check(depth < _DEEPEST, f"it nests deeper than {_DEEPEST} levels")
    if "dict" in saved:
        return {k: _unpack(buffer, value, depth + 1) for k, value in saved["dict"]}
    if "tuple" in saved:
        return tuple(_unpack(buffer, value, depth + 1) for value in saved["tuple"])
    if "none" in saved:
        return None
    if "bytes" in saved:
        return _array(buffer, saved["bytes"]).tobytes()
    return _column(buffer, saved)


def _column(buffer: NDArray[np.uint8], saved: Any) -> Any:  # a column of any kind
    if "text" in saved:
        return _strings(buffer, saved)
    if "sparse" in saved:
        return _sparse(buffer, saved)
    if "ragged" in saved:
        values, *parts = saved["ragged"]
        column = _values(buffer, values)
        splits = tuple(_array(buffer, part) for part in parts)
        ends = [*(len(inner) - 1 for inner in splits[1:]), len(column)]
        for one, end in zip(splits, ends, strict=True):
            _check_offsets(one, end, "the row splits of a ragged column")
        return Ragged(column, splits)
    return _array(buffer, saved)


def _values(buffer: NDArray[np.uint8], saved: Any) -> NDArray[Any] | Strings:
    """The values of a sparse or ragged column: numbers or text."""
    return _strings(buffer, saved) if "text" in saved else _array(buffer, saved)


def _array(buffer: NDArray[np.uint8], saved: Any) -> NDArray[Any]:
    name, shape, start = saved["array"]
    _check(isinstance(name, str), f"{name!r} is no dtype")
    dtype = np.dtype(name)
    _check(not dtype.hasobject and dtype.itemsize > 0, f"it holds dtype {name!r}")
    dims = tuple(_count(n) for n in shape)
    # In Python's integers, which do not overflow.
    end = _count(start) + math.prod(dims) * dtype.itemsize
    _check(end <= len(buffer), f"an array ends at byte {end} of {len(buffer)}")
    array: NDArray[Any] = buffer[start:end].view(dtype).reshape(dims)
    return array


def _strings(buffer: NDArray[np.uint8], saved: Any) -> Strings:
    data, offsets = (_array(buffer, part) for part in saved["text"])
    shape = tuple(_count(n) for n in saved["shape"])
    _check(data.dtype == np.uint8 and data.ndim == 1, "the bytes of text are no bytes")
    _check(len(offsets) == math.prod(shape) + 1, "text has too few or many offsets")
    _check_offsets(offsets, len(data), "the offsets of text")
    return Strings(data, offsets, shape)


def _sparse(buffer: NDArray[np.uint8], saved: Any) -> Sparse:
    places, values = saved["sparse"]
    indices, column = _array(buffer, places), _values(buffer, values)
    shape = tuple(_count(n) for n in saved["shape"])
    is_right = indices.dtype == np.int64 and indices.shape == (len(column), len(shape))
    _check(is_right, "the indices of a sparse column do not fit its values")
    if len(shape) > 1 and len(indices):
        # Those of further axes come from the data and may be anything, as in TF.
        rows = indices[:, 0]
        in_range = rows[0] >= 0 and rows[-1] < shape[0]
        is_sorted = bool((rows[1:] >= rows[:-1]).all())
        _check(in_range and is_sorted, "the rows of a sparse column are out of range")
    return Sparse(indices, column, shape)


def _check_offsets(offsets: NDArray[Any], end: int, what: str) -> None:
    _check(offsets.ndim == 1 and offsets.dtype.kind == "i" and len(offsets), what)
    is_right = offsets[0] == 0 and offsets[-1] == end
    is_right = bool(is_right and (offsets[1:] >= offsets[:-1]).all())
    _check(is_right, f"{what} do not ascend from 0 to {end}")


def _count(value: Any) -> int:
    _check(type(value) is int and value >= 0, f"{value!r} is no count")
    return int(value)


def _check(is_right: Any, what: str) -> None:
    if not is_right:
        raise DescriptionError(what)
