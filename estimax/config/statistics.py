"""Statistics of the train source that features need: means, deviations, vocabularies.

    statistics = statistics_for(run, cache=model_dir / "config/statistics.json")
    statistics.moments["age"].mean
    statistics.vocabularies["city"]          # most frequent first

They are computed in one streaming pass and saved in the model directory. A resumed run
reads them from there: with other means or word ids, the trained weights would be wrong.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from estimax.config.data_report import ColumnKind, find_files, scan
from estimax.config.schema.features import NumericConfig, VocabularyConfig
from estimax.config.schema.run import Run
from estimax.core.errors import ConfigError, FeatureError


@dataclass(frozen=True)
class Moments:
    """Mean and standard deviation of the values that are not missing."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0  # sum of squared distances from the mean

    @property
    def std(self) -> float:
        """Return the standard deviation; 1 for a constant, to avoid dividing by 0."""
        deviation = math.sqrt(self.squares / self.count) if self.count else 0.0
        return deviation or 1.0

    def merge(self, other: Moments) -> Moments:
        """Return the moments of both sets of values.

        Sums of squared distances are merged (Chan's method). A plain sum of squares
        would lose digits if the mean is large.
        """
        count = self.count + other.count
        if count == 0:
            return self
        gap = other.mean - self.mean
        mean = self.mean + gap * other.count / count
        between = gap * gap * self.count * other.count / count
        return Moments(count, mean, self.squares + other.squares + between)


@dataclass(frozen=True)
class Statistics:
    """Moments and vocabularies by feature name; `raw` is before the transform."""

    raw: dict[str, Moments]
    moments: dict[str, Moments]
    vocabularies: dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class Request:
    """The features that need statistics, by name."""

    numeric: dict[str, NumericConfig]
    vocabulary: dict[str, VocabularyConfig]

    def key(self) -> str:
        """Return a string that is equal for requests of the same statistics."""
        asked = {
            "numeric": {n: [f.column, f.transform] for n, f in self.numeric.items()},
            "vocabulary": {
                n: [f.column, f.from_data and asdict(f.from_data)]
                for n, f in self.vocabulary.items()
            },
        }
        return json.dumps(asked, sort_keys=True)


def request_of(run: Run) -> Request:
    """Return the features of a run that need statistics of the data."""
    numeric = {
        name: feature
        for name, feature in run.features.items()
        if isinstance(feature, NumericConfig)
        and (feature.normalize == "zscore" or feature.default == "mean")
    }
    vocabulary = {
        name: feature
        for name, feature in run.features.items()
        if isinstance(feature, VocabularyConfig) and feature.from_data is not None
    }
    return Request(numeric, vocabulary)


def statistics_for(run: Run, cache: Path, *, keep: bool = False) -> Statistics:
    """Return the statistics of the train source, from `cache` if they are up to date.

    Args:
      run: The run.
      cache: The file in which statistics are saved.
      keep: Use saved statistics even if the files of the source have changed since. Set
        it if there is a checkpoint, whose weights depend on them.

    Raises:
      ConfigError: The saved file is damaged.
      FeatureError: A feature has no value or word in the source.
    """
    request = request_of(run)
    if not request.numeric and not request.vocabulary:
        return Statistics({}, {}, {})
    files = _fingerprint(run) if not keep else ""
    if cache.is_file():
        saved = _read(cache, request, None if keep else files)
        if saved is not None:
            return saved
    found = collect(run, request)
    from estimax.wire import atomic

    cache.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "request": request.key(),
        "files": files or _fingerprint(run),
        "statistics": asdict(found),
    }
    atomic.write_json(cache, content)
    return found


def _fingerprint(run: Run) -> str:
    source = run.data.sources[run.train.source]
    files = find_files(source, run.train.source)
    seen = [(f, Path(f).stat().st_size, Path(f).stat().st_mtime_ns) for f in files]
    return hashlib.sha256(json.dumps(seen).encode()).hexdigest()


