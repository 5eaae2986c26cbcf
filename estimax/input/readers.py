"""Datasets of files under tf.data's names: records, lines, rows of CSV.

    TFRecordDataset(["a.tfrecord", "b.tfrecord"]).batch(512)

Files are read one after the other; with `num_parallel_reads=n` their records come one
by one from n files in turn, read ahead by n threads. The elements are text (`Strings`
once batched), and no record passes through Python by itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from estimax.core.errors import InputError
from estimax.input.dataset import AUTOTUNE, Dataset
from estimax.input.examples.parsing import ExampleParser
from estimax.input.examples.specs import FeatureSpec
from estimax.input.sources.arrays import slices_of_paths
from estimax.input.sources.csv_blocks import CsvFormat
from estimax.input.sources.csv_schema import Schema, csv_fields
from estimax.input.sources.file_blocks import BlockReader, FileBlocks
from estimax.input.sources.paths import PathLike, given_paths, list_paths
from estimax.input.sources.record_files import (
    FixedLength,
    FixedLengthReader,
    LineReader,
    TFRecordReader,
)
from estimax.input.streams.stream import check_at_least
from estimax.input.streams.structure import Structure, is_dataset
from estimax.input.tabular import csv_dataset
from estimax.input.verbs.batching import MapBlocks
from estimax.input.verbs.mixing import Interleave
from estimax.wire.compression import LONGEST_COMPRESSED, check_compression

# A path, several, or a Dataset of paths.
Filenames = Any


def TFRecordDataset(  # noqa: N802  # tf.data's name
    filenames: Filenames,
    compression_type: str | None = None,
    buffer_size: int | None = None,
    num_parallel_reads: int | None = None,
) -> Dataset:
    """The records of TFRecord files, checksums checked.

    `compression_type` is None, "GZIP" or "ZLIB"; `buffer_size` is accepted and changes
    nothing. A damaged record is an error that names file, record and byte, and ends
    its file for `ignore_errors`. A file that ends inside a record's header ends there
    with a warning, as in TensorFlow. In a compressed file a record may have 256 MB.

    >>> import os, tempfile
    >>> from estimax.wire import write_records
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "a.tfrecord")
    ...     write_records(path, [b"one", b"two"])
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


def TextLineDataset(  # noqa: N802  # tf.data's name
    filenames: Filenames,
    compression_type: str | None = None,
    buffer_size: int | None = None,
    num_parallel_reads: int | None = None,
) -> Dataset:
    r"""The lines of text files, as bytes without their line ends.

    Lines end at LF alone and every CR is removed, as in TensorFlow.

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
    """Records of one length, between a header and a footer that are left out.

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
    r"""Rows of CSV files, a tuple of columns in the order of the file.

    `record_defaults` has for every column its default, which also says the dtype, or
    the dtype alone where a value is required. `header` skips the first line of every
    file. For columns by name see `csv_files` and `make_csv_dataset`.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w") as file:
    ...     _ = file.write("1,a\n,b\n")
    ...     file.flush()
    ...     next(iter(CsvDataset(file.name, [-1, ""]).batch(2)))
    (array([ 1, -1], dtype=int32), Strings([b'a', b'b'], shape=(2,)))
    """
    if select_cols is not None and exclude_cols is not None:
        raise InputError("CsvDataset: give one of select_cols and exclude_cols.")
    form = CsvFormat(
        field_delim,
        '"' if use_quote_delim else None,
        tuple({"": None, na_value: None}),
        header,
        compression=check_compression(compression_type, "CsvDataset"),
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
    """Files one after the other, or so many in turn; a Dataset of paths works too."""

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
    """Batches of parsed Examples, or `(features, labels)` with `label_key`.

    `num_epochs=None` repeats for ever, batches running across the ends of epochs.
    Records move as blocks of bytes and are parsed a batch at a time, in
    `parser_num_threads` threads (2). `sloppy_ordering` changes nothing.

    >>> import os, tempfile
    >>> from estimax.input import FixedLenFeature, serialize_examples
    >>> from estimax.wire import write_records
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "a.tfrecord")
    ...     write_records(path, serialize_examples({"x": [1.5, 2.5], "y": [0, 1]}))
    ...     spec = {"x": FixedLenFeature([], "float32")}
    ...     spec["y"] = FixedLenFeature([], "int64")
    ...     data = make_batched_features_dataset(
    ...         path, 2, spec, label_key="y", num_epochs=1, shuffle=False)
    ...     list(data)
    [({'x': array([1.5, 2.5], dtype=float32)}, array([0, 1]))]
    """
    parser = ExampleParser(features)
    paths = list_paths(file_pattern)
    names = Dataset.from_tensor_slices([os.fsencode(path) for path in paths])
    if shuffle:
        names = names.shuffle(len(paths), shuffle_seed)
    make = reader or TFRecordDataset
    rest = tuple(reader_args or ())
    threads = reader_num_threads or 1

    def records(path: bytes) -> Dataset:
        return make(os.fsdecode(path), *rest)

    node = Interleave(
        names.node,
        records,
        threads,
        1,
        threads if threads > 1 else 0,
        "make_batched_features_dataset",
        columnar=True,
    )
    data = Dataset(node)
    if shuffle:
        data = data.shuffle(shuffle_buffer_size, shuffle_seed)
    drop = drop_final_batch or num_epochs is None
    data = data.repeat(num_epochs).batch(batch_size, drop)
    data = data.map(parser, num_parallel_calls=parser_num_threads or 2)
    if label_key is not None:
        data = data.with_label(label_key)
    return data.prefetch(1 if prefetch_buffer_size is None else prefetch_buffer_size)
