"""Statistics of the train source that features need: means, deviations, words.

    statistics = statistics_for(run, cache=model_dir / "config/statistics.json")
    statistics.moments["age"].mean
    statistics.vocabularies["city"]          # most frequent first

They are computed in a streaming pass and saved in the model directory. A resumed run
reads them from there: with other means or word ids, the trained weights would be wrong.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from estimax.config.build_input import scan
from estimax.config.columns import (
    DataColumn,
    column_of,
    columns_read,
    data_columns,
    label_columns,
)
from estimax.config.schema.features import (
    COMPUTED,
    Bins,
    BucketizedConfig,
    ComputedConfig,
    ExpressionConfig,
    KMeansBoundaries,
    NumericConfig,
    PiecewiseLinearConfig,
    Quantiles,
    TextConfig,
    VocabularyConfig,
)
from estimax.config.schema.heads import RegressionHeadConfig
from estimax.config.schema.model import SeveralModelsConfig, TabularPart
from estimax.config.schema.run import Run
from estimax.config.tables import find_files, is_remote
from estimax.core.errors import ConfigError, FeatureError, LabelError


@dataclass(frozen=True)
class Moments:
    """Mean and standard deviation of the values that are not missing."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0  # sum of squared distances from the mean
    low: float = math.inf
    high: float = -math.inf

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
        return Moments(
            count,
            mean,
            self.squares + other.squares + between,
            min(self.low, other.low),
            max(self.high, other.high),
        )


