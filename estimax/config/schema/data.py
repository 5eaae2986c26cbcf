"""The section `data`: where the examples are, and how they are read.

data:
  label: late
  sources:
    train: {format: csv, files: data/train-*.csv, batch_size: 512, epochs: 2}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from estimax.config.decode import About


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
    null_values: Annotated[
        tuple[str, ...],
        About("Values that mean a missing value; an empty value always does."),
    ] = ("",)


@dataclass(frozen=True, kw_only=True)
class ShuffleConfig:
    """Shuffling with a buffer, as `Dataset.shuffle`; resumes exactly."""

    buffer_rows: Annotated[
        int, About("Rows in the buffer from which rows are drawn.", at_least=1)
    ] = 65536
    seed: Annotated[
        int | None, About("Seed of the shuffle; by default the seed of the run.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class CsvSource:
    """A source of examples: CSV files with one example per row."""

    format: Annotated[Literal["csv"], About("The format of the files.")]
    files: Annotated[
        tuple[str, ...],
        About(
            "Files or patterns such as data/train-*.csv, relative to the working "
            "directory.",
            min_items=1,
            one_or_many=True,
        ),
    ]
    csv: Annotated[CsvOptions, About("Options of the CSV format.")] = CsvOptions()
    shuffle: Annotated[
        ShuffleConfig | None, About("Shuffle the rows; null keeps their order.")
    ] = None
    batch_size: Annotated[int, About("Examples per batch.", at_least=1)]
    epochs: Annotated[
        int | None, About("Passes over the files; null repeats forever.", at_least=1)
    ] = 1
    drop_remainder: Annotated[
        bool, About("Drop the last batch if it has fewer examples than batch_size.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class DataSection:
    """The data of a run: label, weight and sources."""

    label: Annotated[str, About("The column to predict.")]
    label_vocabulary: Annotated[
        tuple[str, ...] | None,
        About("Words of the label, in the order of classes; null for a numeric label."),
    ] = None
    weight: Annotated[
        str | None,
        About("A column with the weight of each example in the loss and metrics."),
    ] = None
    sources: Annotated[
        Mapping[str, CsvSource],
        About("Named sets of files, such as train and eval."),
    ]
    prefetch: Annotated[
        int, About("Batches to prepare ahead of the step, in a thread.", at_least=1)
    ] = 4
