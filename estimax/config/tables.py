"""The files of a source: find them, list their columns, and read columns as text.

    paths = find_files(source, "train")
    for batch in text_batches(paths[0], source, "train", ["age", "city"]):
        batch.columns["age"]        # a pyarrow array of text; null if missing
        batch.locate(7)             # "train.csv, line 9"

Text is what `estimax check --data` compares with the run, whatever the format: a value
that is no number is counted then, and does not end the scan.
"""

from __future__ import annotations

import codecs
import glob
import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from estimax.config.nodes import format_value
from estimax.config.schema.data import (
    AnySource,
    CsvSource,
    JsonSource,
    ParquetSource,
    RecordSource,
    Source,
)
from estimax.config.schema.run import Run
from estimax.core.encodings import is_utf_8
from estimax.core.errors import InputError, MissingFileError, did_you_mean

if TYPE_CHECKING:  # both load pyarrow, and checking a file without its data must not
    from estimax.input.sources.csv_blocks import CsvFormat
    from estimax.input.sources.csv_text import BadTextError

_LINES_AT_ONCE = 4096
_RECORDS_AT_ONCE = 8192


@dataclass(frozen=True, eq=False)
class TextBatch:
    """Some rows of a file: columns of text, and where the rows are.

    Args:
      columns: pyarrow arrays of text, which have no types. Lists are flattened, so such
        a column may have more or fewer values than there are rows.
      rows: The number of rows.
      path: The file.
      line_of: Returns the line on which a row of the batch begins. None: the format has
        no lines.
      first: The number of rows of the file before this batch.
    """

    columns: Mapping[str, Any]
    rows: int
    path: str
    line_of: Callable[[int], int] | None = None
    first: int = 0

    def locate(self, row: int) -> str:
        """Return the file and the line or number of a row, for a message."""
        if self.line_of is None:
            return f"{self.path}, row {self.first + row + 1}"
        return f"{self.path}, line {self.line_of(row)}"


def find_files(
    source: Source, name: str, only: str | None = None, *, list_urls: bool = True
) -> tuple[str, ...]:
    """Return the files of a source: patterns expanded and sorted, each file once.

    `only` is one of the patterns; by default all are used. A URL without a pattern is
    not looked for. `list_urls=False` does not expand the others either, so that nothing
    waits for the network.

    Raises:
      MissingFileError: No file matches one of the patterns.
      InputError: The file system of a URL cannot be listed.
    """
    found: list[str] = []
    for pattern in source.files if only is None else (only,):
        if is_remote(pattern):
            found += _matching(pattern, name) if list_urls else [pattern]
            continue
        matches = sorted(glob.glob(pattern)) if glob.has_magic(pattern) else [pattern]
        found += [path for path in matches if os.path.isfile(path)]
        if not matches or not all(os.path.exists(path) for path in matches):
            raise MissingFileError(
                f"data.sources.{name}.files: no file matches "
                f"{format_value(pattern, 200)} (looked from {Path.cwd()})."
            )
    return tuple(dict.fromkeys(found))


def missing_files(
    run: Run, sources: Iterable[str], *, list_urls: bool = True
) -> list[tuple[str, str]]:
    """Return address and text of every file of a run that does not exist.

    Parts of the run may be `BROKEN`; they have no files.

    Args:
      run: The run.
      sources: The names of the sources whose files are needed.
      list_urls: Whether to look for the matches of URLs with patterns.
    """
    missing = []
    for name in sources:
        address = f"data.sources.{name}.files"
        for pattern in run.data.sources[name].files:
            try:
                if isinstance(pattern, str):
                    find_files(
                        run.data.sources[name], name, pattern, list_urls=list_urls
                    )
            except (MissingFileError, InputError) as error:
                missing.append((address, str(error).removeprefix(f"{address}: ")))
    for name, feature in run.features.items():
        file = getattr(feature, "file", None)
        if isinstance(file, str) and not os.path.isfile(file):
            text = f"there is no file {file!r} (looked from {Path.cwd()})."
            missing.append((f"features.{name}.file", text))
    return missing


def _matching(url: str, name: str) -> list[str]:
    """Return the files that a URL means: itself, or the matches of its pattern."""
    if not glob.has_magic(url):
        return [url]
    from estimax.storage import url_patterns

    try:
        return url_patterns.expand(url)
    except InputError as error:
        raise InputError(f"data.sources.{name}.files: {error}") from error


