"""Cache one complete pass over a dataset in two files: data and index.

    cache = CacheFile("cache/train")
    cache.complete_pass()            # None if there is none yet
    cache.start(seed)                # a writer of a new pass

`<prefix>.data` holds the arrays of all chunks, and `<prefix>.index`, in JSON, describes
where they are. Both get their final names at the end of a complete pass, the index
last, so a killed run leaves no cache instead of half of one.

Every chunk has a CRC-32C in the index, and the last line of the index is the CRC-32C of
the index. Both are verified when they are read. A damaged cache is an error and is not
rebuilt automatically, because it may be the only copy of its source.

The second half of the file is the format of a chunk: `pack_chunk` concatenates the
arrays of a chunk and describes them as JSON, and `unpack_chunk` returns views of the
bytes. It trusts no description: sizes, offsets and row splits are checked before use.

`save` writes the elements of a pass to a folder, with the two files of a cache, and
`Saved` is a source that reads them:

    save(chunks, "train.saved")        # atomic: the folder is complete or not there
    Saved("train.saved")               # a source of the same elements
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import threading
import weakref
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import InputError, MissingFileError
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.input.streams.background import Lookahead
from estimax.input.streams.chunks import Chunk, Columns, ElementList
from estimax.input.streams.columns import Ragged, as_column, row_count
from estimax.input.streams.stream import ROWS_AT_ONCE, Context, State, Stream
from estimax.input.streams.structure import Structure, named_leaves
from estimax.native import checksum
from estimax.storage import atomic, files, json_text

_VERSION = 2  # version 1 had no checksums
# Arrays begin at multiples of 64 bytes in their chunk, which suits every dtype and SIMD
# loads.
ALIGNMENT = 64
# The deepest structure that is read; examples have a few levels.
_DEEPEST = 64


class CacheFile:
    """The cache of one pass, shared by all processes that use the same prefix."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._open: CachedFiles | None = None

    def complete_pass(self) -> CachedFiles | None:
        """Return the complete pass; None if there is none yet."""
        if self._open is None and os.path.exists(f"{self._prefix}.index"):
            self._open = CachedFiles(self._prefix)
        return self._open

    def start(self, seed: int) -> _FileWriter:
        """Return a writer of a new pass."""
        return _FileWriter(self._prefix, seed)


class CacheError(InputError):
    """A cache that is damaged, or that another version has written."""

    def __init__(self, path: str, prefix: str, what: str) -> None:
        super().__init__(
            f"{path}: cannot be used as a cache: {what}. Delete {prefix}.index and "
            f"{prefix}.data; the next complete pass writes them again."
        )


class DescriptionError(InputError):
    """The description of a chunk is damaged, or does not fit the bytes of the chunk."""


@dataclass(frozen=True)
class _ChunkEntry:
    """The bytes of a chunk in the data, their checksum, and their description."""

    start: int
    size: int
    crc: int
    described: Any


