"""Files as a source, a block of rows at a time: what CSV, text, records share.

    FileBlocks(paths, CsvReader, "csv_files")

A reader turns (file, place) into a block and the place behind it. A position is (file,
place where the block begins, row in the block): resuming seeks there and reads one
block, however far into the data it is.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from estimax.core.errors import InputError
from estimax.input.streams.chunks import Chunk
from estimax.input.streams.stream import Context, Counters, State, check_same
from estimax.wire import compression as compressed
from estimax.wire import files

# A longer row is taken for a quote that was never closed, or for no text at all.
LONGEST_ROW = 64 << 20
# At most so much memory is taken before it is known that the file fills it.
_PIECE_BYTES = 4 << 20

# Where a block begins: a byte and a line, or whatever the reader's own format needs.
Place = tuple[int, ...]


class UnreadableError(InputError):
    """A part of a file that cannot be read; `after` is where the next part begins.

    None says that nothing behind it in this file can be found.
    """

    def __init__(self, message: str, after: Place | None = None) -> None:
        super().__init__(message)
        self.after = after


class BlockReader(Protocol):
    """Reads blocks of one file after another; each stream has its own."""

    def start(self, path: str) -> Place:
        """Where the first block of a file begins."""

    def read(self, path: str, place: Place, rows: int) -> tuple[Chunk, Place] | None:
        """The block there and the place behind it; None at the end of the file.

        So many `rows` are wanted now; a block may have any number.
        """

    def close(self) -> None:
        """Let go of the file that is open."""


@dataclass(frozen=True, eq=False)
class FileBlocks:
    """Files of one format, one after the other."""

    paths: tuple[str, ...]
    make_reader: Callable[[], BlockReader]
    name: str
    source = None
    columnar = True

    def open(self, context: Context) -> FileBlocksStream:
        """Start with the first file."""
        return FileBlocksStream(self.paths, self.make_reader(), context.counters)


class FileBlocksStream:
    """A block in memory, and where in which file it begins."""

    def __init__(
        self, paths: tuple[str, ...], reader: BlockReader, counters: Counters
    ) -> None:
        self._paths = paths
        self._reader = reader
        self._counters = counters
        self._file = 0
        self._place: Place | None = None  # of the block; None is before the first
        self._row = 0  # in the block
        self._block: Chunk | None = None
        self._next: Place = ()

    def read(self, n: int) -> Chunk | None:
        """Rows of the block, or of the next one."""
        while self._block is not None or self._load(n):
            assert self._block is not None
            rows = len(self._block)
            out = self._block.slice(min(self._row, rows), min(self._row + n, rows))
            self._row += len(out)
            if self._row >= rows:
                self._row -= rows  # above 0 if the block size has changed since a save
                self._block, self._place = None, self._next
            if len(out):
                return out
        return None

    def _load(self, wanted: int) -> bool:
        while self._file < len(self._paths):
            path = self._paths[self._file]
            self._counters.opened.setdefault(path)
            try:
                if self._place is None:
                    self._place = self._reader.start(path)
                loaded = self._reader.read(path, self._place, wanted)
            except InputError as error:
                # Told once: whoever ignores it goes on behind what cannot be read.
                self._place = getattr(error, "after", None)
                self._file += self._place is None
                self._row = 0
                raise
            if loaded is not None:
                self._block, self._next = loaded
                return True
            self._file, self._place = self._file + 1, None
        self._reader.close()
        return False

    def get_state(self) -> State:
        """The block's place, and the row in it."""
        return {
            "file": self._file,
            "name": self._name(),
            "place": self._place and list(self._place),
            "row": self._row,
        }

    def set_state(self, state: State) -> None:
        """Seek there; the block is read again when needed."""
        self._file, self._row = int(state["file"]), int(state["row"])
        place = state["place"]
        self._place = None if place is None else tuple(map(int, place))
        self._block = None
        check_same("the file at this place of the list", state["name"], self._name())

    def _name(self) -> str:
        ended = self._file >= len(self._paths)
        return "" if ended else os.path.basename(self._paths[self._file])

    def close(self) -> None:
        """Let go of the block and the file."""
        self._block = None
        self._reader.close()


class ByteFile:
    """Bytes of a file by offset, decompressed on the way.

    Going back in a compressed file decompresses it anew; going on does not.
    """

    def __init__(self, path: str, compression: str | None = None) -> None:
        self.path = path
        self._compression = compressed.check_compression(compression, path)
        self._file: BinaryIO = files.open_to_read(path)
        # An iterator that is merely forgotten must not leave its file open.
        weakref.finalize(self, self._file.close)
        self._source = compressed.source_of(self._file, self._compression)
        self._at = 0  # what `_source` gives next
        self._held = b""  # the bytes just before it, of compressed files

    def read_at(self, offset: int, size: int) -> bytes:
        """`size` bytes from an offset on, fewer only at the end of the file."""
        if not self._compression:
            self._file.seek(offset)
            self._at = offset
            data = self._more(size)
            if not data and offset > self._file.seek(0, 2):
                raise self._too_short(offset)
            return data
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

    def _more(self, size: int) -> bytes:
        """Up to `size` bytes, in memory that grows as they come."""
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
            f"{self.path}: is shorter than the position to resume from (byte "
            f"{offset}). Restore the file, or start the input from its beginning."
        )

    def close(self) -> None:
        """Close it."""
        self._file.close()


class OpenFile:
    """The file that a reader has open: one at a time."""

    def __init__(self, compression: str | None = None) -> None:
        self._compression = compression
        self._file: ByteFile | None = None

    def get(self, path: str) -> ByteFile:
        """That file, opened unless it is open."""
        if self._file is None or self._file.path != path:
            self.close()
            self._file = ByteFile(path, self._compression)
        return self._file

    def close(self) -> None:
        """Close what is open."""
        if self._file is not None:
            self._file.close()
            self._file = None
