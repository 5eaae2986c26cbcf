"""What the files of a source hold, compared with what the run expects of them.

found = report(run, "train")
found.problems          # empty when the files fit
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from estimax.config.columns import Kind, columns_of
from estimax.config.origins import shown
from estimax.config.scan import find_files, header, scan
from estimax.config.schema.features import Identity, Numeric, Vocabulary
from estimax.config.schema.run import Run
from estimax.core.errors import did_you_mean

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

    kind: Kind
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
    texts: dict[str, Kind] = dict.fromkeys(seen, "text")
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
        if isinstance(feature, Numeric) and seen.missing and feature.default is None:
            text = f"{column!r} misses {seen.missing:,} values: give"
            found.append(f"{text} features.{name}.default a number or mean")
        if isinstance(feature, Identity) and feature.default is None:
            found += _ids_out_of_range(name, feature, column, seen)
        if isinstance(feature, Vocabulary) and not seen.words and seen.kind == "text":
            found.append(f"{column!r} holds no word at all")
    if column == run.data.label:
        found += _label_problems(run, column, seen)
    return found


def _ids_out_of_range(
    name: str, feature: Identity, column: str, seen: _Seen
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
