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

from estimax.config.decode import About
from estimax.config.schema.derive import described

_PARSED = {
    "dtypes": "the types of the features",
    "select": "the columns of the features, label and weight",
    "defaults": "`features.<name>.default`",
}


@dataclass(frozen=True, kw_only=True)
class CsvOptions:
    """The format of the CSV files of a source."""

    header: Annotated[
        bool, About("Whether the first line of each file has the column names.")
    ] = True
    columns: Annotated[
        tuple[str, ...] | None,
        About("Column names, in order; required without a header.", min_items=1),
    ] = None
    delimiter: Annotated[str, About("The character between two values.")] = ","
    quote: Annotated[
        str | None,
        About("The character around values with a delimiter; null for none."),
    ] = '"'
    null_values: Annotated[
        tuple[str, ...],
        About("Values that mean a missing value; an empty value always does."),
    ] = ("",)
    encoding: Annotated[
        str,
        About(
            "The encoding of the files: utf-8, or one with a byte for each character, "
            "such as latin1 or cp1252."
        ),
    ] = "utf-8"


@dataclass(frozen=True, kw_only=True)
class ShuffleConfig:
    """Shuffling with a buffer, as `Dataset.shuffle`; resumes exactly."""

    buffer_rows: Annotated[
        int, About("Rows in the buffer from which rows are drawn.", at_least=1)
    ] = 65536
    seed: Annotated[
        int | None, About("Seed of the shuffle; by default the seed of the run.")
    ] = None
    reshuffle: Annotated[
        bool, About("Whether every epoch has an order of its own.")
    ] = True


@dataclass(frozen=True, kw_only=True)
class ShardConfig:
    """One of several parts that processes read: rows index, index + count, …"""

    count: Annotated[int, About("Number of shards.", at_least=1)]
    index: Annotated[int, About("The shard to read, from 0.", at_least=0)]


SplitBy = Literal["random", "hash", "time"]
_BY = About(
    "random: by the number of the row. hash: by the value of `key`, so that rows with "
    "the same value stay together. time: by the order of `key`; the first part has the "
    "earliest rows."
)
_SPLIT_KEY = About("The column to split by, with hash and time.")
_SPLIT_SEED = About("Makes another split, with random and hash.", at_least=0)


@dataclass(frozen=True, kw_only=True)
class SplitConfig:
    """Parts of a source, which become sources of their own."""

    parts: Annotated[
        Mapping[str, float],
        About("The share of each part by name, such as {train: 0.8, test: 0.2}."),
    ]
    by: Annotated[SplitBy, _BY] = "random"
    key: Annotated[str | None, _SPLIT_KEY] = None
    seed: Annotated[int, _SPLIT_SEED] = 0


@dataclass(frozen=True, kw_only=True)
class PartConfig:
    """The part of a source that a `split` made."""

    start: Annotated[float, About("Where the part begins.", at_least=0, at_most=1)]
    stop: Annotated[float, About("Where the part ends.", at_least=0, at_most=1)]
    by: Annotated[SplitBy, _BY] = "random"
    key: Annotated[str | None, _SPLIT_KEY] = None
    seed: Annotated[int, _SPLIT_SEED] = 0


@dataclass(frozen=True, kw_only=True)
class Source:
    """What the sources of all formats have in common."""

    format: Annotated[str, About("The format of the files.")]
    files: Annotated[
        tuple[str, ...],
        About(
            "Files or patterns such as data/train-*.csv, relative to the working "
            "directory, or URLs such as s3://bucket/train-*.csv.",
            min_items=1,
            one_or_many=True,
        ),
    ]
    split: Annotated[
        SplitConfig | None, About("Split the rows into sources by name.")
    ] = None
    part: Annotated[
        PartConfig | None, About("Read a part of the rows; `split` sets it.")
    ] = None
    shard: Annotated[ShardConfig | None, About("Read one of several shards.")] = None
    on_bad_row: Annotated[
        Literal["fail", "skip"],
        About("What to do with a row that cannot be read: fail, or skip and count it."),
    ] = "fail"
    max_bad_rows: Annotated[
        int | None,
        About(
            "How many rows may be skipped in one pass over the files; one more ends "
            "the run. null for any number.",
            at_least=0,
        ),
    ] = None
    max_bad_fraction: Annotated[
        float | None,
        About(
            "The largest share of the rows that may be skipped in one pass, compared "
            "from the 1,000th row on. null for any share.",
            at_least=0,
            at_most=1,
        ),
    ] = None
    shuffle: Annotated[
        ShuffleConfig | None, About("Shuffle the rows; null keeps their order.")
    ] = None
    batch_size: Annotated[int, About("Examples per batch.", at_least=1, inferred=True)]
    epochs: Annotated[
        int | None, About("Passes over the files; null repeats forever.", at_least=1)
    ] = 1
    drop_remainder: Annotated[
        bool, About("Drop the last batch if it has fewer examples than batch_size.")
    ] = False
    cache: Annotated[bool, About("Keep the rows in memory after the first epoch.")] = (
        False
    )