def is_remote(path: str) -> bool:
    """Return whether a path is a URL, which is opened by `estimax.storage.files`.

    That module is not asked: its package loads NumPy, and checking a file must not.
    """
    return "://" in path


def header(path: str, source: AnySource, name: str = "train") -> list[str]:
    """Return the column names of a file; `name` is that of the source.

    Those of JSON lines and TFRecord files are the keys of the first rows.
    """
    if isinstance(source, ParquetSource):
        from estimax.input.sources.parquet import open_parquet

        with open_parquet(path) as file:
            return list(file.schema_arrow.names)
    if isinstance(source, CsvSource):
        return _csv_header(path, source, name)
    found: dict[str, None] = {}
    for batch in itertools.islice(text_batches(path, source, name, None), 1):
        found.update(dict.fromkeys(batch.columns))
    return list(found)


def check_header(path: str, source: AnySource, columns: Mapping[str, object]) -> None:
    """Raise `InputError` if a file lacks one of the columns."""
    for problem in missing_columns(header(path, source), columns):
        raise InputError(f"{path}: {problem}")


def missing_columns(names: list[str], columns: Mapping[str, object]) -> list[str]:
    """Return a message for each column that is not among the names."""
    return [
        f"there is no column {column!r}{did_you_mean(column, names)}"
        for column in columns
        if column not in names
    ]


def text_batches(
    path: str, source: AnySource, name: str, columns: Sequence[str] | None
) -> Iterator[TextBatch]:
    """Yield columns of a file as text, batch by batch; None reads all columns.

    Raises:
      InputError: The file cannot be parsed.
    """
    import pyarrow as pa

    if isinstance(source, CsvSource):
        yield from _csv_batches(path, source, name, columns or ())
        return
    first = 0
    read = _OTHER_FORMATS[type(source)]
    try:
        for rows, found in read(path, source, columns):
            yield TextBatch(found, rows, path, first=first)
            first += rows
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        raise InputError(f"{path}: {error}.") from None


