"""Read rows to predict, in batches, from files of several formats or standard input.

    for batch in read_tables("new-*.parquet", None, InputColumns(features, ["id"])):
        batch.columns, batch.where(0)     # columns by name, "new-1.parquet, row 1"
        predict_batch(bundle, signature, batch)     # output name -> array
    read_part("new.csv", part, wanted)    # the rows of one `FilePart`

The format is given, or follows from the suffix, or else from the first bytes. One batch
at a time is in memory; of an .npz file, all arrays are. JSON lines are read from
standard input as they arrive. Other formats are first copied to a temporary file.
"""

from __future__ import annotations

import difflib
import itertools
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from estimax import export
from estimax import input as inputs
from estimax.core.errors import ConfigError, EstimaxError, InputError, did_you_mean
from estimax.core.parse_spec import FixedLenFeature, VarLenFeature
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.export import TensorInfo
from estimax.export.requests import is_filled
from estimax.export.scoring.plan import BATCH_ROWS, FilePart, is_compressed
from estimax.input.readers import read_example_dtypes
from estimax.input.sources.csv_blocks import CsvFormat
from estimax.input.sources.csv_reader import CsvReader
from estimax.input.sources.csv_schema import make_schema, read_header
from estimax.input.sources.file_blocks import (
    BlockReader,
    BlockStart,
    ByteFile,
    FileBlocks,
    expand,
)
from estimax.input.sources.json_reader import (
    lines_of_file,
    lines_of_stream,
    read_objects,
)
from estimax.input.sources.parquet import open_parquet, read_record_batches
from estimax.input.sources.record_files import TFRecordReader
from estimax.input.streams.chunks import Chunk

STANDARD_INPUT = "standard input"
# Larger arrays of an .npz file may decompress to so many times their size in the file.
_LARGE_ARRAY = 256 << 20
_MOST_EXPANSION = 100

_SUFFIXES = {
    ".csv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".tfrecord": "tfrecord",
    ".tfrecords": "tfrecord",
    ".npz": "npz",
}


@dataclass(frozen=True)
class TableBatch:
    """Some rows of a file, as columns; the first of them is row number `first`."""

    columns: dict[str, Any]
    rows: int
    path: str
    first: int
    unit: str = "row"  # or "line", for JSON lines
    lines: Sequence[int] | None = None

    def where(self, row: int) -> str:
        """Return the file and the number of a row of the batch, for a message."""
        number = self.first + row if self.lines is None else self.lines[row]
        return f"{self.path}, {self.unit} {number}"


# What a user of the command line can do where a caller in Python passes an argument.
_ADVICE = {
    "columns": ". Rename one of them",
    "defaults": (
        ". If values may be missing, set a default for its feature and train again"
    ),
}


@dataclass(frozen=True)
class InputColumns:
    """The columns to read: the features of a model, and others to pass through.

    `reader` is what needs the features, for messages.
    """

    features: Mapping[str, TensorInfo]
    keep: Sequence[str] = ()
    reader: str = "the bundle"

    @property
    def names(self) -> list[str]:
        """All columns, each once."""
        return list(dict.fromkeys((*self.features, *self.keep)))

    def check(self, path: str, found: Iterable[str], *, fills: bool = False) -> None:
        """Raise InputError if a file lacks a column.

        Args:
          path: The name of the file in messages.
          found: The columns that it has.
          fills: Whether a file may lack features that the model fills.
        """
        there = list(found)
        absent = [name for name in self.names if name not in there]
        for name in absent:
            if name not in self.features:
                hint = (
                    did_you_mean(name, there, listed_as="found")
                    or "; the file has no columns"
                )
                raise InputError(f"{path}: --keep: no column {name!r}{hint}")
        needed = [n for n in absent if not (fills and is_filled(self.features[n]))]
        if len(needed) == 1:
            hint = (
                did_you_mean(needed[0], there, listed_as="found")
                or "; the file has no columns"
            )
            raise InputError(
                f"{path}: {self.reader} needs a column {needed[0]!r}{hint}"
            )
        if needed:
            raise InputError(
                f"{path}: {self.reader} needs the columns "
                f"{', '.join(map(repr, needed))}; the file has "
                f"{', '.join(there) or 'no columns'}"
            )
        for name in absent:
            others = [other for other in there if other not in self.names]
            similar = difflib.get_close_matches(name, others, n=1, cutoff=0.8)
            if similar:
                raise InputError(
                    f"{path}: no column {name!r}, found a column {similar[0]!r}. "
                    "Rename it, or leave it out if it is another one."
                )


