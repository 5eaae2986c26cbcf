"""Rows of CSV bytes to columns, by pyarrow; and what is wrong when that fails.

    parse(block, schema, form)      # Columns of float32, int64, …, Strings

pyarrow says that a block is bad, not where: the second look, only after a failure, goes
through the rows one by one with the csv module and names line, column and value.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from estimax.core.errors import InputError
from estimax.core.strings import Strings
from estimax.input.sources.csv_blocks import Block, CsvFormat, row_ends
from estimax.input.sources.csv_schema import Field, Schema, slow_reader
from estimax.input.sources.file_blocks import Place, UnreadableError
from estimax.input.streams.chunks import Columns
from estimax.input.streams.columns import Column


def parse(block: Block, schema: Schema, form: CsvFormat) -> Columns:
    """Every selected field of every row."""
    types = {field.name: _arrow_type(field.dtype) for field in schema.fields}
    table = _read(block, schema, form, types)
    _refuse_more(block, schema, form)
    tree = {
        field.name: _column(table.column(field.name), field, block, schema, form)
        for field in schema.fields
    }
    return Columns(tree, table.num_rows)


def _refuse_more(block: Block, schema: Schema, form: CsvFormat) -> None:
    """Refuse what pyarrow takes and TensorFlow does not: empty lines, 0x1F."""
    if _has_empty_line(block, schema, form) or _has_hexadecimal(block, schema, form):
        problem = _find_problem(block, schema, form)
        if problem is not None:
            raise problem


def _has_empty_line(block: Block, schema: Schema, form: CsvFormat) -> bool:
    if len(schema.names) == 1:
        return False  # there it is an empty field
    data = np.frombuffer(block.data, np.uint8)[: block.end]
    breaks = np.flatnonzero(data == ord("\n"))
    gaps = np.diff(breaks, prepend=-1)
    # A search for two line breaks as bytes takes ten times as long.
    if not (gaps <= 2).any():
        return False
    ends = row_ends(block, form)
    starts = np.concatenate([[0], ends[:-1]])
    short = np.flatnonzero(ends - starts <= 2)
    return any(not block.data[starts[i] : ends[i]].strip(b"\r\n") for i in short)


def _has_hexadecimal(block: Block, schema: Schema, form: CsvFormat) -> bool:
    integers = tuple(field for field in schema.fields if "int" in field.dtype)
    # One byte is found a hundred times as fast as two.
    if not integers or (b"x" not in block.data and b"X" not in block.data):
        return False
    data = np.frombuffer(block.data, np.uint8)
    if not ((data[:-1] == ord("0")) & (data[1:] | 0x20 == ord("x"))).any():
        return False
    from pyarrow import compute

    # Ids such as 0xAB in columns of text are common: look at the integers alone.
    fields = replace(schema, fields=integers)
    text = _read(
        block, fields, form, dict.fromkeys(schema.names, _arrow_type("string"))
    )
    return any(
        compute.any(compute.match_substring(column, b"x", ignore_case=True)).as_py()
        for column in text.columns
    )


def infer_dtypes(block: Block, schema: Schema, form: CsvFormat) -> dict[str, str]:
    """The dtypes of the fields that have none yet: int64, float32 or string."""
    from pyarrow import types

    known = {f.name: _arrow_type(f.dtype) for f in schema.fields if not f.inferred}
    try:
        table = _read(block, schema, form, known)
    except BadRowError as error:
        if not error.start:
            raise
        # Whoever reads the rows comes upon the bad one, and may ignore it.
        table = _read(replace(block, end=error.start), schema, form, known)
    kinds: dict[str, str] = {}
    for field in schema.fields:
        if field.inferred:
            kind = table.schema.field(field.name).type
            is_float = types.is_floating(kind)
            number = "float32" if is_float else "int64"
            is_number = is_float or types.is_integer(kind)
            kinds[field.name] = number if is_number else "string"
    return kinds


def _read(block: Block, schema: Schema, form: CsvFormat, types: dict[str, Any]) -> Any:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    rows = pa.py_buffer(block.data).slice(0, block.end)
    quoted = form.quote is not None and form.quote.encode() in block.data
    try:
        return arrow_csv.read_csv(
            pa.BufferReader(rows),
            # One arrow chunk a block, so that columns become NumPy without a copy.
            read_options=arrow_csv.ReadOptions(
                column_names=list(schema.names), block_size=block.end + 1
            ),
            parse_options=arrow_csv.ParseOptions(
                delimiter=form.delimiter,
                quote_char=form.quote or False,
                newlines_in_values=quoted,
                ignore_empty_lines=False,
            ),
            convert_options=arrow_csv.ConvertOptions(
                column_types=types,
                include_columns=[field.name for field in schema.fields],
                null_values=list(form.null_values),
                strings_can_be_null=True,
                quoted_strings_can_be_null=True,
            ),
        )
    except pa.ArrowInvalid as error:
        raise _explain(block, schema, form, str(error)) from error


def _column(
    values: Any, field: Field, block: Block, schema: Schema, form: CsvFormat
) -> Column:
    values = values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()
    if values.null_count:
        if field.default is None:
            raise _explain(block, schema, form, f"{field.name}: missing value")
        values = values.fill_null(field.default)
    if field.dtype == "string":
        return Strings.of(values)
    column: Column = values.to_numpy(zero_copy_only=field.dtype != "bool")
    return column


def _arrow_type(dtype: str) -> Any:
    import pyarrow as pa

    # Text is bytes here as in TensorFlow: nothing is decoded or refused.
    return pa.binary() if dtype == "string" else pa.from_numpy_dtype(np.dtype(dtype))


def _explain(block: Block, schema: Schema, form: CsvFormat, why: str) -> InputError:
    """What is wrong with the first row that cannot be read."""
    try:
        problem = _find_problem(block, schema, form)
    except csv.Error as error:
        problem, why = None, f"{why}; {error}"
    return problem or InputError(
        f"{block.path}, from line {block.line} (byte {block.offset}) on: cannot be "
        f"read as CSV: {why}"
    )


def _find_problem(block: Block, schema: Schema, form: CsvFormat) -> BadRowError | None:
    """Go through the rows one by one; where a bad one begins and ends."""
    place = {name: i for i, name in enumerate(schema.names)}
    ends = row_ends(block, form)
    for number, row in enumerate(_rows(block, form)):
        problem = _count_problem(row, schema)
        for field in schema.fields:
            if problem:
                break
            problem = _value_problem(row[place[field.name]], field, form)
        if problem:
            start = int(ends[number - 1]) if number else 0
            words = f"{block.where(start)}: {problem}"
            return BadRowError(words, start, block.place(int(ends[number])))
    return None


class BadRowError(UnreadableError):
    """A row that cannot be read; `start` is where it begins in its block."""

    def __init__(self, message: str, start: int, after: Place) -> None:
        super().__init__(message, after)
        self.start = start


def _rows(block: Block, form: CsvFormat) -> Iterator[list[str]]:
    for row in slow_reader(block.data[: block.end], form):
        yield row or [""]


def _count_problem(row: list[str], schema: Schema) -> str:
    if len(row) == len(schema.names):
        return ""
    if row == [""]:
        return "the line is empty. Remove it."
    shown = ", ".join(repr(value) for value in row[:6]) + (", …" if row[6:] else "")
    return (
        f"expected {len(schema.names)} fields ({schema.names[0]} to "
        f"{schema.names[-1]}), found {len(row)}: {shown}. A field that holds the "
        "delimiter must be quoted; pass delimiter='…' if another one separates fields."
    )


def _value_problem(text: str, field: Field, form: CsvFormat) -> str:
    if field.dtype in ("string", ""):  # "": while dtypes are being inferred
        return ""
    if text in form.null_values:
        if field.default is not None:
            return ""
        return (
            f"column {field.name!r}: expected {field.dtype}, found a missing value "
            f"({text!r}). Pass defaults={{{field.name!r}: …}} to say what stands in "
            "for missing values."
        )
    if _parses(text, field.dtype):
        return ""
    how = "inferred from the first rows" if field.inferred else "as given in dtypes"
    return (
        f"column {field.name!r}: expected {field.dtype} ({how}), found {text!r}. "
        f"Correct the value; or pass dtypes={{{field.name!r}: "
        f"{_wider(text)!r}}}; or, if it means a missing value, add it to null_values."
    )


def _wider(text: str) -> str:
    return "float32" if _parses(text, "float32") else "string"


def _parses(text: str, dtype: str) -> bool:
    text = text.strip()
    if dtype == "bool":
        return text.lower() in ("0", "1", "true", "false")
    try:
        if dtype.startswith("float"):
            float(text)
            return "_" not in text
        bits = 8 * np.dtype(dtype).itemsize - 1
        return text.lstrip("-").isdigit() and -(2**bits) <= int(text) < 2**bits
    except ValueError:
        return False
