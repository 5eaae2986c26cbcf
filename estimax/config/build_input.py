"""Input functions for the sources of a run.

make_input_fn(run, "train")()        # a Dataset of (features, label)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from estimax import input as inputs
from estimax.config.data_report import check_header, columns_of, find_files, kind_of
from estimax.config.schema.data import CsvSource
from estimax.config.schema.features import NumericConfig
from estimax.config.schema.run import Run

_DTYPES = {"float": "float32", "int": "int64", "text": "string"}


def make_input_fn(run: Run, name: str) -> Callable[[], inputs.Dataset]:
    """Return an input function: examples with labels, shuffled, repeated, batched."""
    source = run.data.sources[name]

    def input_fn() -> inputs.Dataset:
        data = _read(run, source, name, with_label=True).with_label(run.data.label)
        if source.shuffle is not None:
            seed = source.shuffle.seed
            seed = run.seed if seed is None else seed
            data = data.shuffle(source.shuffle.buffer_rows, seed=seed)
        if source.epochs != 1:
            data = data.repeat(source.epochs)
        return data.batch(source.batch_size, source.drop_remainder)

    return input_fn


def make_predict_input_fn(run: Run, files: str) -> Callable[[], inputs.Dataset]:
    """Return an input function for prediction: every row of `files`, in order.

    Labels are not read. The format is that of the eval source, or of the train source
    if the run has no eval section.
    """
    name = run.eval.source if run.eval is not None else run.train.source
    source = dataclasses.replace(run.data.sources[name], files=(files,))

    def input_fn() -> inputs.Dataset:
        return _read(run, source, "--input", with_label=False).batch(source.batch_size)

    return input_fn


def _read(
    run: Run, source: CsvSource, name: str, *, with_label: bool
) -> inputs.Dataset:
    kinds = columns_of(run)
    if not with_label:
        kinds = {c: k for c, k in kinds.items() if c not in _not_features(run)}
    files = find_files(source, name)
    check_header(files[0], source, kinds)
    return inputs.csv_files(
        list(files),
        columns=source.csv.columns,
        dtypes={c: _DTYPES[kind] for c, kind in kinds.items() if kind is not None},
        select=kinds,
        null_values=("", *source.csv.null_values),
        defaults=_defaults(run),
        delimiter=source.csv.delimiter,
        header=source.csv.header,
    )


def _not_features(run: Run) -> set[str]:
    """Return label and weight columns that no feature reads."""
    read = {getattr(f, "column", None) or name for name, f in run.features.items()}
    return {run.data.label, *filter(None, [run.data.weight])} - read


def _defaults(run: Run) -> dict[str, float]:
    """Return what the reader uses for a missing value, by column.

    A missing number is read as NaN and filled by the feature column, so that an
    exported model fills it as well. A missing id is -1, which categorical columns
    ignore. A column that is not listed must not have missing values.
    """
    readers: dict[str, list[object]] = {}
    for name, feature in run.features.items():
        if kind_of(feature) in ("float", "int"):
            column = getattr(feature, "column", None) or name
            readers.setdefault(column, []).append(feature)
    defaults: dict[str, float] = {}
    for column, features in readers.items():
        if all(
            isinstance(f, NumericConfig) and f.default is not None for f in features
        ):
            defaults[column] = float("nan")
        elif not any(isinstance(f, NumericConfig) for f in features):
            defaults[column] = -1
    return defaults
