"""Sources of files that are read one block of rows at a time, for all file formats.

    FileBlocks(paths, lambda: LineReader(None), "TextLineDataset")

A `BlockReader` of the format reads the block that starts at a position of a file, and
returns the position after it. The position of a stream is (file, start of the block,
row in the block): resuming seeks there and reads one block, however far into the data
it is. `ByteFile` reads bytes at an offset for formats that need them.

Reading a file costs some fixed time, however short it is. A `JoiningReader` reads the
rows of several short files as one block. The positions in it are those of each file, so
they do not depend on which files were joined.

`expand` finds the files that a path, a pattern or a list of these means. A pattern
without a match, a folder, and a broken link are errors.

    expand("data/train-*.csv")                # sorted by path
    expand("s3://bucket/day=*/*.parquet")     # listed through pyarrow or fsspec
    expand(["b.csv", "a.csv"])                # in the order of the list
    list_paths(["b-*", "a-*"])                # all matches, sorted: as in tf.data
    given_paths("a[1].csv")                   # paths alone, no patterns
"""

from __future__ import annotations

import codecs
import glob
import os
import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol, runtime_checkable

import numpy as np

from estimax.core.errors import InputError, Remedy
from estimax.input.streams.chunks import Chunk
from estimax.input.streams.stream import Context, Counters, State, check_same
from estimax.storage import compression as compressed
from estimax.storage import files, url_patterns

PathLike = str | os.PathLike[str]


def expand(given: PathLike | Iterable[PathLike]) -> tuple[str, ...]:
    """Return the files of paths and patterns; the matches of a pattern are sorted.

    A path that exists is not treated as a pattern, even if it contains `*` or `[`.

    Raises:
      InputError: Nothing matches, or a path is a folder or a broken link.
    """
    # A single path or pattern always has a match: `_matches` raises otherwise.
    paths = [path for item in _as_list(given) for path in _matches(item)]
    if not paths:
        raise InputError("no input files: the list of files is empty.")
    return tuple(paths)


def list_paths(patterns: PathLike | Iterable[PathLike]) -> list[str]:
    """Return all files that match any of the patterns, sorted, with duplicates.

    Raises:
      InputError: Nothing matches, or a match is a broken link.
    """
    given = _as_list(patterns)
    paths = [path for item in given for path in _glob(item)]
    if not paths:
        shown = ", ".join(map(repr, given))
        raise InputError(
            f"list_files: no file matches any of [{shown}] (from {Path.cwd()})."
        )
    return sorted(paths)


def given_paths(given: Any) -> tuple[str, ...]:
    """Return one path or several as text, without treating them as patterns."""
    if isinstance(given, str | bytes | os.PathLike):
        return (os.fsdecode(given),)
    paths = tuple(os.fsdecode(path) for path in given)
    if not paths:
        raise InputError("no input files: the list of files is empty.")
    return paths


def _as_list(given: PathLike | Iterable[PathLike]) -> list[str]:
    """Return one path or several as a list of text."""
    several = [given] if isinstance(given, str | os.PathLike) else given
    return [os.fspath(path) for path in several]


def _matches(pattern: str) -> list[str]:
    """Return a path that exists, or the sorted matches of a pattern."""
    if files.is_remote(pattern):
        return url_patterns.expand(pattern)
    if os.path.isfile(pattern):
        return [pattern]
    if os.path.isdir(pattern):
        raise InputError(
            f"{pattern}: expected a file, found a folder. Pass a pattern for its "
            f"files, such as {os.path.join(pattern, '*')!r}."
        )
    if os.path.lexists(pattern):
        _check_link(pattern)
        return [pattern]  # a named pipe or a device, which fails when it is opened
    if glob.has_magic(pattern):
        found = sorted(_glob(pattern))
        if found:
            return found
        raise InputError(f"no file matches {pattern!r} (from {Path.cwd()}).")
    raise InputError(f"{pattern}: there is no such file (from {Path.cwd()}).")


def _glob(pattern: str) -> list[str]:
    """Return all matches that are not folders, also those that cannot be read."""
    if files.is_remote(pattern):
        return url_patterns.expand(pattern)
    found = [path for path in glob.glob(pattern) if not os.path.isdir(path)]
    for path in found:
        _check_link(path)
    return found


def _check_link(path: str) -> None:
    """Raise `InputError` if a path is a link whose target does not exist."""
    if not os.path.exists(path):
        raise InputError(
            f"{path}: broken link: {os.path.realpath(path)} does not exist. Restore "
            "that file or remove the link."
        )


# A longer row is an error: a quote was not closed, or the file is not text.
LONGEST_ROW = 64 << 20
# Bytes are read in pieces of this size, so that memory grows with the data and not with
# the size that was requested.
_PIECE_BYTES = 4 << 20

# Where a block of a file starts: a byte and a line, or what the format needs.
BlockStart = tuple[int, ...]


