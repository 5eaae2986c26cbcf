"""Datasets of files under tf.data's names: records, lines, rows of CSV.

    TFRecordDataset(["a.tfrecord", "b.tfrecord"]).batch(512)

Files are read one after the other; with `num_parallel_reads=n` their records come one
by one from n files in turn, read ahead by n threads. The elements are text (`Strings`
once batched), and no record passes through Python by itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from estimax.core.errors import InputError
from estimax.input.dataset import AUTOTUNE, Dataset
from estimax.input.sources.arrays import slices_of_paths
from estimax.input.sources.csv_blocks import CsvFormat
from estimax.input.sources.csv_defaults import csv_fields
from estimax.input.sources.csv_schema import Schema
from estimax.input.sources.file_blocks import BlockReader, FileBlocks
from estimax.input.sources.paths import given_paths
from estimax.input.sources.text_lines import FixedLength, FixedLengthReader, LineReader
from estimax.input.sources.tfrecords import TFRecordReader
from estimax.input.streams.stream import check_at_least
from estimax.input.streams.structure import Structure, is_dataset
from estimax.input.tabular import csv_dataset
from estimax.input.verbs.batching import MapBlocks
from estimax.input.verbs.interleaving import Interleave
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