class CachedFiles:
    """A complete pass: the index in memory, and the data, read chunk by chunk."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._path = f"{prefix}.data"
        index = _read_index(prefix)
        self._file = files.open_to_read(self._path)
        weakref.finalize(self, self._file.close)
        self._lock = threading.Lock()  # several iterators may seek and read at once
        try:
            self.seed = _integer(index["seed"])
            self.states: Sequence[State] = _list_of(index["states"], dict)
            self._chunks = [_entry(one) for one in _list_of(index["chunks"], list)]
            if len(self._chunks) != len(self.states):
                count = len(self._chunks)
                raise ValueError(f"{len(self.states)} positions for {count} chunks")
            expected = sum(entry.size for entry in self._chunks)
        except (KeyError, TypeError, ValueError) as error:
            raise self._damage_error(f"the index is malformed ({error})") from error
        size = files.size_of(self._file)
        if size != expected:
            raise self._damage_error(f"expected {expected} bytes, found {size}")

    @property
    def is_columnar(self) -> bool:
        """Whether all chunks are columns of rows."""
        return all(_is_columns(entry.described) for entry in self._chunks)

    def chunk(self, number: int) -> Chunk:
        """Read a chunk and verify it; its arrays are read-only."""
        entry = self._chunks[number]
        size = files.size_of(self._file) or 0
        if not 0 <= entry.start <= entry.start + entry.size <= size:
            raise self._damage_error(
                f"chunk {number} lies at bytes {entry.start} to "
                f"{entry.start + entry.size}, but the file has {size} bytes"
            )
        buffer = _allocate_aligned(entry.size)
        with self._lock:
            self._file.seek(entry.start)
            found = _fill(self._file, buffer)
        if found < entry.size or checksum.crc32c(buffer.data) != entry.crc:
            raise self._damage_error(
                f"the checksum of chunk {number} (bytes {entry.start} to "
                f"{entry.start + entry.size}) is wrong"
            )
        buffer.flags.writeable = False
        try:
            return unpack_chunk(buffer, entry.described)
        except DescriptionError as error:
            raise self._damage_error(f"chunk {number}: {error}") from error

    def _damage_error(self, what: str) -> CacheError:
        return CacheError(self._path, self._prefix, what)


def _is_columns(described: Any) -> bool:
    return isinstance(described, dict) and "rows" in described


def _read_index(prefix: str) -> dict[str, Any]:
    """Return the index after verifying its checksum, which is its last line."""
    path = f"{prefix}.index"
    with files.open_to_read(path) as file:
        data = file.read()
    if data.startswith(b'{"version": 1,'):
        what = "an earlier version wrote it, without checksums"
        raise CacheError(path, prefix, what)
    text, _, seal = data.removesuffix(b"\n").rpartition(b"\n")
    if seal != _checksum_line(text):
        raise CacheError(path, prefix, "its checksum is wrong")
    try:
        index = json.loads(text)
        version = index["version"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        what = f"it is not an index ({type(error).__name__}: {error})"
        raise CacheError(path, prefix, what) from error
    if version != _VERSION:
        what = f"expected version {_VERSION}, found {version!r}"
        raise CacheError(path, prefix, what)
    found: dict[str, Any] = index
    return found


def _entry(record: Any) -> _ChunkEntry:
    """Return the entry of a chunk; raise ValueError unless its numbers are valid."""
    start, size, crc, described = record
    numbers = {"start": start, "size": size, "checksum": crc}
    start, size, crc = (json_text.whole(numbers, key) for key in numbers)
    return _ChunkEntry(start, size, crc, described)


def _integer(value: Any) -> int:
    """Return an integer of any size and sign; raise TypeError if it is not one."""
    if type(value) is not int:
        raise TypeError(f"expected a whole number, found {value!r:.60}")
    return value


def _list_of(value: Any, kind: type) -> list[Any]:
    """Return `value`; raise TypeError unless it is a list of `kind`."""
    if not isinstance(value, list) or not all(isinstance(v, kind) for v in value):
        raise TypeError(f"expected a list of {kind.__name__}, found {value!r:.60}")
    return value


def _checksum_line(text: bytes) -> bytes:
    return b"crc32c %08x" % checksum.crc32c(text)


def _allocate_aligned(size: int) -> NDArray[np.uint8]:
    """Return an uninitialized buffer at an address that `ALIGNMENT` divides."""
    raw = np.empty(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size]


def _fill(file: BinaryIO, buffer: NDArray[np.uint8]) -> int:
    """Read into a buffer; return how many bytes were read before the end."""
    filled = 0
    while filled < len(buffer):
        got = file.readinto(buffer.data[filled:])  # type: ignore[attr-defined]
        if not got:
            break
        filled += got
    return filled


class _FileWriter:
    """Writes a pass chunk by chunk; `finish` or `abandon` ends it."""

    def __init__(self, prefix: str, seed: int) -> None:
        self._prefix = prefix
        folder = os.path.dirname(prefix) or "."
        os.makedirs(folder, exist_ok=True)
        atomic.remove_leftovers(folder)
        # Under a unique temporary name, because two iterators may write the cache.
        self._opened = atomic.file(f"{prefix}.data")
        self._file: BinaryIO = self._opened.__enter__()
        # Remove the unfinished file also if the writer is garbage-collected.
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
            self._forget()  # another iterator was first; its cache may be in use
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
        # After the data, so that an index never describes data that does not exist.
        atomic.write_bytes(f"{self._prefix}.index", sealed)

    def abandon(self) -> None:
        self._forget()


class _AbandonedError(Exception):
    """A pass that was not read to its end."""


def _discard(opened: AbstractContextManager[BinaryIO]) -> None:
    """End an atomic write without renaming the file to its final name."""
    # Closing writes buffered bytes, which fails if the disk is full.
    with contextlib.suppress(OSError):
        opened.__exit__(_AbandonedError, _AbandonedError(), None)


def pack_chunk(chunk: Chunk) -> tuple[bytearray, Any]:
    """Return the bytes of a chunk, and a JSON description for `unpack_chunk`."""
    data = bytearray()
    if isinstance(chunk, Columns):
        return data, {"rows": len(chunk), "tree": _pack(data, chunk.tree)}
    return data, {"items": [_pack(data, item) for item in chunk.items]}


def unpack_chunk(buffer: NDArray[np.uint8], described: Any) -> Chunk:
    """Return the chunk that a description finds in a buffer; its arrays are views.

    Raises:
      DescriptionError: The description is malformed or does not fit the buffer.
    """
    try:
        if "rows" not in described:
            return ElementList([_unpack(buffer, item) for item in described["items"]])
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
    """Append the arrays of a structure to `data`; return its description."""
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
    data += bytes(-len(data) % ALIGNMENT)
    start = len(data)
    data += np.ascontiguousarray(column).tobytes()
    return {"array": [column.dtype.str, list(column.shape), start]}


def _unpack(buffer: NDArray[np.uint8], saved: Any, depth: int = 0) -> Structure:
    """Return the structure of a description."""
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
    """Return the values of a sparse or ragged column: numbers or text."""
    return _strings(buffer, saved) if "text" in saved else _array(buffer, saved)


def _array(buffer: NDArray[np.uint8], saved: Any) -> NDArray[Any]:
    name, shape, start = saved["array"]
    _check(isinstance(name, str), f"{name!r} is not a dtype")
    dtype = np.dtype(name)
    _check(not dtype.hasobject and dtype.itemsize > 0, f"it holds dtype {name!r}")
    dims = tuple(_count(n) for n in shape)
    # With Python integers, which do not overflow.
    end = _count(start) + math.prod(dims) * dtype.itemsize
    _check(end <= len(buffer), f"an array ends at byte {end} of {len(buffer)}")
    array: NDArray[Any] = buffer[start:end].view(dtype).reshape(dims)
    return array


def _strings(buffer: NDArray[np.uint8], saved: Any) -> Strings:
    data, offsets = (_array(buffer, part) for part in saved["text"])
    shape = tuple(_count(n) for n in saved["shape"])
    _check(data.dtype == np.uint8 and data.ndim == 1, "text is not stored as bytes")
    count = math.prod(shape) + 1
    _check(len(offsets) == count, f"text has {len(offsets)} offsets, not {count}")
    _check_offsets(offsets, len(data), "the offsets of text")
    return Strings(data, offsets, shape)


def _sparse(buffer: NDArray[np.uint8], saved: Any) -> Sparse:
    places, values = saved["sparse"]
    indices, column = _array(buffer, places), _values(buffer, values)
    shape = tuple(_count(n) for n in saved["shape"])
    is_right = indices.dtype == np.int64 and indices.shape == (len(column), len(shape))
    _check(is_right, "the indices of a sparse column do not fit its values")
    if len(shape) > 1 and len(indices):
        # Indices of further axes come from the data and may be anything, as in TF.
        rows = indices[:, 0]
        in_range = rows[0] >= 0 and rows[-1] < shape[0]
        is_sorted = bool((rows[1:] >= rows[:-1]).all())
        _check(in_range and is_sorted, "the rows of a sparse column are out of range")
    return Sparse(indices, column, shape)


def _check_offsets(offsets: NDArray[Any], end: int, what: str) -> None:
    """Raise unless offsets are integers that ascend from 0 to `end`."""
    is_vector = offsets.ndim == 1 and offsets.dtype.kind == "i" and len(offsets)
    _check(is_vector, f"{what} are not a vector of integers")
    is_right = offsets[0] == 0 and offsets[-1] == end
    is_right = bool(is_right and (offsets[1:] >= offsets[:-1]).all())
    _check(is_right, f"{what} do not ascend from 0 to {end}")


def _count(value: Any) -> int:
    _check(type(value) is int and value >= 0, f"{value!r} is not a count")
    return int(value)


def _check(is_right: Any, what: str) -> None:
    if not is_right:
        raise DescriptionError(what)


_PREFIX = "elements"


def save(chunks: Iterable[Chunk], path: str) -> None:
    """Write chunks to a folder, which replaces an earlier saved dataset.

    Raises:
      InputError: The folder exists and is something else than a saved dataset.
    """
    folder = Path(path)
    is_free = not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
    if not is_free and not (folder / f"{_PREFIX}.index").exists():
        raise InputError(
            f"save: {path} exists and is not a saved dataset. Delete it, or choose "
            "another path."
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with atomic.folder(folder) as temporary:
        writer = CacheFile(str(temporary / _PREFIX)).start(seed=0)
        try:
            for chunk in chunks:
                writer.add({}, chunk)
        except BaseException:
            writer.abandon()
            raise
        writer.finish()


@dataclass(frozen=True, eq=False)
class Saved:
    """The elements of a saved dataset."""

    path: str
    name: str = "load"
    source = None

    def __post_init__(self) -> None:
        if not os.path.exists(os.path.join(self.path, f"{_PREFIX}.index")):
            raise MissingFileError(
                f"load: {self.path} is not a saved dataset: it has no file "
                f"{_PREFIX}.index. Dataset.save writes one."
            )

    @cached_property
    def files(self) -> CachedFiles:
        """The index of the files, read once."""
        found = CacheFile(os.path.join(self.path, _PREFIX)).complete_pass()
        assert found is not None
        return found

    @property
    def columnar(self) -> bool:
        return self.files.is_columnar

    def open(self, context: Context) -> Stream:
        """Start at the first element."""
        at_once = ROWS_AT_ONCE if self.columnar else 1
        return Lookahead(_SavedStream(self.files), at_once)


class _SavedStream:
    """One chunk of the files with each read, however many were asked for."""

    def __init__(self, files: CachedFiles) -> None:
        self._files = files
        self._chunk = 0  # the number of the next chunk

    def read(self, n: int) -> Chunk | None:
        if self._chunk == len(self._files.states):
            return None
        self._chunk += 1
        return self._files.chunk(self._chunk - 1)

    def get_state(self) -> State:
        return {"chunk": self._chunk}

    def set_state(self, state: State) -> None:
        self._chunk = int(state["chunk"])

    def close(self) -> None:
        pass
