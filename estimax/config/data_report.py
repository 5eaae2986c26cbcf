"""The CSV files of a source: find them, scan them, and compare them with the run.

    found = report(run, "train")
    found.problems          # empty if the files fit the run

- `report` counts rows, missing values and words for `estimax check --data`.
- `find_files`, `header`, `scan` and `check_header` read the files of a source.
- `columns_of`, `kind_of`, `label_kind` and `clashes` say how each column is read.
"""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from estimax.config.nodes import shown
from estimax.config.schema.data import CsvSource
from estimax.config.schema.features import (
    FeatureConfig,
    HashedConfig,
    IdentityConfig,
    NumericConfig,
    VocabularyConfig,
)
from estimax.config.schema.model import CustomModelConfig, MultiClassHeadConfig
from estimax.config.schema.run import Run
from estimax.core.errors import InputError, MissingFileError, did_you_mean

ColumnKind = Literal["float", "int", "text"]
_KIND_NAMES = {"float": "numbers", "int": "whole numbers", "text": "text"}
_MOST_WORDS = 10_000  # distinct words counted in a column; more are shown as "many"


@dataclass(frozen=True)
class ColumnReport:
    """A column that the run reads: its kind, missing values and a summary of others."""

    name: str
    kind: str
    missing: int
    values: str  # a range, the most frequent words, or the frequencies of the label


@dataclass(frozen=True)
class DataReport:
    """The contents of a source, and where they do not fit the run."""

    rows: int
    files: int
    columns: tuple[ColumnReport, ...]
    problems: tuple[str, ...]


@dataclass
class _Seen:
    """Statistics of a column, of the batches read so far."""

    kind: ColumnKind
    missing: int = 0
    bad: Counter[str] = field(default_factory=Counter)
    low: float = float("inf")
    high: float = float("-inf")
    words: Counter[str] = field(default_factory=Counter)


def report(run: Run, name: str) -> DataReport:
    """Read all files of a source and compare them with what the run expects."""
    source = run.data.sources[name]
    files = find_files(source, name)
    problems = []
    kinds = columns_of(run)
    there = header(files[0], source)
    for column in kinds:
        if column not in there:
            hint = did_you_mean(column, there)
            problems.append(f"{files[0]}: there is no column {column!r}{hint}")
    seen = {c: _Seen(kind or "text") for c, kind in kinds.items() if c in there}
    rows = 0
    # Every column is read as text, so that values that are not numbers are counted
    # instead of ending the scan.
    texts: dict[str, ColumnKind] = dict.fromkeys(seen, "text")
    for batch in scan(source, name, texts):
        rows += batch.num_rows
        for column, so_far in seen.items():
            _look(so_far, batch[column], count_words=column == run.data.label)
    for column, so_far in seen.items():
        problems += [f"{name}: {text}" for text in _problems(run, column, so_far)]
    columns = tuple(
        ColumnReport(c, s.kind, s.missing, _values(s, c == run.data.label, rows))
        for c, s in seen.items()
    )
    return DataReport(rows, len(files), columns, tuple(problems))


def _look(seen: _Seen, values: Any, *, count_words: bool) -> None:
    """Add the values of a batch, a pyarrow array of text, to the statistics."""
    import pyarrow as pa
    import pyarrow.compute as pc

    seen.missing += values.null_count
    present = values.drop_null()
    if seen.kind == "text" or count_words:
        if len(seen.words) < _MOST_WORDS:
            for pair in present.value_counts():
                seen.words[pair["values"].as_py()] += pair["counts"].as_py()
        if seen.kind == "text":
            return
    wanted = pa.int64() if seen.kind == "int" else pa.float64()
    try:
        numbers = pc.cast(pc.utf8_trim_whitespace(present), wanted)
    except pa.ArrowInvalid:
        numbers = _numbers_among(seen, present, wanted)
    if len(numbers):
        extremes = pc.min_max(numbers)
        seen.low = min(seen.low, extremes["min"].as_py())
        seen.high = max(seen.high, extremes["max"].as_py())


