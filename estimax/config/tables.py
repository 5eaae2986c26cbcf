"""The files of a source: find them, list their columns, and read columns as text.

    paths = find_files(source, "train")
    for batch in text_batches(paths[0], source, "train", ["age", "city"]):
        batch["age"]                # a pyarrow array of text; null if missing

Text is what `estimax check --data` compares with the run, whatever the format: a value
that is no number is counted then, and does not end the scan.
"""

from __future__ import annotations

import codecs
import contextlib
import glob
import itertools
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from estimax.config.csv_rows import parse_error
from estimax.config.nodes import shown
from estimax.config.schema.data import (
    AnySource,
    CsvSource,
    JsonSource,
    ParquetSource,
    RecordSource,
    Source,
)
from estimax.config.schema.run import Run
from estimax.core.errors import InputError, MissingFileError, did_you_mean

TextBatch = Mapping[str, Any]  # pyarrow arrays of text, which have no types
_LINES_AT_ONCE = 4096
_RECORDS_AT_ONCE = 8192


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
                f"data.sources.{name}.files: no file matches {shown(pattern, 200)} "
                f"(looked from {Path.cwd()})."
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
        with _parquet(path) as file:
            return list(file.schema_arrow.names)
    if isinstance(source, CsvSource):
        return _csv_header(path, source, name)
    found: dict[str, None] = {}
    for batch in itertools.islice(text_batches(path, source, name, None), 1):
        found.update(dict.fromkeys(batch))
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

    Lists are flattened, so such a column may have another length than the others.

    Raises:
      InputError: The file cannot be parsed.
    """
    import pyarrow as pa

    try:
        if isinstance(source, CsvSource):
            yield from _csv_batches(path, source, columns or ())
        elif isinstance(source, ParquetSource):
            with _parquet(path) as file:
                for batch in file.iter_batches(columns=columns):
                    yield {n: as_text(batch.column(n)) for n in batch.schema.names}
        elif isinstance(source, JsonSource):
            yield from _json_batches(path, source, columns)
        else:
            yield from _record_batches(path, source, columns)
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        if isinstance(source, CsvSource):
            raise parse_error(path, source, name, error) from None
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


@contextlib.contextmanager
def _parquet(path: str) -> Iterator[Any]:
    import pyarrow as pa
    from pyarrow import parquet

    from estimax.storage import files

    with files.open_to_read(path) as file:
        try:
            opened = parquet.ParquetFile(file)
        except pa.ArrowInvalid as error:
            raise InputError(f"{path}: expected a Parquet file: {error}.") from None
        yield opened


def _csv_header(path: str, source: CsvSource, name: str) -> list[str]:
    if source.csv.columns is not None:
        return list(source.csv.columns)
    import pyarrow as pa

    try:
        with _open_csv(path, source, ()) as reader:
            return list(reader.schema.names)
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        raise parse_error(path, source, name, error) from None


def _csv_batches(
    path: str, source: CsvSource, columns: Sequence[str]
) -> Iterator[TextBatch]:
    from estimax.input.sources.csv_blocks import CsvFormat, check_quotes

    packed = source.compression and source.compression.upper()
    form = CsvFormat(source.csv.delimiter, source.csv.quote, compression=packed)
    check_quotes(path, form)
    with _open_csv(path, source, columns) as reader:
        for batch in reader:
            yield {name: batch[name] for name in columns}


def _open_csv(path: str, source: CsvSource, columns: Sequence[str]) -> Any:
    import pyarrow as pa
    from pyarrow import csv

    options = source.csv
    # If a file has a header and the run lists columns, those of the run are used and
    # the header is skipped.
    skip = 1 if options.header and options.columns is not None else 0
    return csv.open_csv(
        _stream(path, source.compression),
        read_options=csv.ReadOptions(
            column_names=list(options.columns) if options.columns else None,
            skip_rows=skip,
            encoding=options.encoding,
        ),
        parse_options=csv.ParseOptions(
            delimiter=options.delimiter,
            quote_char=options.quote or False,
            newlines_in_values=True,
        ),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(columns, pa.string()),
            include_columns=list(columns),
            null_values=["", *options.null_values],
            strings_can_be_null=True,
            quoted_strings_can_be_null=True,
        ),
    )


def _stream(path: str, compression: str | None) -> Any:
    """Return what pyarrow reads: a path, or a stream of a URL or compressed file."""
    import pyarrow as pa

    from estimax.storage import files

    if compression == "zlib":
        with files.open_to_read(path) as file:
            return pa.BufferReader(zlib.decompress(file.read()))
    if is_remote(path):
        return pa.input_stream(files.open_to_read(path), compression=compression)
    return path if compression is None else pa.input_stream(path, compression)


def _json_batches(
    path: str, source: JsonSource, columns: Sequence[str] | None
) -> Iterator[TextBatch]:
    """Yield the values of JSON lines as text.

    Python parses the lines: pyarrow would infer types, and crashes on odd lines.
    """
    import pyarrow as pa

    from estimax import input as inputs
    from estimax.input.sources.json_reader import parse_object

    compression = source.compression and source.compression.upper()
    lines = inputs.TextLineDataset(path, compression_type=compression)
    number = 0
    for block in lines.batch(_LINES_AT_ONCE):
        rows = []
        for line in block.tolist():
            number += 1
            try:
                rows.append(parse_object(line.removeprefix(codecs.BOM_UTF8)))
            except InputError as error:
                raise InputError(f"{path}, line {number}: {error}") from None
        names = dict.fromkeys(key for row in rows for key in row)
        yield {
            name: pa.array(
                [text for row in rows for text in _texts(row.get(name))], pa.string()
            )
            for name in (names if columns is None else columns)
        }


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
) -> Iterator[TextBatch]:
    import pyarrow as pa

    from estimax import input as inputs

    compression = source.compression and source.compression.upper()
    records = inputs.TFRecordDataset(path, compression_type=compression)
    for block in records.batch(_RECORDS_AT_ONCE):
        rows = [inputs.Example.parse(record).features for record in block]
        names = columns
        if names is None:
            names = list(dict.fromkeys(name for row in rows for name in row))
        yield {
            name: as_text(
                pa.array(
                    [
                        value.decode(errors="replace")
                        if isinstance(value, bytes)
                        else value
                        for row in rows
                        for value in (row[name].values if name in row else ())
                        or (None,)
                    ]
                )
            )
            for name in names
        }
