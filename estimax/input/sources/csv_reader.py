"""Read CSV: files in blocks of rows (`CsvReader`), and records (`decode_csv`).

    csv_files("train-*.csv", dtypes={"age": "int64"}, defaults={"age": -1})
    age, city = decode_csv(lines, [-1, ""])

pyarrow parses the rows. A block of a file starts at (byte, line): resuming seeks there
and parses one block, however far into the data it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import InputError
from estimax.core.strings import Strings
from estimax.input.sources.csv_blocks import (
    Block,
    CsvFormat,
    check_whole,
    read_first_row,
    read_rows,
)
from estimax.input.sources.csv_schema import (
    BadRowError,
    Schema,
    number_fields,
    parse,
    read_header,
    split_row,
)
from estimax.input.sources.file_blocks import BlockStart, OpenFile
from estimax.input.streams.chunks import Chunk
from estimax.input.streams.columns import DataColumn, row_of

# The least number of bytes parsed at once after a bad row; it doubles with every good
# block.
_CAREFUL_BYTES = 1 << 14
_LF = 0x0A


@dataclass(eq=False)
class CsvReader:
    """Reads rows of one schema; a block starts at (byte, line)."""

    schema: Schema
    form: CsvFormat
    first: str  # the file whose header the others must have
    _open: OpenFile = field(init=False)
    _most: int = field(init=False)  # bytes per block, fewer after a bad row

    def __post_init__(self) -> None:
        self._open = OpenFile(self.form.compression)
        self._most = self.form.block_bytes

    def start(self, path: str) -> BlockStart:
        """Return the position after the header; raise if the header differs."""
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

    def read(
        self, path: str, start: BlockStart, rows: int
    ) -> tuple[Chunk, BlockStart] | None:
        """Return a block of rows that ends before the first bad row.

        Raises:
          BadRowError: The first row of the block is bad.
        """
        offset, line = start
        form = replace(self.form, block_bytes=min(self._most, self.form.block_bytes))
        block = read_rows(self._open.get(path), offset, line, form)
        if not block.end:
            return None
        try:
            parsed = parse(block, self.schema, form)
            self._most *= 2
        except BadRowError as error:
            # The rows after the bad one are parsed again with the next block. Smaller
            # blocks keep that cheap in a file with many bad rows.
            self._most = max(_CAREFUL_BYTES, min(self._most, form.block_bytes) // 8)
            if not error.start:
                raise
            block = replace(block, end=error.start)
            parsed = parse(block, self.schema, form)
        return parsed, block.start_at(block.end)

    def close(self) -> None:
        """Close the file."""
        self._open.close()


def decode_csv(
    records: Any,
    record_defaults: Sequence[Any],
    field_delim: str = ",",
    use_quote_delim: bool = True,
    na_value: str = "",
    select_cols: Sequence[int] | None = None,
) -> list[Any]:
    """Parse CSV records that are already in memory into columns.

    Use it in a `map` over lines, as `tf.io.decode_csv`. To read files, `csv_files` and
    `CsvDataset` are faster.

    Args:
      records: Text of any shape, one record each, without line ends. A single `str` or
        `bytes` gives scalars.
      record_defaults: One entry for each selected field: a default, whose type sets the
        dtype (an `int` int32, a `float` float32), or a dtype alone for a field that
        must not be missing.
      field_delim: The character between two fields.
      use_quote_delim: Whether double quotes enclose fields. If False, quotes are
        ordinary characters.
      na_value: A text that stands for a missing value, in addition to the empty field.
      select_cols: The numbers of the fields to return, ascending; all by default.

    Returns:
      A list with one column for each default: int32, int64, float32, float64 or
      `Strings`, in the shape of `records`.

    Raises:
      InputError: A record has the wrong number of fields, a value does not fit its
        dtype, or one without default is missing; the message names the record. Or
        `select_cols` does not ascend or does not match `record_defaults`.

    Example:
      >>> decode_csv(["1,x", ",y"], [-1, ""])
      [array([ 1, -1], dtype=int32), Strings([b'x', b'y'], shape=(2,))]
    """
    single = isinstance(records, str | bytes)
    text = Strings.of([records] if single else records)
    form = CsvFormat.of_tensorflow(field_delim, use_quote_delim, na_value)
    flat = text.reshape((-1,))
    count = len(record_defaults)
    if select_cols is not None and len(flat):
        count = max(len(split_row(flat[0], form)), max(select_cols, default=0) + 1)
    schema = Schema(*number_fields(count, record_defaults, select_cols), None)
    if single:
        return [row_of(column, 0) for column in _parse(flat, schema, form)]
    return [_reshape(column, text.shape) for column in _parse(flat, schema, form)]


def _reshape(column: Any, shape: tuple[int, ...]) -> DataColumn:
    reshaped: DataColumn = column.reshape(shape)
    return reshaped


def _parse(records: Strings, schema: Schema, form: CsvFormat) -> list[DataColumn]:
    """Return the columns of a vector of records."""
    if not len(records):
        return [_empty(field.dtype) for field in schema.fields]
    data = joined(records)
    block = Block("decode_csv", data.tobytes(), len(data), 0)
    try:
        check_whole(block, records.lengths, form)
        rows = parse(block, schema, form)
    except InputError as error:
        if len(records) == 1:
            raise
        raise _error_of_record(records, schema, form, error) from error
    return [rows.tree[field.name] for field in schema.fields]


def _error_of_record(
    records: Strings, schema: Schema, form: CsvFormat, error: InputError
) -> InputError:
    """Return the error of the first record that fails alone; `error` if none does."""
    for number in range(len(records)):
        try:
            _parse(records[number : number + 1], schema, form)
        except InputError as problem:
            return InputError(f"record {number}: {problem}")
    return error


def joined(records: Strings) -> NDArray[np.uint8]:
    r"""Return the bytes of the records with a line break after each.

    >>> joined(Strings.of(["a", "bc"])).tobytes()
    b'a\nbc\n'
    """
    lengths = records.lengths
    out = np.full(int(lengths.sum()) + len(records), _LF, np.uint8)
    first, last = records.offsets[0], records.offsets[-1]
    places = np.arange(last - first) + np.repeat(np.arange(len(records)), lengths)
    out[places] = records.data[first:last]
    return out


def _empty(dtype: str) -> DataColumn:
    return Strings.of([]) if dtype == "string" else np.empty(0, dtype)
