"""What the columns of CSV files are: names, dtypes, defaults; given or found out.

    schema = make_schema(files, form, dtypes={"age": "int64"}, defaults={"age": 0})
    schema.fields          # the selected columns, in file order

A dtype that is not given is inferred from the first megabyte, once, and then holds for
every row of every file: a later value that does not fit is an error, never a guess.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from estimax.core.errors import InputError, did_you_mean
from estimax.input.sources.csv_blocks import Block, CsvFormat, read_first_row, read_rows
from estimax.input.sources.file_blocks import ByteFile

DTYPES = ("float32", "float64", "int32", "int64", "bool", "string")
_INFERENCE_BYTES = 1 << 20
_BY_TYPE = {float: "float32", int: "int64", str: "string", bytes: "string"}


@dataclass(frozen=True)
class Field:
    """A column to read; `default` stands in for a missing value (None: an error)."""

    name: str
    dtype: str
    default: Any = None
    inferred: bool = False


@dataclass(frozen=True)
class Schema:
    """All columns of the files by name, and the fields wanted, in file order."""

    names: tuple[str, ...]
    fields: tuple[Field, ...]
    # The header that every file must have; None where names were given.
    header: tuple[str, ...] | None


def make_schema(
    files: Sequence[str],
    form: CsvFormat,
    *,
    columns: Sequence[str] | None = None,
    dtypes: Mapping[str, Any] | None = None,
    select: Iterable[str] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> Schema:
    """Read the first header, check every given name against it, infer the rest."""
    found = read_header(files[0], form)
    names = _names(files[0], found, columns)
    given = {name: dtype_of(dtype, name) for name, dtype in (dtypes or {}).items()}
    chosen = set(names if select is None else select)
    for what, asked in (("select", chosen), ("dtypes", given), ("defaults", defaults)):
        _check_known(what, asked or (), names, files[0])
    fields = tuple(
        Field(name, given.get(name, ""), (defaults or {}).get(name), name not in given)
        for name in names
        if name in chosen
    )
    header = None if columns is not None else names
    schema = _infer(Schema(names, fields, header), files, form)
    return replace(schema, fields=tuple(_with_default(f) for f in schema.fields))


def read_header(path: str, form: CsvFormat) -> tuple[str, ...] | None:
    """The names in a file's first row; None if files have no header."""
    if not form.header:
        return None
    file = ByteFile(path, form.compression)
    row, _, _ = read_first_row(file, form)
    file.close()
    if not row:
        raise InputError(
            f"{path}, line 1: expected a header with the names of the columns, found "
            "nothing. Pass header=False and columns=[…] for files without one."
        )
    return tuple(split_row(row, form))


def split_row(row: bytes, form: CsvFormat) -> list[str]:
    """The fields of one row as text."""
    return next(iter(slow_reader(row, form)), [""])


def slow_reader(rows: bytes, form: CsvFormat) -> Any:  # csv's reader has no public type
    """The csv module over some rows, for headers and for finding what is wrong."""
    lines = io.StringIO(rows.decode("utf-8", errors="replace"), newline="")
    if form.quote is None:
        return csv.reader(lines, delimiter=form.delimiter, quoting=csv.QUOTE_NONE)
    return csv.reader(lines, delimiter=form.delimiter, quotechar=form.quote)


def dtype_of(dtype: Any, name: str) -> str:  # Any: a str, a type or a NumPy dtype
    """The name of one of the dtypes that a CSV column can have.

    >>> dtype_of(float, "x"), dtype_of(np.int64, "x"), dtype_of("string", "x")
    ('float32', 'int64', 'string')
    """
    if isinstance(dtype, type) and dtype in _BY_TYPE:
        return _BY_TYPE[dtype]
    # By its name, as a NumPy dtype equals its name and would pass for one.
    text = dtype.name if isinstance(dtype, np.dtype) else dtype
    text = "string" if text in ("str", "bytes", "object") else text
    try:
        text = text if text in DTYPES else np.dtype(text).name
    except TypeError:
        text = str(text)
    if text not in DTYPES:
        near = did_you_mean(text, DTYPES)
        raise InputError(f"dtypes[{name!r}]: unknown dtype {text!r}{near}")
    return text


def _names(
    path: str, header: tuple[str, ...] | None, columns: Sequence[str] | None
) -> tuple[str, ...]:
    if columns is None and header is None:
        raise InputError(
            "csv_files: files without a header need columns=[…], a name for each."
        )
    names = tuple(columns) if columns is not None else header
    assert names is not None
    if header is not None and len(header) != len(names):
        raise InputError(
            f"{path}, line 1: columns names {len(names)} columns, the header has "
            f"{len(header)}: {', '.join(header)}."
        )
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(
            f"{path}, line 1: more than one column is named {twice[0]!r}. Pass "
            "columns=[…] with a distinct name for each."
        )
    return names


def _check_known(
    what: str, asked: Iterable[str], names: Sequence[str], path: str
) -> None:
    for name in asked:
        if name not in names:
            raise InputError(
                f"csv_files: {what} names column {name!r}, which {path} does not have"
                f"{did_you_mean(name, names)}"
            )


def _infer(schema: Schema, files: Sequence[str], form: CsvFormat) -> Schema:
    if not any(field.inferred for field in schema.fields):
        return schema
    kinds: dict[str, str] = {}
    block = _first_rows(files, form)
    if block is not None:
        from estimax.input.sources.csv_parse import infer_dtypes

        kinds = infer_dtypes(block, schema, form)
    fields = []
    for field in schema.fields:
        dtype = kinds.get(field.name, "string") if field.inferred else field.dtype
        if field.inferred and dtype == "int64" and isinstance(field.default, float):
            dtype = "float32"  # the default, such as nan, tells more than the head
        fields.append(replace(field, dtype=dtype))
    return replace(schema, fields=tuple(fields))


def _with_default(field: Field) -> Field:
    """Turn the default into a value of the column's dtype, or refuse it."""
    value = field.default
    if field.dtype == "string":
        value = "" if value is None else value
        value = value.encode() if isinstance(value, str) else value
        if not isinstance(value, bytes):
            raise _bad_default(field)
        return replace(field, default=value)
    if value is None:
        return field
    try:
        converted = np.dtype(field.dtype).type(value).item()
    except (TypeError, ValueError, OverflowError) as error:
        raise _bad_default(field) from error
    if not field.dtype.startswith("float") and converted != value:
        raise _bad_default(field)  # 1.5 for an integer
    return replace(field, default=converted)


def _bad_default(field: Field) -> InputError:
    return InputError(
        f"defaults[{field.name!r}]: expected {field.dtype}, got {field.default!r}. "
        f"Pass dtypes={{{field.name!r}: …}} if the column has another dtype."
    )


def _first_rows(files: Sequence[str], form: CsvFormat) -> Block | None:
    head = replace(form, block_bytes=min(form.block_bytes, _INFERENCE_BYTES))
    for path in files:
        file = ByteFile(path, form.compression)
        _, offset, line = read_first_row(file, form)
        block = read_rows(file, offset, line, head)
        file.close()
        if block.end:
            return block
    return None