def check_keep(keep: Sequence[str], outputs: Iterable[str]) -> None:
    """Raise ConfigError if a column to keep has the name of an output."""
    for name in outputs:
        if name in keep:
            raise ConfigError(
                f"--keep: the model has an output {name!r}, so a column of that name "
                "cannot be written beside it. Rename the column."
            )


def first_refused(
    batch: TableBatch,
    names: Iterable[str],
    read: Callable[[dict[str, Any]], object],
    error: EstimaxError,
) -> InputError:
    """Return an error that names the first row that `read` refuses, found by halving.

    Args:
      batch: A batch with such a row.
      names: The columns to read.
      read: Reads rows, given as columns by name.
      error: The error of the whole batch.
    """
    columns = {name: batch.columns[name] for name in names}
    low, high = 0, batch.rows - 1
    while low < high:
        middle = (low + high) // 2
        try:
            read(_rows(columns, low, middle + 1))
            low = middle + 1
        except EstimaxError:
            high = middle
    try:
        read(_rows(columns, low, low + 1))
    except EstimaxError as of_row:
        error = of_row  # it speaks of this row alone
    return InputError(f"{batch.where(low)}: {error}")


def _rows(columns: dict[str, Any], start: int, stop: int) -> dict[str, Any]:
    return {
        name: value.rows(start, stop)
        if isinstance(value, Sparse)
        else value[start:stop]
        for name, value in columns.items()
    }


@dataclass(frozen=True)
class _Opened:
    """A file to read rows from: its path, its name in messages, and the part of it."""

    path: str
    name: str
    part: FilePart

    @property
    def compression(self) -> str | None:
        """The compression for the readers of datasets."""
        return "GZIP" if is_compressed(self.path) else None


Reader = Callable[[_Opened, InputColumns], Iterator[TableBatch]]


def read_tables(
    files: str, form: str | None, wanted: InputColumns
) -> Iterator[TableBatch]:
    """Yield the rows of all files that match, or of standard input for "-".

    Args:
      files: A path, a pattern, or "-".
      form: "csv", "jsonl", "npz", "parquet" or "tfrecord"; None to find out.
      wanted: The columns to read.

    Raises:
      ConfigError: The format is unknown.
      InputError: A file cannot be read or lacks a column.
    """
    check_format(form)
    if files == "-":
        yield from _read_standard_input(form, wanted)
        return
    for path in expand(files):
        yield from read_part(path, FilePart(format_of(path, form)), wanted)


def read_part(path: str, part: FilePart, wanted: InputColumns) -> Iterator[TableBatch]:
    """Yield the rows of a part of a file.

    Raises:
      InputError: The file cannot be read, lacks a column, or has changed since it was
        cut into parts.
    """
    rows = 0
    for batch in _read(_Opened(path, path, part), wanted):
        yield batch
        rows += batch.rows
    if part.rows is not None and rows != part.rows:
        raise InputError(
            f"{path}: expected {part.rows:,} rows from row {part.first} on, found "
            f"{rows:,}; the file has changed while it was scored."
        )


def _read(file: _Opened, wanted: InputColumns) -> Iterator[TableBatch]:
    """Yield the rows of a file; errors have advice for users of the command line."""
    try:
        yield from _READERS[file.part.form](file, wanted)
    except InputError as error:
        raise InputError(error.advise(_ADVICE)) from error


def check_format(form: str | None) -> None:
    """Raise ConfigError if a format is given and unknown."""
    if form is not None and form not in _READERS:
        raise ConfigError(
            f"--format: unknown format {form!r}{did_you_mean(form, _READERS)}"
        )


def format_of(path: str, given: str | None) -> str:
    """Return the format of a file: the given one, or by its suffix or first bytes."""
    if given is not None:
        return given
    by_suffix = _SUFFIXES.get(Path(path.removesuffix(".gz")).suffix.lower())
    if by_suffix is not None:
        return by_suffix
    with open(path, "rb") as file:
        return _sniff(file.read(16))


def _read_standard_input(
    form: str | None, wanted: InputColumns
) -> Iterator[TableBatch]:
    given: Any = sys.stdin.buffer  # a BufferedReader
    form = form or _sniff(given.peek(16)[:16])
    if form == "jsonl":
        lines = lines_of_stream(given, STANDARD_INPUT)
        opened = _Opened("", STANDARD_INPUT, FilePart(form))
        yield from _json_batches(lines, opened, wanted)
        return
    with tempfile.NamedTemporaryFile(prefix="estimax-", suffix=f".{form}") as copy:
        shutil.copyfileobj(given, copy)
        copy.flush()
        try:
            opened = _Opened(copy.name, STANDARD_INPUT, FilePart(form))
            yield from _read(opened, wanted)
        except EstimaxError as error:
            # The readers of datasets name the file that they read.
            text = str(error).replace(copy.name, STANDARD_INPUT)
            raise InputError(text) from None