_COMPRESSION = About("How the files are compressed; null for not at all.")
Compression = Literal["gzip", "zlib"] | None


@described(
    "estimax.input.csv_files",
    "input/tabular.py",
    "csv_files",
    keys={
        "columns": "csv.columns",
        "null_values": "csv.null_values",
        "delimiter": "csv.delimiter",
        "quote": "csv.quote",
        "header": "csv.header",
        "encoding": "csv.encoding",
    },
    elsewhere=_PARSED,
    python_only={"block_bytes": "does not change the rows"},
)
@dataclass(frozen=True, kw_only=True)
class CsvSource(Source):
    """A source of examples: CSV files with one example per row."""

    format: Annotated[Literal["csv"], About("CSV files.", inferred=True)]
    csv: Annotated[CsvOptions, About("Options of the CSV format.")] = CsvOptions()
    compression: Annotated[Compression, _COMPRESSION] = None


@described(
    "estimax.input.parquet_files",
    "input/tabular.py",
    "parquet_files",
    elsewhere={"columns": _PARSED["select"], "defaults": _PARSED["defaults"]},
)
@dataclass(frozen=True, kw_only=True)
class ParquetSource(Source):
    """A source of examples: Parquet files."""

    format: Annotated[Literal["parquet"], About("Parquet files.", inferred=True)]


@described(
    "estimax.input.json_files",
    "input/json_lines.py",
    "json_files",
    elsewhere={
        **{key: _PARSED[key] for key in ("dtypes", "defaults")},
        "lists": "`features.<name>.many`, `shape` and `sequence`",
    },
)
@dataclass(frozen=True, kw_only=True)
class JsonSource(Source):
    """A source of examples: files with a JSON object on each line."""

    format: Annotated[Literal["jsonl"], About("JSON lines.")]
    compression: Annotated[Compression, _COMPRESSION] = None


@described(
    "estimax.input.TFRecordDataset",
    "input/readers.py",
    "TFRecordDataset",
    keys={"filenames": "files", "compression_type": "compression"},
    python_only={"buffer_size": "does not change the rows"},
)
@dataclass(frozen=True, kw_only=True)
class RecordSource(Source):
    """A source of examples: TFRecord files of tf.train.Example, parsed as features."""

    format: Annotated[Literal["tfrecord"], About("TFRecord files.")]
    compression: Annotated[Compression, _COMPRESSION] = None
    num_parallel_reads: Annotated[
        int | None, About("Files to read at once, in turn; null reads one.", at_least=1)
    ] = None


AnySource = CsvSource | ParquetSource | JsonSource | RecordSource


@dataclass(frozen=True, kw_only=True)
class DataSection:
    """The data of a run: label, weight and sources."""

    label: Annotated[
        str | None,
        About("The column to predict; null for a model without labels or with labels."),
    ] = None
    labels: Annotated[
        Mapping[str, str],
        About("The columns to predict by name of the head, for several heads."),
    ] = field(default_factory=dict)
    label_vocabulary: Annotated[
        tuple[str, ...] | None,
        About("Words of the label, in the order of classes; null for a numeric label."),
    ] = None
    label_delimiter: Annotated[
        str | None,
        About(
            "What separates several labels in one text; null if there is one, or lists."
        ),
    ] = None
    weight: Annotated[
        str | None,
        About("A column with the weight of each example in the loss and metrics."),
    ] = None
    sources: Annotated[
        Mapping[str, AnySource],
        About("Named sets of files, such as train and eval."),
    ]
    prefetch: Annotated[
        int, About("Batches to prepare ahead of the step, in a thread.", at_least=1)
    ] = 4