class UnreadableError(InputError):
    """A part of a file that cannot be read.

    `after` is the start of the next part that can be read. None means that the rest of
    the file cannot be read.
    """

    def __init__(
        self,
        problem: str,
        after: BlockStart | None = None,
        remedy: Remedy | None = None,
    ) -> None:
        super().__init__(problem, remedy)
        self.after = after


class BlockReader(Protocol):
    """Reads the blocks of one file format; every stream has its own reader."""

    def start(self, path: str) -> BlockStart:
        """Return where the first block of a file starts."""

    def read(
        self, path: str, start: BlockStart, rows: int
    ) -> tuple[Chunk, BlockStart] | None:
        """Return the block at `start` and the start of the next; None at the end.

        `rows` is the number of rows that the caller wants now: a hint. A block may have
        any number of rows.
        """

    def close(self) -> None:
        """Close the file that is open."""


@dataclass(frozen=True, eq=False)
class JoinedFiles:
    """The rows of several whole files, one file after the other."""

    block: Chunk
    ends: Sequence[int]  # the row of the block after the last row of each file
    start: BlockStart  # where the first row starts, the same in every file


@runtime_checkable
class JoiningReader(BlockReader, Protocol):
    """A reader that can read several short files at once."""

    def join(self, paths: tuple[str, ...], first: int) -> JoinedFiles | None:
        """Return the rows of some files from number `first` on, two or more.

        None if these files should be read one by one. It raises no error of a file:
        such a file is not joined, and the error is raised when the file is read.
        """


@dataclass(frozen=True, eq=False)
class FileBlocks:
    """The rows of files of one format, one file after the other."""

    paths: tuple[str, ...]
    make_reader: Callable[[], BlockReader]
    name: str
    source = None
    columnar = True

    def open(self, context: Context) -> FileBlocksStream:
        """Start at the first file."""
        return FileBlocksStream(self.paths, self.make_reader(), context.counters)


class FileBlocksStream:
    """Reads files block by block, and keeps the present block."""

    def __init__(
        self, paths: tuple[str, ...], reader: BlockReader, counters: Counters
    ) -> None:
        self._paths = paths
        self._reader = reader
        self._joins = reader if isinstance(reader, JoiningReader) else None
        self._counters = counters
        # Of the block; the first of the files if the block is of several.
        self._file = 0
        # Of the block; None before the first block of a file.
        self._start: BlockStart | None = None
        self._row = 0  # in the block
        self._block: Chunk | None = None
        self._joined: JoinedFiles | None = None  # if the block is of several files
        self._next: BlockStart | None = None  # the start of the block after this one

    def read(self, n: int) -> Chunk | None:
        """Return up to n rows of the block, or of the next one; None at the end."""
        while self._block is not None or self._load(n):
            assert self._block is not None
            rows = len(self._block)
            out = self._block.slice(min(self._row, rows), min(self._row + n, rows))
            self._row += len(out)
            if self._row >= rows:
                # Above 0 if blocks have become smaller since the position was saved:
                # the row is then in a later block.
                self._row -= rows
                self._block, self._start = None, self._next
                if self._joined is not None:
                    self._file += len(self._joined.ends)
                    self._joined = None
            if len(out):
                return out
        return None

    def _load(self, wanted: int) -> bool:
        """Read the next block; return False at the end of the last file."""
        while self._file < len(self._paths):
            if self._load_joined():
                return True
            path = self._paths[self._file]
            self._counters.opened.setdefault(path)
            try:
                if self._start is None:
                    self._start = self._reader.start(path)
                loaded = self._reader.read(path, self._start, wanted)
            except InputError as error:
                # Move past the part that cannot be read before raising: a caller that
                # ignores the error continues there.
                self._start = getattr(error, "after", None)
                self._file += self._start is None
                self._row = 0
                raise
            if loaded is not None:
                self._block, self._next = loaded
                return True
            self._file, self._start = self._file + 1, None
        self._reader.close()
        return False

    def _load_joined(self) -> bool:
        """Read several files as one block; return False if that is not possible."""
        if self._joins is None or self._start is not None or self._row:
            return False
        joined = self._joins.join(self._paths, self._file)
        if joined is None:
            return False
        self._block, self._joined, self._next = joined.block, joined, None
        after = self._file + len(joined.ends)
        self._counters.opened.update(dict.fromkeys(self._paths[self._file : after]))
        return True

    def get_state(self) -> State:
        """Return the file, the start of the block ("place"), and the row in it."""
        file, start, row = self._position()
        return {
            "file": file,
            "name": self._name(file),
            "place": start and list(start),
            "row": row,
        }

    def _position(self) -> tuple[int, BlockStart | None, int]:
        """Return the position in the file of the next row."""
        if self._joined is None:
            return self._file, self._start, self._row
        number = bisect_right(self._joined.ends, self._row)
        row = self._row - (self._joined.ends[number - 1] if number else 0)
        return self._file + number, self._joined.start if row else None, row

    def set_state(self, state: State) -> None:
        """Go to a position; the block is read again at the next read."""
        self._file, self._row = int(state["file"]), int(state["row"])
        start = state["place"]
        self._start = None if start is None else tuple(map(int, start))
        self._block = self._joined = None
        name = self._name(self._file)
        check_same("the next file in the list", state["name"], name)

    def _name(self, file: int) -> str:
        ended = file >= len(self._paths)
        return "" if ended else os.path.basename(self._paths[file])

    def close(self) -> None:
        """Release the block and close the file."""
        self._file, self._start, self._row = self._position()
        self._block = self._joined = None
        self._reader.close()


