"""One streaming pass over the CSV files of a source, with pyarrow.

for batch in scan(source, {"age": "float", "city": "text"}):
    batch["age"]                  # a pyarrow array, missing values null
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from estimax.config.columns import Kind
from estimax.config.origins import shown
from estimax.config.schema.data import CsvSource
from estimax.core.errors import InputError, MissingFileError, did_you_mean


def find_files(source: CsvSource, name: str) -> tuple[str, ...]:
    """The files of a source, patterns resolved, sorted, each once."""
    found: list[str] = []
    for pattern in source.files:
        matches = sorted(glob.glob(pattern)) if glob.has_magic(pattern) else [pattern]
        found += [path for path in matches if os.path.isfile(path)]
        if not matches or not all(os.path.exists(path) for path in matches):
            raise MissingFileError(
                f"data.sources.{name}.files: no file matches {shown(pattern, 200)} "
                f"(looked from {Path.cwd()})."
            )
    return tuple(dict.fromkeys(found))


def header(path: str, source: CsvSource) -> list[str]:
    """The column names of one file."""
    if source.csv.columns is not None:
        return list(source.csv.columns)
    import pyarrow as pa

    try:
        with _open(path, source, {}) as reader:
            return list(reader.schema.names)
    except pa.ArrowInvalid as error:
        raise InputError(f"{path}: {error}") from None


def scan(
    source: CsvSource, name: str, columns: Mapping[str, Kind]
) -> Iterator[Any]:  # pyarrow.RecordBatch, which has no types
    """The wanted columns of all files, batch by batch."""
    import pyarrow as pa

    for path in find_files(source, name):
        check_header(path, source, columns)
        try:
            with _open(path, source, columns) as reader:
                yield from reader
        except pa.ArrowInvalid as error:
            raise InputError(f"{path}: {error}") from None


def check_header(path: str, source: CsvSource, columns: Mapping[str, object]) -> None:
    """Raise when a file lacks a wanted column."""
    names = header(path, source)
    for column in columns:
        if column not in names:
            hint = did_you_mean(column, names)
            raise InputError(f"{path}: there is no column {column!r}{hint}")


def _open(path: str, source: CsvSource, columns: Mapping[str, Kind]) -> Any:
    import pyarrow as pa
    from pyarrow import csv

    types = {"float": pa.float64(), "int": pa.int64(), "text": pa.string()}
    options = source.csv
    # Without a header the names come from the run; with both, the run renames.
    skip = 1 if options.header and options.columns is not None else 0
    return csv.open_csv(
        path,
        read_options=csv.ReadOptions(
            column_names=list(options.columns) if options.columns else None,
            skip_rows=skip,
        ),
        parse_options=csv.ParseOptions(
            delimiter=options.delimiter, newlines_in_values=True
        ),
        convert_options=csv.ConvertOptions(
            column_types={name: types[kind] for name, kind in columns.items()},
            include_columns=list(columns),
            null_values=["", *options.null_values],
            strings_can_be_null=True,
            quoted_strings_can_be_null=True,
        ),
    )