def _sniff(start: bytes) -> str:
    """Return the format of a file by its first bytes."""
    if start.startswith(b"PAR1"):
        return "parquet"
    if start.startswith(b"PK\x03\x04"):
        return "npz"
    if start.lstrip().startswith(b"{"):
        return "jsonl"
    # A TFRecord begins with a length of 8 bytes, and few records have 16 MB.
    return "tfrecord" if start[3:8] == bytes(5) else "csv"


def _read_csv(file: _Opened, wanted: InputColumns) -> Iterator[TableBatch]:
    form = CsvFormat(compression=file.compression)
    is_empty = not Path(file.path).stat().st_size
    header = () if is_empty else read_header(file.path, form) or ()
    wanted.check(file.name, header)
    schema = make_schema(
        (file.path,),
        form,
        select=wanted.names,
        dtypes=dict.fromkeys(wanted.keep, "string")
        | {n: spec.dtype for n, spec in wanted.features.items()},
        defaults={
            n: d
            for n, spec in wanted.features.items()
            if (d := _missing(spec)) is not None
        },
    )
    fields = tuple(replace(f, origin="by the model") for f in schema.fields)
    schema = replace(schema, fields=fields)

    def reader() -> BlockReader:
        whole = CsvReader(schema, form, file.path, file.part.end or None)
        return _FromStart(whole, file.part.start) if file.part.start else whole

    data = inputs.Dataset(FileBlocks((file.path,), reader, "csv_files"))
    first = file.part.first
    for columns in data.batch(BATCH_ROWS):
        rows = len(next(iter(columns.values())))
        yield TableBatch(columns, rows, file.name, first)
        first += rows


@dataclass(frozen=True)
class _FromStart:
    """Reads the blocks of a file from a position on that was found before."""

    reader: BlockReader
    begin: BlockStart

    def start(self, path: str) -> BlockStart:
        return self.begin

    def read(
        self, path: str, start: BlockStart, rows: int
    ) -> tuple[Chunk, BlockStart] | None:
        return self.reader.read(path, start, rows)

    def close(self) -> None:
        self.reader.close()


def _missing(spec: TensorInfo) -> Any:
    """Return what a reader has in place of a missing number; None: it is an error."""
    if spec.dtype == "string" or spec.default is None:
        return None
    # The bundle replaces NaN by the default of the feature.
    return float("nan") if spec.dtype.startswith("float") else spec.default


def _read_parquet(file: _Opened, wanted: InputColumns) -> Iterator[TableBatch]:
    first, part = file.part.first, file.part
    with open_parquet(file.path) as opened:
        wanted.check(file.name, opened.schema_arrow.names)
        # Not by `ParquetReader`, whose columns have no nulls and no types of Arrow: the
        # bundle fills missing values, and columns to keep have the types of the file.
        for batch in read_record_batches(
            opened,
            file.path,
            wanted.names,
            start=part.start or (0, 0),
            rows=part.rows,
            batch_rows=BATCH_ROWS,
        ):
            columns = {n: batch.column(n) for n in wanted.names}
            yield TableBatch(columns, batch.num_rows, file.name, first)
            first += batch.num_rows


def _read_json_lines(file: _Opened, wanted: InputColumns) -> Iterator[TableBatch]:
    part = file.part
    if not Path(file.path).is_file():  # a pipe, which cannot seek
        with open(file.path, "rb") as stream:
            yield from _json_batches(lines_of_stream(stream, file.name), file, wanted)
        return
    opened = ByteFile(file.path, file.compression, part.end or None)
    try:
        lines = lines_of_file(opened, part.start or None)
        yield from _json_batches(lines, file, wanted)
    finally:
        opened.close()


def _json_batches(
    lines: Iterable[tuple[int, bytes]], file: _Opened, wanted: InputColumns
) -> Iterator[TableBatch]:
    is_checked = file.part.first > 1
    for rows in read_objects(lines, file.name, BATCH_ROWS, skip_empty=True):
        if not is_checked:  # a key that a row lacks is a missing value
            known = dict.fromkeys(itertools.chain.from_iterable(rows.objects))
            wanted.check(f"{file.name}, line {rows.lines[0]}", known, fills=True)
            is_checked = True
        # Values stay as they are: the bundle checks and fills its features, and a
        # column to keep has any type.
        columns = {n: [row.get(n) for row in rows.objects] for n in wanted.names}
        count = len(rows.objects)
        yield TableBatch(columns, count, file.name, 1, "line", rows.lines)


