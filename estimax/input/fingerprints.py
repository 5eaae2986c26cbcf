"""Fingerprints: whether the data behind a saved position is still the same.

    marks = DataMarks(node, counters)       # one for each iterator
    marks.state()                           # small, for json.dumps
    marks.check(state)                      # raises ChangedInputError

A file is known by its name (without the folder: a copied data set resumes), its size,
and a CRC-32 of its first, middle and last 64 KiB. Sizes are kept of all files that
the dataset names, checksums of those that were opened: each file is sampled once in a
run. Remote files are known by their names alone. Arrays in memory are sampled too.

The checksum is zlib's, not the CRC-32C of `wire`: that would import Numba, which takes
half a second, in programs that need it for nothing else.
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
from estimax.input.verbs.caching import Cache
from estimax.wire import files

_SAMPLE_BYTES = 1 << 16
_SAMPLE_ROWS = 1024
# Of more arrays one checksum is kept for all, so that a position stays small.
_MOST_COLUMNS = 64
# So many files are packed together: opening one packs them anew, and no others.
_PACKED_FILES = 128
_MOST_PACKED_BYTES = 16 << 20
_THREADS = 8  # that sample files when a run resumes; they mostly wait


class ChangedInputError(InputError):
    """The data is not what it was when the position was saved.

    Raised by `DatasetIterator.set_state`, and by `Estimator.train` when the last call
    was interrupted. The message names the file, the list of files or the array, and
    what it was and is.
    """


class FileMark(NamedTuple):
    """What a file is known by.

    `size` is None for remote and missing files, `crc` for files not yet opened, too.
    """

    name: str
    size: int | None = None
    crc: int | None = None


@dataclass(frozen=True, eq=False)
class _Source:
    """A source of a dataset; `is_cached` if a complete cache file replaces it."""

    node: FileBlocks | Slices
    is_cached: bool

    @property
    def paths(self) -> tuple[str, ...] | None:
        """Its files; None of arrays in memory."""
        return self.node.paths

    @cached_property
    def places(self) -> dict[str, list[int]]:
        """Where each path stands in the list, which may name a file twice."""
        places: dict[str, list[int]] = {}
        for place, path in enumerate(self.paths or ()):
            places.setdefault(path, []).append(place)
        return places


class DataMarks:
    """The fingerprint of an iterator's data, which grows as files are opened."""

    def __init__(self, node: DatasetNode, counters: Counters) -> None:
        self._sources = list(_sources_of(node, is_cached=False))
        self._opened = counters.opened
        self._known: dict[str, FileMark] = {}  # by path
        self._lists: list[_PackedFiles | State] | None = None
        self._state: State | None = None
        self._others = _PackedFiles([])  # opened, and in no list

    def state(self) -> State:
        """The fingerprint as of now, for `json.dumps`."""
        if self._state is not None and len(self._known) == len(self._opened):
            return self._state  # asked for at every batch
        if self._lists is None:
            self._lists = [self._start(source) for source in self._sources]
        # A copy: threads that read ahead open files meanwhile.
        for path in self._opened.copy():
            if path not in self._known:
                self._known[path] = mark_of(path)
                self._put(path)
        lists = [
            one.state() if isinstance(one, _PackedFiles) else one for one in self._lists
        ]
        self._state = {"sources": lists, "others": self._others.state()}
        return self._state

    def check(self, state: State) -> None:
        """Raise `ChangedInputError` unless the data is what it was at that state."""
        saved = state["sources"]
        if len(saved) != len(self._sources):
            raise _changed(
                f"the dataset had {len(saved)} sources of data when the position was "
                f"saved and has {len(self._sources)} now"
            )
        marks: dict[str, FileMark] = {}
        for source, before in zip(self._sources, saved, strict=True):
            if source.is_cached:
                continue
            if ("rows" in before) != (source.paths is None):
                raise _changed("files have taken the place of arrays, or arrays theirs")
            if source.paths is None:
                _check_arrays(before, _arrays_of(source))
            else:
                named = _unpacked(before)
                _check_names([mark.name for mark in named], source.paths)
                marks |= zip(source.paths, named, strict=True)
        others = {mark.name: mark for mark in _unpacked(state["others"])}
        marks |= {p: mark for p, mark in others.items() if os.path.exists(p)}
        _check_files(marks)
        # They need not be sampled again, and belong to the next position, too.
        self._known = {p: mark for p, mark in marks.items() if mark.crc is not None}
        self._opened.update(dict.fromkeys(self._known))
        self._lists, self._others, self._state = None, _PackedFiles([]), None
        for path in self._known:
            self._put(path)

    def _start(self, source: _Source) -> _PackedFiles | State:
        if source.paths is None:
            return _arrays_of(source)
        return _PackedFiles([self._listed(path) for path in source.paths])

    def _listed(self, path: str) -> FileMark:
        mark = self._known.get(path) or FileMark(path, size_of(path))
        return mark._replace(name=os.path.basename(path))

    def _put(self, path: str) -> None:
        """Enter an opened file where it is listed, or among the others."""
        mark, is_listed = self._known[path], False
        for number, source in enumerate(self._sources):
            packed = self._lists[number] if self._lists is not None else None
            for place in source.places.get(path, ()):
                is_listed = True
                if isinstance(packed, _PackedFiles):
                    packed.put(place, mark._replace(name=os.path.basename(path)))
        if not is_listed:
            self._others.append(mark._replace(name=path))


def fingerprint(node: DatasetNode) -> str:
    """A digest of a dataset's verbs and of all its data, sampled.

    Every local file is sampled, in threads.
    """
    parts: list[Any] = [verbs_of(node)]
    for source in _sources_of(node, is_cached=False):
        if source.paths is None:
            parts.append(_arrays_of(source))
        else:
            marks = _in_threads(source.paths)
            names = map(os.path.basename, source.paths)
            parts.append(
                [m._replace(name=n) for m, n in zip(marks, names, strict=True)]
            )
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()


