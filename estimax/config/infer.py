"""Choose features, model and training for a table.

    table = profile("flights.csv")
    inferred = infer(table, "late")
    inferred.sections()["model"]         # as in a run file

`estimax init` writes the choice as a run file; a run file without `model` is completed
with it when it is loaded. The rules are plain:

- A number is scaled for the deep part, and cut at its deciles for the linear part.
- A whole number with few small values is a category.
- Text is a vocabulary of the words in the data, or hashed if there are too many.
- Whole numbers that name things, such as shops, are categories as well.
- A date gives parts: year, month, weekday, days since the first.
- Columns that cannot help are left out: constants, numbered rows, free text.
- Columns that give the label away are left out; see `leaks`.
- The task follows from the label: two values are binary, a few are classes, other
  numbers are a regression.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from estimax.config.infer_features import InferredFeature, features_of, useless
from estimax.config.leaks import find_leaks
from estimax.config.model_choice import (
    TREES,
    TableTraining,
    features_for,
    model_section,
    training_of,
)
from estimax.config.profile import ColumnProfile, TableProfile
from estimax.core.errors import ConfigError, LabelError, did_you_mean

# The best step and the end of training are decided by it: the log loss of classes, the
# squared error of numbers. Accuracy and AUC move too little on few rows.
BEST_METRIC = "average_loss"
_EVALUATIONS = 8
_PATIENCE = 4  # evaluations without improvement after which training ends
_MOST_CLASSES = 100
_MOST_INT_CLASSES = 20  # whole numbers with more values are a regression
_SHUFFLED_VALUES = 64_000_000  # in the shuffle buffer, about 500 MB
_CACHED_VALUES = 32_000_000  # of the training rows, about 250 MB
_SMALL_ROWS = 2_000  # a table with fewer is small: fewer units, smaller steps
_LABEL_NAMES = (
    *("label", "labels", "target", "class", "y", "outcome", "response", "output"),
    *("is_fraud", "clicked", "click", "churn", "churned", "survived", "converted"),
    *("income", "species", "diagnosis", "price", "quality", "late", "default"),
)
_WEIGHT_NAME = re.compile(r"(^|[_ .])(weights?|wgt|wt|fnlwgt)$", re.I)


@dataclass(frozen=True)
class InferredTask:
    """The head and the vocabulary that fit a label."""

    head: Mapping[str, Any]
    vocabulary: tuple[str, ...] | None
    remark: str


@dataclass(frozen=True)
class TimeOrder:
    """A column of dates by which rows may be split."""

    column: str
    is_used: bool  # whether the parts are split by it
    reason: str


@dataclass(frozen=True)
class Inferred:
    """Features, task and input format that were chosen for a table."""

    label: str
    task: InferredTask
    features: tuple[InferredFeature, ...]
    skipped: tuple[tuple[str, str], ...]  # column and reason
    null_words: tuple[str, ...]
    delimiter: str
    format: str
    train_rows: int
    leaks: tuple[str, ...] = ()  # skipped columns that alone predict the label
    weight: str | None = None  # a column that looks like the weight of each row
    time: TimeOrder | None = None  # a date column, if there is one
    models: tuple[str, ...] = ()  # of `choose_models`; else a deep and a linear part

    def with_models(self, models: tuple[str, ...]) -> Inferred:
        """Return the choice for models of `choose_models`, with features for them."""
        features = features_for(models, self.features)
        if not features:
            raise ConfigError(
                "--model linear: no column can be a feature of a linear model; choose "
                "network, trees or both."
            )
        return replace(self, models=models, features=features)

    @property
    def _training(self) -> TableTraining | None:
        return training_of(self.train_rows) if "network" in self.models else None

    @property
    def batch_size(self) -> int:
        """Larger for more rows, so that an epoch has a few hundred steps."""
        if self._training is not None:
            return self._training.batch_size
        limits = ((_SMALL_ROWS, 32), (10_000, 64), (50_000, 128))
        return next((size for rows, size in limits if self.train_rows < rows), 256)

    @property
    def epochs(self) -> int:
        """Two for a large table, up to 50 for a small one."""
        if self._training is not None:
            return self._training.epochs
        wanted = math.ceil(2_000 * self.batch_size / self.train_rows)
        return max(2, min(50, wanted))

    @property
    def steps(self) -> int:
        """The number of training steps: so many evaluations, as far apart."""
        if self.models == ("trees",):
            return int(TREES["n_trees"])  # a step is a tree
        wanted = math.ceil(self.epochs * self.train_rows / self.batch_size)
        return self.steps_between * math.ceil(wanted / self.steps_between)

    @property
    def steps_between(self) -> int:
        """The steps between two evaluations."""
        if self.models == ("trees",):
            return int(TREES["n_trees"])  # LightGBM evaluates after each tree
        if self._training is not None:
            return self._training.evaluate_every
        wanted = math.ceil(self.epochs * self.train_rows / self.batch_size)
        return max(1, min(1_000, wanted // _EVALUATIONS))

    @property
    def early_stopping(self) -> dict[str, Any] | None:
        """The section `early_stopping`; None if the model stops by itself."""
        if self.models and self.models != ("linear",):
            return None
        return {"metric": BEST_METRIC, "steps": _PATIENCE * self.steps_between}

    @property
    def shuffled_rows(self) -> int:
        """The rows of the shuffle buffer: all, up to 64 million values."""
        own = [f for f in self.features if f.section.get("type") != "bucketized"]
        most = _SHUFFLED_VALUES // (len(own) + 1)
        return max(1, min(self.train_rows, most))

    @property
    def is_cached(self) -> bool:
        """Whether the rows are kept in memory.

        A network is evaluated some 25 times, and each time the whole file would be read
        for the rows that are held out.
        """
        values = self.train_rows * (len(self.features) + 1)
        return self._training is not None and values <= _CACHED_VALUES

    def data(self) -> dict[str, Any]:
        """Return the section `data` without its sources."""
        words = self.task.vocabulary
        return {
            "label": self.label,
            **({} if words is None else {"label_vocabulary": list(words)}),
        }

    def source(self, *, for_training: bool) -> dict[str, Any]:
        """Return a source without its files."""
        options: dict[str, Any] = {}
        if self.format == "csv" and self.delimiter != ",":
            options["delimiter"] = self.delimiter
        if self.format == "csv" and self.null_words:
            options["null_values"] = list(self.null_words)
        source: dict[str, Any] = {"format": self.format}
        if options:
            source["csv"] = options
        if not for_training:
            return source | {"batch_size": 4096}
        return source | {
            "shuffle": {"buffer_rows": self.shuffled_rows},
            **({"cache": True} if self.is_cached else {}),
            "batch_size": self.batch_size,
            "epochs": None,  # until train.max_steps
        }

    @property
    def read_features(self) -> tuple[InferredFeature, ...]:
        """The features that the model reads."""
        if self.models:
            return self.features
        return tuple(f for f in self.features if not f.is_extra)

    def model(self) -> dict[str, Any]:
        """Return the section `model`."""
        if self.models:
            return model_section(self.models, self.features, self.task.head)
        return model_of(self.read_features, self.task.head, self.train_rows)

    def sections(self) -> dict[str, Any]:
        """Return the sections that a run file may leave out."""
        saving = {"every_steps": self.steps_between, "keep_last": 3}
        return {
            "run": {"save_checkpoints": saving, "compare": True},
            "data": self.data(),
            "features": {f.name: dict(f.section) for f in self.read_features},
            "model": self.model(),
            "optimizers": optimizers_of(self.model(), self.train_rows),
            "train": {"max_steps": self.steps},
        }


def infer(
    table: TableProfile,
    label: str,
    *,
    train_share: float = 1.0,
    weight: str | None = None,
    drop: Collection[str] = (),
    keep: Collection[str] = (),
    task: InferredTask | None = None,
) -> Inferred:
    """Choose features, model and training for a table.

    Args:
      table: The columns of the data.
      label: The column to predict.
      train_share: The part of the rows that is trained on.
      weight: A column of example weights, which is not a feature.
      drop: Columns to leave out.
      keep: Columns to keep although they alone predict the label.
      task: What to train for; None finds it in the label.

    Raises:
      ConfigError: There is no such column, or no column that can be a feature.
      LabelError: The label cannot be learned: it has one value, or is text of too many.
    """
    if label not in table.names:
        raise ConfigError(
            f"{table.path}: there is no column {label!r} to predict"
            f"{did_you_mean(label, table.names)}; the columns are: "
            f"{', '.join(table.names)}."
        )
    task = _task(table.column(label), table.path) if task is None else task
    looks_like_weight = None
    if weight is None:
        looks_like_weight = _guess_weight(table, {label, *drop, *keep})
    features: list[InferredFeature] = []
    skipped: list[tuple[str, str]] = []
    taken: set[str] = set()
    unjudged = {label, weight, *drop, *keep}
    judged = [column for column in table.columns if column.name not in unjudged]
    leaks = _leaks(table, label, task, judged)
    for column in table.columns:
        if column.name in (label, weight):
            continue
        if column.name == looks_like_weight:
            skipped.append((column.name, "looks like the weight of each row"))
            continue
        reason = "was dropped" if column.name in drop else useless(column)
        reason = reason or leaks.get(column.name)
        if reason is not None:
            skipped.append((column.name, reason))
            continue
        features += features_of(column, taken)
    features = _without_reason(features, skipped)
    if not features:
        raise ConfigError(
            f"{table.path}: no column besides {label!r} can be a feature: "
            + "; ".join(f"{name!r}: {reason}" for name, reason in skipped)
        )
    of_label = table.column(label)
    labelled = table.rows * of_label.present / of_label.rows
    rows = max(1, round(labelled * train_share))
    return Inferred(
        label,
        task,
        tuple(features),
        tuple(skipped),
        table.null_words,
        table.delimiter,
        table.format,
        rows,
        tuple(name for name, _ in skipped if name in leaks),
        looks_like_weight,
        _time_order(table, {name for name, _ in skipped}),
    )


def _guess_weight(table: TableProfile, taken: Collection[str]) -> str | None:
    """Return the column that is probably the weight of each row, by its name."""
    for column in table.columns:
        if (
            column.name not in taken
            and _WEIGHT_NAME.search(column.name)
            and _NO_WEIGHT.search(column.name) is None
            and column.kind != "text"
            and not column.missing
            and column.low >= 0
            and column.distinct > _FEW_WEIGHTS
        ):
            return column.name
    return None


_FEW_WEIGHTS = 24  # a column with fewer values is a category

# Only names that say so: `weight` alone may be that of a person or a parcel.
_NO_WEIGHT = re.compile(r"^weights?$", re.I)


def _time_order(table: TableProfile, skipped: Collection[str]) -> TimeOrder | None:
    """Return the first column of dates by which rows can be split."""
    for column in table.columns:
        dates = column.dates
        if dates is None or column.name in skipped:
            continue
        if column.missing:
            return TimeOrder(column.name, False, "has missing dates")
        if not dates.sorts_as_text:
            text = f"is written as {dates.format}, which does not sort as text"
            return TimeOrder(column.name, False, text)
        if column.distinct < _LEAST_DATES:
            return TimeOrder(column.name, False, f"has {column.distinct} dates only")
        if dates.order is None:
            return TimeOrder(column.name, False, "does not order the rows of the file")
        return TimeOrder(column.name, True, "orders the rows of the file")
    return None


_LEAST_DATES = 20  # different dates, for parts by time


def _without_reason(
    features: list[InferredFeature], skipped: list[tuple[str, str]]
) -> list[InferredFeature]:
    """Move columns that no feature can read to the columns that are left out."""
    skipped += [(f.name, f.remark) for f in features if not f.section]
    return [f for f in features if f.section]


def _leaks(
    table: TableProfile,
    label: str,
    task: InferredTask,
    columns: list[ColumnProfile],
) -> dict[str, str]:
    """Return the columns that alone predict the label, each with the reason."""
    if table.sample is None:
        return {}
    columns = [column for column in columns if useless(column) is None]
    return find_leaks(
        table.sample,
        label,
        [column.name for column in columns],
        numeric={
            column.name
            for column in columns
            if column.kind != "text" and column.text_style is None
        },
        is_regression=task.head["type"] == "regression",
    )


def guess_label(table: TableProfile) -> str:
    """Return the column that is probably the label: by its name, or the last.

    >>> from estimax.config.profile import ColumnProfile, TableProfile
    >>> columns = [ColumnProfile(n, "int", 9, 0, 2, ()) for n in ("Target", "age")]
    >>> guess_label(TableProfile("t.csv", "csv", 9, True, tuple(columns)))
    'Target'
    """
    usable = [c.name for c in table.columns if c.distinct > 1 and not c.is_date]
    if not usable:
        raise LabelError(f"{table.path}: no column has two different values.")
    by_name = {name.strip().lower(): name for name in usable}
    named = [by_name[word] for word in _LABEL_NAMES if word in by_name]
    return named[0] if named else usable[-1]


def _task(column: ColumnProfile, path: str) -> InferredTask:
    where = f"{path}: the label {column.name!r}"
    if column.present == 0:
        raise LabelError(f"{where} has no value in any row.")
    if column.distinct < 2:
        raise LabelError(f"{where} has the same value in every row.")
    if column.infinite:
        raise LabelError(
            f"{where} is infinite in {column.infinite:,} rows; correct or remove them."
        )
    if column.text_style is not None or column.is_date:
        kind = "dates" if column.is_date else "numbers written as text"
        raise LabelError(
            f"{where} has {kind}, such as {column.words[0][0]!r}. A label is a plain "
            "number or a word: convert the column, or choose another with --label."
        )
    words = tuple(sorted(word for word, _ in column.words))
    share = column.words[0][1] / column.present
    most = f"most frequent is {column.words[0][0]!r}, {share:.1%}"
    if column.distinct == 2:
        numeric = column.kind != "text" and (column.low, column.high) == (0, 1)
        remark = f"two values ({', '.join(words)}); {most}"
        vocabulary = None if numeric else words
        return InferredTask({"type": "binary"}, vocabulary, remark)
    is_few = column.distinct <= _MOST_INT_CLASSES and column.present >= (
        5 * column.distinct
    )
    if column.kind == "text" or (column.kind == "int" and is_few):
        if column.distinct > _MOST_CLASSES:
            raise LabelError(
                f"{where} is text with {column.distinct:,} different values. A label "
                f"is a number, or text with at most {_MOST_CLASSES}; choose another "
                "column with --label."
            )
        classes = column.distinct
        by_number = column.kind == "int" and column.low == 0
        numbered = by_number and column.high == classes - 1
        head = {"type": "multi_class", "classes": classes}
        remark = f"{classes} classes; {most}"
        vocabulary = None if numbered else _in_order(column)
        return InferredTask(head, vocabulary, remark)
    remark = f"numbers from {column.low:g} to {column.high:g}"
    return InferredTask({"type": "regression"}, None, remark)


def _in_order(column: ColumnProfile) -> tuple[str, ...]:
    words = [word for word, _ in column.words]
    return tuple(sorted(words, key=float if column.kind == "int" else str))


def model_of(
    features: tuple[InferredFeature, ...], head: Mapping[str, Any], rows: int
) -> dict[str, Any]:
    """Return a model of a deep and a linear part that uses all features.

    >>> age = InferredFeature("age", {"type": "numeric"}, "", "numeric")
    >>> model_of((age,), {"type": "binary"}, 100)["dnn"]["hidden_units"]
    [32, 16]
    """
    inputs: dict[str, Any] = {}
    numeric = [f.name for f in features if f.deep == "numeric"]
    indicator = [f.name for f in features if f.deep == "indicator"]
    groups: dict[int, list[str]] = {}
    for feature in features:
        if feature.deep == "embedding":
            groups.setdefault(_width(feature.words), []).append(feature.name)
    if numeric:
        inputs["numeric"] = numeric
    if groups:
        made = [{"dim": dim, "of": names} for dim, names in sorted(groups.items())]
        inputs["embedding"] = made[0] if len(made) == 1 else made
    if indicator:
        inputs["indicator"] = indicator
    limits = ((_SMALL_ROWS, [32, 16]), (100_000, [64, 32]))
    units = next((u for most, u in limits if rows < most), [128, 64, 32])
    dnn = {"features": inputs, "hidden_units": units, "dropout": 0.1}
    wide = [f.name for f in features if f.is_wide]
    if not wide:
        return {"type": "dnn", "dnn": dnn, "head": dict(head)}
    if not inputs:
        return {"type": "linear", "linear": {"features": wide}, "head": dict(head)}
    return {
        "type": "dnn_linear_combined",
        "linear": {"features": wide},
        "dnn": dnn,
        "head": dict(head),
    }


def _width(words: int) -> int:
    """Return the width of an embedding: 4 up to 30 words, 8 up to 1000, else 16."""
    return 4 if words <= 30 else 8 if words <= 1_000 else 16


def optimizers_of(model: Mapping[str, Any], rows: int) -> dict[str, Any]:
    """Return an optimizer for each part of a model.

    A small table is read 50 times. With a rate of 0.1 the network knows it by heart
    before the end: the loss of 455 rows of breast_cancer was 0.30, with 0.03 it is
    0.17.
    """
    found: dict[str, Any] = {}
    if "linear" in model:
        found["linear"] = {"type": "ftrl", "learning_rate": 0.02, "l1": 0.0005}
    if "dnn" in model:
        rate = 0.03 if rows < _SMALL_ROWS else 0.1
        found["dnn"] = {"type": "adagrad", "learning_rate": rate}
    return found