def _read_npz(file: _Opened, wanted: InputColumns) -> Iterator[TableBatch]:
    name = file.name
    try:
        with np.load(file.path, allow_pickle=False) as arrays:
            wanted.check(name, arrays.files)
            _check_expansion(arrays, wanted.names)
            columns = {n: arrays[n] for n in wanted.names}
    except (ValueError, OSError, EOFError) as error:
        raise InputError(f"{name}: cannot be read as .npz: {error}") from error
    rows = {n: len(np.atleast_1d(array)) for n, array in columns.items()}
    if len(set(rows.values())) > 1:
        raise InputError(f"{name}: the arrays have different numbers of rows: {rows}.")
    for start in range(0, max(rows.values(), default=0), BATCH_ROWS):
        some = {n: array[start : start + BATCH_ROWS] for n, array in columns.items()}
        yield TableBatch(some, len(next(iter(some.values()))), name, start + 1)


def _check_expansion(arrays: Any, names: Iterable[str]) -> None:
    """Raise ValueError for arrays that decompress to far more than their file.

    A file of some megabytes can hold zeros that fill the memory.
    """
    for name in names:
        stored = arrays.zip.getinfo(f"{name}.npy")
        is_large = stored.file_size > _LARGE_ARRAY
        if is_large and stored.file_size > _MOST_EXPANSION * stored.compress_size:
            raise ValueError(
                f"array {name!r} has {stored.compress_size:,} bytes in the file and "
                f"{stored.file_size:,} decompressed, more than {_MOST_EXPANSION} times "
                "as many. If that is right, save it without compression (np.savez) or "
                "as Parquet"
            )


def _read_tfrecord(file: _Opened, wanted: InputColumns) -> Iterator[TableBatch]:
    parse: inputs.ExampleParser | None = None
    first = file.part.first
    for texts in _records(file):
        if parse is None:
            parse = inputs.ExampleParser(_example_specs(file, wanted))
        try:
            columns = parse(texts)
        except InputError:
            # Parsed again with names, which the message then has. They take time.
            parse(texts, [f"{file.name}, row {first + i}" for i in range(len(texts))])
            raise
        yield TableBatch(columns, len(texts), file.name, first)
        first += len(texts)


def _records(file: _Opened) -> Iterator[Strings]:
    """Yield the records of a part in batches."""
    part = file.part

    def reader() -> BlockReader:
        whole = TFRecordReader(file.compression)
        return _FromStart(whole, part.start) if part.start else whole

    data = inputs.Dataset(FileBlocks((file.path,), reader, "TFRecordDataset"))
    yield from (data if part.rows is None else data.take(part.rows)).batch(BATCH_ROWS)


def _example_specs(file: _Opened, wanted: InputColumns) -> dict[str, Any]:
    """Return how to parse the columns; those to keep, as in the first Example."""
    found = read_example_dtypes(file.path, file.compression)
    specs = {n: _spec_of(spec) for n, spec in wanted.features.items()}
    kept = [n for n in wanted.keep if n not in specs]
    InputColumns({}, kept).check(f"{file.name}, row 1", found)
    return specs | {n: VarLenFeature(found[n] or "string") for n in kept}


def _spec_of(spec: TensorInfo) -> Any:
    dtype = {"float64": "float32", "int32": "int64"}.get(spec.dtype, spec.dtype)
    if spec.kind == "sparse":
        return VarLenFeature(dtype)
    default = "" if dtype == "string" and not spec.tail else spec.default
    return FixedLenFeature(tuple(n or 1 for n in spec.tail), dtype, default)


_READERS: dict[str, Reader] = {
    "csv": _read_csv,
    "jsonl": _read_json_lines,
    "npz": _read_npz,
    "parquet": _read_parquet,
    "tfrecord": _read_tfrecord,
}


def predict_batch(
    bundle: export.Bundle, called: export.Signature, batch: TableBatch
) -> dict[str, Any]:
    """Return the answers of a signature by output name.

    Raises:
      InputError: The bundle refuses a row. The message names the file and the row.
    """
    features = {spec.name: batch.columns[spec.name] for spec in called.inputs}
    try:
        return bundle.predict(features, called.name)
    except EstimaxError as error:

        def read(some: dict[str, Any]) -> object:
            return bundle.transform(bundle.check(some))

        raise first_refused(batch, features, read, error) from error
