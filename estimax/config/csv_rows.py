"""Find the line of a row in a CSV file, and the reason why a file cannot be parsed.

    line_of("train.csv", source.csv, row=7)              # 9: after the header
    parse_error("train.csv", source, "train", error)     # an InputError with the line

pyarrow parses files fast but its errors have no lines. The functions here read a file a
second time, with Python's csv module, after something was found to be wrong.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from estimax.config.nodes import shown
from estimax.config.schema.data import CsvOptions, CsvSource
from estimax.core.errors import InputError
from estimax.core.strings import is_utf_8

_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


def line_of(path: str, options: CsvOptions, row: int) -> int:
    """Return the line on which a row begins; row 0 is the first below the header."""
    for index, (line, _) in enumerate(_rows(path, options)):
        if index == row:
            return line
    raise AssertionError(f"{path} has no row {row}")


def _rows(path: str, options: CsvOptions) -> Iterator[tuple[int, list[str]]]:
    """Yield the line and the values of every row below the header."""
    with _opened(path, options.encoding) as file:
        reader = csv.reader(file, delimiter=options.delimiter)
        line, is_header = 1, options.header
        for row in reader:
            if row and not is_header:
                yield line, row
            is_header = is_header and not row  # pyarrow skips empty lines
            line = reader.line_num + 1


def _opened(path: str, encoding: str) -> io.TextIOWrapper:
    """Open a file, compressed or not; bytes that are not UTF-8 become surrogates."""
    import pyarrow as pa

    from estimax.storage import files

    opened = files.open_to_read(path) if files.is_remote(path) else path
    raw = io.BufferedReader(pa.input_stream(opened))
    if is_utf_8(encoding):
        encoding = "utf-8-sig"  # which drops a mark at the beginning
    return io.TextIOWrapper(raw, encoding, errors="surrogateescape", newline="")


def parse_error(
    path: str, source: CsvSource, name: str, error: Exception
) -> InputError:
    """Return an error that says where and why pyarrow could not parse a file.

    Args:
      path: The file.
      source: The source of the run to which the file belongs.
      name: The name of the source.
      error: What pyarrow raised.
    """
    return InputError(_reason(path, source, name) or f"{path}: {error}")


def _reason(path: str, source: CsvSource, name: str) -> str | None:
    encoding, key = source.csv.encoding, f"data.sources.{name}.csv"
    with _opened(path, encoding) as file:
        start = file.read(2).encode("utf-8", "surrogateescape")
        first = "" if not start else file.readline()
    if not start:
        return f"{path}: the file is empty; expected a header with the column names."
    if start in _UTF_16:
        return f"{path}: the file is UTF-16. {_convert(path, 'utf-16')}"
    shown_encoding = "UTF-8" if is_utf_8(encoding) else encoding
    wrong = f"the text is not {shown_encoding}"
    if _is_bad(first):
        return f"{path}, line 1: {wrong}. {_decode(path, key)}"
    width = len(source.csv.columns or _first_row(path, source.csv))
    for line, row in _rows(path, source.csv):
        text = source.csv.delimiter.join(row)
        if _is_bad(text):
            found = shown(text.encode(encoding, "surrogateescape"))
            return f"{path}, line {line}: {wrong}: {found}. {_decode(path, key)}"
        if len(row) != width:
            return (
                f"{path}, line {line}: expected {width} values, one for each column, "
                f"found {len(row)}: {shown(text)}. Correct the row. A value that "
                f"contains {source.csv.delimiter!r} must be quoted ({key}.delimiter)."
            )
    return None


def _first_row(path: str, options: CsvOptions) -> list[str]:
    with _opened(path, options.encoding) as file:
        reader = csv.reader(file, delimiter=options.delimiter)
        return next((row for row in reader if row), [])


def _is_bad(text: str) -> bool:
    return any("\udc80" <= character <= "\udcff" for character in text)


def _decode(path: str, key: str) -> str:
    """Return what to do with a file that is probably in an older encoding."""
    return f"{_convert(path, 'latin1')}; or set {key}.encoding, such as latin1"


def _convert(path: str, encoding: str) -> str:
    return f"Convert it, for example: iconv -f {encoding} -t utf-8 {path} > new.csv"
