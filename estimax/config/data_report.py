"""Compare the files of a source with the run: what `estimax check --data` prints.

    found = report(run, "train")
    found.problems          # empty if the files fit the run

`tables` reads the files, and `columns` says how the run reads each column.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from estimax.config.columns import (
    ColumnKind,
    columns_of,
    columns_read,
    data_columns,
    label_columns,
    may_be_missing,
    weight_columns,
    words_of_label,
)
from estimax.config.nodes import format_value
from estimax.config.schema.data import AnySource, CsvSource
from estimax.config.schema.features import (
    DateConfig,
    DateDifferenceConfig,
    FeatureConfig,
    IdentityConfig,
    NumericConfig,
    VocabularyConfig,
    WeightedConfig,
)
from estimax.config.schema.heads import (
    BinaryHeadConfig,
    MultiClassHeadConfig,
    RegressionHeadConfig,
)
from estimax.config.schema.run import Run
from estimax.config.tables import (
    TextBatch,
    find_files,
    header,
    missing_columns,
    missing_files,
    text_batches,
)
from estimax.core.errors import MissingFileError

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
    skipped: tuple[str, ...] = ()  # what training skips: `on_bad_row` is "skip"


@dataclass(frozen=True)
class _Batch:
    """The values of a column in one batch of rows."""

    texts: Any  # a pyarrow array of text
    missing: Any  # bool [n]: the value is missing
    numbers: Any  # float64 [n]: NaN where a value is missing or no number
    unreadable: Any  # bool [n]: there is a value, and it is no number


@dataclass
class _Rule:
    """A rule for the values of a column, and where it was broken first."""

    text: str  # of the message; {value} is the first value that broke the rule
    breaks: Callable[[_Batch], Any]  # returns bool [n]
    is_of_reading: bool = False  # whether the row cannot be read, and may be skipped
    count: int = 0
    where: str = ""
    value: str = ""

    def look(self, batch: _Batch, rows: TextBatch) -> None:
        """Count the values of a batch that break the rule; keep the first."""
        broken = self.breaks(batch)
        total = int(broken.sum())
        if total and not self.count:
            row = int(broken.argmax())
            self.where = rows.locate(row)
            self.value = format_value(batch.texts[row].as_py())
        self.count += total


@dataclass
class _Seen:
    """Statistics of a column, of the batches read so far."""

    kind: ColumnKind
    rules: list[_Rule]
    missing: int = 0
    low: float = float("inf")
    high: float = float("-inf")
    words: Counter[str] = field(default_factory=Counter)


def report(run: Run, name: str) -> DataReport:
    """Read all files of a source and compare them with what the run expects."""
    source = run.data.sources[name]
    paths = find_files(source, name)
    kinds = columns_of(run)
    problems = [
        text for path in paths for text in header_problems(run, path, name, kinds)
    ]
    if problems:
        return DataReport(0, len(paths), (), tuple(problems))
    seen = {c: _Seen(k or "text", _rules(run, c, name)) for c, k in kinds.items()}
    rows, skipped = 0, list[str]()
    # Every column is read as text, so that values that are not numbers are counted
    # instead of ending the scan.
    labels = label_columns(run)
    read = data_columns(run)
    for path in paths:
        for batch in text_batches(path, source, name, list(seen)):
            for column, so_far in seen.items():
                values = _parts(batch.columns[column], read[column].delimiter)
                _look(so_far, values, column in labels, batch)
            rows += batch.rows
    if rows:
        for column, so_far in seen.items():
            broken = [rule for rule in so_far.rules if rule.count]
            skipped += [_rule_problem(r) for r in broken if _skips(source, r)]
            problems += [_rule_problem(r) for r in broken if not _skips(source, r)]
            problems += _problems(run, column, so_far)
    else:
        keys = f"data.sources.{name}.files"
        problems.append(f"{paths[0]}: no rows below the header ({keys})")
    columns = tuple(
        ColumnReport(c, s.kind, s.missing, _values(s, c in labels, rows))
        for c, s in seen.items()
    )
    return DataReport(rows, len(paths), columns, tuple(problems), tuple(skipped))


def _skips(source: AnySource, rule: _Rule) -> bool:
    """Return whether training skips the rows that break a rule."""
    most = source.max_bad_rows
    is_too_many = most is not None and rule.count > most
    return rule.is_of_reading and source.on_bad_row == "skip" and not is_too_many


def _parts(texts: Any, delimiter: str | None) -> Any:
    """Return the values of delimited text; the texts themselves without a delimiter."""
    if delimiter is None:
        return texts
    import pyarrow.compute as pc

    values = pc.list_flatten(pc.split_pattern(texts, delimiter))
    return values.filter(pc.not_equal(values, ""))


def _look(seen: _Seen, texts: Any, is_label: bool, rows: TextBatch) -> None:
    """Add the values of a batch, a pyarrow array of text, to the statistics."""
    import numpy as np

    batch = _batch(texts, seen.kind)
    seen.missing += int(batch.missing.sum())
    is_counted = seen.kind == "text" or is_label
    if is_counted and len(seen.words) < _MOST_WORDS:
        for pair in texts.drop_null().value_counts():
            seen.words[pair["values"].as_py()] += pair["counts"].as_py()
    numbers = batch.numbers[np.isfinite(batch.numbers)]
    if numbers.size:
        seen.low = min(seen.low, float(numbers.min()))
        seen.high = max(seen.high, float(numbers.max()))
    for rule in seen.rules:
        rule.look(batch, rows)


def _batch(texts: Any, kind: ColumnKind) -> _Batch:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    missing = np.asarray(texts.is_null())
    if kind == "text":
        nan = np.full(len(texts), np.nan)
        return _Batch(texts, missing, nan, np.zeros(len(texts), bool))
    wanted = pa.int64() if kind == "int" else pa.float64()
    try:
        parsed = pc.cast(pc.utf8_trim_whitespace(texts), wanted)
    except pa.ArrowInvalid:
        parsed = pa.array([_number(text, kind) for text in texts.to_pylist()], wanted)
    numbers = np.asarray(pc.cast(parsed, pa.float64(), safe=False).fill_null(np.nan))
    unreadable = np.asarray(parsed.is_null()) & ~missing
    return _Batch(texts, missing, numbers, unreadable)


def _number(text: str | None, kind: ColumnKind) -> float | int | None:
    if text is None:
        return None
    try:
        number = int(text) if kind == "int" else float(text)
    except ValueError:
        return None
    return None if kind == "int" and not -(2**63) <= number < 2**63 else number


def _rules(run: Run, column: str, source: str) -> list[_Rule]:
    """Return what training would refuse in the values of a column."""
    if column in label_columns(run):
        return _label_rules(run, label_columns(run)[column])
    found = []
    readers = _readers(run, column)
    kind = columns_of(run)[column]
    keys = [f"features.{name}" for name in readers]
    is_weight = column in weight_columns(run)
    keys += ["data.weight"] if is_weight else []
    if kind != "text" and keys:
        text = f"{keys[0]}: {_unreadable(kind, source)}"
        found.append(_Rule(text, _is_unreadable, is_of_reading=True))
    if is_weight:
        text = "data.weight: the weight is missing; correct or remove the row"
        found.append(_Rule(text, _is_missing, is_of_reading=True))
    for name, feature in readers.items():
        if isinstance(feature, NumericConfig) and not may_be_missing(run, feature):
            text = f"a missing value; set features.{name}.default to a number or mean"
            text = f"features.{name}: {text}"
            found.append(_Rule(text, _is_missing, is_of_reading=True))
        if isinstance(feature, DateConfig | DateDifferenceConfig) or (
            isinstance(feature, NumericConfig) and feature.text is not None
        ):
            found.append(_text_rule(name, feature))
        if isinstance(feature, IdentityConfig) and feature.default is None:
            found.append(_id_rule(name, feature.buckets))
    return found


def _readers(run: Run, column: str) -> dict[str, FeatureConfig]:
    return {
        name: feature
        for name, feature in run.features.items()
        if not isinstance(feature, WeightedConfig)
        and column in columns_read(name, feature)
    }


def _is_unreadable(batch: _Batch) -> Any:
    return batch.unreadable


def _is_missing(batch: _Batch) -> Any:
    return batch.missing


def _unreadable(kind: ColumnKind | None, source: str) -> str:
    what = "a whole number" if kind == "int" else "a number"
    return (
        f"expected {what}, found {{value}}; correct it, or add it to "
        f"data.sources.{source}.csv.null_values if it means a missing value"
    )


def _text_rule(
    name: str, feature: DateConfig | DateDifferenceConfig | NumericConfig
) -> _Rule:
    """Return the rule for text that must be dates or numbers."""
    from estimax.feature_columns.transforms import dates, texts

    if isinstance(feature, DateConfig | DateDifferenceConfig):
        form, key = feature.format, "format"
        what = f"a date of the format {form}" if form else "a date such as 2024-05-01"

        def read(text: str) -> object:
            return dates.date_of_text(text.strip(), form)
    else:
        style, key = feature.text or "point", "text"
        sample = "1,302.10" if style == "point" else "1.302,10"
        what = f"a number such as {sample}"

        def read(text: str) -> object:
            return texts.number_of_text(text, style)

    def is_wrong(text: str | None) -> bool:
        return bool(text and text.strip()) and read(str(text)) is None

    def breaks(batch: _Batch) -> Any:
        import numpy as np

        texts_once = getattr(batch.texts, "combine_chunks", lambda: batch.texts)()
        coded = texts_once.dictionary_encode()
        wrong = np.array([*map(is_wrong, coded.dictionary.to_pylist()), False])
        return wrong[np.asarray(coded.indices.fill_null(-1))]

    text = f"expected {what}, found {{value}}; correct it, or set features.{name}.{key}"
    return _Rule(f"features.{name}: {text}", breaks, is_of_reading=True)


def _id_rule(name: str, buckets: int) -> _Rule:
    text = (
        f"features.{name}: id {{value}} is not within 0 and {buckets - 1}; raise "
        f"features.{name}.buckets ({buckets}) or set features.{name}.default"
    )
    # -1 means a missing id.
    return _Rule(text, lambda b: (b.numbers >= buckets) | (b.numbers < -1))


def _label_rules(run: Run, head: Any) -> list[_Rule]:
    missing = "data.label: the label is missing; correct or remove the row"
    rules = [_Rule(missing, _is_missing, is_of_reading=True)]
    words = words_of_label(run, head)
    if words is not None:
        listed = format_value(list(words))
        text = f"data.label: {{value}} is not in data.label_vocabulary {listed}"
        return [*rules, _Rule(text, lambda batch: _is_unknown(batch, words))]
    hint = "; if the labels are words, list them in data.label_vocabulary"
    if isinstance(head, RegressionHeadConfig):
        text = "data.label: a regression needs numbers, found {value}"
        return [*rules, _Rule(text, lambda b: ~_is_finite(b) & ~b.missing)]
    if isinstance(head, MultiClassHeadConfig):
        most = head.classes - 1
        text = (
            f"data.label: expected a class from 0 to {most}, found {{value}}; correct "
            f"it or model.head.classes{hint}"
        )
        return [*rules, _Rule(text, lambda b: ~_is_within(b, most) & ~b.missing)]
    if not isinstance(head, BinaryHeadConfig):
        return rules
    text = (
        "data.label: a binary head needs labels 0 and 1, found {value}; for more "
        f"classes set model.head to {{type: multi_class, classes: …}}{hint}"
    )
    text = text.replace("{type", "{{type").replace("…}", "…}}")
    return [*rules, _Rule(text, lambda b: ~_is_within(b, 1) & ~b.missing)]


def _is_unknown(batch: _Batch, words: Sequence[str]) -> Any:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    known = pc.is_in(batch.texts, pa.array(words, pa.string()))
    return ~np.asarray(known) & ~batch.missing


def _is_finite(batch: _Batch) -> Any:
    import numpy as np

    return np.isfinite(batch.numbers)


def _is_within(batch: _Batch, most: float) -> Any:
    return (batch.numbers >= 0) & (batch.numbers <= most)  # False for NaN


def _problems(run: Run, column: str, seen: _Seen) -> list[str]:
    """Return what is wrong with a column as a whole."""
    found = []
    for name, feature in _readers(run, column).items():
        if not isinstance(feature, VocabularyConfig) or seen.kind != "text":
            continue
        known: Sequence[Any] = feature.list_ or ()
        if not seen.words:
            text = f"column {column!r} has no words; all its values are missing"
            found.append(f"features.{name}: {text}")
        elif known and not feature.oov_buckets and not seen.words.keys() & set(known):
            text = f"no word of features.{name}.list is in column {column!r}, which has"
            found.append(
                f"{text} {format_value([w for w, _ in seen.words.most_common(3)])}"
            )
    if column in label_columns(run) and len(seen.words) == 1:
        only = next(iter(seen.words))
        found.append(f"data.label: {column!r} is {format_value(only)} in every row")
    return found


def _rule_problem(rule: _Rule) -> str:
    rows = f" ({rule.count:,} rows)" if rule.count > 1 else ""
    return f"{rule.where}: {rule.text.format(value=rule.value)}{rows}"


def _values(seen: _Seen, is_label: bool, rows: int) -> str:
    if is_label and 0 < len(seen.words) <= 20:
        balance = (f"{w} {n / rows:.1%}" for w, n in seen.words.most_common())
        return "label: " + ", ".join(balance)
    if seen.kind == "text":
        many = "many" if len(seen.words) >= _MOST_WORDS else f"{len(seen.words):,}"
        first = ", ".join(word for word, _ in seen.words.most_common(4))
        return f"{many} words: {first}{', …' if len(seen.words) > 4 else ''}"
    return f"{seen.low:g} to {seen.high:g}" if seen.low <= seen.high else "none"


def check_files(run: Run, sources: Iterable[str], *, list_urls: bool = True) -> None:
    """Raise `MissingFileError` that lists all files of a run that do not exist.

    Args:
      run: The run.
      sources: The names of the sources whose files are needed.
      list_urls: Whether to look for the matches of URLs with patterns.
    """
    missing = missing_files(run, sources, list_urls=list_urls)
    if missing:
        raise MissingFileError("\n".join(f"{path}: {text}" for path, text in missing))


def header_problems(
    run: Run, path: str, name: str, columns: Mapping[str, object]
) -> list[str]:
    """Return what is wrong with the column names of a file."""
    source = run.data.sources[name]
    names = header(path, source, name)
    for delimiter in ";\t|," if isinstance(source, CsvSource) else "":
        if len(names) == 1 and delimiter in names[0] and len(columns) > 1:
            key = f"data.sources.{name}.csv.delimiter"
            text = f"one column, {format_value(names[0])}; set {key} to {delimiter!r}"
            return [f"{path}, line 1: {text}"]
    found = [f"{path}: {text}" for text in missing_columns(names, columns)]
    twice = [n for n, count in Counter(names).items() if count > 1 and n in columns]
    found += [f"{path}, line 1: two columns are named {n!r}" for n in twice]
    return found
