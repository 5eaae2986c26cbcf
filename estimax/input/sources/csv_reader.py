"""Read CSV: files in blocks of rows (`CsvReader`), and records (`decode_csv`).

    csv_files("train-*.csv", dtypes={"age": "int64"}, defaults={"age": -1})
    age, city = decode_csv(lines, [-1, ""])

pyarrow parses the rows of files. `decode_csv` uses a compiled loop, and pyarrow for the
records that the loop does not take, which include all that are wrong. A block of a file
starts at (byte, line): resuming seeks there and parses one block, however far into the
data it is. Short files are parsed together, see `csv_joining`.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
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
from estimax.input.sources.csv_joining import join_rows, longest_to_join, parse_joined
from estimax.input.sources.csv_schema import (
    BadRowError,
    Schema,
    names_in,
    number_fields,
    parse,
    split_row,
)
from estimax.input.sources.file_blocks import BlockStart, JoinedFiles, OpenFile
from estimax.input.streams.block_values import BlockValue
from estimax.input.streams.chunks import Chunk
from estimax.input.streams.columns import DataColumn, row_of
from estimax.native.csv_records import RecordFormat
from estimax.native.reference.csv_records import KINDS, RecordField

_log = logging.getLogger("estimax")

# The least number of bytes parsed at once after a bad row; it doubles with every good
# block.
_CAREFUL_BYTES = 1 << 14
# The most files to join: parsing then takes a small part of the time, and the first
# rows of a group do not wait long for the other files.
_MOST_FILES = 256
_LF = 0x0A


@dataclass(eq=False)
class CsvReader:
    """Reads rows of one schema; a block starts at (byte, line)."""

    schema: Schema
    form: CsvFormat
    first: str  # the file whose header all files must have
    end: int | None = None  # the byte after the last row to read; None: all rows
    _open: OpenFile = field(init=False)
    _most: int = field(init=False)  # bytes per block, fewer after a bad row
    _after_header: BlockStart | None = field(default=None, init=False)
    # The bytes before the first row, of the last file whose header was checked.
    _head: bytes = field(default=b"", init=False)
    # Whether the last file was short: the next one is probably short, too.
    _was_short: bool = field(default=False, init=False)
    _most_files: int = field(default=2, init=False)  # to join, fewer after a failure

    def __post_init__(self) -> None:
        self._open = OpenFile(self.form.compression, self.end)
        self._most = self.form.block_bytes

    def start(self, path: str) -> BlockStart:
        """Return the position after the header; raise if the header differs."""
        expected = self.schema.header
        file = self._open.get(path)
        row, offset, line = read_first_row(file, self.form)
        found = names_in(row, path, self.form)
        if expected is not None and found != expected:
            raise InputError(
                f"{path}, line 1: the header differs from that of {self.first}: "
                f"expected {', '.join(expected)}; found {', '.join(found or ())}. All "
                "files must have the same columns in the same order."
            )
        self._head = file.read_at(0, offset)
        self._after_header = (offset, line)
        return self._after_header

    def join(self, paths: tuple[str, ...], first: int) -> JoinedFiles | None:
        """Return the rows of the next short files whose header is the last one."""
        if self._after_header is None or not self._was_short or self.end is not None:
            return None
        if self._most_files < 2:
            self._most_files *= 2
            return None
        several = paths[first : first + self._most_files]
        block, ends = join_rows(several, self._head, self.form)
        if len(ends) < 2:
            self._was_short = False
            return None
        parsed = parse_joined(block, ends, self.schema, self.form)
        if parsed is None:
            # Read the files with the error apart: their messages name file and line.
            self._most_files = max(1, len(ends) // 8)
            return None
        self._most_files = min(2 * self._most_files, _MOST_FILES)
        rows, row_ends = parsed
        return JoinedFiles(rows, row_ends, self._after_header)

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
            if start == self._after_header:
                _warn_of_no_rows(path)
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
        if start == self._after_header:
            self._was_short = block.end <= longest_to_join(self.form)
        return parsed, block.start_at(block.end)

    def close(self) -> None:
        """Close the file."""
        self._open.close()


@functools.cache  # once for each file, not in every epoch
def _warn_of_no_rows(path: str) -> None:
    _log.warning("%s: the file has no rows below its header", path)


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
    options = (record_defaults, field_delim, use_quote_delim, na_value, select_cols)
    if isinstance(records, BlockValue):  # `map` calls a function for many rows at once
        decoded = records.block.attempt(decode_csv, records.text, *options)
        return [records.like(column) for column in decoded]
    single = isinstance(records, str | bytes)
    text = Strings.of([records] if single else records)
    flat = text.reshape((-1,))
    form = CsvFormat.of_tensorflow(field_delim, use_quote_delim, na_value)
    count = len(record_defaults)
    if select_cols is not None and len(flat):
        count = max(len(split_row(flat[0], form)), max(select_cols, default=0) + 1)
    decoder = _decoder_of(count, record_defaults, select_cols, form)
    columns = decoder(flat)
    if single:
        return [row_of(column, 0) for column in columns]
    shaped = [_reshape(column, text.shape) for column in columns]
    recorded = _decodings.get()
    if recorded is not None:
        fields = tuple((field.dtype, field.default) for field in decoder.schema.fields)
        named = {
            "field_delim": field_delim,
            "use_quote_delim": use_quote_delim,
            "na_value": na_value,
            "select_cols": None if select_cols is None else list(select_cols),
        }
        recorded.append(Decoding(text, tuple(shaped), fields, named))
    return shaped


@dataclass(frozen=True, eq=False)
class Decoding:
    """A call of `decode_csv`: its records, its result, and how to repeat it."""

    records: Strings
    columns: tuple[DataColumn, ...]
    fields: tuple[tuple[str, Any], ...]  # dtype and default, or None, of each column
    options: dict[str, Any]  # the other arguments


_decodings: ContextVar[list[Decoding] | None] = ContextVar("decodings", default=None)


@contextmanager
def record_decodings() -> Iterator[list[Decoding]]:
    """Record the calls of `decode_csv` in a block, for an export."""
    found: list[Decoding] = []
    token = _decodings.set(found)
    try:
        yield found
    finally:
        _decodings.reset(token)


def _reshape(column: Any, shape: tuple[int, ...]) -> DataColumn:
    reshaped: DataColumn = column.reshape(shape)
    return reshaped


@dataclass(frozen=True, eq=False)
class _Decoder:
    """Parses vectors of records with the same fields."""

    schema: Schema
    form: CsvFormat
    compiled: RecordFormat | None  # None if compiled code cannot read this format

    def __call__(self, records: Strings) -> list[DataColumn]:
        columns = self.compiled.decode(records) if self.compiled else None
        # Compiled code takes no record that is unusual or wrong.
        return _parse(records, self.schema, self.form) if columns is None else columns


def _decoder_of(
    count: int,
    record_defaults: Sequence[Any],
    select_cols: Sequence[int] | None,
    form: CsvFormat,
) -> _Decoder:
    """Return a decoder; one with the same simple defaults is made once."""
    defaults = tuple(_Default(given) for given in record_defaults)
    chosen = None if select_cols is None else tuple(select_cols)
    if all(default.key is not None for default in defaults):
        return _kept_decoder(count, defaults, chosen, form)
    return _make_decoder(count, defaults, chosen, form)


class _Default:
    """An entry of `record_defaults` that compares by type and value.

    Without the types, a decoder for the default 0.0 would be used for 0.
    """

    __slots__ = ("given", "key")

    def __init__(self, given: Any) -> None:
        is_list = type(given) is list and len(given) == 1
        value = given[0] if is_list else given
        is_simple = type(value) in (int, float, str, bytes, type)
        self.given = given
        self.key = (is_list, type(value), repr(value)) if is_simple else None

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Default) and self.key == other.key


def _make_decoder(
    count: int,
    defaults: tuple[_Default, ...],
    select_cols: tuple[int, ...] | None,
    form: CsvFormat,
) -> _Decoder:
    given = [default.given for default in defaults]
    schema = Schema(*number_fields(count, given, select_cols), None)
    return _Decoder(schema, form, _compile_format(schema, form))


_kept_decoder = functools.lru_cache(maxsize=64)(_make_decoder)


def _compile_format(schema: Schema, form: CsvFormat) -> RecordFormat | None:
    marks = (form.delimiter.encode(), (form.quote or "").encode())
    is_known = all(field.dtype in KINDS for field in schema.fields)
    if len(marks[0]) != 1 or not is_known:
        return None
    fields = tuple(
        RecordField(int(field.name), field.dtype, field.default)
        for field in schema.fields
    )
    na = form.null_values[-1].encode()
    return RecordFormat(fields, len(schema.names), *marks, na)


def _parse(records: Strings, schema: Schema, form: CsvFormat) -> list[DataColumn]:
    """Return the columns of a vector of records."""
    if not len(records):
        return [_empty(field.dtype) for field in schema.fields]
    data = join_records(records)
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


def join_records(records: Strings) -> NDArray[np.uint8]:
    r"""Return the bytes of the records with a line break after each.

    >>> join_records(Strings.of(["a", "bc"])).tobytes()
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
