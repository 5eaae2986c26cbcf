"""decode_csv: text that holds one CSV record each, to columns.

    decode_csv(Strings.of(["1,a", "2,b"]), [0, ""])

The records of a batch are parsed together; only what fails is looked at by itself, to
say which record is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import InputError
from estimax.core.strings import Strings
from estimax.input.sources.csv_blocks import Block, CsvFormat, check_whole
from estimax.input.sources.csv_defaults import number_fields
from estimax.input.sources.csv_schema import Schema, split_row
from estimax.input.streams.columns import Column, row_of

_LF = 0x0A


def decode_csv(
    records: Any,
    record_defaults: Sequence[Any],
    field_delim: str = ",",
    use_quote_delim: bool = True,
    na_value: str = "",
    select_cols: Sequence[int] | None = None,
) -> list[Any]:
    """One column for every default: int32, int64, float32, float64 or text.

    `records` is text of any shape, and a single record gives scalars. An empty field,
    or one that is `na_value`, takes its default; without one it is an error.

    >>> decode_csv(["1,x", ",y"], [-1, ""])
    [array([ 1, -1], dtype=int32), Strings([b'x', b'y'], shape=(2,))]
    """
    single = isinstance(records, str | bytes)
    text = Strings.of([records] if single else records)
    quote = '"' if use_quote_delim else None
    form = CsvFormat(field_delim, quote, tuple({"": None, na_value: None}), False)
    flat = text.reshape((-1,))
    count = len(record_defaults)
    if select_cols is not None and len(flat):
        count = max(len(split_row(flat[0], form)), max(select_cols, default=0) + 1)
    schema = Schema(*number_fields(count, record_defaults, select_cols), None)
    if single:
        return [row_of(column, 0) for column in _parse(flat, schema, form)]
    return [_reshape(column, text.shape) for column in _parse(flat, schema, form)]


def _reshape(column: Any, shape: tuple[int, ...]) -> Column:
    reshaped: Column = column.reshape(shape)
    return reshaped


def _parse(records: Strings, schema: Schema, form: CsvFormat) -> list[Column]:
    from estimax.input.sources.csv_parse import parse

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
        raise _which(records, schema, form, error) from error
    return [rows.tree[field.name] for field in schema.fields]


def _which(
    records: Strings, schema: Schema, form: CsvFormat, error: InputError
) -> InputError:
    """The error of the first record that fails by itself."""
    for number in range(len(records)):
        try:
            _parse(records[number : number + 1], schema, form)
        except InputError as problem:
            return InputError(f"record {number}: {problem}")
    return error


def joined(records: Strings) -> NDArray[np.uint8]:
    r"""The records with a line break behind each.

    >>> joined(Strings.of(["a", "bc"])).tobytes()
    b'a\nbc\n'
    """
    lengths = records.lengths
    out = np.full(int(lengths.sum()) + len(records), _LF, np.uint8)
    first, last = records.offsets[0], records.offsets[-1]
    places = np.arange(last - first) + np.repeat(np.arange(len(records)), lengths)
    out[places] = records.data[first:last]
    return out


def _empty(dtype: str) -> Column:
    return Strings.of([]) if dtype == "string" else np.empty(0, dtype)