class ByteFile:
    """Reads the bytes of a file at any offset, decompressed if need be.

    Going back in a compressed file decompresses it again from its start, except within
    the bytes of the last read. `end` is the byte at which to treat a file that is not
    compressed as ended, so that several readers can share it.
    """

    def __init__(
        self, path: str, compression: str | None = None, end: int | None = None
    ) -> None:
        self.path = path
        self._end = end
        self._compression = compressed.check_compression(compression, path)
        self._file: BinaryIO = files.open_to_read(path)
        # Close the file also if the iterator is garbage-collected without close().
        weakref.finalize(self, self._file.close)
        self._source = compressed.source_of(self._file, self._compression)
        self._at = 0  # the offset of the byte that `_source` returns next
        self._held = b""  # the bytes before `_at`, for compressed files

    def read_at(self, offset: int, size: int) -> bytes:
        """Return `size` bytes from an offset, fewer only at the end of the file."""
        if not self._compression:
            self._file.seek(offset)
            self._at = offset
            if self._end is not None:
                size = min(size, max(self._end - offset, 0))
            data = self._more(size)
            if self._end is not None and len(data) < size:
                raise self._too_short(self._end)
            if not data and offset > self._file.seek(0, 2):
                raise self._too_short(offset)
            return data
        # A compressed stream only goes forward. Readers mostly go back a little, to the
        # row that the last block cut, so the bytes of the last read are kept. Before
        # them, decompress from the start; after them, skip.
        if offset < self._at - len(self._held):
            self._file.seek(0)
            self._source = compressed.source_of(self._file, self._compression)
            self._at, self._held = 0, b""
        held = self._held[len(self._held) - (self._at - offset) :]
        if offset > self._at:
            self._skip(offset - self._at)
            held = b""
        self._held = held + self._more(size - len(held))
        self._at = offset + len(self._held)
        return self._held[:size]

    def text_start(self) -> int:
        """Return the offset of the first byte of text, after a byte order mark."""
        mark = codecs.BOM_UTF8
        return len(mark) if self.read_at(0, len(mark)) == mark else 0

    def _more(self, size: int) -> bytes:
        """Return up to `size` bytes, in memory that grows with the data."""
        pieces: list[memoryview] = []
        while size > 0:
            piece = memoryview(bytearray(min(size, _PIECE_BYTES)))
            filled = self._source.readinto(piece)
            if self._source.failure is not None:
                of = " of the decompressed data" if self._compression else ""
                raise InputError(
                    f"{self.path} (byte {self._at + filled}{of}): "
                    f"{self._source.failure}"
                )
            pieces.append(piece[:filled])
            size -= filled
            if filled < len(piece):
                break
        return b"".join(pieces)

    def _skip(self, count: int) -> None:
        while count:
            got = len(self._more(min(count, 1 << 20)))
            if not got:
                raise self._too_short(self._at + count)
            count -= got

    def _too_short(self, offset: int) -> InputError:
        return InputError(
            f"{self.path}: the file ends before the position to read (byte {offset}), "
            "so it has changed. Restore the file, or start the input from its "
            "beginning."
        )

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class OpenFile:
    """Keeps one `ByteFile` open, for a reader."""

    def __init__(self, compression: str | None = None, end: int | None = None) -> None:
        self._compression = compression
        self._end = end
        self._file: ByteFile | None = None

    def get(self, path: str) -> ByteFile:
        """Return the file of a path; open it, and close another, if need be."""
        if self._file is None or self._file.path != path:
            self.close()
            self._file = ByteFile(path, self._compression, self._end)
        return self._file

    def close(self) -> None:
        """Close the file, if one is open."""
        if self._file is not None:
            self._file.close()
            self._file = None


def arrow_reader(data: bytes | memoryview) -> Any:
    """Return a `pyarrow.BufferReader` of a copy of `data` in Arrow's own memory.

    A reader of Python bytes may be released by a thread of Arrow's pool after pyarrow
    has returned. Releasing Python bytes takes the GIL; if the interpreter is shutting
    down by then, Python ends that thread inside a C++ destructor, which aborts the
    process (exit code 134) after all work is done.
    """
    import pyarrow as pa

    buffer = pa.allocate_buffer(len(data))
    np.frombuffer(buffer, np.uint8)[:] = np.frombuffer(data, np.uint8)
    return pa.BufferReader(buffer)
