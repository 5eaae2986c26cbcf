"""Read columns of CSV files as text, block by block, for whoever judges the values.

    for rows in read_text_rows("a.csv", CsvFormat(), names, columns=["age"]):
        rows.table.column("age")        # pyarrow, text as it is in the file
        rows.line_of(3)                 # the line on which its row 3 begins

Training reads the same blocks (`csv_blocks.py`), so that quotes and the ends of rows
mean the same here. No value is converted, so a value that is not a number does not end
the reading. Empty lines are skipped.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from estimax.core.encodings import is_utf_8
from estimax.input.sources.csv_blocks import (
    Block,
    CsvFormat,
    read_first_row,
    read_rows,
    row_ends,
)
from estimax.input.sources.csv_schema import split_row
from estimax.input.sources.file_blocks import ByteFile, arrow_reader


class BadTextError(ValueError):
    """A row that cannot be parsed.

    Args:
      line: The line of the file on which it begins.
      data: The bytes of the row.
      values: The values of the row; None if it does not have the expected encoding.
    """

    def __init__(self, line: int, data: bytes, values: Sequence[str] | None) -> None:
        super().__init__(f"line {line} cannot be parsed")
        self.line = line
        self.data = data
        self.values = values


@dataclass(frozen=True, eq=False)
class TextRows:
    """Some rows of a file as columns of text."""

    table: Any  # pyarrow has no types
    block: Block
    form: CsvFormat

    def line_of(self, row: int) -> int:
        """Return the line of the file on which a row begins."""
        starts = (start for start, _ in _row_spans(self.block, self.form))
        return self.block.start_at(next(itertools.islice(starts, row, None)))[1]


def read_text_rows(
    file: ByteFile,
    form: CsvFormat,
    names: Sequence[str],
    columns: Sequence[str] | None = None,
    *,
    keep_nulls: bool = False,
) -> Iterator[TextRows]:
    """Yield the rows of a file, several megabytes at a time.

    Args:
      file: The file, which the caller closes.
      form: How it is written. Text is decoded from `form.encoding`, or UTF-8.
      names: The names of all of its columns.
      columns: The names of the columns to return; all of them if None.
      keep_nulls: Return missing values as the text that stands for them. Otherwise they
        are null.

    Raises:
      UnreadableError: A quote is misplaced or not closed.
      BadTextError: A row has the wrong number of values or the wrong encoding.
    """
    import pyarrow as pa

    _, offset, line = read_first_row(file, form)
    while (block := read_rows(file, offset, line, form)).end:
        try:
            table = _parse_text(block, form, names, columns or names, keep_nulls)
        except (pa.ArrowInvalid, UnicodeDecodeError):
            error = _find_bad_row(block, form, len(names))
            if error is None:
                raise
            raise error from None
        yield TextRows(table, block, form)
        offset, line = block.start_at(block.end)


def _parse_text(
    block: Block,
    form: CsvFormat,
    names: Sequence[str],
    columns: Sequence[str],
    keep_nulls: bool,
) -> Any:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    data = block.data[: block.end]
    encoding = form.encoding or "utf-8"
    if not is_utf_8(encoding):
        data = data.decode(encoding).encode()
    if not data.strip(b"\r\n"):  # pyarrow refuses data without rows
        return pa.table({name: pa.array([], pa.string()) for name in columns})
    return arrow_csv.read_csv(
        arrow_reader(data),
        read_options=arrow_csv.ReadOptions(
            column_names=list(names), block_size=len(data) + 1
        ),
        parse_options=arrow_csv.ParseOptions(
            delimiter=form.delimiter,
            quote_char=form.quote or False,
            newlines_in_values=form.quote is not None,
        ),
        convert_options=arrow_csv.ConvertOptions(
            column_types=dict.fromkeys(columns, pa.string()),
            include_columns=list(columns),
            null_values=list(form.null_values),
            strings_can_be_null=not keep_nulls,
            quoted_strings_can_be_null=not keep_nulls,
        ),
    )


def _find_bad_row(block: Block, form: CsvFormat, width: int) -> BadTextError | None:
    """Return the error of the first row that pyarrow refuses; None if none is found."""
    for start, end in _row_spans(block, form):
        data = block.data[start:end].rstrip(b"\r\n")
        line = block.start_at(start)[1]
        try:
            data.decode(form.encoding or "utf-8")
        except UnicodeDecodeError:
            return BadTextError(line, data, None)
        values = split_row(data, form)
        if len(values) != width:
            return BadTextError(line, data, values)
    return None


def _row_spans(block: Block, form: CsvFormat) -> Iterator[tuple[int, int]]:
    """Yield start and end of every row of a block; an empty line is no row."""
    start = 0
    for end in row_ends(block, form).tolist():
        if block.data[start:end].strip(b"\r\n"):
            yield start, end
        start = end
