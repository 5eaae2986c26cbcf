"""Datasets of files with named columns: CSV and Parquet.

csv_files("train-*.csv", dtypes={"age": "int64"}, defaults={"age": -1})
parquet_files("train-*.parquet", columns=["age", "clicks"])
make_csv_dataset("train-*.csv", 1024, label_name="income", num_epochs=1)
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from estimax.core.errors import InputError, did_you_mean
from estimax.input.dataset import Dataset
from estimax.input.sources.csv_blocks import CsvFormat, read_first_row, read_rows
from estimax.input.sources.csv_reader import CsvReader
from estimax.input.sources.csv_schema import (
    Field,
    Schema,
    default_of,
    make_schema,
    read_header,
    slow_reader,
)
from estimax.input.sources.file_blocks import ByteFile, FileBlocks
from estimax.input.sources.parquet import ParquetReader, select_columns
from estimax.input.sources.paths import PathLike, expand, list_paths
from estimax.input.streams.stream import check_at_least
from estimax.input.verbs.mixing import Interleave
from estimax.wire.compression import check_compression

_DEFAULTS = {"int32": 0, "int64": 0, "float32": 0.0, "float64": 0.0, "string": b""}

_LARGEST_FLOAT32 = float(np.finfo(np.float32).max)


def csv_files(
    files: PathLike | Iterable[PathLike],
    *,
    columns: Sequence[str] | None = None,
    dtypes: Mapping[str, Any] | None = None,
    select: Iterable[str] | None = None,
    null_values: Iterable[str] = ("",),
    defaults: Mapping[str, Any] | None = None,
    delimiter: str = ",",
    quote: str | None = '"',
    header: bool = True,
    compression: str | None = None,
    block_bytes: int = 4 << 20,
) -> Dataset:
    """Read CSV files into dicts of columns: float32, int64 or `Strings` by name.

    `files` is a path, a pattern (sorted) or a list of these. Dtypes that are not given
    are inferred from the first megabyte. A missing value (empty, or in `null_values`)
    takes its column's default; text without one is empty, a number without one is an
    error. `columns` names the columns, in place of the header if there is one.
    `compression` is None, "GZIP" or "ZLIB".

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
    ...     _ = file.write("age,city\\n31,Oslo\\n,Rome\\n")
    ...     file.flush()
    ...     next(iter(csv_files(file.name, defaults={"age": -1}).batch(2)))
    {'age': array([31, -1]), 'city': Strings([b'Oslo', b'Rome'], shape=(2,))}
    """
    check_at_least(1, block_bytes, "csv_files: block_bytes")
    for what, text in (("delimiter", delimiter), ("quote", quote)):
        if text is not None and (len(text) != 1 or not text.isascii()):
            raise InputError(f"csv_files: {what} must be one character, got {text!r}.")
    paths = expand(files)
    nulls = tuple(null_values)
    form = CsvFormat(delimiter, quote, nulls, header, block_bytes, compression)
    schema = make_schema(
        paths, form, columns=columns, dtypes=dtypes, select=select, defaults=defaults
    )
    return csv_dataset(paths, schema, form, "csv_files")


def csv_dataset(
    paths: tuple[str, ...], schema: Schema, form: CsvFormat, name: str
) -> Dataset:
    """A dataset of dicts of columns, of files whose schema is known."""
    return Dataset(FileBlocks(paths, lambda: CsvReader(schema, form, paths[0]), name))


def parquet_files(
    files: PathLike | Iterable[PathLike],
    *,
    columns: Iterable[str] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> Dataset:
    """Read Parquet files into dicts of columns, one row group at a time.

    `columns` selects, and only these are read. Numbers keep their dtype, text and
    binary become `Strings`, lists `Sparse`. Decimals become float64; dates and times
    become integers of their unit, such as days or microseconds since 1970. A missing
    value takes its column's default; text without one is empty, a number without one
    is an error.

    >>> import os, tempfile, pyarrow as pa, pyarrow.parquet as pq
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "a.parquet")
    ...     table = pa.table({"age": [31, 7], "clicks": [[1, 2], []]})
    ...     pq.write_table(table, path)
    ...     batch = next(iter(parquet_files(path).batch(2)))
    >>> batch["age"], batch["clicks"].values, batch["clicks"].dense_shape
    (array([31,  7]), array([1, 2]), (2, 2))
    """
    paths = expand(files)
    wanted = None if columns is None else tuple(columns)
    names = select_columns(paths[0], wanted, defaults)
    stand_ins = dict(defaults or {})

    def reader() -> ParquetReader:
        return ParquetReader(names, stand_ins)

    return Dataset(FileBlocks(paths, reader, "parquet_files"))


def make_csv_dataset(
    file_pattern: PathLike | Sequence[PathLike],
    batch_size: int,
    column_names: Sequence[str] | None = None,
    column_defaults: Sequence[Any] | None = None,
    label_name: str | None = None,
    select_columns: Sequence[str | int] | None = None,
    field_delim: str = ",",
    use_quote_delim: bool = True,
    na_value: str = "",
    header: bool = True,
    num_epochs: int | None = None,
    shuffle: bool = True,
    shuffle_buffer_size: int = 10000,
    shuffle_seed: int | None = None,
    prefetch_buffer_size: int | None = None,
    num_parallel_reads: int | None = None,
    sloppy: bool = False,
    num_rows_for_inference: int | None = 100,
    compression_type: str | None = None,
    ignore_errors: bool = False,
    encoding: str = "utf-8",
) -> Dataset:
    r"""Batches of dicts of columns, or `(dict, label)` with `label_name`.

    `num_epochs=None` repeats for ever, batches running across the ends of epochs. A
    column whose dtype is not given by `column_defaults` gets the first of int32, int64,
    float32, float64 and text that fits the first rows, with 0 or "" for missing values.
    `sloppy` is accepted and changes nothing: the order is always the same.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w") as file:
    ...     _ = file.write("age,city,y\n31,Oslo,1\n,Rome,0\n")
    ...     file.flush()
    ...     data = make_csv_dataset(
    ...         file.name, 2, label_name="y", num_epochs=1, shuffle=False)
    ...     next(iter(data))[0]["age"]
    array([31,  0], dtype=int32)
    """
    if encoding.lower().replace("_", "-") not in ("utf-8", "utf8", "ascii"):
        raise InputError(f"make_csv_dataset: encoding must be utf-8, got {encoding!r}.")
    paths = tuple(list_paths(file_pattern))
    form = CsvFormat(
        field_delim,
        '"' if use_quote_delim else None,
        tuple({"": None, na_value: None}),
        header,
        compression=check_compression(compression_type, "make_csv_dataset"),
    )
    schema = _schema(paths, form, column_names, select_columns)
    fields = _fields(paths, form, schema, column_defaults, num_rows_for_inference)
    schema = Schema(schema.names, fields, schema.header)
    if label_name is not None and label_name not in {field.name for field in fields}:
        names = [field.name for field in fields]
        raise InputError(
            f"make_csv_dataset: label_name is {label_name!r}, which is no selected "
            f"column{did_you_mean(label_name, names)}"
        )
    data = _rows(paths, form, schema, shuffle, shuffle_seed, num_parallel_reads)
    if ignore_errors:
        data = data.ignore_errors()
    if label_name is not None:
        data = data.with_label(label_name)
    if shuffle:
        data = data.shuffle(shuffle_buffer_size, shuffle_seed)
    data = data.repeat(num_epochs).batch(batch_size, drop_remainder=num_epochs is None)
    return data.prefetch(1 if prefetch_buffer_size is None else prefetch_buffer_size)


def _rows(
    paths: tuple[str, ...],
    form: CsvFormat,
    schema: Schema,
    shuffle: bool,
    seed: int | None,
    parallel: int | None,
) -> Dataset:
    if not shuffle and (parallel or 1) == 1:
        return csv_dataset(paths, schema, form, "make_csv_dataset")
    files = Dataset.from_tensor_slices([os.fsencode(path) for path in paths])
    if shuffle:
        files = files.shuffle(len(paths), seed)

    def rows(path: bytes) -> Dataset:
        return csv_dataset((os.fsdecode(path),), schema, form, "make_csv_dataset")

    threads = parallel if parallel and parallel > 1 else 0
    node = Interleave(
        files.node, rows, parallel or 1, 1, threads, "make_csv_dataset", columnar=True
    )
    return Dataset(node)


def _schema(
    paths: tuple[str, ...],
    form: CsvFormat,
    column_names: Sequence[str] | None,
    select_columns: Sequence[str | int] | None,
) -> Schema:
    """The names of the columns, and the wanted ones, without dtypes yet."""
    names = tuple(column_names) if column_names is not None else None
    if names is None:
        names = read_header(paths[0], form)
        for path in paths[1:]:
            if read_header(path, form) != names:
                raise InputError(
                    f"{path}, line 1: the header differs from that of {paths[0]}. All "
                    "files must have the same columns in the same order."
                )
    if names is None:
        raise InputError("make_csv_dataset: header=False needs column_names.")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"make_csv_dataset: two columns are named {twice[0]!r}.")
    chosen = names
    if select_columns is not None:
        wanted = {_name(column, names) for column in select_columns}
        chosen = tuple(name for name in names if name in wanted)
    fields = tuple(Field(name, "", inferred=True) for name in chosen)
    return Schema(names, fields, None if column_names is not None else names)


def _name(column: str | int, names: tuple[str, ...]) -> str:
    if isinstance(column, int) and 0 <= column < len(names):
        return names[column]
    if column not in names:
        raise InputError(
            f"make_csv_dataset: select_columns names {column!r}"
            f"{did_you_mean(str(column), names)}"
        )
    return str(column)


def _fields(
    paths: tuple[str, ...],
    form: CsvFormat,
    schema: Schema,
    defaults: Sequence[Any] | None,
    rows: int | None,
) -> tuple[Field, ...]:
    """The wanted columns with their dtypes, given or found in the first rows."""
    if defaults is not None:
        if len(defaults) != len(schema.fields):
            raise InputError(
                f"make_csv_dataset: {len(defaults)} column_defaults for "
                f"{len(schema.fields)} columns."
            )
        pairs = zip(schema.fields, defaults, strict=True)
        return tuple(default_of(given, field.name) for field, given in pairs)
    head = list(itertools.islice(_text_rows(paths, form, schema), rows))
    columns = list(zip(*head, strict=True))
    places = {name: i for i, name in enumerate(schema.names)}
    fields = []
    for field in schema.fields:
        values = columns[places[field.name]] if columns else ()
        dtype = infer_dtype(text for text in values if text not in form.null_values)
        fields.append(Field(field.name, dtype, _DEFAULTS[dtype], inferred=True))
    return tuple(fields)


def _text_rows(
    paths: tuple[str, ...], form: CsvFormat, schema: Schema
) -> Iterator[list[str]]:
    for path in paths:
        file = ByteFile(path, form.compression)
        _, offset, line = read_first_row(file, form)
        while (block := read_rows(file, offset, line, form)).end:
            for row in slow_reader(block.data[: block.end], form):
                if len(row) == len(schema.names):  # others are an error when read
                    yield row
            offset, line = block.place(block.end)
        file.close()


def infer_dtype(values: Iterator[str]) -> str:
    """The first dtype that fits all values: text if there is none.

    >>> infer_dtype(iter(["1", "3000000000"])), infer_dtype(iter(["1", "nan"]))
    ('int64', 'string')
    """
    level = -1
    for text in values:
        level = max(level, _level(text))
        if level == len(_DEFAULTS) - 1:
            break
    return list(_DEFAULTS)[level]


def _level(text: str) -> int:
    """The place in the list of dtypes of the first that holds the value."""
    try:
        number = int(text)
        for level, bits in ((0, 31), (1, 63)):
            if -(2**bits) <= number < 2**bits:
                return level
    except ValueError:
        pass
    try:
        value = abs(float(text))
    except ValueError:
        return 4
    if value <= _LARGEST_FLOAT32:
        return 2
    return 3 if value < float("inf") else 4