def _read(cache: Path, request: Request, files: str | None) -> Statistics | None:
    """Return saved statistics; None if they are of other features or other files."""
    try:
        saved = json.loads(cache.read_bytes())
        if saved["request"] != request.key() or files not in (None, saved["files"]):
            return None
        return _from_json(saved["statistics"], request)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        reason = str(error) or type(error).__name__
        raise ConfigError(
            f"{cache}: expected the statistics that estimax saved, found a damaged "
            f"file ({reason}). Restore it; or remove it to compute the statistics "
            "again, which requires the files that the run was first started with."
        ) from None


def _from_json(saved: dict[str, Any], request: Request) -> Statistics:
    """Return statistics from parsed JSON; raise if some of the request are missing."""
    return Statistics(
        {name: _moments_from(saved["raw"][name]) for name in request.numeric},
        {name: _moments_from(saved["moments"][name]) for name in request.numeric},
        {name: _words_from(saved["vocabularies"][name]) for name in request.vocabulary},
    )


def _moments_from(saved: dict[str, Any]) -> Moments:
    moments = Moments(saved["count"], saved["mean"], saved["squares"])
    numbers = (moments.count, moments.mean, moments.squares)
    if not all(math.isfinite(number) for number in numbers):
        raise ValueError(f"expected finite numbers, got {numbers}")
    if moments.count < 1 or moments.squares < 0:
        raise ValueError(f"expected a count and squares above 0, got {numbers}")
    return moments


def _words_from(saved: object) -> tuple[str, ...]:
    if not isinstance(saved, list) or not all(isinstance(word, str) for word in saved):
        raise TypeError("expected a list of words")
    return tuple(saved)


def collect(run: Run, request: Request) -> Statistics:
    """Compute the statistics in one pass over the train source."""
    columns: dict[str, ColumnKind] = {}
    columns |= {f.column or name: "float" for name, f in request.numeric.items()}
    columns |= {f.column or name: "text" for name, f in request.vocabulary.items()}
    raw = {name: Moments() for name in request.numeric}
    scaled = dict(raw)
    counts: dict[str, Counter[str]] = {name: Counter() for name in request.vocabulary}
    source = run.train.source
    for batch in scan(run.data.sources[source], source, columns):
        for name, number in request.numeric.items():
            values = batch[number.column or name]
            raw[name] = raw[name].merge(_moments_of(values, name, None))
            found = _moments_of(values, name, number.transform)
            scaled[name] = scaled[name].merge(found)
        for name, words in request.vocabulary.items():
            for pair in batch[words.column or name].drop_null().value_counts():
                counts[name][pair["values"].as_py()] += pair["counts"].as_py()
    empty = [name for name, moments in raw.items() if moments.count == 0]
    if empty:
        raise FeatureError(f"features.{empty[0]}: the train source has no value of it.")
    chosen = {
        name: _words(counts[name], name, f) for name, f in request.vocabulary.items()
    }
    return Statistics(raw, scaled, chosen)


def _moments_of(values: Any, name: str, transform: str | None) -> Moments:
    import numpy as np

    numbers = values.drop_null().to_numpy(zero_copy_only=False)
    numbers = numbers[np.isfinite(numbers)]
    if transform == "log1p":
        if numbers.size and numbers.min() <= -1:
            raise FeatureError(
                f"features.{name}.transform: log1p needs values above -1, "
                f"the train source has {numbers.min():g}."
            )
        numbers = np.log1p(numbers)
    if not numbers.size:
        return Moments()
    mean = float(numbers.mean())
    return Moments(len(numbers), mean, float(np.square(numbers - mean).sum()))


def _words(
    counts: Counter[str], name: str, feature: VocabularyConfig
) -> tuple[str, ...]:
    assert feature.from_data is not None
    limits = feature.from_data
    enough = [(word, n) for word, n in counts.items() if n >= limits.min_count]
    # Ties are sorted by word, so that ids do not depend on the order of the rows.
    enough.sort(key=lambda pair: (-pair[1], pair[0]))
    words = tuple(word for word, _ in enough[: limits.max_size])
    if not words:
        raise FeatureError(
            f"features.{name}.from_data: no word occurs "
            f"{limits.min_count} times in the train source; lower min_count."
        )
    return words
