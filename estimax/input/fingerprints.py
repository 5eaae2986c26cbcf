"""Fingerprints: check that the data of a saved position has not changed.

    data = DataFingerprint(node, counters)     # one for each iterator
    data.state()                               # small, for json.dumps
    data.check(state)                          # raises ChangedInputError

The fingerprint of a file is its name (without the folder, so that copied data can
resume), its size, and a CRC-32 of its first, middle and last 64 KiB. Sizes are saved
for all files that the dataset names, checksums for those that were opened; each file is
sampled once in a run. Remote files have only a name. Arrays in memory are sampled, too.

The checksum is that of zlib and not the CRC-32C of `wire`, which would import Numba and
take half a second in programs that do not need it otherwise.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import InputError
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.input.ops.caching import Cache
from estimax.input.sources.arrays import Slices
from estimax.input.sources.cache_files import CacheFile
from estimax.input.sources.file_blocks import FileBlocks
from estimax.input.streams.ragged import Ragged
from estimax.input.streams.stream import (
    Counters,
    DatasetNode,
    State,
    inner_nodes,
    verbs_of,
)
from estimax.input.streams.structure import named_leaves
from estimax.storage import files

_SAMPLE_BYTES = 1 << 16
_SAMPLE_ROWS = 1024
# Above this number of columns one checksum is saved for all, to keep positions small.
_MOST_COLUMNS = 64
# Files in one compressed part of the state. Opening a file compresses one part again.
_PACKED_FILES = 128
_MOST_PACKED_BYTES = 16 << 20
_THREADS = 8  # threads that sample files when a run resumes; they mostly wait for disks


class ChangedInputError(InputError):
    """The data has changed since the position was saved.

    Raised by `DatasetIterator.set_state`, and by `Estimator.train` when it resumes an
    interrupted run. The message names the file, the list of files or the array, and how
    it differs.

    Attributes:
      difference: How the data differs, without advice.
    """

    difference: str = ""


class FilePrint(NamedTuple):
    """The fingerprint of one file.

    `size` is None for remote and missing files. `crc` is None for these, and for files
    that were not yet opened.
    """

    name: str
    size: int | None = None
    crc: int | None = None


@dataclass(frozen=True, eq=False)
class _DataSource:
    """A source of a dataset; `is_cached` if complete cache files replace it."""

    node: FileBlocks | Slices
    is_cached: bool

    @property
    def paths(self) -> tuple[str, ...] | None:
        """The paths of its files; None for arrays in memory."""
        return self.node.paths

    @cached_property
    def places(self) -> dict[str, list[int]]:
        """The indices of each path in the list, which may name a file twice."""
        places: dict[str, list[int]] = {}
        for place, path in enumerate(self.paths or ()):
            places.setdefault(path, []).append(place)
        return places


class DataFingerprint:
    """The fingerprint of an iterator's data; it grows as files are opened."""

    def __init__(self, node: DatasetNode, counters: Counters) -> None:
        self._sources = list(_sources_of(node, is_cached=False))
        self._opened = counters.opened  # reading threads add to it
        self._known: dict[str, FilePrint] = {}  # sampled files, by path
        self._lists: list[_PackedFiles | State] | None = None  # one for each source
        self._state: State | None = None  # the last result of `state`
        self._others = _PackedFiles([])  # opened files that no source names

    def state(self) -> State:
        """Return the current fingerprint, for `json.dumps`."""
        # Called for every batch: nothing is done unless a file was opened.
        if self._state is not None and len(self._known) == len(self._opened):
            return self._state
        if self._lists is None:
            self._lists = [self._start(source) for source in self._sources]
        # Iterate over a copy: threads that read ahead may open files meanwhile.
        for path in self._opened.copy():
            if path not in self._known:
                self._known[path] = file_print(path)
                self._put(path)
        lists = [
            one.state() if isinstance(one, _PackedFiles) else one for one in self._lists
        ]
        self._state = {"sources": lists, "others": self._others.state()}
        return self._state

    def check(self, state: State) -> None:
        """Raise `ChangedInputError` if the data differs from a saved fingerprint."""
        saved = state["sources"]
        if len(saved) != len(self._sources):
            raise _change_error(
                f"the dataset had {len(saved)} sources of data when the position was "
                f"saved and has {len(self._sources)} now"
            )
        prints: dict[str, FilePrint] = {}
        for source, before in zip(self._sources, saved, strict=True):
            if source.is_cached:
                continue
            if ("rows" in before) != (source.paths is None):
                raise _change_error(
                    "the data was in files and is in memory now, or vice versa"
                )
            if source.paths is None:
                _check_arrays(before, _arrays_of(source))
            else:
                named = _unpack(before)
                _check_names([one.name for one in named], source.paths)
                prints |= zip(source.paths, named, strict=True)
        others = {one.name: one for one in _unpack(state["others"])}
        prints |= {path: one for path, one in others.items() if os.path.exists(path)}
        _check_files(prints)
        # Files that were opened before are part of the next position. They were just
        # checked, so they need not be sampled again.
        self._known = {path: one for path, one in prints.items() if one.crc is not None}
        self._opened.update(dict.fromkeys(self._known))
        self._lists, self._others, self._state = None, _PackedFiles([]), None
        for path in self._known:
            self._put(path)

    def _start(self, source: _DataSource) -> _PackedFiles | State:
        """Return the fingerprint of a source before any further file is opened."""
        if source.paths is None:
            return _arrays_of(source)
        return _PackedFiles([self._print_of(path) for path in source.paths])

    def _print_of(self, path: str) -> FilePrint:
        found = self._known.get(path) or FilePrint(path, size_of(path))
        return found._replace(name=os.path.basename(path))

    def _put(self, path: str) -> None:
        """Add an opened file to the lists that name it, or to the other files."""
        found, is_listed = self._known[path], False
        for number, source in enumerate(self._sources):
            packed = self._lists[number] if self._lists is not None else None
            for place in source.places.get(path, ()):
                is_listed = True
                if isinstance(packed, _PackedFiles):
                    packed.put(place, found._replace(name=os.path.basename(path)))
        if not is_listed:
            self._others.append(found._replace(name=path))


