"""What the files of a source hold, compared with what the run expects of them.

found = report(run, "train")
found.problems          # empty when the files fit
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

_MOST_WORDS = 10_000  # distinct texts counted; beyond it "many" is all there is to say


@dataclass(frozen=True)
class ColumnReport:
    """One column that the run reads."""

    name: str
    kind: str
    missing: int
    values: str  # a range, the most frequent words, or the balance of the label


@dataclass(frozen=True)
class DataReport:
    """One source."""

    rows: int
    files: int
    columns: tuple[ColumnReport, ...]
    problems: tuple[str, ...]


@dataclass
class _Seen:
    """What has been seen of a column so far."""

    kind: ColumnKind
    missing: int = 0
    bad: Counter[str] = field(default_factory=Counter)
    low: float = float("inf")
    high: float = float("-inf")
    words: Counter[str] = field(default_factory=Counter)


def report(run: Run, name: str) -> DataReport:
    """Read every file of a source and compare."""
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
    # Read as text: what is no number must be counted, not stumbled over.
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
    """Add a batch; `values` is a pyarrow array of texts."""
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
            text = f"{column!r} misses {seen.missing:,} values: give"
            found.append(f"{text} features.{name}.default a number or mean")
        if isinstance(feature, IdentityConfig) and feature.default is None:
            found += _ids_out_of_range(name, feature, column, seen)
        if (
            isinstance(feature, VocabularyConfig)
            and not seen.words
            and seen.kind == "text"
        ):
            found.append(f"{column!r} holds no word at all")
    if column == run.data.label:
        found += _label_problems(run, column, seen)
    return found


def _ids_out_of_range(
    name: str, feature: IdentityConfig, column: str, seen: _Seen
) -> list[str]:
    if seen.high < feature.buckets:
        return []
    text = f"{column!r} goes up to {seen.high:g}, beyond features.{name}.buckets"
    return [f"{text} ({feature.buckets})"]


def _label_problems(run: Run, column: str, seen: _Seen) -> list[str]:
    found = []
    if seen.missing:
        found.append(f"the label {column!r} is missing in {seen.missing:,} rows")
    known = run.data.label_vocabulary
    unknown = [word for word in seen.words if known is not None and word not in known]
    if unknown:
        text = f"the label {column!r} holds {shown(unknown[0])}, which is not in"
        found.append(f"{text} data.label_vocabulary")
    if len(seen.words) == 1:
        only = next(iter(seen.words))
        found.append(f"the label {column!r} is always {shown(only)}: nothing to learn")
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
    """The files of a source, patterns resolved, sorted, each once."""
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
    """The column names of one file."""
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
    """The wanted columns of all files, batch by batch."""
    import pyarrow as pa

    for path in find_files(source, name):
        check_header(path, source, columns)
        try:
            with _open(path, source, columns) as reader:
                yield from reader
        except pa.ArrowInvalid as error:
            raise InputError(f"{path}: {error}") from None


def check_header(path: str, source: CsvSource, columns: Mapping[str, object]) -> None:
    """Raise when a file lacks a wanted column."""
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
    # Without a header the names come from the run; with both, the run renames.
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


ColumnKind = Literal["float", "int", "text"]


def columns_of(run: Run) -> dict[str, ColumnKind | None]:
    """Each column's kind; None leaves it to the reader."""
    kinds: dict[str, ColumnKind | None] = {}
    for name, feature in run.features.items():
        if (kind := kind_of(feature)) is not None:
            column = getattr(feature, "column", None) or name
            # Whole numbers serve as numbers; the other way round they would not.
            kinds[column] = "int" if kinds.get(column) == "int" else kind
    if run.data.weight is not None:
        kinds[run.data.weight] = "float"
    kinds[run.data.label] = label_kind(run)
    return kinds


def kind_of(feature: FeatureConfig) -> ColumnKind | None:
    """How a feature reads its column; None when it is made of other features."""
    if isinstance(feature, NumericConfig):
        return "float"
    if isinstance(feature, IdentityConfig):
        return "int"
    if isinstance(feature, VocabularyConfig):
        words = feature.list_ or ()
        return "int" if words and not isinstance(words[0], str) else "text"
    return "text" if isinstance(feature, HashedConfig) else None


def label_kind(run: Run) -> ColumnKind | None:
    """How the label is read."""
    if run.data.label_vocabulary is not None:
        return "text"
    if isinstance(run.model, CustomModelConfig):
        return None
    return "int" if isinstance(run.model.head, MultiClassHeadConfig) else "float"


def clashes(features: Mapping[str, FeatureConfig]) -> list[tuple[str, str]]:
    """Features that read a column as text where an earlier one reads numbers."""
    readers: dict[str, tuple[str, ColumnKind]] = {}
    found = []
    for name, feature in features.items():
        kind = kind_of(feature)
        if kind is None:
            continue
        column = getattr(feature, "column", None) or name
        first, other = readers.setdefault(column, (name, kind))
        if (kind == "text") != (other == "text"):
            text = f"reads column {column!r} as {_WORDS[kind]}, {first!r} as "
            found.append((name, text + _WORDS[other]))
    return found


_WORDS = {"float": "numbers", "int": "whole numbers", "text": "text"}
