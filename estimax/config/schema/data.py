"""The section `data`: where the examples are, and how they are read.

data:
  label: late
  sources:
    train: {format: csv, files: data/train-*.csv, batch_size: 512, epochs: 2}
    holdout: {format: tfrecord, files: data/holdout.tfrecord.gz, compression: gzip,
              batch_size: 4096}

One source can be split; `train` and `test` are sources then:

    all: {format: parquet, files: all.parquet, batch_size: 512,
          split: {parts: {train: 0.8, test: 0.2}, by: hash, key: user}}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from estimax.config.schema.section import (
    INFERRED,
    Items,
    NonNegativeInt,
    PositiveInt,
    Share,
)

SplitBy = Literal["random", "hash", "time"]
Compression = Literal["gzip", "zlib"]


@dataclass(frozen=True, kw_only=True)
class CsvOptions:
    """The format of the CSV files of a source.

    Args:
      header: Whether the first line of each file has the column names.
      columns: Column names, in order; required without a header.
      delimiter: The character between two values.
      quote: The character around values with a delimiter; null for none.
      null_values: Values that mean a missing value; an empty value always does.
      encoding: The encoding of the files: utf-8, or one with a byte for each character,
        such as latin1 or cp1252.
    """

    header: bool = True
    columns: Annotated[tuple[str, ...], Items(at_least=1)] | None = None
    delimiter: str = ","
    quote: str | None = '"'
    null_values: tuple[str, ...] = ("",)
    encoding: str = "utf-8"


@dataclass(frozen=True, kw_only=True)
class ShuffleConfig:
    """Shuffling with a buffer, as `Dataset.shuffle`; resumes exactly.

    Args:
      buffer_rows: Rows in the buffer from which rows are drawn.
      seed: Seed of the shuffle; by default the seed of the run.
      reshuffle: Whether every epoch has an order of its own.
    """

    buffer_rows: PositiveInt = 65536
    seed: int | None = None
    reshuffle: bool = True


@dataclass(frozen=True, kw_only=True)
class ShardConfig:
    """One of several parts that processes read: rows index, index + count, …

    Args:
      count: Number of shards.
      index: The shard to read, from 0.
    """

    count: PositiveInt
    index: NonNegativeInt


@dataclass(frozen=True, kw_only=True)
class SplitConfig:
    """Parts of a source, which become sources of their own.

    Args:
      parts: The share of each part by name, such as {train: 0.8, test: 0.2}.
      by: random: by the number of the row. hash: by the value of `key`, so that rows
        with the same value stay together. time: by the order of `key`; the first part
        has the earliest rows.
      key: The column to split by, with hash and time.
      seed: Makes another split, with random and hash.
    """

    parts: Mapping[str, float]
    by: SplitBy = "random"
    key: str | None = None
    seed: NonNegativeInt = 0


@dataclass(frozen=True, kw_only=True)
class PartConfig:
    """The part of a source that a `split` made.

    Args:
      start: Where the part begins.
      stop: Where the part ends.
      by: random: by the number of the row. hash: by the value of `key`, so that rows
        with the same value stay together. time: by the order of `key`; the first part
        has the earliest rows.
      key: The column to split by, with hash and time.
      seed: Makes another split, with random and hash.
    """

    start: Share
    stop: Share
    by: SplitBy = "random"
    key: str | None = None
    seed: NonNegativeInt = 0


@dataclass(frozen=True, kw_only=True)
class Source:
    """What the sources of all formats have in common.

    Args:
      format: The format of the files.
      files: Files or patterns such as data/train-*.csv, relative to the working
        directory, or URLs such as s3://bucket/train-*.csv.
      split: Split the rows into sources by name.
      part: Read a part of the rows; `split` sets it.
      shard: Read one of several shards.
      on_bad_row: What to do with a row that cannot be read: fail, or skip and count it.
      max_bad_rows: How many rows may be skipped in one pass over the files; one more
        ends the run. null for any number.
      max_bad_fraction: The largest share of the rows that may be skipped in one pass,
        compared from the 1,000th row on. null for any share.
      shuffle: Shuffle the rows; null keeps their order.
      batch_size: Examples per batch.
      epochs: Passes over the files; null repeats forever.
      drop_remainder: Drop the last batch if it has fewer examples than batch_size.
      cache: Keep the rows in memory after the first epoch.
    """

    format: str
    files: Annotated[tuple[str, ...], Items(at_least=1, or_one=True)]
    split: SplitConfig | None = None
    part: PartConfig | None = None
    shard: ShardConfig | None = None
    on_bad_row: Literal["fail", "skip"] = "fail"
    max_bad_rows: NonNegativeInt | None = None
    max_bad_fraction: Share | None = None
    shuffle: ShuffleConfig | None = None
    batch_size: Annotated[PositiveInt, INFERRED]
    epochs: PositiveInt | None = 1
    drop_remainder: bool = False
    cache: bool = False


@dataclass(frozen=True, kw_only=True)
class CsvSource(Source):
    """A source of examples: CSV files with one example per row.

    Args:
      format: CSV files.
      csv: Options of the CSV format.
      compression: How the files are compressed; null for not at all.
    """

    format: Annotated[Literal["csv"], INFERRED]
    csv: CsvOptions = CsvOptions()
    compression: Compression | None = None


@dataclass(frozen=True, kw_only=True)
class ParquetSource(Source):
    """A source of examples: Parquet files.

    Args:
      format: Parquet files.
    """

    format: Annotated[Literal["parquet"], INFERRED]


@dataclass(frozen=True, kw_only=True)
class JsonSource(Source):
    """A source of examples: files with a JSON object on each line.

    Args:
      format: JSON lines.
      compression: How the files are compressed; null for not at all.
    """

    format: Literal["jsonl"]
    compression: Compression | None = None


@dataclass(frozen=True, kw_only=True)
class RecordSource(Source):
    """A source of examples: TFRecord files of tf.train.Example, parsed as features.

    Args:
      format: TFRecord files.
      compression: How the files are compressed; null for not at all.
      num_parallel_reads: Files to read at once, in turn; null reads one.
    """

    format: Literal["tfrecord"]
    compression: Compression | None = None
    num_parallel_reads: PositiveInt | None = None


AnySource = CsvSource | ParquetSource | JsonSource | RecordSource


@dataclass(frozen=True, kw_only=True)
class DataSection:
    """The data of a run: label, weight and sources.

    Args:
      label: The column to predict; null for a model without labels or with labels.
      labels: The columns to predict by name of the head, for several heads.
      label_vocabulary: Words of the label, in the order of classes; null for a numeric
        label.
      label_delimiter: What separates several labels in one text; null if there is one,
        or lists.
      weight: A column with the weight of each example in the loss and metrics.
      sources: Named sets of files, such as train and eval.
      prefetch: Batches to prepare ahead of the step, in a thread.
    """

    label: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    label_vocabulary: tuple[str, ...] | None = None
    label_delimiter: str | None = None
    weight: str | None = None
    sources: Mapping[str, AnySource]
    prefetch: PositiveInt = 4
