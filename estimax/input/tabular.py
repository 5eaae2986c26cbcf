"""Datasets of files with named columns: CSV, Parquet and JSON lines.

    csv_files("train-*.csv", dtypes={"age": "int64"}, defaults={"age": -1})
    parquet_files("train-*.parquet", columns=["age", "clicks"])
    json_files("train-*.jsonl", {"age": "float32", "tags": "string"}, lists=["tags"])
    make_csv_dataset("train-*.csv", 1024, label_name="income", num_epochs=1)

`csv_files`, `parquet_files` and `json_files` return rows and leave shuffling and
batching to the caller. `make_csv_dataset` has the arguments and the behaviour of
`tf.data.experimental.make_csv_dataset`. The files are read in `sources/`.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from estimax.core.encodings import encoding_problem
from estimax.core.errors import InputError, did_you_mean
from estimax.core.parse_spec import dtype_name
from estimax.input.dataset import Dataset
from estimax.input.ops.mixing import Interleave
from estimax.input.sources.csv_blocks import CsvFormat, read_first_row, read_rows
from estimax.input.sources.csv_reader import CsvReader
from estimax.input.sources.csv_schema import (
    CsvField,
    Schema,
    default_of,
    make_schema,
    read_header,
    slow_reader,
)
from estimax.input.sources.file_blocks import (
    ByteFile,
    FileBlocks,
    PathLike,
    expand,
    list_paths,
)
from estimax.input.sources.json_reader import JSON_DTYPES, JsonFormat, JsonReader
from estimax.input.sources.parquet import ParquetReader, select_columns
from estimax.input.streams.stream import check_at_least
from estimax.storage.compression import check_compression

# The dtypes to infer, narrowest first, and what replaces a missing value.
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
    encoding: str | None = None,
    block_bytes: int = 4 << 20,
) -> Dataset:
    r"""Read CSV files into a dataset of dicts, one dict of named values per row.

    Use it for new programs; `make_csv_dataset` takes the arguments of TensorFlow's
    function of that name. Blocks of rows are parsed by pyarrow. Once batched, a column
    is a NumPy array, or `Strings` for text.

    Args:
      files: A path, a URL, a glob pattern of either, or a list of these. The matches
        of a pattern are sorted by path; a list is read in its order.
      columns: The name of every column, in file order. Replaces the names in the
        header; required if `header` is False.
      dtypes: The dtype of columns by name: float32, float64, int32, int64, bool or
        string. The dtypes of other columns are inferred from the first megabyte (int64,
        float32 or string) and then hold for every row of every file.
      select: The names of the columns to read, all by default. The result has them in
        file order.
      null_values: The texts that stand for a missing value.
      defaults: The replacement for missing values by column name. Without one, missing
        text becomes an empty string and a missing number is an error.
      delimiter: The ASCII character between two fields.
      quote: The ASCII character around fields that hold a delimiter or a line break.
        None treats quotes as ordinary characters.
      header: Whether the first row of every file holds the names of the columns.
      compression: None, "GZIP" or "ZLIB".
      encoding: The encoding of text, which the dataset has in UTF-8: "utf-8", or one
        with a byte for each character, such as "latin1" or "cp1252". Text that does not
        have it is an error of its row. None, the default, leaves the bytes as they are,
        as TensorFlow does.
      block_bytes: How many bytes of a file are parsed at once.

    Returns:
      A `Dataset` of rows, not yet shuffled or batched. It resumes by byte offset.

    Raises:
      InputError: No file matches, an argument names an unknown column, dtype or
        encoding, or a default does not fit its dtype. While reading: a row has the
        wrong number of fields, a value does not fit the dtype of its column, or text
        does not have the encoding; the message names the file and the line.

    Example:
      >>> import tempfile
      >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
      ...     _ = file.write("age,city\n31,Oslo\n,Rome\n")
      ...     file.flush()
      ...     next(iter(csv_files(file.name, defaults={"age": -1}).batch(2)))
      {'age': array([31, -1]), 'city': Strings([b'Oslo', b'Rome'], shape=(2,))}
    """
    check_at_least(1, block_bytes, "csv_files: block_bytes")
    for what, text in (("delimiter", delimiter), ("quote", quote)):
        if text is not None and (len(text) != 1 or not text.isascii()):
            raise InputError(f"csv_files: {what} must be one character, got {text!r}.")
    problem = None if encoding is None else encoding_problem(encoding)
    if problem is not None:
        raise InputError(f"csv_files: encoding: {problem}.")
    paths = expand(files)
    nulls = tuple(null_values)
    form = CsvFormat(
        delimiter, quote, nulls, header, block_bytes, compression, encoding
    )
    schema = make_schema(
        paths, form, columns=columns, dtypes=dtypes, select=select, defaults=defaults
    )
    return csv_dataset(paths, schema, form, "csv_files")


def csv_dataset(
    paths: tuple[str, ...], schema: Schema, form: CsvFormat, name: str
) -> Dataset:
    """Return a dataset of the rows, as dicts, of files whose schema is known."""
    return Dataset(FileBlocks(paths, lambda: CsvReader(schema, form, paths[0]), name))


def parquet_files(
    files: PathLike | Iterable[PathLike],
    *,
    columns: Iterable[str] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> Dataset:
    """Read Parquet files into a dataset of dicts, one dict of named values per row.

    Files are read one row group at a time; a thread reads the next row group ahead.
    Numbers keep their dtype, text and binary become `Strings`, lists become `Sparse`.
    Decimals become float64. Dates and times become integers of their unit, such as days
    or microseconds since 1970.

    Args:
      files: A path, a URL, a glob pattern of either, or a list of these. The matches
        of a pattern are sorted by path; a list is read in its order.
      columns: The names of the columns to read, all by default. Other columns are not
        read from the file.
      defaults: The replacement for missing values by column name. Without one, missing
        text becomes an empty string and a missing number is an error.

    Returns:
      A `Dataset` of rows, not yet shuffled or batched. It resumes by row group and row.

    Raises:
      InputError: No file matches, a file is not Parquet, or `columns` or `defaults`
        names a column that the first file does not have. While reading: a later file
        lacks a column, a row group is damaged, or a number without default is missing.

    Example:
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
    replacements = dict(defaults or {})

    def reader() -> ParquetReader:
        return ParquetReader(names, replacements)

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
    r"""Read CSV files into shuffled batches, with the arguments of TensorFlow.

    Use it to port programs that call `tf.data.experimental.make_csv_dataset`. Without
    `column_defaults`, each column gets the first dtype of int32, int64, float32,
    float64 and string that fits the first rows, and 0 or "" for missing values.

    Args:
      file_pattern: A path, a glob pattern, or a list of these.
      batch_size: How many rows a batch has.
      column_names: The name of every column, in file order. By default the names in the
        header, which must be the same in all files.
      column_defaults: One entry for each selected column: a default, whose type sets
        the dtype of the column, or a dtype alone for a column without missing values.
      label_name: The column to return as label. It is removed from the features.
      select_columns: The columns to read, by name or number; all by default. The result
        has them in file order.
      field_delim: The character between two fields.
      use_quote_delim: Whether double quotes enclose fields. If False, quotes are
        ordinary characters.
      na_value: A text that stands for a missing value, in addition to the empty field.
      header: Whether the first row of every file holds the names of the columns.
      num_epochs: How often to read the files. None repeats without end; batches then
        run across the ends of epochs, and none is short.
      shuffle: Whether to shuffle the files and the rows.
      shuffle_buffer_size: The number of rows to shuffle among.
      shuffle_seed: The seed of both shuffles.
      prefetch_buffer_size: How many batches to prefetch, 1 by default.
      num_parallel_reads: How many files to read at once, one row from each in turn; 1
        by default.
      sloppy: Has no effect: the order is always deterministic.
      num_rows_for_inference: How many rows to infer dtypes from. None reads all rows.
      compression_type: None, "", "GZIP" or "ZLIB".
      ignore_errors: Whether to skip rows that cannot be read instead of raising.
      encoding: "utf-8" or "ascii". Others are refused.

    Returns:
      A `Dataset` of batches: dicts of columns, or `(features, label)` if `label_name`
      is given.

    Raises:
      InputError: No file matches; a column in `select_columns` or `label_name` does not
        exist; the headers differ; `column_defaults` has not one entry per selected
        column; or the encoding or the compression is not supported.

    Example:
      >>> import tempfile
      >>> with tempfile.NamedTemporaryFile("w") as file:
      ...     _ = file.write("age,city,y\n31,Oslo,1\n,Rome,0\n")
      ...     file.flush()
      ...     data = make_csv_dataset(
      ...         file.name, 2, label_name="y", num_epochs=1, shuffle=False)
      ...     features, label = next(iter(data))
      >>> features["age"], label
      (array([31,  0], dtype=int32), array([1, 0], dtype=int32))
    """
    if encoding.lower().replace("_", "-") not in ("utf-8", "utf8", "ascii"):
        raise InputError(f"make_csv_dataset: encoding must be utf-8, got {encoding!r}.")
    paths = tuple(list_paths(file_pattern))
    compression = check_compression(compression_type, "make_csv_dataset")
    form = CsvFormat.of_tensorflow(
        field_delim, use_quote_delim, na_value, header=header, compression=compression
    )
    schema = _schema(paths, form, column_names, select_columns)
    fields = _fields(paths, form, schema, column_defaults, num_rows_for_inference)
    schema = Schema(schema.names, fields, schema.header)
    if label_name is not None and label_name not in {field.name for field in fields}:
        names = [field.name for field in fields]
        raise InputError(
            f"make_csv_dataset: label_name {label_name!r} is not a selected column"
            f"{did_you_mean(label_name, names)}"
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
    name = "make_csv_dataset"
    if not shuffle and (parallel or 1) == 1:
        return csv_dataset(paths, schema, form, name)
    return interleave_files(
        paths,
        lambda path: csv_dataset((path,), schema, form, name),
        parallel or 1,
        name,
        shuffle=shuffle,
        seed=seed,
    )


def interleave_files(
    paths: Sequence[str],
    read: Callable[[str], Dataset],
    cycle: int,
    name: str,
    *,
    shuffle: bool,
    seed: int | None,
) -> Dataset:
    """Return the rows of `cycle` files at once, in turn, read by as many threads.

    `shuffle` permutes the files. One file at a time is read without a thread.
    """
    files = Dataset.from_tensor_slices([os.fsencode(path) for path in paths])
    if shuffle:
        files = files.shuffle(len(paths), seed)
    threads = cycle if cycle > 1 else 0

    def rows(path: bytes) -> Dataset:
        return read(os.fsdecode(path))

    return Dataset(Interleave(files.node, rows, cycle, 1, threads, name, columnar=True))


def _schema(
    paths: tuple[str, ...],
    form: CsvFormat,
    column_names: Sequence[str] | None,
    select_columns: Sequence[str | int] | None,
) -> Schema:
    """Return the schema of the selected columns, with their dtypes still open."""
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
        raise InputError("make_csv_dataset: header=False requires column_names.")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"make_csv_dataset: two columns are named {twice[0]!r}.")
    chosen = names
    if select_columns is not None:
        wanted = {_name(column, names) for column in select_columns}
        chosen = tuple(name for name in names if name in wanted)
    fields = tuple(CsvField(name, "", inferred=True) for name in chosen)
    return Schema(names, fields, None if column_names is not None else names)


