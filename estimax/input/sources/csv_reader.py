"""CSV files as a source: blocks of rows, parsed by pyarrow, resumed by byte offset.

    csv_files("train-*.csv", dtypes={"age": "int64"}, defaults={"age": -1})

A position is (file, byte where the block starts, row in the block): resuming seeks
there and parses one block, however far into the data it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from estimax.core.errors import InputError
from estimax.input.sources.csv_blocks import CsvFormat, read_first_row, read_rows
from estimax.input.sources.csv_schema import Schema, read_header
from estimax.input.sources.file_blocks import OpenFile, Place
from estimax.input.streams.chunks import Chunk

# What is parsed at once after a bad row, doubled with every good block.
_CAREFUL_BYTES = 1 << 14


@dataclass(eq=False)
class CsvReader:
    """Blocks of rows of one schema; a place is (byte, line)."""

    schema: Schema
    form: CsvFormat
    first: str  # the file whose header the others must have
    _open: OpenFile = field(init=False)
    _most: int = field(init=False)  # bytes a block: fewer after a bad row

    def __post_init__(self) -> None:
        self._open = OpenFile(self.form.compression)
        self._most = self.form.block_bytes

    def start(self, path: str) -> Place:
        """Behind the header, which must be that of the first file."""
        expected = self.schema.header
        found = read_header(path, self.form)
        if expected is not None and found != expected:
            raise InputError(
                f"{path}, line 1: the header differs from that of {self.first}: "
                f"expected {', '.join(expected)}; found {', '.join(found or ())}. All "
                "files must have the same columns in the same order."
            )
        _, offset, line = read_first_row(self._open.get(path), self.form)
        return offset, line

    def read(self, path: str, place: Place, rows: int) -> tuple[Chunk, Place] | None:
        """The rows there, up to the first bad one; that one is an error."""
        from estimax.input.sources.csv_parse import BadRowError, parse

        offset, line = place
        form = replace(self.form, block_bytes=min(self._most, self.form.block_bytes))
        block = read_rows(self._open.get(path), offset, line, form)
        if not block.end:
            return None
        try:
            parsed = parse(block, self.schema, form)
            self._most *= 2
        except BadRowError as error:
            # The rest is read again, and a file full of bad rows as often.
            self._most = max(_CAREFUL_BYTES, min(self._most, form.block_bytes) // 8)
            if not error.start:
                raise
            block = replace(block, end=error.start)
            parsed = parse(block, self.schema, form)
        return parsed, block.place(block.end)

    def close(self) -> None:
        """Close the file."""
        self._open.close()