def mark_of(path: str) -> FileMark:
    """Sample a file; what cannot be opened is known by its name alone."""
    if files.is_remote(path):
        return FileMark(path)
    try:
        with files.open_to_read(path) as file:
            size = files.size_of(file) or 0
            last = max(size - _SAMPLE_BYTES, 0)
            data = b""
            # Sorted and apart, so that a small file is read once.
            for start in sorted({0, last // 2, last}):
                file.seek(max(start, file.tell()))
                data += file.read(start + _SAMPLE_BYTES - file.tell())
            return FileMark(path, size, zlib.crc32(data))
    except (InputError, OSError):  # whoever reads it says what is wrong with it
        return FileMark(path)


def size_of(path: str) -> int | None:
    """The size of a local file; None if it is remote or gone."""
    if files.is_remote(path):
        return None
    try:
        return os.stat(path).st_size
    except OSError:
        return None


def _arrays_of(source: _Source) -> State:
    """The number of rows in memory, and a checksum of each column's samples."""
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
    """Bytes of the first, middle and last rows, and the column's dtype and shape."""
    if isinstance(column, Ragged):
        for part in (column.values, *column.row_splits):
            yield from _samples(part)
        return
    for start, stop in _sampled_rows(len(column), _row_bytes(column)):
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


def _sampled_rows(rows: int, row_bytes: int) -> list[tuple[int, int]]:
    count = max(1, _SAMPLE_BYTES // row_bytes)
    last = max(rows - count, 0)
    return [(start, min(start + count, rows)) for start in sorted({0, last // 2, last})]


class _PackedFiles:
    """Marks of many files, packed in parts that change when one of theirs does."""

    def __init__(self, marks: list[FileMark]) -> None:
        self._marks = marks
        self._parts: list[str | None] = [None] * _parts_of(len(marks))

    def put(self, place: int, mark: FileMark) -> None:
        if self._marks[place] != mark:
            self._marks[place] = mark
            self._parts[place // _PACKED_FILES] = None

    def append(self, mark: FileMark) -> None:
        self._marks.append(mark)
        del self._parts[_parts_of(len(self._marks)) - 1 :]
        self._parts.append(None)

    def state(self) -> State:
        for i, part in enumerate(self._parts):
            if part is None:
                start = i * _PACKED_FILES
                self._parts[i] = _pack(self._marks[start : start + _PACKED_FILES])
        return {"files": len(self._marks), "packed": list(self._parts)}


def _parts_of(count: int) -> int:
    return -(-count // _PACKED_FILES)


def _pack(marks: list[FileMark]) -> str:
    # Names of parts hardly differ: a file takes about 20 characters.
    text = json.dumps(marks, separators=(",", ":")).encode()
    return base64.b64encode(zlib.compress(text)).decode()


def _unpacked(state: State) -> list[FileMark]:
    marks: list[FileMark] = []
    for part in state["packed"]:
        stream = zlib.decompressobj()
        text = stream.decompress(base64.b64decode(part), _MOST_PACKED_BYTES)
        marks += [FileMark(*mark) for mark in json.loads(text)]
    return marks


def _sources_of(node: DatasetNode, *, is_cached: bool) -> Iterator[_Source]:
    if isinstance(node, FileBlocks | Slices):
        yield _Source(node, is_cached)
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
        f"{what}: {_shown(names.elements())}"
        for what, names in (("missing", missing), ("new", new))
        if names
    ]
    difference = "; ".join(parts) or "the same files in another order"
    raise _changed(
        f"the list of files had {len(before)} files when the position was saved and "
        f"has {len(now)} now ({difference})"
    )


def _check_files(marks: dict[str, FileMark]) -> None:
    """Compare sizes of all files, then samples of those that were opened."""
    sized = {p: mark for p, mark in marks.items() if mark.size is not None}
    changed = []
    for path, mark in sized.items():
        size = size_of(path)
        if size is None:
            changed.append(f"{path} is gone")
        elif size != mark.size:
            changed.append(
                f"{path} had {mark.size} bytes when the position was saved and has "
                f"{size} now"
            )
    if not changed:
        opened = [path for path, mark in sized.items() if mark.crc is not None]
        changed = [
            f"{mark.name} has other content than when the position was saved, in as "
            f"many bytes ({mark.size})"
            for mark in _in_threads(opened)
            if mark.crc != sized[mark.name].crc
        ]
    if changed:
        more = f"; {len(changed) - 1} more files differ" if changed[1:] else ""
        raise _changed(changed[0] + more)


def _in_threads(paths: Sequence[str]) -> list[FileMark]:
    if len(paths) < 2:
        return [mark_of(path) for path in paths]
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(mark_of, paths))


def _check_arrays(before: State, now: State) -> None:
    if before["rows"] != now["rows"]:
        raise _changed(
            f"the data in memory had {before['rows']} rows when the position was saved "
            f"and has {now['rows']} now"
        )
    for name in before["columns"].keys() | now["columns"].keys():
        if before["columns"].get(name) != now["columns"].get(name):
            raise _changed(
                f"the values of {name or 'the array'} in memory are other ones than "
                "when the position was saved"
            )


def _shown(names: Iterable[str]) -> str:
    first, *rest = names
    more = f" and {len(rest) - 2} more" if rest[2:] else ""
    return ", ".join([first, *rest[:2]]) + more


def _changed(what: str) -> ChangedInputError:
    return ChangedInputError(
        f"cannot resume the input: {what}. Restore the data as it was, or start the "
        "input from its beginning."
    )
