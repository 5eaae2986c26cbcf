"""CSV files as a source: blocks of rows, parsed by pyarrow, resumed by byte offset.

    csv_files("train-*.csv", dtypes={"age": "int64"}, defaults={"age": -1})

A position is (file, byte where the block starts, row in the block): resuming seeks
there and parses one block, however far into the data it is.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from estimax.core.errors import InputError
from estimax.input.chunks import Chunk
from estimax.input.csv_blocks import CsvFormat, read_first_row, read_rows
from estimax.input.csv_schema import Schema, make_schema, read_header
from estimax.input.dataset import Dataset
from estimax.input.files import PathLike, expand
from estimax.input.stream import Context, State, check_at_least, check_same


def csv_files(
    files: PathLike | Iterable[PathLike],
    *,
    columns: Sequence[str] | None = None,
    dtypes: Mapping[str, Any] | None = None,
    select: Iterable[str] | None = None,
    null_values: Iterable[str] = ("",),
    defaults: Mapping[str, Any] | None = None,
    delimiter: str = ",",
    quote: str | None = '"',
    header: bool = True,
    block_bytes: int = 4 << 20,
) -> Dataset:
    """Read CSV files into dicts of columns: float32, int64 or `Strings` by name.

    `files` is a path, a pattern (sorted) or a list of these. Dtypes that are not given
    are inferred from the first megabyte. A missing value (empty, or in `null_values`)
    takes its column's default; text without one is empty, a number without one is an
    error. `columns` names the columns, in place of the header if there is one.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
    ...     _ = file.write("age,city\\n31,Oslo\\n,Rome\\n")
    ...     file.flush()
    ...     next(iter(csv_files(file.name, defaults={"age": -1}).batch(2)))
    {'age': array([31, -1]), 'city': Strings([b'Oslo', b'Rome'], shape=(2,))}
    """
    check_at_least(1, block_bytes, "csv_files: block_bytes")
    for what, text in (("delimiter", delimiter), ("quote", quote)):
        if text is not None and (len(text) != 1 or not text.isascii()):
            raise InputError(f"csv_files: {what} must be one character, got {text!r}.")
    paths = expand(files)
    form = CsvFormat(delimiter, quote, tuple(null_values), header, block_bytes)
    schema = make_schema(
        paths, form, columns=columns, dtypes=dtypes, select=select, defaults=defaults
    )
    return Dataset(CsvFiles(paths, form, schema))


@dataclass(frozen=True, eq=False)
class CsvFiles:
    """Files of one schema, one after the other."""

    paths: tuple[str, ...]
    form: CsvFormat
    schema: Schema
    name = "csv_files"
    source = None
    columnar = True

    def open(self, context: Context) -> CsvStream:
        """Start with the first file."""
        return CsvStream(self)


class CsvStream:
    """A block of rows in memory, and where in which file it begins.

    No file is held open: a block is read by one open, seek and read.
    """

    def __init__(self, node: CsvFiles) -> None:
        self._node = node
        self._file = 0
        self._offset = 0  # of the block; 0 means before the header
        self._line = 1
        self._row = 0  # in the block
        self._block: Chunk | None = None
        self._next = (0, 0, 1)  # file, offset and line behind the block

    def read(self, n: int) -> Chunk | None:
        """Rows of the block, or of the next one."""
        while self._block is not None or self._load():
            assert self._block is not None
            rows = len(self._block)
            out = self._block.slice(min(self._row, rows), min(self._row + n, rows))
            self._row += len(out)
            if self._row >= rows:
                self._row -= rows  # above 0 if block_bytes has changed since a save
                self._block = None
                self._file, self._offset, self._line = self._next
            if len(out):
                return out
        return None

    def _load(self) -> bool:
        node = self._node
        while self._file < len(node.paths):
            path = node.paths[self._file]
            if self._offset == 0:
                self._offset, self._line = self._start_of_rows(path)
            block = read_rows(path, self._offset, self._line, node.form)
            if block.end:
                from estimax.input.csv_parse import parse

                self._block = parse(block, node.schema, node.form)
                line = self._line + block.lines
                self._next = (self._file, self._offset + block.end, line)
                return True
            self._file, self._offset, self._line = self._file + 1, 0, 1
        return False

    def _start_of_rows(self, path: str) -> tuple[int, int]:
        expected = self._node.schema.header
        found = read_header(path, self._node.form)
        if expected is not None and found != expected:
            raise InputError(
                f"{path}, line 1: the header differs from that of "
                f"{self._node.paths[0]}: expected {', '.join(expected)}; found "
                f"{', '.join(found or ())}. All files must have the same columns in "
                "the same order."
            )
        _, offset, line = read_first_row(path, self._node.form)
        return offset, line

    def get_state(self) -> State:
        """The block's place, and the row in it."""
        return {
            "file": self._file,
            "name": self._name(),
            "offset": self._offset,
            "line": self._line,
            "row": self._row,
        }

    def set_state(self, state: State) -> None:
        """Seek there; the block is read again when needed."""
        self._file, self._offset = int(state["file"]), int(state["offset"])
        self._line, self._row = int(state["line"]), int(state["row"])
        self._block = None
        check_same("the file at this place of the list", state["name"], self._name())

    def _name(self) -> str:
        ended = self._file >= len(self._node.paths)
        return "" if ended else os.path.basename(self._node.paths[self._file])

    def close(self) -> None:
        """Let go of the block."""
        self._block = None
