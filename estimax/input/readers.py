"""Datasets of files under the names of tf.data: records, lines, rows of CSV.

    TFRecordDataset(["a.tfrecord", "b.tfrecord"]).batch(512)

Files are read one after the other. With `num_parallel_reads=n`, n threads read n files
at once, and records come one from each file in turn. The elements are bytes, `Strings`
once batched. Records move in blocks: Python never handles a single record.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from estimax.core.errors import InputError
from estimax.input.dataset import AUTOTUNE, Dataset
from estimax.input.examples.messages import Example
from estimax.input.examples.parsing import ExampleParser
from estimax.input.examples.specs import FeatureSpec
from estimax.input.ops.batching import MapBlocks
from estimax.input.ops.mixing import Interleave
from estimax.input.sources.arrays import slices_of_paths
from estimax.input.sources.csv_blocks import CsvFormat
from estimax.input.sources.csv_schema import Schema, csv_fields
from estimax.input.sources.file_blocks import (
    BlockReader,
    FileBlocks,
    PathLike,
    given_paths,
    list_paths,
)
from estimax.input.sources.record_files import (
    FixedLength,
    FixedLengthReader,
    LineReader,
    TFRecordReader,
)
from estimax.input.streams.stream import check_at_least
from estimax.input.streams.structure import Structure, is_dataset
from estimax.input.tabular import csv_dataset, interleave_files
from estimax.storage.compression import LONGEST_COMPRESSED, check_compression

# A path, several paths, or a Dataset of paths.
Filenames = Any


def TFRecordDataset(  # noqa: N802  # tf.data's name
    filenames: Filenames,
    compression_type: str | None = None,
    buffer_size: int | None = None,
    num_parallel_reads: int | None = None,
) -> Dataset:
    """Read the records of TFRecord files as bytes, and verify their checksums.

    Use it for serialized Examples, then parse whole batches with
    `.map(ExampleParser(features))`. `make_batched_features_dataset` does both.
    If a file ends inside the header of a record, the incomplete header is ignored with
    a warning, as in TensorFlow.

    Args:
      filenames: A path, a list of paths, or a `Dataset` of paths. Paths are not glob
        patterns; see `Dataset.list_files`.
      compression_type: None, "", "GZIP" or "ZLIB".
      buffer_size: Has no effect; accepted from programs written for tf.data.
      num_parallel_reads: How many files to read at once, by as many threads; their
        records come one from each file in turn. None reads one file after the other.
        `AUTOTUNE` uses one thread per CPU, at most 8.

    Returns:
      A `Dataset` of records. It resumes by byte offset.

    Raises:
      InputError: The list of files is empty or the compression is unknown. While
        reading: a file cannot be opened.
      RecordError: While reading, a record is damaged or cut off, or is larger than
        256 MB in a compressed file. The message names file, record and byte. With
        `Dataset.ignore_errors`, the rest of that file is skipped.

    Example:
      >>> import os, tempfile
      >>> from estimax.input import TFRecordWriter
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     path = os.path.join(folder, "a.tfrecord")
      ...     with TFRecordWriter(path) as writer:
      ...         writer.write_all([b"one", b"two"])
      ...     list(TFRecordDataset(path))
      [b'one', b'two']
    """
    compression = check_compression(compression_type, "TFRecordDataset")
    return read_files(
        filenames,
        lambda: TFRecordReader(compression),
        "TFRecordDataset",
        num_parallel_reads,
    )


def read_example_dtypes(path: str, compression: str | None) -> dict[str, str | None]:
    """Return the dtypes of the features of the first Example of a TFRecord file.

    A feature without values has the dtype None. A file without records has no features.
    """
    for record in TFRecordDataset(path, compression).take(1):
        features = Example.parse(record).features
        return {name: _DTYPES.get(one.kind or "") for name, one in features.items()}
    return {}


_DTYPES = {"bytes_list": "string", "float_list": "float32", "int64_list": "int64"}


def TextLineDataset(  # noqa: N802  # tf.data's name
    filenames: Filenames,
    compression_type: str | None = None,
    buffer_size: int | None = None,
    num_parallel_reads: int | None = None,
) -> Dataset:
    r"""Read the lines of text files as bytes, without their line ends.

    Use it for text that is not CSV, such as one JSON object per line. A line ends at LF
    alone, and every CR is removed, as in TensorFlow. Nothing is decoded.

    Args:
      filenames: A path, a list of paths, or a `Dataset` of paths. Paths are not glob
        patterns; see `Dataset.list_files`.
      compression_type: None, "", "GZIP" or "ZLIB".
      buffer_size: Has no effect; accepted from programs written for tf.data.
      num_parallel_reads: How many files to read at once, by as many threads; their
        records come one from each file in turn. None reads one file after the other.
        `AUTOTUNE` uses one thread per CPU, at most 8.

    Returns:
      A `Dataset` of lines. It resumes by byte offset.

    Raises:
      InputError: The list of files is empty or the compression is unknown. While
        reading: a file cannot be opened, compressed data is damaged, or a line of a
        compressed file is longer than 64 MB.

    Example:
      >>> import tempfile
      >>> with tempfile.NamedTemporaryFile("w") as file:
      ...     _ = file.write("one\r\n\ntwo")
      ...     file.flush()
      ...     list(TextLineDataset(file.name))
      [b'one', b'', b'two']
    """
    compression = check_compression(compression_type, "TextLineDataset")
    return read_files(
        filenames,
        lambda: LineReader(compression),
        "TextLineDataset",
        num_parallel_reads,
    )


def FixedLengthRecordDataset(  # noqa: N802  # tf.data's name
    filenames: Filenames,
    record_bytes: int,
    header_bytes: int | None = None,
    footer_bytes: int | None = None,
    buffer_size: int | None = None,
    compression_type: str | None = None,
    num_parallel_reads: int | None = None,
) -> Dataset:
    """Read files whose records all have the same number of bytes.

    Use it for binary formats without framing, such as CIFAR-10 or MNIST. The header and
    the footer of every file are skipped.

    Args:
      filenames: A path, a list of paths, or a `Dataset` of paths. Paths are not glob
        patterns; see `Dataset.list_files`.
      record_bytes: The length of a record in bytes.
      header_bytes: The length of the header in bytes, 0 by default.
      footer_bytes: The length of the footer in bytes, 0 by default.
      buffer_size: Has no effect; accepted from programs written for tf.data.
      compression_type: None, "", "GZIP" or "ZLIB".
      num_parallel_reads: How many files to read at once, by as many threads; their
        records come one from each file in turn. None reads one file after the other.
        `AUTOTUNE` uses one thread per CPU, at most 8.

    Returns:
      A `Dataset` of records as bytes. It resumes by byte offset.

    Raises:
      InputError: `record_bytes` is less than 1, or more than 256 MB for compressed
        files; the list of files is empty; or the compression is unknown. While
        reading: a file is not a header, whole records and a footer.

    Example:
      >>> import tempfile
      >>> with tempfile.NamedTemporaryFile("wb") as file:
      ...     _ = file.write(b"HEADaabbcc")
      ...     file.flush()
      ...     list(FixedLengthRecordDataset(file.name, 2, header_bytes=4))
      [b'aa', b'bb', b'cc']
    """
    check_at_least(1, record_bytes, "FixedLengthRecordDataset: record_bytes")
    compression = check_compression(compression_type, "FixedLengthRecordDataset")
    if compression and record_bytes > LONGEST_COMPRESSED:
        raise InputError(
            "FixedLengthRecordDataset: record_bytes may be up to "
            f"{LONGEST_COMPRESSED} in compressed files, got {record_bytes}. Decompress "
            "the files first."
        )
    form = FixedLength(record_bytes, header_bytes or 0, footer_bytes or 0, compression)
    return read_files(
        filenames,
        lambda: FixedLengthReader(form),
        "FixedLengthRecordDataset",
        num_parallel_reads,
    )


def CsvDataset(  # noqa: N802  # tf.data's name
    filenames: Filenames,
    record_defaults: Sequence[Any],
    compression_type: str | None = None,
    buffer_size: int | None = None,
    header: bool = False,
    field_delim: str = ",",
    use_quote_delim: bool = True,
    na_value: str = "",
    select_cols: Sequence[int] | None = None,
    exclude_cols: Sequence[int] | None = None,
) -> Dataset:
    r"""Read the rows of CSV files as tuples of values, in the order of the file.

    Use it to port programs that call `tf.data.experimental.CsvDataset`. For columns by
    name, use `csv_files` or `make_csv_dataset`.

    Args:
      filenames: A path, a list of paths, or a `Dataset` of paths. Paths are not glob
        patterns; see `Dataset.list_files`.
      record_defaults: One entry for each selected column: a default, whose type sets
        the dtype (an `int` int32, a `float` float32), or a dtype alone for a column
        without missing values.
      compression_type: None, "", "GZIP" or "ZLIB".
      buffer_size: Has no effect; accepted from programs written for tf.data.
      header: Whether to skip the first row of every file.
      field_delim: The character between two fields.
      use_quote_delim: Whether double quotes enclose fields. If False, quotes are
        ordinary characters.
      na_value: A text that stands for a missing value, in addition to the empty field.
      select_cols: The numbers of the columns to read, ascending; all by default.
      exclude_cols: The numbers of the columns to leave out. Not with `select_cols`.

    Returns:
      A `Dataset` of tuples. It resumes by byte offset.

    Raises:
      InputError: `select_cols` and `exclude_cols` are both given, or `record_defaults`
        has not one entry per selected column. While reading: a row has the wrong
        number of fields, or a value is missing or does not fit its dtype.

    Example:
      >>> import tempfile
      >>> with tempfile.NamedTemporaryFile("w") as file:
      ...     _ = file.write("1,a\n,b\n")
      ...     file.flush()
      ...     next(iter(CsvDataset(file.name, [-1, ""]).batch(2)))
      (array([ 1, -1], dtype=int32), Strings([b'a', b'b'], shape=(2,)))
    """
    if select_cols is not None and exclude_cols is not None:
        raise InputError("CsvDataset: pass select_cols or exclude_cols, not both.")
    compression = check_compression(compression_type, "CsvDataset")
    form = CsvFormat.of_tensorflow(
        field_delim, use_quote_delim, na_value, header=header, compression=compression
    )

    def rows(paths: tuple[str, ...]) -> Dataset:
        names, fields = csv_fields(
            paths[0], form, record_defaults, select_cols, exclude_cols
        )
        schema = Schema(names, fields, None)
        data = csv_dataset(paths, schema, form, "CsvDataset")
        return Dataset(MapBlocks(data.node, _as_tuple, "CsvDataset", is_ours=True))

    if is_dataset(filenames):
        dataset: Dataset = filenames.flat_map(lambda path: rows(given_paths(path)))
        return dataset
    return rows(given_paths(filenames))


def _as_tuple(row: dict[str, Any]) -> Structure:
    return tuple(row.values())


def read_files(
    filenames: Filenames,
    make_reader: Callable[[], BlockReader],
    name: str,
    num_parallel_reads: int | None,
    *,
    threads: int | None = None,
) -> Dataset:
    """Return a dataset of files read in sequence, or `num_parallel_reads` at once.

    `threads` overrides the number of threads, which is one per file read at once.
    """

    def one(path: Any) -> Dataset:
        return Dataset(FileBlocks(given_paths(path), make_reader, name))

    if is_dataset(filenames):
        paths: Dataset = filenames
    elif num_parallel_reads is None:
        return Dataset(FileBlocks(given_paths(filenames), make_reader, name))
    else:
        paths = Dataset(slices_of_paths(given_paths(filenames)))
    cycle = min(8, os.cpu_count() or 1) if num_parallel_reads == AUTOTUNE else None
    cycle = cycle or num_parallel_reads or 1
    workers = 0 if num_parallel_reads is None else cycle
    workers = workers if threads is None else threads
    return Dataset(Interleave(paths.node, one, cycle, 1, workers, name, columnar=True))


def make_batched_features_dataset(
    file_pattern: PathLike | Sequence[PathLike],
    batch_size: int,
    features: Mapping[str, FeatureSpec],
    reader: Callable[..., Dataset] | None = None,
    label_key: str | None = None,
    reader_args: Sequence[Any] | None = None,
    num_epochs: int | None = None,
    shuffle: bool = True,
    shuffle_buffer_size: int = 10000,
    shuffle_seed: int | None = None,
    prefetch_buffer_size: int | None = None,
    reader_num_threads: int | None = None,
    parser_num_threads: int | None = None,
    sloppy_ordering: bool = False,
    drop_final_batch: bool = False,
) -> Dataset:
    """Read TFRecord files of Examples into shuffled batches of parsed features.

    Use it as the `input_fn` of a model trained on TFRecords; it has the arguments of
    `tf.data.experimental.make_batched_features_dataset`. Records move as blocks of
    bytes and are parsed one batch at a time.

    Args:
      file_pattern: A path, a glob pattern, or a list of these.
      batch_size: How many examples a batch has.
      features: What to parse, by key: `FixedLenFeature`, `VarLenFeature` and so on.
      reader: A function from a path to a `Dataset` of records, `TFRecordDataset` by
        default.
      label_key: The feature to return as label. It is removed from the features.
      reader_args: Further positional arguments for `reader`.
      num_epochs: How often to read the files. None repeats without end; batches then
        run across the ends of epochs, and none is short.
      shuffle: Whether to shuffle the files and the records.
      shuffle_buffer_size: The number of records to shuffle among.
      shuffle_seed: The seed of both shuffles.
      prefetch_buffer_size: How many batches to prefetch, 1 by default.
      reader_num_threads: How many files to read at once, one record from each in turn;
        1 by default.
      parser_num_threads: How many threads parse batches, 2 by default.
      sloppy_ordering: Has no effect: the order is always deterministic.
      drop_final_batch: Whether to drop a last batch that is short.

    Returns:
      A `Dataset` of batches: dicts of columns, or `(features, labels)` if `label_key`
      is given.

    Raises:
      InputError: No file matches, or `features` is empty or not valid.
      RecordError: While reading, a record is damaged.
      ExampleError: While reading, an example does not have the features as described.

    Example:
      >>> import os, tempfile
      >>> from estimax.input import FixedLenFeature, TFRecordWriter, serialize_examples
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     path = os.path.join(folder, "a.tfrecord")
      ...     with TFRecordWriter(path) as writer:
      ...         writer.write_all(serialize_examples({"x": [1.5, 2.5], "y": [0, 1]}))
      ...     spec = {"x": FixedLenFeature([], "float32")}
      ...     spec["y"] = FixedLenFeature([], "int64")
      ...     data = make_batched_features_dataset(
      ...         path, 2, spec, label_key="y", num_epochs=1, shuffle=False)
      ...     list(data)
      [({'x': array([1.5, 2.5], dtype=float32)}, array([0, 1]))]
    """
    parser = ExampleParser(features)
    paths = list_paths(file_pattern)
    make = reader or TFRecordDataset
    rest = tuple(reader_args or ())
    data = interleave_files(
        paths,
        lambda path: make(path, *rest),
        reader_num_threads or 1,
        "make_batched_features_dataset",
        shuffle=shuffle,
        seed=shuffle_seed,
    )
    if shuffle:
        data = data.shuffle(shuffle_buffer_size, shuffle_seed)
    drop = drop_final_batch or num_epochs is None
    data = data.repeat(num_epochs).batch(batch_size, drop)
    data = data.map(parser, num_parallel_calls=parser_num_threads or 2)
    if label_key is not None:
        data = data.with_label(label_key)
    return data.prefetch(1 if prefetch_buffer_size is None else prefetch_buffer_size)
