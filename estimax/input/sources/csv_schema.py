"""The columns of CSV files, and the parsing of rows into them.

    schema = make_schema(files, form, dtypes={"age": "int64"}, defaults={"age": 0})
    schema.fields                         # the selected columns, in file order
    columns = parse(block, schema, form)  # with pyarrow

The file has three parts. The first makes a schema of named columns. A dtype that is not
given is inferred once, from the first megabyte, and then holds for every row of every
file: a later value that does not fit is an error. The second makes a schema from the
`record_defaults` of TensorFlow's functions, where columns are numbered. The third
parses blocks of rows, and finds the row and column at fault when pyarrow fails.
"""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from estimax.core.encodings import is_utf_8
from estimax.core.errors import InputError, Remedy, did_you_mean
from estimax.core.strings import Strings
from estimax.input.sources.csv_blocks import (
    Block,
    CsvFormat,
    find_breaks,
    next_line,
    read_first_row,
    read_rows,
    row_ends,
)
from estimax.input.sources.file_blocks import (
    BlockStart,
    ByteFile,
    UnreadableError,
    arrow_reader,
)
from estimax.input.streams.chunks import Columns
from estimax.input.streams.columns import DataColumn

CSV_DTYPES = ("float32", "float64", "int32", "int64", "bool", "string")
_INFERENCE_BYTES = 1 << 20  # how much of the first file dtypes are inferred from
_BY_TYPE = {float: "float32", int: "int64", str: "string", bytes: "string"}
# The dtype of a column by the type of its default, as in TensorFlow. A bool is refused.
_BY_DEFAULT = ((bool, ""), (int, "int32"), (float, "float32"))


@dataclass(frozen=True)
class CsvField:
    """A column to read from CSV files."""

    name: str
    dtype: str  # "" while it is still to be inferred
    default: Any = None  # replaces a missing value; None makes it an error
    inferred: bool = False  # whether the dtype was inferred and not given
    # Only for messages: the digest in checkpoints must not depend on it.
    origin: str = dataclasses.field(
        default="as given in dtypes", repr=False, compare=False
    )


@dataclass(frozen=True)
class Schema:
    """All columns of the files, and those to read, both in file order."""

    names: tuple[str, ...]
    fields: tuple[CsvField, ...]
    # The header that every file must have; None if the names were given.
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
    """Return the schema of files for the arguments of `csv_files`.

    Raises:
      InputError: An argument names an unknown column or dtype, a default does not fit
        its dtype, or names are missing or repeated.
    """
    found = read_header(files[0], form)
    names = _names(files[0], found, columns)
    given = {name: dtype_of(dtype, name) for name, dtype in (dtypes or {}).items()}
    chosen = set(names if select is None else select)
    for what, asked in (("select", chosen), ("dtypes", given), ("defaults", defaults)):
        _check_known(what, asked or (), names, files[0])
    fields = tuple(
        CsvField(
            name, given.get(name, ""), (defaults or {}).get(name), name not in given
        )
        for name in names
        if name in chosen
    )
    header = None if columns is not None else names
    schema = _infer(Schema(names, fields, header), files, form)
    return replace(schema, fields=tuple(_with_default(f) for f in schema.fields))


def read_header(given: str | ByteFile, form: CsvFormat) -> tuple[str, ...] | None:
    """Return the names in the first row of a file; None if files have no header."""
    if not form.header:
        return None
    file = ByteFile(given, form.compression) if isinstance(given, str) else given
    row, _, _ = read_first_row(file, form)
    if isinstance(given, str):
        file.close()
    return names_in(row, file.path, form)


def names_in(row: bytes, path: str, form: CsvFormat) -> tuple[str, ...] | None:
    """Return the names in the first row of a file; None if files have no header."""
    if not form.header:
        return None
    if not row:
        raise InputError(
            f"{path}, line 1: expected a header with the names of the columns, found "
            "nothing",
            Remedy(
                "header",
                ". For files without a header, pass header=False and columns=[…]",
            ),
        )
    _check_encoding(path, row, form.encoding or "utf-8")
    return tuple(split_row(row, form))