def _numbers_among(seen: _Seen, present: Any, wanted: Any) -> Any:
    import pyarrow as pa

    kept = []
    for text in present.to_pylist():
        try:
            number = int(text) if seen.kind == "int" else float(text)
        except ValueError:
            seen.bad[text] += 1
            continue
        if seen.kind == "int" and not -(2**63) <= number < 2**63:
            seen.bad[text] += 1
            continue
        kept.append(number)
    return pa.array(kept, wanted)


def _problems(run: Run, column: str, seen: _Seen) -> list[str]:
    found = []
    if seen.bad:
        word, _ = seen.bad.most_common(1)[0]
        kind = "whole numbers" if seen.kind == "int" else "numbers"
        total = sum(seen.bad.values())
        found.append(
            f"{column!r} should hold {kind}; {total:,} do not, such as {shown(word)}"
        )
    readers = {
        name: feature
        for name, feature in run.features.items()
        if (getattr(feature, "column", None) or name) == column
    }
    for name, feature in readers.items():
        if (
            isinstance(feature, NumericConfig)
            and seen.missing
            and feature.default is None
        ):
            text = f"{column!r} has {seen.missing:,} missing values; set"
            found.append(f"{text} features.{name}.default to a number or mean")
        if isinstance(feature, IdentityConfig) and feature.default is None:
            found += _ids_out_of_range(name, feature, column, seen)
        if (
            isinstance(feature, VocabularyConfig)
            and not seen.words
            and seen.kind == "text"
        ):
            found.append(f"{column!r} has no words; all its values are missing")
    if column == run.data.label:
        found += _label_problems(run, column, seen)
    return found


def _ids_out_of_range(
    name: str, feature: IdentityConfig, column: str, seen: _Seen
) -> list[str]:
    if seen.high < feature.buckets:
        return []
    text = f"{column!r} has values up to {seen.high:g}, beyond features.{name}.buckets"
    return [f"{text} ({feature.buckets})"]


def _label_problems(run: Run, column: str, seen: _Seen) -> list[str]:
    found = []
    if seen.missing:
        found.append(f"the label {column!r} is missing in {seen.missing:,} rows")
    known = run.data.label_vocabulary
    unknown = [word for word in seen.words if known is not None and word not in known]
    if unknown:
        text = f"the label {column!r} has {shown(unknown[0])}, which is not in"
        found.append(f"{text} data.label_vocabulary")
    if len(seen.words) == 1:
        only = next(iter(seen.words))
        found.append(f"the label {column!r} is {shown(only)} in every row")
    return found


def _values(seen: _Seen, is_label: bool, rows: int) -> str:
    if is_label and 0 < len(seen.words) <= 20:
        balance = (f"{w} {n / rows:.1%}" for w, n in seen.words.most_common())
        return "label: " + ", ".join(balance)
    if seen.kind == "text":
        many = "many" if len(seen.words) >= _MOST_WORDS else f"{len(seen.words):,}"
        first = ", ".join(word for word, _ in seen.words.most_common(4))
        return f"{many} words: {first}{', …' if len(seen.words) > 4 else ''}"
    return f"{seen.low:g} to {seen.high:g}" if seen.low <= seen.high else "none"


def find_files(source: CsvSource, name: str) -> tuple[str, ...]:
    """Return the files of a source: patterns expanded and sorted, each file once.

    Raises:
      MissingFileError: No file matches one of the patterns.
    """
    found: list[str] = []
    for pattern in source.files:
        matches = sorted(glob.glob(pattern)) if glob.has_magic(pattern) else [pattern]
        found += [path for path in matches if os.path.isfile(path)]
        if not matches or not all(os.path.exists(path) for path in matches):
            raise MissingFileError(
                f"data.sources.{name}.files: no file matches {shown(pattern, 200)} "
                f"(looked from {Path.cwd()})."
            )
    return tuple(dict.fromkeys(found))


def header(path: str, source: CsvSource) -> list[str]:
    """Return the column names of a file."""
    if source.csv.columns is not None:
        return list(source.csv.columns)
    import pyarrow as pa

    try:
        with _open(path, source, {}) as reader:
            return list(reader.schema.names)
    except pa.ArrowInvalid as error:
        raise InputError(f"{path}: {error}") from None