def fingerprint(node: DatasetNode) -> str:
    """Return a digest of the verbs of a dataset and of samples of all its data.

    Threads sample every local file.
    """
    parts: list[Any] = [verbs_of(node)]
    for source in _sources_of(node, is_cached=False):
        if source.paths is None:
            parts.append(_arrays_of(source))
        else:
            prints = _in_threads(source.paths)
            names = map(os.path.basename, source.paths)
            parts.append(
                [one._replace(name=n) for one, n in zip(prints, names, strict=True)]
            )
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()


def file_print(path: str) -> FilePrint:
    """Sample a file; return only the name of a file that is remote or unreadable."""
    if files.is_remote(path):
        return FilePrint(path)
    try:
        with files.open_to_read(path) as file:
            size = files.size_of(file) or 0
            last = max(size - _SAMPLE_BYTES, 0)
            data = b""
            # Samples of a small file overlap; sorted, no byte is read twice.
            for start in sorted({0, last // 2, last}):
                file.seek(max(start, file.tell()))
                data += file.read(start + _SAMPLE_BYTES - file.tell())
            return FilePrint(path, size, zlib.crc32(data))
    except (InputError, OSError):  # reading the data will raise a better error
        return FilePrint(path)


def size_of(path: str) -> int | None:
    """Return the size of a local file; None if it is remote or missing."""
    if files.is_remote(path):
        return None
    try:
        return os.stat(path).st_size
    except OSError:
        return None


def _arrays_of(source: _DataSource) -> State:
    """Return the number of rows in memory and a checksum of samples of each column."""
    slices = source.node
    assert isinstance(slices, Slices), "files have paths"
    columns = {
        name: zlib.crc32(b"".join(_samples(column)))
        for name, column in named_leaves(slices.block.tree)
    }
    if len(columns) > _MOST_COLUMNS:
        columns = {"a column": zlib.crc32(json.dumps(columns).encode())}
    return {"rows": len(slices.block), "columns": columns}


def _samples(column: Any) -> Iterator[bytes]:  # a column of any kind
    """Yield the dtype and shape of a column, and its first, middle and last rows."""
    if isinstance(column, Ragged):
        for part in (column.values, *column.row_splits):
            yield from _samples(part)
        return
    for start, stop in _rows_to_sample(len(column), _row_bytes(column)):
        if isinstance(column, Sparse):
            rows = column.rows(start, stop)
            yield from _samples(rows.indices)
            yield from _samples(rows.values)
        elif isinstance(column, Strings):
            rows_of_text = column[start:stop]
            first, last = rows_of_text.offsets[[0, -1]].tolist()
            yield rows_of_text.lengths.tobytes()
            yield rows_of_text.data[first : min(last, first + _SAMPLE_BYTES)].tobytes()
            yield rows_of_text.data[max(first, last - _SAMPLE_BYTES) : last].tobytes()
        else:
            yield f"{column.dtype.str}{column.shape[1:]}".encode()
            yield np.ascontiguousarray(column[start:stop]).tobytes()


def _row_bytes(column: NDArray[Any] | Strings | Sparse) -> int:
    if isinstance(column, np.ndarray):
        return max(1, column.nbytes // max(1, len(column)))
    return _SAMPLE_BYTES // _SAMPLE_ROWS


def _rows_to_sample(rows: int, row_bytes: int) -> list[tuple[int, int]]:
    count = max(1, _SAMPLE_BYTES // row_bytes)
    last = max(rows - count, 0)
    return [(start, min(start + count, rows)) for start in sorted({0, last // 2, last})]


class _PackedFiles:
    """Fingerprints of many files, compressed in parts of 128 files.

    A change of one file compresses its part again, with the next `state`.
    """

    def __init__(self, prints: list[FilePrint]) -> None:
        self._prints = prints
        self._parts: list[str | None] = [None] * _parts_of(len(prints))

    def put(self, place: int, found: FilePrint) -> None:
        if self._prints[place] != found:
            self._prints[place] = found
            self._parts[place // _PACKED_FILES] = None

    def append(self, found: FilePrint) -> None:
        self._prints.append(found)
        del self._parts[_parts_of(len(self._prints)) - 1 :]
        self._parts.append(None)

    def state(self) -> State:
        for i, part in enumerate(self._parts):
            if part is None:
                start = i * _PACKED_FILES
                self._parts[i] = _pack(self._prints[start : start + _PACKED_FILES])
        return {"files": len(self._prints), "packed": list(self._parts)}


def _parts_of(count: int) -> int:
    return -(-count // _PACKED_FILES)


def _pack(prints: list[FilePrint]) -> str:
    # File names differ little, so compression leaves about 20 characters per file.
    text = json.dumps(prints, separators=(",", ":")).encode()
    return base64.b64encode(zlib.compress(text)).decode()


def _unpack(state: State) -> list[FilePrint]:
    prints: list[FilePrint] = []
    for part in state["packed"]:
        stream = zlib.decompressobj()
        text = stream.decompress(base64.b64decode(part), _MOST_PACKED_BYTES)
        prints += [FilePrint(*one) for one in json.loads(text)]
    return prints


def _sources_of(node: DatasetNode, *, is_cached: bool) -> Iterator[_DataSource]:
    """Yield all file and array sources of a dataset."""
    if isinstance(node, FileBlocks | Slices):
        yield _DataSource(node, is_cached)
    if isinstance(node, Cache) and isinstance(node.store, CacheFile):
        is_cached = is_cached or node.store.kept() is not None
    for inner in inner_nodes(node):
        yield from _sources_of(inner, is_cached=is_cached)


def _check_names(before: Sequence[str], paths: Sequence[str]) -> None:
    now = [os.path.basename(path) for path in paths]
    if now == list(before):
        return
    missing, new = Counter(before) - Counter(now), Counter(now) - Counter(before)
    parts = [
        f"{what}: {_list_names(names.elements())}"
        for what, names in (("missing", missing), ("new", new))
        if names
    ]
    difference = "; ".join(parts) or "the same files in another order"
    raise _change_error(
        f"the list of files had {len(before)} files when the position was saved and "
        f"has {len(now)} now ({difference})"
    )


def _check_files(prints: dict[str, FilePrint]) -> None:
    """Compare the sizes of all files, then samples of those that were opened."""
    sized = {path: one for path, one in prints.items() if one.size is not None}
    changed = []
    for path, saved in sized.items():
        size = size_of(path)
        if size is None:
            changed.append(f"{path} is missing")
        elif size != saved.size:
            changed.append(
                f"{path} had {saved.size} bytes when the position was saved and has "
                f"{size} now"
            )
    if not changed:
        opened = [path for path, saved in sized.items() if saved.crc is not None]
        changed = [
            f"{now.name} has other content than when the position was saved, with the "
            f"same size ({now.size} bytes)"
            for now in _in_threads(opened)
            if now.crc != sized[now.name].crc
        ]
    if changed:
        more = f"; {len(changed) - 1} more files differ" if changed[1:] else ""
        raise _change_error(changed[0] + more)


def _in_threads(paths: Sequence[str]) -> list[FilePrint]:
    if len(paths) < 2:
        return [file_print(path) for path in paths]
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(file_print, paths))


def _check_arrays(before: State, now: State) -> None:
    if before["rows"] != now["rows"]:
        raise _change_error(
            f"the data in memory had {before['rows']} rows when the position was saved "
            f"and has {now['rows']} now"
        )
    for name in sorted(before["columns"].keys() | now["columns"].keys()):
        if before["columns"].get(name) != now["columns"].get(name):
            raise _change_error(
                f"the values of {name or 'the array'} in memory have changed since the "
                "position was saved"
            )


def _list_names(names: Iterable[str]) -> str:
    first, *rest = names
    more = f" and {len(rest) - 2} more" if rest[2:] else ""
    return ", ".join([first, *rest[:2]]) + more


def _change_error(what: str) -> ChangedInputError:
    error = ChangedInputError(
        f"cannot resume the input: {what}. Restore the data as it was, or start the "
        "input from its beginning."
    )
    error.difference = what
    return error