def _check_encoding(path: str, header: bytes, encoding: str) -> None:
    """Raise `InputError` if a header does not have the encoding."""
    try:
        header.decode(encoding)
    except UnicodeDecodeError:
        is_utf_16 = header.startswith((b"\xff\xfe", b"\xfe\xff"))
        found = "utf-16" if is_utf_16 else "latin1"
        raise InputError(
            f"{path}, line 1: the header is not UTF-8 text. Convert the file, for "
            f"example: iconv -f {found} -t utf-8 {path} > new.csv"
        ) from None


def split_row(row: bytes, form: CsvFormat) -> list[str]:
    """Return the fields of one row as text."""
    return next(iter(slow_reader(row, form)), [""])


def slow_reader(rows: bytes, form: CsvFormat) -> Any:  # csv's reader has no public type
    """Return a reader of Python's csv module, for headers and error messages."""
    text = rows.decode(form.encoding or "utf-8", errors="replace")
    lines = io.StringIO(text, newline="")
    if form.quote is None:
        return csv.reader(lines, delimiter=form.delimiter, quoting=csv.QUOTE_NONE)
    return csv.reader(lines, delimiter=form.delimiter, quotechar=form.quote)


def dtype_of(dtype: Any, name: str) -> str:  # Any: a str, a type or a NumPy dtype
    """Return the name of a dtype; raise `InputError` if a column cannot have it.

    >>> dtype_of(float, "x"), dtype_of(np.int64, "x"), dtype_of("string", "x")
    ('float32', 'int64', 'string')
    """
    if isinstance(dtype, type) and dtype in _BY_TYPE:
        return _BY_TYPE[dtype]
    # By name, because `np.dtype(...) in CSV_DTYPES` compares equal to a name.
    text = dtype.name if isinstance(dtype, np.dtype) else dtype
    text = "string" if text in ("str", "bytes", "object") else text
    try:
        text = text if text in CSV_DTYPES else np.dtype(text).name
    except TypeError:
        text = str(text)
    if text not in CSV_DTYPES:
        near = did_you_mean(text, CSV_DTYPES)
        raise InputError(f"dtypes[{name!r}]: unknown dtype {text!r}{near}")
    return text


