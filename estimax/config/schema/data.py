"""`data:` where the examples are, and how they are read.

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
    """How a CSV file is written."""

    header: Annotated[bool, About("Whether each file begins with column names.")] = True
    columns: Annotated[
        tuple[str, ...] | None,
        About("Column names, in order; required without a header.", min_items=1),
    ] = None
    delimiter: Annotated[str, About("The character between two values.")] = ","
    null_values: Annotated[
        tuple[str, ...],
        About("Texts that mean a missing value; the empty text always does."),
    ] = ("",)


@dataclass(frozen=True, kw_only=True)
class ShuffleConfig:
    """Shuffling through a buffer, resumable at any row."""

    buffer_rows: Annotated[int, About("Rows held to draw from.", at_least=1)] = 65536
    seed: Annotated[int | None, About("Its own seed; by default the run's.")] = None


@dataclass(frozen=True, kw_only=True)
class CsvSource:
    """Examples in CSV files, one per row."""

    format: Annotated[Literal["csv"], About("How the files are written.")]
    files: Annotated[
        tuple[str, ...],
        About(
            "Files or patterns such as data/train-*.csv, relative to where you run.",
            min_items=1,
            one_or_many=True,
        ),
    ]
    csv: Annotated[CsvOptions, About("Details of the format.")] = CsvOptions()
    shuffle: Annotated[
        ShuffleConfig | None, About("Shuffle the rows; null keeps their order.")
    ] = None
    batch_size: Annotated[int, About("Examples a step.", at_least=1)]
    epochs: Annotated[
        int | None, About("Passes over the files; null repeats forever.", at_least=1)
    ] = 1
    drop_remainder: Annotated[bool, About("Drop the last batch when it is short.")] = (
        False
    )


@dataclass(frozen=True, kw_only=True)
class DataSection:
    """The examples of a run."""

    label: Annotated[str, About("The column to predict.")]
    label_vocabulary: Annotated[
        tuple[str, ...] | None,
        About("The label's words, in class order; null when it holds numbers."),
    ] = None
    weight: Annotated[
        str | None, About("A column that weighs each example in loss and metrics.")
    ] = None
    sources: Annotated[
        Mapping[str, CsvSource],
        About("Named sets of files, such as train and eval."),
    ]
    prefetch: Annotated[
        int, About("Batches made ready ahead of the step, in a thread.", at_least=1)
    ] = 4