@dataclass(frozen=True)
class Statistics:
    """Moments and vocabularies by feature name; `raw` is before the transform.

    Args:
      raw: Moments of the numbers as they are in the data.
      moments: Moments after the transform.
      vocabularies: Words, most frequent first.
      boundaries: Boundaries at quantiles or between clusters, of bucketized features.
      labels: Moments of label columns that are normalised.
      cuts: The limits of the parts of sources that are split by time.
      spreads: Median, and distance of the quartiles, of features encoded by bins.
      rows: The number of training rows, if a model chooses its sizes by it.
      classes: The number of rows of each class, of label columns that are balanced.
    """

    raw: dict[str, Moments] = field(default_factory=dict)
    moments: dict[str, Moments] = field(default_factory=dict)
    vocabularies: dict[str, tuple[str, ...]] = field(default_factory=dict)
    boundaries: dict[str, tuple[float, ...]] = field(default_factory=dict)
    labels: dict[str, Moments] = field(default_factory=dict)
    cuts: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    spreads: dict[str, tuple[float, ...]] = field(default_factory=dict)
    rows: int | None = None
    classes: dict[str, dict[str, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Request:
    """The features that need statistics, by name; and labels and sources that do."""

    numeric: dict[str, NumericConfig | ComputedConfig]
    vocabulary: dict[str, VocabularyConfig | TextConfig]
    quantiles: dict[str, tuple[str, int]] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    cuts: dict[str, tuple[str, float, float]] = field(default_factory=dict)
    bins: dict[str, tuple[str, int | None]] = field(default_factory=dict)
    rows: bool = False
    classes: tuple[str, ...] = ()
    clusters: dict[str, tuple[str, int]] = field(default_factory=dict)
    computed: dict[str, dict[str, str]] = field(default_factory=dict)

    def is_empty(self) -> bool:
        """Return whether no statistics are needed."""
        more = (
            self.labels,
            self.cuts,
            self.bins,
            self.rows,
            self.classes,
            self.clusters,
        )
        return not any((self.numeric, self.vocabulary, self.quantiles, *more))

    def key(self) -> str:
        """Return a string that is equal for requests of the same statistics."""
        asked: dict[str, object] = {
            "numeric": {
                n: [f.column, f.transform, *([f.text] if f.text else [])]
                for n, f in self.numeric.items()
                if isinstance(f, NumericConfig)
            },
            "vocabulary": {
                n: [
                    f.column,
                    f.from_data and asdict(f.from_data),
                    # A request without it has the key of older versions.
                    *(["strip"] if f.strip else []),
                ]
                for n, f in self.vocabulary.items()
                if isinstance(f, VocabularyConfig)
            },
        }
        more = {
            "quantiles": self.quantiles,
            "labels": self.labels,
            "cuts": self.cuts,
            "bins": self.bins,
            "rows": self.rows,
            "classes": self.classes,
            "clusters": self.clusters,
            "computed": self.computed,
            "text": {
                n: [f.column, f.ngrams, f.min_count, f.max_size, f.lowercase]
                for n, f in self.vocabulary.items()
                if isinstance(f, TextConfig)
            },
        }
        asked |= {key: value for key, value in more.items() if value}
        return json.dumps(asked, sort_keys=True)


def request_of(run: Run) -> Request:
    """Return the features of a run that need statistics of the data.

    Labels are included if their head normalises them.
    """
    numeric = {
        name: feature
        for name, feature in run.features.items()
        if isinstance(feature, (NumericConfig, *COMPUTED))
        and (feature.normalize in ("zscore", "minmax") or feature.default == "mean")
    }
    vocabulary = {
        name: feature
        for name, feature in run.features.items()
        if (isinstance(feature, VocabularyConfig) and feature.from_data is not None)
        or (isinstance(feature, TextConfig) and feature.hash_buckets is None)
    }
    quantiles = {
        name: (feature.source, feature.boundaries.quantiles)
        for name, feature in run.features.items()
        if isinstance(feature, BucketizedConfig)
        and isinstance(feature.boundaries, Quantiles)
    }
    labels = tuple(
        column for column, head in label_columns(run).items() if is_scaled(head)
    )
    cuts = {
        name: (source.part.key or "", source.part.start, source.part.stop)
        for name, source in run.data.sources.items()
        if source.part is not None and source.part.by == "time"
    }
    bins = _bins_of(run)
    rows = any(part.train_rows is None for part in _tabular_parts(run))
    classes = tuple(
        column for column, head in label_columns(run).items() if is_balanced(head)
    )
    clusters = {
        name: (feature.source, feature.boundaries.k_means)
        for name, feature in run.features.items()
        if isinstance(feature, BucketizedConfig)
        and isinstance(feature.boundaries, KMeansBoundaries)
    }
    sampled = (*quantiles.values(), *bins.values(), *clusters.values())
    sources = {name for name, _ in sampled}
    computed = {
        name: {
            key: value
            for key, value in asdict(feature).items()
            if value is not None and key not in ("type", "default", "normalize")
        }
        for name, feature in run.features.items()
        if isinstance(feature, COMPUTED) and name in {*numeric, *sources}
    }
    asked = (numeric, vocabulary, quantiles, labels, cuts, bins, rows, classes)
    return Request(*asked, clusters, computed)


def _bins_of(run: Run) -> dict[str, tuple[str, int | None]]:
    """Return source and number of the bins of each feature that is encoded by them."""
    found: dict[str, tuple[str, int | None]] = {
        name: (feature.source, feature.boundaries.bins)
        for name, feature in run.features.items()
        if isinstance(feature, PiecewiseLinearConfig)
        and isinstance(feature.boundaries, Bins)
    }
    for part in _tabular_parts(run):
        for name in part.features or run.features:
            if is_coded(run.features[name]):
                found[name] = (name, part.bins)
    return found


def _tabular_parts(run: Run) -> list[TabularPart]:
    model: Any = run.model
    several = isinstance(model, SeveralModelsConfig)
    models = model.models.values() if several else [model]
    parts = [getattr(one, "dnn", None) for one in models]
    return [part for part in parts if isinstance(part, TabularPart)]


def is_coded(feature: Any) -> bool:
    """Return whether a tabular model encodes a feature by bins."""
    return isinstance(feature, COMPUTED) or (
        isinstance(feature, NumericConfig)
        and math.prod(feature.shape) == 1
        and not feature.sequence
    )


def is_scaled(head: Any) -> bool:
    """Return whether a head is trained on a normalised label."""
    return (
        isinstance(head, RegressionHeadConfig)
        and head.normalize_label
        and head.label_dimension == 1
    )


def is_balanced(head: Any) -> bool:
    """Return whether the classes of a head are weighted by their counts."""
    return getattr(head, "class_weights", None) == "balanced"


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
    if request.is_empty():
        return Statistics()
    files = _fingerprint(run) if not keep else ""
    if cache.is_file():
        saved = _read(cache, request, None if keep else files)
        if saved is not None:
            return saved
    found = collect(run, request)
    from estimax.storage import atomic

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
    seen = [_seen(file) for file in files]
    return hashlib.sha256(json.dumps(seen).encode()).hexdigest()


def _seen(file: str) -> tuple[str, int, int]:
    if is_remote(file):
        return (file, 0, 0)
    found = Path(file).stat()
    return (file, found.st_size, found.st_mtime_ns)


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
        {
            name: _moments_from(saved["moments"][name], feature.normalize == "minmax")
            for name, feature in request.numeric.items()
        },
        {name: _words_from(saved["vocabularies"][name]) for name in request.vocabulary},
        {
            name: _numbers_from(saved["boundaries"][name])
            for name in (*request.quantiles, *request.bins, *request.clusters)
        },
        {column: _moments_from(saved["labels"][column]) for column in request.labels},
        {
            name: (saved["cuts"][name][0], saved["cuts"][name][1])
            for name in request.cuts
        },
        {name: _numbers_from(saved["spreads"][name]) for name in request.bins},
        int(saved["rows"]) if request.rows else None,
        {column: _counts_from(saved["classes"][column]) for column in request.classes},
    )


def _counts_from(saved: object) -> dict[str, int]:
    if not isinstance(saved, dict) or not saved:
        raise TypeError("expected the number of rows of each class")
    if not all(type(count) is int and count > 0 for count in saved.values()):
        raise ValueError(f"expected counts above 0, got {saved}")
    return {str(name): count for name, count in saved.items()}


def _numbers_from(saved: object) -> tuple[float, ...]:
    if not isinstance(saved, list) or not all(isinstance(x, float) for x in saved):
        raise TypeError("expected a list of numbers")
    return tuple(saved)


def _moments_from(saved: dict[str, Any], with_range: bool = False) -> Moments:
    keys = ["count", "mean", "squares"]
    # Runs that began before ranges were saved have none, and need none.
    if with_range or "low" in saved:
        keys += ["low", "high"]
    numbers = tuple(saved[key] for key in keys)
    moments = Moments(*numbers)
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
    """Compute the statistics: of times in one pass, of the rest in another."""
    cuts = {name: _cuts(run, name, *asked) for name, asked in request.cuts.items()}
    source = run.train.source
    every = data_columns(run)
    sampled = {**request.quantiles, **request.bins, **request.clusters}
    names = {
        *(c for name, f in request.numeric.items() for c in columns_read(name, f)),
        *(column_of(name, f) for name, f in request.vocabulary.items()),
        *(c for of, _ in sampled.values() for c in columns_read(of, run.features[of])),
        *request.labels,
        *request.classes,
    }
    label = dict.fromkeys(request.labels, Moments())
    raw = {name: Moments() for name in request.numeric}
    scaled = dict(raw)
    counts: dict[str, Counter[str]] = {name: Counter() for name in request.vocabulary}
    classes: dict[str, Counter[str]] = {name: Counter() for name in request.classes}
    samples = {name: _Sample() for name in sampled}
    rows = 0
    if request.rows and not names:
        names = set(list(every)[:1])  # any column has all rows
    columns = {c: k for c, k in every.items() if c in names}
    for batch in scan(run, source, columns, cuts) if columns else ():
        for name, number in request.numeric.items():
            values = _numbers_of(batch, name, number)
            raw[name] = raw[name].merge(_moments_of(values, name, None))
            log = getattr(number, "transform", None)
            found = _moments_of(values, name, log)
            scaled[name] = scaled[name].merge(found)
        for column in request.labels:
            found = _moments_of(_numbers(batch[column]), column, None)
            label[column] = label[column].merge(found)
        for column in request.classes:
            _count_classes(classes[column], batch[column])
        for name, words in request.vocabulary.items():
            texts = batch[column_of(name, words)]
            if isinstance(words, TextConfig):
                _count_tokens(counts[name], texts, words)
            else:
                _count(counts[name], texts, strip=words.strip)
        rows += len(next(iter(batch.values())))
        for name, (of, _) in sampled.items():
            samples[name].add(_numbers_of(batch, of, run.features[of]))
    empty = [name for name, moments in raw.items() if moments.count == 0]
    empty += [name for name, sample in samples.items() if not sample.count]
    if empty:
        raise FeatureError(f"features.{empty[0]}: the train source has no value of it.")
    for column, moments in label.items():
        if moments.count == 0:
            raise LabelError(
                f"data.label: column {column!r} has no value in the train source."
            )
    chosen = {
        name: _words(counts[name], name, f) for name, f in request.vocabulary.items()
    }
    boundaries = {
        name: samples[name].quantiles(n) for name, (_, n) in request.quantiles.items()
    }
    boundaries |= {
        name: samples[name].clusters(n) for name, (_, n) in request.clusters.items()
    }
    if request.bins:
        from estimax.feature_columns.tables import bins_for  # loads jax

        boundaries |= {
            name: samples[name].bins(count or bins_for(rows))
            for name, (_, count) in request.bins.items()
        }
    spreads = {name: samples[name].spread() for name in request.bins}
    counted = rows if request.rows else None
    for column, found_classes in classes.items():
        if len(found_classes) < 2:
            raise LabelError(
                f"class_weights: balanced: label {column!r} has "
                f"{len(found_classes)} class in the train source; 2 are needed."
            )
    by_class = {column: dict(sorted(c.items())) for column, c in classes.items()}
    return Statistics(
        raw, scaled, chosen, boundaries, label, cuts, spreads, counted, by_class
    )


def count_parts(run: Run, parts: Sequence[str]) -> dict[str, int]:
    """Return the number of rows of each source that is a part of a split."""
    cuts = {
        name: _cuts(run, name, *asked)
        for name, asked in request_of(run).cuts.items()
        if name in parts
    }
    # Any column will do; the label is one that every row has.
    columns = data_columns(run)
    last = list(columns)[-1:]
    some = {column: columns[column] for column in last}
    return {
        part: sum(len(batch[last[0]]) for batch in scan(run, part, some, cuts))
        for part in parts
    }


def _cuts(run: Run, name: str, key: str, start: float, stop: float) -> tuple[Any, Any]:
    """Return the values between which the rows of a part by time are."""
    import numpy as np

    columns = {key: data_columns(run).get(key, DataColumn(None))}
    found = [batch[key] for batch in scan(run, name, columns, None)]
    values = np.sort(np.concatenate([_plain(column) for column in found]))
    if not len(values):
        raise FeatureError(f"data.sources.{name}: there are no rows to split.")

    def at(share: float) -> Any:
        if share <= 0 or share >= 1:
            return None
        value = values[min(int(share * len(values)), len(values) - 1)]
        return value.decode() if isinstance(value, bytes) else value.item()

    return at(start), at(stop)


def _plain(column: Any) -> Any:
    import numpy as np

    is_text = hasattr(column, "tolist") and not isinstance(column, np.ndarray)
    return np.array(column.tolist(), dtype=object) if is_text else column


def _numbers_of(batch: Mapping[str, Any], name: str, feature: Any) -> Any:
    """Return the finite numbers of a feature."""
    if isinstance(feature, COMPUTED):
        return _numbers(transform_of(feature)(batch))
    column = batch[column_of(name, feature)]
    if feature.text is not None:
        from estimax.feature_columns.transforms import TextNumbers

        column = TextNumbers("", feature.text)({"": column})
    return _numbers(column)


def transform_of(feature: ComputedConfig) -> Any:
    """Return the host transform that computes a number from columns of the data."""
    from estimax.feature_columns import transforms

    if isinstance(feature, ExpressionConfig):
        return transforms.Expression(feature.expression)
    return transforms.DateDifference(
        feature.from_, feature.to, feature.unit, feature.format, feature.time_zone
    )


def _numbers(column: Any) -> Any:
    """Return the finite numbers of a column, those of lists in one array."""
    import numpy as np

    flat = np.asarray(getattr(column, "values", column)).reshape(-1)
    return flat[np.isfinite(flat)]


def _count(counts: Counter[str], column: Any, *, strip: bool) -> None:
    """Count the words of a column; empty text is a missing value."""
    import pyarrow as pa

    words = getattr(column, "values", column)
    words = words.strip() if strip else words
    texts = pa.array(words.tolist(), pa.binary())
    for pair in texts.value_counts():
        word = pair["values"].as_py()
        if word:
            counts[word.decode()] += pair["counts"].as_py()


def _count_tokens(counts: Counter[str], column: Any, feature: TextConfig) -> None:
    """Count the words and n-grams of a column of texts."""
    from estimax.feature_columns.transforms.tokens import tokens_of

    for text in column.tolist():
        decoded = text.decode(errors="replace")
        counts.update(tokens_of(decoded, feature.ngrams, lowercase=feature.lowercase))


def _count_classes(counts: Counter[str], column: Any) -> None:
    """Count the classes of a label column: words, or the numbers of classes."""
    import numpy as np

    if not isinstance(column, np.ndarray):
        _count(counts, column, strip=False)
        return
    for value, count in zip(*np.unique(column, return_counts=True), strict=True):
        counts[f"{float(value):g}"] += int(count)


class _Sample:
    """Up to 4 million of the values of a column, evenly chosen."""

    def __init__(self) -> None:
        self.count = 0
        self._parts: list[Any] = []
        self._stride = 1

    def add(self, values: Any) -> None:
        """Add the values of a batch; halve the sample when it is too large."""
        self._parts.append(values[:: self._stride])
        self.count = sum(len(part) for part in self._parts)
        if self.count > _MOST_VALUES:
            self._parts = [part[::2] for part in self._parts]
            self._stride *= 2

    def quantiles(self, buckets: int) -> tuple[float, ...]:
        """Return the distinct boundaries of buckets with about as many values each."""
        import numpy as np

        shares = np.arange(1, buckets) / buckets
        found = np.unique(np.quantile(np.concatenate(self._parts), shares))
        return tuple(float(boundary) for boundary in found)

    def bins(self, count: int) -> tuple[float, ...]:
        """Return the edges of bins for a piecewise-linear code."""
        import numpy as np

        from estimax.feature_columns import quantile_boundaries

        return quantile_boundaries(np.concatenate(self._parts), count)

    def clusters(self, count: int) -> tuple[float, ...]:
        """Return boundaries between clusters."""
        import numpy as np

        from estimax.feature_columns import k_means_boundaries

        return k_means_boundaries(np.concatenate(self._parts), count)

    def spread(self) -> tuple[float, ...]:
        """Return what a robust scaling subtracts and divides by."""
        import numpy as np

        from estimax.feature_columns.tables import robust_scaling

        found = robust_scaling(np.concatenate(self._parts))
        return (found.mean, found.std)


_MOST_VALUES = 1 << 22


def _moments_of(numbers: Any, name: str, transform: str | None) -> Moments:
    import numpy as np

    if transform == "log1p":
        if numbers.size and numbers.min() <= -1:
            raise FeatureError(
                f"features.{name}.transform: log1p needs values above -1, "
                f"the train source has {numbers.min():g}."
            )
        numbers = np.log1p(numbers)
    if not numbers.size:
        return Moments()
    numbers = numbers.astype(np.float64)
    mean = float(numbers.mean())
    squares = float(np.square(numbers - mean).sum())
    return Moments(
        len(numbers), mean, squares, float(numbers.min()), float(numbers.max())
    )


def _words(
    counts: Counter[str], name: str, feature: VocabularyConfig | TextConfig
) -> tuple[str, ...]:
    is_text = isinstance(feature, TextConfig)
    limits = feature if isinstance(feature, TextConfig) else feature.from_data
    assert limits is not None
    enough = [(word, n) for word, n in counts.items() if n >= limits.min_count]
    # Ties are sorted by word, so that ids do not depend on the order of the rows.
    enough.sort(key=lambda pair: (-pair[1], pair[0]))
    words = tuple(word for word, _ in enough[: limits.max_size])
    if not words:
        raise FeatureError(
            f"features.{name}{'' if is_text else '.from_data'}: no word occurs "
            f"{limits.min_count} times in the train source; lower min_count."
        )
    return words