def _name(column: str | int, names: tuple[str, ...]) -> str:
    if isinstance(column, int) and 0 <= column < len(names):
        return names[column]
    if column not in names:
        raise InputError(
            f"make_csv_dataset: select_columns names unknown column {column!r}"
            f"{did_you_mean(str(column), names)}"
        )
    return str(column)


def _fields(
    paths: tuple[str, ...],
    form: CsvFormat,
    schema: Schema,
    defaults: Sequence[Any] | None,
    rows: int | None,
) -> tuple[CsvField, ...]:
    """Return the selected columns with dtypes, given or inferred from `rows` rows."""
    if defaults is not None:
        if len(defaults) != len(schema.fields):
            raise InputError(
                f"make_csv_dataset: expected {len(schema.fields)} column_defaults, "
                f"one for each selected column, got {len(defaults)}."
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
        fields.append(CsvField(field.name, dtype, _DEFAULTS[dtype], inferred=True))
    return tuple(fields)


def _text_rows(
    paths: tuple[str, ...], form: CsvFormat, schema: Schema
) -> Iterator[list[str]]:
    """Yield the rows of all files as lists of text."""
    for path in paths:
        file = ByteFile(path, form.compression)
        _, offset, line = read_first_row(file, form)
        while (block := read_rows(file, offset, line, form)).end:
            for row in slow_reader(block.data[: block.end], form):
                # Rows with another number of fields raise when the data is read.
                if len(row) == len(schema.names):
                    yield row
            offset, line = block.start_at(block.end)
        file.close()


def infer_dtype(values: Iterator[str]) -> str:
    """Return the first dtype that fits all values; "string" if there are none.

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
    """Return the index in `_DEFAULTS` of the first dtype that can hold the value."""
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


def json_files(
    files: PathLike | Iterable[PathLike],
    dtypes: Mapping[str, Any],
    *,
    lists: Iterable[str] = (),
    defaults: Mapping[str, Any] | None = None,
    compression: str | None = None,
) -> Dataset:
    r"""Read JSON lines into a dataset of dicts, one dict of named values per line.

    Every line is a JSON object; keys that are not in `dtypes` are ignored. Blocks of
    lines are parsed by pyarrow. Once batched, a column is a NumPy array, `Strings` for
    text, or `Sparse` for lists.

    Args:
      files: A path, a URL, a glob pattern of either, or a list of these. The matches
        of a pattern are sorted by path; a list is read in its order.
      dtypes: The keys to read, each with its dtype: float32, float64, int32, int64,
        bool or string.
      lists: The keys whose values are lists.
      defaults: The replacement for a null or a missing key, by key. Without one,
        missing text becomes an empty string, a missing list an empty one, and a missing
        number is an error.
      compression: None, "GZIP" or "ZLIB".

    Returns:
      A `Dataset` of rows, not yet shuffled or batched. It resumes by byte offset.

    Raises:
      InputError: No file matches, or `lists` or `defaults` has a key that `dtypes`
        lacks. While reading: a line is not a JSON object, a value does not fit its
        dtype, or a number without default is missing; the message names file and
        line. `Dataset.ignore_errors` skips such a line.

    Example:
      >>> import tempfile
      >>> with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
      ...     _ = file.write('{"age": 31, "tags": ["a", "b"]}\n{"tags": []}\n')
      ...     file.flush()
      ...     dtypes = {"age": "int64", "tags": "string"}
      ...     data = json_files(file.name, dtypes, lists=["tags"], defaults={"age": -1})
      ...     batch = next(iter(data.batch(2)))
      >>> batch["age"], batch["tags"].values.tolist()
      (array([31, -1]), [b'a', b'b'])
    """
    kinds = {key: dtype_name(dtype) for key, dtype in dtypes.items()}
    many = set(lists)
    for key in (*many, *(defaults or {})):
        if key not in kinds:
            raise InputError(
                f"json_files: no dtype for {key!r}{did_you_mean(key, kinds)}"
            )
    for key, dtype in kinds.items():
        if dtype not in JSON_DTYPES:
            near = did_you_mean(dtype, JSON_DTYPES)
            raise InputError(f"json_files: {key!r} has the dtype {dtype!r}{near}")
    form = JsonFormat(
        kinds,
        frozenset(many),
        dict(defaults or {}),
        check_compression(compression, "json_files"),
    )
    return Dataset(FileBlocks(expand(files), lambda: JsonReader(form), "json_files"))