def _names(
    path: str, header: tuple[str, ...] | None, columns: Sequence[str] | None
) -> tuple[str, ...]:
    """Return the names of all columns: `columns` if given, else the header."""
    if columns is None and header is None:
        raise InputError(
            "csv_files: header=False requires columns=[…], a name for each column."
        )
    names = tuple(columns) if columns is not None else header
    assert names is not None
    if header is not None and len(header) != len(names):
        raise InputError(
            f"{path}, line 1: `columns` has {len(names)} names, the header has "
            f"{len(header)}: {', '.join(header)}."
        )
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(
            f"{path}, line 1: more than one column is named {twice[0]!r}",
            Remedy("columns", ". Pass columns=[…] with a distinct name for each"),
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
    """Return the schema with inferred dtypes filled in."""
    if not any(field.inferred for field in schema.fields):
        return schema
    kinds: dict[str, str] = {}
    block = _first_rows(files, form)
    if block is not None:
        kinds = infer_dtypes(block, schema, form)
    fields = []
    for field in schema.fields:
        dtype = kinds.get(field.name, "string") if field.inferred else field.dtype
        if field.inferred and dtype == "int64" and isinstance(field.default, float):
            dtype = "float32"  # a float default, such as nan, decides
        fields.append(replace(field, dtype=dtype))
    return replace(schema, fields=tuple(fields))


def _with_default(field: CsvField) -> CsvField:
    """Return the field with its default converted to its dtype.

    Text without a default gets an empty one. A default that does not fit raises.
    """
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
        raise _bad_default(field)  # such as 1.5 for an integer
    return replace(field, default=converted)


def _bad_default(field: CsvField) -> InputError:
    return InputError(
        f"defaults[{field.name!r}]: expected {field.dtype}, got {field.default!r}. "
        f"Pass dtypes={{{field.name!r}: …}} if the column has another dtype."
    )


def _first_rows(files: Sequence[str], form: CsvFormat) -> Block | None:
    """Return up to a megabyte of rows from the first file that has any."""
    head = replace(form, block_bytes=min(form.block_bytes, _INFERENCE_BYTES))
    for path in files:
        file = ByteFile(path, form.compression)
        _, offset, line = read_first_row(file, form)
        block = read_rows(file, offset, line, head)
        file.close()
        if block.end:
            return block
    return None


def default_of(given: Any, name: str) -> CsvField:
    """Return a column whose dtype and default come from a default, or a dtype alone.

    >>> default_of(-1, "a")
    CsvField(name='a', dtype='int32', default=-1, inferred=False)
    >>> default_of(np.array([], np.float64), "a")
    CsvField(name='a', dtype='float64', default=None, inferred=False)
    """
    if isinstance(given, type | np.dtype) or hasattr(given, "as_numpy_dtype"):
        return CsvField(name, dtype_of(getattr(given, "as_numpy_dtype", given), name))
    if isinstance(given, Strings):
        given = given.tolist()
    if isinstance(given, np.ndarray | list | tuple):
        if len(given) > 1:
            raise InputError(
                f"record_defaults[{name}]: expected one default, got {len(given)}."
            )
        if not len(given):
            return CsvField(name, dtype_of(getattr(given, "dtype", np.float32), name))
        given = given[0]
    if isinstance(given, str | bytes):
        text = given.encode() if isinstance(given, str) else given
        return CsvField(name, "string", text)
    for kind, dtype in _BY_DEFAULT:
        if type(given) is kind and dtype:
            return CsvField(name, dtype, given)
    array = np.asarray(given)
    if array.shape or array.dtype.kind not in "if":
        raise InputError(
            f"record_defaults[{name}]: expected a number, text or a dtype, got "
            f"{given!r}."
        )
    return CsvField(name, dtype_of(array.dtype, name), array.item())


def csv_fields(
    path: str,
    form: CsvFormat,
    record_defaults: Sequence[Any],
    select_cols: Sequence[int] | None,
    exclude_cols: Sequence[int] | None = None,
) -> tuple[tuple[str, ...], tuple[CsvField, ...]]:
    """Return the names of all columns of a file, which are numbers, and those to read.

    It takes the arguments of `CsvDataset`.
    """
    count = len(record_defaults)
    if exclude_cols is not None:
        count += len(exclude_cols)
        select_cols = [i for i in range(count) if i not in exclude_cols]
    elif select_cols is not None:
        count = max(_count_in(path, form), max(select_cols, default=0) + 1)
    return number_fields(count, record_defaults, select_cols)


def number_fields(
    count: int, record_defaults: Sequence[Any], select_cols: Sequence[int] | None
) -> tuple[tuple[str, ...], tuple[CsvField, ...]]:
    """Return the names "0", "1", … of `count` columns, and the columns to read."""
    chosen = list(range(count) if select_cols is None else select_cols)
    if chosen != sorted(set(chosen)) or len(chosen) != len(record_defaults):
        raise InputError(
            "select_cols must ascend, and record_defaults must have one entry for each "
            f"column, got columns {chosen} and {len(record_defaults)} defaults."
        )
    names = tuple(map(str, range(count)))
    pairs = zip(chosen, record_defaults, strict=True)
    return names, tuple(default_of(given, str(i)) for i, given in pairs)


def _count_in(path: str, form: CsvFormat) -> int:
    """Return the number of fields in the first row of a file."""
    file = ByteFile(path, form.compression)
    _, offset, line = read_first_row(file, form)
    block = read_rows(file, offset, line, form)
    file.close()
    if not block.end:
        return 0
    row = block.data[: int(row_ends(block, form)[0])]
    return len(split_row(row.rstrip(b"\r\n"), form))


class BadRowError(UnreadableError):
    """A row that cannot be parsed; `start` is the byte in its block where it begins."""

    def __init__(
        self,
        problem: str,
        start: int,
        after: BlockStart,
        remedy: Remedy | None = None,
    ) -> None:
        super().__init__(problem, after, remedy)
        self.start = start


def parse(block: Block, schema: Schema, form: CsvFormat) -> Columns:
    """Parse the rows of a block into one column for each selected field.

    Raises:
      BadRowError: A row has the wrong number of fields, or a value does not fit.
    """
    types = {field.name: _arrow_type(field.dtype) for field in schema.fields}
    table = _read(block, schema, form, types)
    _check_strictly(block, schema, form)
    tree = {
        field.name: _column(table.column(field.name), field, block, schema, form)
        for field in schema.fields
    }
    return Columns(tree, table.num_rows)


def _check_strictly(block: Block, schema: Schema, form: CsvFormat) -> None:
    """Raise for what pyarrow accepts and TensorFlow refuses: empty lines, 0x1F."""
    if _has_empty_line(block, schema, form) or _has_hexadecimal(block, schema, form):
        problem = _find_problem(block, schema, form)
        if problem is not None:
            raise problem


def _has_empty_line(block: Block, schema: Schema, form: CsvFormat) -> bool:
    if len(schema.names) == 1:
        return False  # with one column, an empty line is an empty field
    data = np.frombuffer(block.data, np.uint8)[: block.end]
    gaps = np.diff(find_breaks(data), prepend=-1)
    # A quick test for most blocks: an empty line has at most CR and LF. Searching the
    # bytes for two line breaks takes ten times as long.
    if not (gaps <= 2).any():
        return False
    ends = row_ends(block, form)
    starts = np.concatenate([[0], ends[:-1]])
    short = np.flatnonzero(ends - starts <= 2)
    return any(not block.data[starts[i] : ends[i]].strip(b"\r\n") for i in short)


def _has_hexadecimal(block: Block, schema: Schema, form: CsvFormat) -> bool:
    integers = tuple(field for field in schema.fields if "int" in field.dtype)
    # Search for one byte first, which is a hundred times as fast as for two.
    if not integers or (b"x" not in block.data and b"X" not in block.data):
        return False
    data = np.frombuffer(block.data, np.uint8)
    if not ((data[:-1] == ord("0")) & (data[1:] | 0x20 == ord("x"))).any():
        return False
    from pyarrow import compute

    # Read the integer columns as text, because ids such as 0xAB in text columns are
    # common and allowed.
    fields = replace(schema, fields=integers)
    text = _read(
        block, fields, form, dict.fromkeys(schema.names, _arrow_type("string"))
    )
    return any(
        compute.any(compute.match_substring(column, b"x", ignore_case=True)).as_py()
        for column in text.columns
    )


def infer_dtypes(block: Block, schema: Schema, form: CsvFormat) -> dict[str, str]:
    """Return the dtypes of the fields to infer: int64, float32 or string."""
    from pyarrow import types

    known = {f.name: _arrow_type(f.dtype) for f in schema.fields if not f.inferred}
    try:
        table = _read(block, schema, form, known)
    except BadRowError as error:
        if not error.start:
            raise
        # Infer from the rows before. Reading the data raises this error again, where
        # `ignore_errors` can skip the row.
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
    """Return the selected columns of a block as a pyarrow table."""
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    rows = memoryview(block.data)[: block.end]
    quoted = form.quote is not None and form.quote.encode() in block.data
    try:
        return arrow_csv.read_csv(
            arrow_reader(rows),
            # One Arrow chunk per block, so that columns become NumPy without a copy.
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
    values: Any, field: CsvField, block: Block, schema: Schema, form: CsvFormat
) -> DataColumn:
    """Convert a pyarrow column, with missing values replaced by the default."""
    values = values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()
    if values.null_count:
        if field.default is None:
            raise _explain(block, schema, form, f"{field.name}: missing value")
        values = values.fill_null(field.default)
    if field.dtype == "string":
        return Strings.of(_as_utf_8(values, field, block, form))
    column: DataColumn = values.to_numpy(zero_copy_only=field.dtype != "bool")
    return column


def _as_utf_8(values: Any, field: CsvField, block: Block, form: CsvFormat) -> Any:
    """Return a column of bytes as UTF-8; raise `BadRowError` if it is none.

    Without an encoding, the bytes are returned as they are.
    """
    import pyarrow as pa

    if form.encoding is None:
        return values
    if is_utf_8(form.encoding):
        try:
            values.cast(pa.string())  # without a copy; it checks the bytes
        except pa.ArrowInvalid:
            raise _bad_text(values, field, block, form) from None
        return values
    words = values.dictionary_encode()
    try:
        decoded = [word.as_py().decode(form.encoding) for word in words.dictionary]
    except UnicodeDecodeError:
        raise _bad_text(values, field, block, form) from None
    return pa.array([text.encode() for text in decoded], pa.binary()).take(
        words.indices
    )


def _bad_text(
    values: Any, field: CsvField, block: Block, form: CsvFormat
) -> InputError:
    """Return the error of the first value that does not have the encoding."""
    encoding = form.encoding or "utf-8"
    shown = "UTF-8" if is_utf_8(encoding) else encoding
    for number, value in enumerate(values):
        try:
            value.as_py().decode(encoding)
        except UnicodeDecodeError:
            ends = row_ends(block, form)
            start = int(ends[number - 1]) if number else 0
            return BadRowError(
                f"{block.where(start)}: column {field.name!r}: the text is not {shown}:"
                f" {value.as_py()[:60]!r}. Convert the file, for example: iconv -f "
                f"latin1 -t utf-8 {block.path} > new.csv; or name its encoding, such "
                "as encoding='latin1'.",
                start,
                block.start_at(int(ends[number])),
            )
    raise AssertionError(f"a value of {field.name} is not {shown}")


def _arrow_type(dtype: str) -> Any:
    import pyarrow as pa

    # Text is bytes, as in TensorFlow: it need not be UTF-8.
    return pa.binary() if dtype == "string" else pa.from_numpy_dtype(np.dtype(dtype))


def _explain(block: Block, schema: Schema, form: CsvFormat, why: str) -> InputError:
    """Return an error that names the first row at fault, or `why` if none is found."""
    try:
        problem = _find_problem(block, schema, form)
    except csv.Error as error:
        problem, why = None, f"{why}; {error}"
    return problem or InputError(
        f"{block.path}, at or after line {block.line} (byte {block.offset}): cannot "
        f"be read as CSV: {why}"
    )


def _find_problem(block: Block, schema: Schema, form: CsvFormat) -> BadRowError | None:
    """Check the rows one by one; return the error of the first bad one, or None."""
    place = {name: i for i, name in enumerate(schema.names)}
    ends = row_ends(block, form)
    for number, row in enumerate(_rows(block, form)):
        start, end = int(ends[number - 1]) if number else 0, int(ends[number])
        hint = ""
        if len(row) != len(schema.names):
            hint, end = _check_lines(block, start, end)
        problem, remedy = _count_problem(row, schema, hint)
        for field in schema.fields:
            if problem:
                break
            problem, remedy = _value_problem(row[place[field.name]], field, form)
        if problem:
            words = f"{block.where(start)}: {problem}"
            return BadRowError(words, start, block.start_at(end), remedy)
    return None


def _check_lines(block: Block, start: int, end: int) -> tuple[str, int]:
    """Return a hint for a row with a wrong number of fields, and where to go on.

    If such a row has several lines, its quote was probably not closed, and the quote of
    a later row closed it. Only its first line is skipped then.
    """
    next_start = next_line(block.data, start)
    if next_start >= end:
        return "", end
    first, last = block.start_at(start)[1], block.start_at(end - 1)[1]
    return f" The row has lines {first} to {last}: is a quote not closed?", next_start


def _rows(block: Block, form: CsvFormat) -> Iterator[list[str]]:
    for row in slow_reader(block.data[: block.end], form):
        yield row or [""]


def _count_problem(
    row: list[str], schema: Schema, hint: str
) -> tuple[str, Remedy | None]:
    """Return what is wrong with the number of fields, or "", and what would help."""
    if len(row) == len(schema.names):
        return "", None
    if row == [""]:
        return "the line is empty. Remove it.", None
    shown = ", ".join(repr(value) for value in row[:6]) + (", …" if row[6:] else "")
    return (
        f"expected {len(schema.names)} fields ({schema.names[0]} to "
        f"{schema.names[-1]}), found {len(row)}: {shown}.{hint} A field that holds the "
        "delimiter must be quoted",
        Remedy("delimiter", "; pass delimiter='…' if another one separates fields"),
    )


def _value_problem(
    text: str, field: CsvField, form: CsvFormat
) -> tuple[str, Remedy | None]:
    """Return what is wrong with a value, or "", and what would help."""
    if field.dtype in ("string", ""):  # "": while dtypes are being inferred
        return "", None
    if text in form.null_values:
        if field.default is not None:
            return "", None
        advice = f". Pass defaults={{{field.name!r}: …}} to replace missing values"
        return (
            f"column {field.name!r}: expected {field.dtype}, found a missing value "
            f"({text!r})",
            Remedy("defaults", advice),
        )
    if _parses(text, field.dtype):
        return "", None
    how = "inferred from the first rows" if field.inferred else field.origin
    return (
        f"column {field.name!r}: expected {field.dtype} ({how}), found {text!r}. "
        "Correct the value",
        Remedy(
            "dtypes",
            f"; or pass dtypes={{{field.name!r}: {_wider(text)!r}}}; or, if it means a "
            "missing value, add it to null_values",
        ),
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
