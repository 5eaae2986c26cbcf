"""CSV files as a source: blocks of rows, parsed by pyarrow, resumed by byte offset.

    csv_files("train-*.csv", dtypes={"age": "int64"}, defaults={"age": -1})

A position is (file, byte where the block starts, row in the block): resuming seeks
there and parses one block, however far into the data it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from estimax.core.errors import InputError
from estimax.input.chunks import Chunk
from estimax.input.csv_blocks import CsvFormat, read_first_row, read_rows
from estimax.input.csv_schema import Schema, make_schema, read_header
from estimax.input.dataset import Dataset
from estimax.input.file_blocks import FileBlocks, OpenFile, Place
from estimax.input.files import PathLike, expand
from estimax.input.stream import check_at_least

# What is parsed at once after a bad row, doubled with every good block.
_CAREFUL_BYTES = 1 << 14


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
    compression: str | None = None,
    block_bytes: int = 4 << 20,
) -> Dataset:
    """Read CSV files into dicts of columns: float32, int64 or `Strings` by name.

    `files` is a path, a pattern (sorted) or a list of these. Dtypes that are not given
    are inferred from the first megabyte. A missing value (empty, or in `null_values`)
    takes its column's default; text without one is empty, a number without one is an
    error. `columns` names the columns, in place of the header if there is one.
    `compression` is None, "GZIP" or "ZLIB".

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
    nulls = tuple(null_values)
    form = CsvFormat(delimiter, quote, nulls, header, block_bytes, compression)
    schema = make_schema(
        paths, form, columns=columns, dtypes=dtypes, select=select, defaults=defaults
    )
    return csv_dataset(paths, schema, form, "csv_files")


def csv_dataset(
    paths: tuple[str, ...], schema: Schema, form: CsvFormat, name: str
) -> Dataset:
    """A dataset of dicts of columns, of files whose schema is known."""
    return Dataset(FileBlocks(paths, lambda: CsvReader(schema, form, paths[0]), name))


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
        from estimax.input.csv_parse import BadRowError, parse

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