def as_text(values: Any) -> Any:
    """Return a pyarrow array as text; lists are flattened, missing values are null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if pa.types.is_nested(values.type):
        values = pc.list_flatten(values)
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_boolean(values.type):
        values = pc.cast(values, pa.int8())
    text = pc.cast(values, pa.string())
    return pc.if_else(pc.equal(text, ""), None, text)


def _csv_header(path: str, source: CsvSource, name: str) -> list[str]:
    if source.csv.columns is not None:
        return list(source.csv.columns)
    from estimax.input.sources.csv_blocks import read_first_row
    from estimax.input.sources.csv_schema import split_row
    from estimax.input.sources.file_blocks import ByteFile

    form = _csv_format(source)
    file = ByteFile(path, form.compression)
    try:
        row, _, _ = read_first_row(file, form)
    except InputError as error:
        raise _in_run_file(error, name) from None
    finally:
        file.close()
    if not row:
        raise InputError(
            f"{path}: the file is empty; expected a header with the column names."
        )
    if row.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        convert = _iconv(path, "utf-16")
        raise InputError(f"{path}: the file is UTF-16. {convert}")
    try:
        row.decode(source.csv.encoding)
    except UnicodeDecodeError:
        raise _encoding_error(path, 1, b"", source, name) from None
    return split_row(row, form)


def _csv_format(source: CsvSource) -> CsvFormat:
    from estimax.input.sources.csv_blocks import CsvFormat

    options = source.csv
    return CsvFormat(
        options.delimiter,
        options.quote,
        ("", *options.null_values),
        header=options.header,
        compression=source.compression and source.compression.upper(),
        encoding=options.encoding,
    )


def _csv_batches(
    path: str, source: CsvSource, name: str, columns: Sequence[str]
) -> Iterator[TextBatch]:
    from estimax.input.sources.csv_text import BadTextError, read_text_rows
    from estimax.input.sources.file_blocks import ByteFile

    names = _csv_header(path, source, name)
    form = _csv_format(source)
    file = ByteFile(path, form.compression)
    try:
        for rows in read_text_rows(file, form, names, columns):
            columns_of = {column: rows.table[column] for column in columns}
            yield TextBatch(columns_of, rows.table.num_rows, path, rows.line_of)
    except BadTextError as error:
        raise _row_error(path, error, len(names), source, name) from None
    except InputError as error:
        raise _in_run_file(error, name) from None
    finally:
        file.close()


def _in_run_file(error: InputError, name: str) -> InputError:
    """Return an error of the reader with the keys of the run file in its advice."""
    key = f"data.sources.{name}.csv.quote"
    quote = f"; or set {key} to null if quotes are ordinary characters in this file"
    return InputError(error.advise({"quote": quote}))


def _row_error(
    path: str, error: BadTextError, width: int, source: CsvSource, name: str
) -> InputError:
    if error.values is None:
        return _encoding_error(path, error.line, error.data, source, name)
    text = source.csv.delimiter.join(error.values)
    return InputError(
        f"{path}, line {error.line}: expected {width} values, one for each column, "
        f"found {len(error.values)}: {format_value(text)}. Correct the row. A value "
        f"that contains {source.csv.delimiter!r} must be quoted "
        f"(data.sources.{name}.csv.delimiter)."
    )


def _encoding_error(
    path: str, line: int, row: bytes, source: CsvSource, name: str
) -> InputError:
    encoding = source.csv.encoding
    expected = "UTF-8" if is_utf_8(encoding) else encoding
    found = f": {format_value(row)}" if row else ""
    return InputError(
        f"{path}, line {line}: the text is not {expected}{found}. "
        f"{_iconv(path, 'latin1')}; or set data.sources.{name}.csv.encoding, such as "
        "latin1"
    )


def _iconv(path: str, encoding: str) -> str:
    return f"Convert it, for example: iconv -f {encoding} -t utf-8 {path} > new.csv"


def _parquet_batches(
    path: str, source: ParquetSource, columns: Sequence[str] | None
) -> Iterator[tuple[int, dict[str, Any]]]:
    from estimax.input.sources.parquet import open_parquet, read_record_batches

    with open_parquet(path) as file:
        for batch in read_record_batches(file, path, columns):
            names = batch.schema.names
            yield batch.num_rows, {n: as_text(batch.column(n)) for n in names}


def _json_batches(
    path: str, source: JsonSource, columns: Sequence[str] | None
) -> Iterator[tuple[int, dict[str, Any]]]:
    import pyarrow as pa

    from estimax.input.sources.file_blocks import ByteFile
    from estimax.input.sources.json_reader import lines_of_file, read_objects

    file = ByteFile(path, source.compression and source.compression.upper())
    try:
        for rows in read_objects(lines_of_file(file), path, _LINES_AT_ONCE):
            objects = rows.objects
            names = columns
            if names is None:
                names = list(dict.fromkeys(key for row in objects for key in row))
            yield (
                len(objects),
                {
                    name: pa.array(
                        [text for row in objects for text in _texts(row.get(name))],
                        pa.string(),
                    )
                    for name in names
                },
            )
    finally:
        file.close()


def _texts(value: Any) -> list[str | None]:
    """Return a JSON value as text; lists are flattened, missing values are None."""
    if isinstance(value, list):
        return [text for item in value for text in _texts(item)]
    if isinstance(value, bool):
        value = int(value)
    if isinstance(value, str):
        return [value.encode(errors="replace").decode() or None]
    return [None if value is None else json.dumps(value)]


def _record_batches(
    path: str, source: RecordSource, columns: Sequence[str] | None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number of rows and the values of Examples as text.

    The records are read as in training. They are not parsed by `ExampleParser`, which
    expects one kind of values for a feature: here any record may have another kind.
    """
    import pyarrow as pa

    from estimax import input as inputs

    compression = source.compression and source.compression.upper()
    records = inputs.TFRecordDataset(path, compression_type=compression)
    for block in records.batch(_RECORDS_AT_ONCE):
        rows = [inputs.Example.parse(record).features for record in block]
        names = columns
        if names is None:
            names = list(dict.fromkeys(name for row in rows for name in row))
        yield (
            len(rows),
            {
                name: as_text(
                    pa.array([value for row in rows for value in _values(row, name)])
                )
                for name in names
            },
        )


def _values(row: Mapping[str, Any], name: str) -> list[Any]:
    """Return the values of a feature of an Example; one None if it has none."""
    values = row[name].values if name in row else ()
    return [
        value.decode(errors="replace") if isinstance(value, bytes) else value
        for value in values or (None,)
    ]


_OTHER_FORMATS: Mapping[type[Any], Callable[..., Any]] = {
    ParquetSource: _parquet_batches,
    JsonSource: _json_batches,
    RecordSource: _record_batches,
}