def scan(
    source: CsvSource, name: str, columns: Mapping[str, ColumnKind]
) -> Iterator[Any]:  # pyarrow.RecordBatch, which has no types
    """Yield the columns of all files, batch by batch.

    Raises:
      InputError: A file lacks a column or is not valid CSV.
    """
    import pyarrow as pa

    for path in find_files(source, name):
        check_header(path, source, columns)
        try:
            with _open(path, source, columns) as reader:
                yield from reader
        except pa.ArrowInvalid as error:
            raise InputError(f"{path}: {error}") from None


def check_header(path: str, source: CsvSource, columns: Mapping[str, object]) -> None:
    """Raise `InputError` if a file lacks one of the columns."""
    names = header(path, source)
    for column in columns:
        if column not in names:
            hint = did_you_mean(column, names)
            raise InputError(f"{path}: there is no column {column!r}{hint}")


def _open(path: str, source: CsvSource, columns: Mapping[str, ColumnKind]) -> Any:
    import pyarrow as pa
    from pyarrow import csv

    types = {"float": pa.float64(), "int": pa.int64(), "text": pa.string()}
    options = source.csv
    # If a file has a header and the run lists columns, those of the run are used and
    # the header is skipped.
    skip = 1 if options.header and options.columns is not None else 0
    return csv.open_csv(
        path,
        read_options=csv.ReadOptions(
            column_names=list(options.columns) if options.columns else None,
            skip_rows=skip,
        ),
        parse_options=csv.ParseOptions(
            delimiter=options.delimiter, newlines_in_values=True
        ),
        convert_options=csv.ConvertOptions(
            column_types={name: types[kind] for name, kind in columns.items()},
            include_columns=list(columns),
            null_values=["", *options.null_values],
            strings_can_be_null=True,
            quoted_strings_can_be_null=True,
        ),
    )


def columns_of(run: Run) -> dict[str, ColumnKind | None]:
    """Return the kind of each column; None lets the reader infer it."""
    kinds: dict[str, ColumnKind | None] = {}
    for name, feature in run.features.items():
        if (kind := kind_of(feature)) is not None:
            column = getattr(feature, "column", None) or name
            # If two features read a column as "int" and "float", read it as "int": an
            # integer converts to a float, but not every float to an integer.
            kinds[column] = "int" if kinds.get(column) == "int" else kind
    if run.data.weight is not None:
        kinds[run.data.weight] = "float"
    kinds[run.data.label] = label_kind(run)
    return kinds


def kind_of(feature: FeatureConfig) -> ColumnKind | None:
    """Return how a feature reads its column; None if it is made of other features."""
    if isinstance(feature, NumericConfig):
        return "float"
    if isinstance(feature, IdentityConfig):
        return "int"
    if isinstance(feature, VocabularyConfig):
        words = feature.list_ or ()
        return "int" if words and not isinstance(words[0], str) else "text"
    return "text" if isinstance(feature, HashedConfig) else None


def label_kind(run: Run) -> ColumnKind | None:
    """Return how the label is read; None lets the reader infer it."""
    if run.data.label_vocabulary is not None:
        return "text"
    if isinstance(run.model, CustomModelConfig):
        return None
    return "int" if isinstance(run.model.head, MultiClassHeadConfig) else "float"


def clashes(features: Mapping[str, FeatureConfig]) -> list[tuple[str, str]]:
    """Return features that read a column as text and another as numbers, or vice versa.

    Each result is the name of the later feature and the text of a message.
    """
    readers: dict[str, tuple[str, ColumnKind]] = {}
    found = []
    for name, feature in features.items():
        kind = kind_of(feature)
        if kind is None:
            continue
        column = getattr(feature, "column", None) or name
        first, other = readers.setdefault(column, (name, kind))
        if (kind == "text") != (other == "text"):
            text = f"reads column {column!r} as {_KIND_NAMES[kind]}, {first!r} as "
            found.append((name, text + _KIND_NAMES[other]))
    return found
