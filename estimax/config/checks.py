"""Checks of a decoded run that concern more than one value.

    check_run(run, origins, problems)

Names must refer to something, every feature must be used, and settings must not
contradict each other. The checks are for data sources, exports, features, model and
optimizers, in this order. Values that could not be decoded are ignored.

`metrics_of` and `better` describe the metrics of a head, `parts` those of a model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from estimax.config.data_report import clashes
from estimax.config.decode import is_broken
from estimax.config.nodes import Problems, ValueOrigin, join, shown
from estimax.config.schema.data import DataSection
from estimax.config.schema.features import (
    BucketizedConfig,
    CrossedConfig,
    FeatureConfig,
    HashedConfig,
    IdentityConfig,
    NumericConfig,
    VocabularyConfig,
)
from estimax.config.schema.model import (
    BinaryHeadConfig,
    ClickPart,
    CustomModelConfig,
    DcnModelConfig,
    DeepFeatures,
    DeepFmModelConfig,
    DnnModelConfig,
    DnnPart,
    HeadConfig,
    LinearModelConfig,
    LinearPart,
    MultiClassHeadConfig,
    RegressionHeadConfig,
)
from estimax.config.schema.optimizers import OptimizerConfig, PiecewiseConfig, SgdConfig
from estimax.config.schema.run import BestExport, Run
from estimax.core.errors import did_you_mean

Note = Callable[[str, str], None]  # (address, text): report a problem
FeatureConfigs = Mapping[str, FeatureConfig]


def check_run(run: Run, origins: Mapping[str, ValueOrigin], problems: Problems) -> None:
    """Report every contradiction in a decoded run.

    Args:
      run: The run.
      origins: Where the value at each address was written.
      problems: Collects the problems.
    """

    def note(path: str, text: str) -> None:
        lone = path.replace(".0.", ".", 1)
        if path not in origins and lone in origins:
            path = lone  # a single item was written instead of a list
        problems.add(_nearest(origins, path), path, text)

    _check_saving(run, note)
    _check_data(run.data, note)
    _check_sources(run, note)
    if not problems.under("train") and not problems.under("eval"):
        _check_ends(run, note)
    _check_export(run, note)
    check_features(run.features, run.data.label, note)
    for name, text in clashes(run.features):
        note(f"features.{name}", text)
    _check_columns(run, note)
    check_model(run, note, complete=not problems.under("model"))
    if isinstance(run.model, CustomModelConfig):
        return
    _check_labels(run.data, run.model.head, note)


def _nearest(origins: Mapping[str, ValueOrigin], path: str) -> ValueOrigin:
    """Return the origin of an address, or of the closest address above it."""
    while path and path not in origins:
        path = path.rpartition(".")[0]
    return origins[path]


def _check_saving(run: Run, note: Note) -> None:
    save = run.run.save_checkpoints
    if isinstance(save.every_steps, int) and isinstance(save.every_secs, int):
        note(
            "run.save_checkpoints.every_secs",
            "conflicts with every_steps; keep one of the two",
        )


def _check_data(data: DataSection, note: Note) -> None:
    for name, source in data.sources.items():
        path = f"data.sources.{name}.csv"
        if source.csv.header is False and source.csv.columns is None:
            note(f"{path}.columns", "required key is missing: there is no header")
        delimiter = source.csv.delimiter
        if isinstance(delimiter, str) and len(delimiter) != 1:
            note(f"{path}.delimiter", "must be one character")
        elif isinstance(delimiter, str) and (
            not delimiter.isascii() or delimiter in '\r\n"'
        ):
            text = "must be an ASCII character other than a quote or a line break"
            note(f"{path}.delimiter", f"{text}, got {delimiter!r}")
        for i, repeated in repeats(source.csv.columns or ()):
            note(f"{path}.columns.{i}", f"column {repeated!r} is named twice")
    for i, word in repeats(data.label_vocabulary or ()):
        note(f"data.label_vocabulary.{i}", f"{word!r} is listed twice")
    if isinstance(data.weight, str) and data.weight == data.label:
        note("data.weight", f"{data.weight!r} is the label; name another column")


def _check_sources(run: Run, note: Note) -> None:
    for path, section in (("train", run.train), ("eval", run.eval)):
        name = None if section is None else section.source
        if name is None or is_broken(run.data.sources) or is_broken(name):
            continue
        if name not in run.data.sources:
            hint = did_you_mean(name, run.data.sources)
            note(f"{path}.source", f"unknown source {name!r}{hint}")


def _check_ends(run: Run, note: Note) -> None:
    """Report training or evaluation that would never end."""
    limits = {"train": (run.train.source, run.train.max_steps, "max_steps")}
    if run.eval is not None:
        limits["eval"] = (run.eval.source, run.eval.steps, "steps")
    for path, (name, steps, key) in limits.items():
        source = run.data.sources[name]
        if source.epochs is None and steps is None:
            text = f"would never end: give {key}, or data.sources.{name}.epochs"
            note(f"{path}.{key}", text)


def _check_export(run: Run, note: Note) -> None:
    if run.export and run.eval is None:
        note("export", "bundles are written after evaluations: add an eval section")
    exports = list(run.export)
    for i, name in repeats([export.name for export in exports]):
        note(f"export.{i}.name", f"two exports are named {name!r}; give each its own")
    head = getattr(run.model, "head", None)
    for i, export in enumerate(exports):
        if isinstance(export, BestExport) and isinstance(export.metric, str):
            _check_best(export, head, f"export.{i}", note)


def _check_best(
    export: BestExport, head: HeadConfig | None, path: str, note: Note
) -> None:
    metric = export.metric.removeprefix("eval/")
    known = metrics_of(head)
    if known and metric not in known:
        note(
            join(path, "metric"),
            f"unknown metric {metric!r}{did_you_mean(metric, known)}",
        )
    elif export.mode is None and better(metric) is None:
        note(join(path, "mode"), f"say whether more {metric!r} is better: max or min")


# Metrics that the heads report, with the names of tf.estimator.
_METRICS: dict[type, list[str]] = {
    BinaryHeadConfig: [
        *("accuracy", "accuracy_baseline", "auc", "auc_precision_recall"),
        *("average_loss", "label/mean", "loss", "precision", "prediction/mean"),
        "recall",
    ],
    MultiClassHeadConfig: ["accuracy", "average_loss", "loss"],
    RegressionHeadConfig: ["average_loss", "label/mean", "loss", "prediction/mean"],
}


def metrics_of(head: object) -> list[str]:
    """Return the metrics that a head reports; none for a custom model."""
    thresholds = head.thresholds if isinstance(head, BinaryHeadConfig) else ()
    at = [
        f"{name}/positive_threshold_{threshold:g}"
        for threshold in thresholds
        for name in ("accuracy", "precision", "recall")
        if isinstance(threshold, float)
    ]
    return [*_METRICS.get(type(head), ()), *at]


def better(metric: str) -> str | None:
    """Return whether a metric is best at its "max" or "min"; None if unknown.

    >>> better("auc"), better("average_loss"), better("label/mean")
    ('max', 'min', None)
    """
    if metric.endswith("loss"):
        return "min"
    best_high = ("accuracy", "auc", "precision", "recall")
    return "max" if metric.startswith(best_high) else None


def _check_columns(run: Run, note: Note) -> None:
    """Report columns that the run uses and a source with listed columns lacks."""
    for name, source in run.data.sources.items():
        listed = set(source.csv.columns or ())
        if not listed:
            continue
        wanted = {"data.label": run.data.label, "data.weight": run.data.weight}
        for feature, value in run.features.items():
            wanted[f"features.{feature}"] = column_key(feature, value)
        for path, column in wanted.items():
            if isinstance(column, str) and column not in listed:
                hint = did_you_mean(column, listed)
                note(path, f"source {name!r} has no column {column!r}{hint}")


def _check_labels(data: DataSection, head: HeadConfig, note: Note) -> None:
    words = data.label_vocabulary
    if words is None or is_broken(words):
        return
    path = "data.label_vocabulary"
    if isinstance(head, RegressionHeadConfig):
        note(path, "a regression has no classes; remove it")
    elif isinstance(head, BinaryHeadConfig) and len(words) != 2:
        note(path, f"a binary head needs 2 words, got {len(words)}")
    elif isinstance(head, MultiClassHeadConfig) and len(words) != head.classes:
        note(path, f"{head.classes} classes need as many words, got {len(words)}")


CATEGORICAL = (
    VocabularyConfig,
    HashedConfig,
    IdentityConfig,
    BucketizedConfig,
    CrossedConfig,
)


def check_features(features: FeatureConfigs, label: str, note: Note) -> None:
    """Report problems of features and of the references between them."""
    for name, feature in features.items():
        path = f"features.{name}"
        if "." in name or "*" in name:
            note(
                path,
                "a feature name must not contain dots or stars; use `column` for those",
            )
        if isinstance(label, str) and column_key(name, feature) == label:
            note(path, f"reads the label {label!r}; a model may not see it")
        check = _FEATURE_CHECKS.get(type(feature))
        if check is not None:
            check(feature, features, path, note)


def column_key(name: str, feature: FeatureConfig) -> str | None:
    """Return the data column that a feature reads; None if it reads other features."""
    if isinstance(
        feature, NumericConfig | VocabularyConfig | HashedConfig | IdentityConfig
    ):
        return feature.column or name
    return None


def known_feature(
    name: str, features: FeatureConfigs, path: str, note: Note
) -> FeatureConfig | None:
    """Return the feature of a name; report a problem and return None without one."""
    if is_broken(name):
        return None
    if name not in features:
        note(path, f"unknown feature {shown(name)}{did_you_mean(name, features)}")
        return None
    feature = features[name]
    return None if is_broken(feature) else feature


def _check_vocabulary(
    feature: VocabularyConfig, features: FeatureConfigs, path: str, note: Note
) -> None:
    given = [
        key
        for key, value in (
            ("list", feature.list_),
            ("file", feature.file),
            ("from_data", feature.from_data),
        )
        if value is not None
    ]
    if not given:
        note(path, "needs its words: one of list, file, from_data")
    elif len(given) > 1:
        note(f"{path}.{given[1]}", f"conflicts with {given[0]}; keep one of the two")
    words = list(feature.list_ or ())
    if len({isinstance(word, str) for word in words}) > 1:
        note(f"{path}.list", "mixes texts and numbers; quote the numbers")
    for i, word in repeats(words):
        note(f"{path}.list.{i}", f"{shown(word)} is listed twice")


def repeats(words: Sequence[str | int]) -> list[tuple[int, str | int]]:
    """Return the words that occurred before in the list, with their positions.

    >>> repeats(["a", "b", "a"])
    [(2, 'a')]
    """
    seen: set[str | int] = set()
    found = []
    for i, word in enumerate(words):
        if word in seen:
            found.append((i, word))
        if not is_broken(word):
            seen.add(word)
    return found


def _check_identity(
    feature: IdentityConfig, features: FeatureConfigs, path: str, note: Note
) -> None:
    default, buckets = feature.default, feature.buckets
    if isinstance(default, int) and isinstance(buckets, int) and default >= buckets:
        note(f"{path}.default", f"must be < buckets ({buckets}), got {default}")


def _check_bucketized(
    feature: BucketizedConfig,
    features: FeatureConfigs,
    path: str,
    note: Note,
) -> None:
    source = known_feature(feature.source, features, f"{path}.source", note)
    if source is not None and not isinstance(source, NumericConfig):
        text = f"{feature.source!r} is {source.type}; name a numeric feature"
        note(f"{path}.source", text)
    boundaries = [b for b in feature.boundaries if isinstance(b, float)]
    for i in range(1, len(boundaries)):
        if boundaries[i] <= boundaries[i - 1]:
            text = f"must increase, got {boundaries[i]:g} after {boundaries[i - 1]:g}"
            note(f"{path}.boundaries.{i}", text)


def _check_crossed(
    feature: CrossedConfig, features: FeatureConfigs, path: str, note: Note
) -> None:
    seen: set[str] = set()
    for i, key in enumerate(feature.keys):
        here = f"{path}.keys.{i}"
        part = known_feature(key, features, here, note)
        if isinstance(part, NumericConfig):
            note(here, f"{key!r} is numeric; cross a bucketized feature of it")
        elif isinstance(part, CrossedConfig):
            note(here, f"{key!r} is a cross itself; list its keys instead")
        if key in seen:
            note(here, f"{key!r} is listed twice")
        if isinstance(key, str):
            seen.add(key)


_FEATURE_CHECKS: dict[type, Callable[[Any, FeatureConfigs, str, Note], None]] = {
    VocabularyConfig: _check_vocabulary,
    IdentityConfig: _check_identity,
    BucketizedConfig: _check_bucketized,
    CrossedConfig: _check_crossed,
}

_ONE_PART = DnnModelConfig | LinearModelConfig | DeepFmModelConfig | DcnModelConfig
_CALLABLE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def check_model(run: Run, note: Note, *, complete: bool) -> None:
    """Report problems of the model; `complete` says whether all of it was decoded."""
    model = run.model
    if isinstance(model, CustomModelConfig):
        if isinstance(model.class_, str) and not _CALLABLE.fullmatch(model.class_):
            note("model.class", 'expected "package.module:Name"')
        _check_optimizers(run, note)
        return
    used: list[tuple[str, str]] = []
    linear, dnn = parts(run)
    if isinstance(linear, LinearPart):
        references = list(_linear_references(linear))
        _check_references(references, run.features, note)
        used += references
    if isinstance(dnn, DnnPart | ClickPart) and isinstance(dnn.features, DeepFeatures):
        references = list(_dnn_references(dnn.features))
        if complete and not references:
            note(
                "model.dnn.features",
                "names no feature; add numeric, embedding or indicator",
            )
        _check_references(references, run.features, note)
        used += references
        if complete and isinstance(model, DeepFmModelConfig):
            _check_pairs(dnn.features, note)
    if complete:
        _check_all_used(run.features, {name for _, name in used}, note)
    _check_optimizers(run, note)


def parts(run: Run) -> tuple[LinearPart | None, DnnPart | ClickPart | None]:
    """Return the linear and the deep part of a model; None for a part it lacks."""
    return getattr(run.model, "linear", None), getattr(run.model, "dnn", None)


def _check_pairs(deep: DeepFeatures, note: Note) -> None:
    dims = [group.dim for group in deep.embedding for _ in group.of]
    if len(dims) < 2 or len(set(dims)) > 1:
        text = "deepfm multiplies embeddings; give two or more features of the same dim"
        note("model.dnn.features", text)


def _linear_references(part: LinearPart) -> Iterator[tuple[str, str]]:
    for i, name in enumerate(part.features):
        yield f"model.linear.features.{i}", name


def _dnn_references(deep: DeepFeatures) -> Iterator[tuple[str, str]]:
    base = "model.dnn.features"
    for i, name in enumerate(deep.numeric):
        yield f"{base}.numeric.{i}", name
    for g, group in enumerate(deep.embedding):
        for i, name in enumerate(group.of):
            yield f"{base}.embedding.{g}.of.{i}", name
    for i, name in enumerate(deep.indicator):
        yield f"{base}.indicator.{i}", name


def _check_references(
    references: list[tuple[str, str]], features: FeatureConfigs, note: Note
) -> None:
    taken: dict[str, str] = {}
    for path, name in references:
        feature = known_feature(name, features, path, note)
        if feature is None:
            continue
        use = path.split(".")[-2] if ".embedding." not in path else "embedding"
        _check_kind(feature, name, use, path, note)
        column = f"{use} {_column_name(name, features)}"
        if column in taken:
            same = taken[column]
            text = (
                f"{name!r} is listed twice"
                if same == name
                else f"{name!r} makes the same column as {same!r}; keep one"
            )
            note(path, text)
        taken[column] = name


def _check_kind(
    feature: FeatureConfig, name: str, use: str, path: str, note: Note
) -> None:
    if use == "numeric" and not isinstance(feature, NumericConfig):
        text = f"{name!r} is {feature.type}; put it under embedding or indicator"
        note(path, text)
    elif use in ("embedding", "indicator") and not isinstance(feature, CATEGORICAL):
        text = f"{name!r} is numeric; put it under numeric, or bucketize it"
        note(path, text)


def _column_name(name: str, features: FeatureConfigs) -> str:
    """Return the name of a feature's column, from which its variables are named."""
    feature = features.get(name)
    if isinstance(feature, BucketizedConfig):
        source = features.get(feature.source)
        key = source.column if isinstance(source, NumericConfig) else None
        return f"{key or feature.source}_bucketized"
    if isinstance(feature, CrossedConfig):
        # A cross of a cross is reported by `_check_crossed`. Ignore it here, because a
        # cross of itself would recurse without end.
        keys = [
            key
            for key in feature.keys
            if not is_broken(key) and not isinstance(features.get(key), CrossedConfig)
        ]
        return "_X_".join(sorted(_column_name(key, features) for key in keys))
    return (column_key(name, feature) if feature is not None else None) or name


def _check_all_used(features: FeatureConfigs, used: set[str], note: Note) -> None:
    for name in list(used):
        feature = features.get(name)
        if isinstance(feature, CrossedConfig):
            used.update(feature.keys)
    for name in list(used):
        feature = features.get(name)
        if isinstance(feature, BucketizedConfig):
            used.add(feature.source)
    for name in features:
        if name not in used:
            text = "no part of the model uses it; add it to the model or remove it"
            note(f"features.{name}", text)


def _check_optimizers(run: Run, note: Note) -> None:
    linear, dnn = parts(run)
    given = {"linear": run.optimizers.linear, "dnn": run.optimizers.dnn}
    for name, part in (("linear", linear), ("dnn", dnn)):
        optimizer = given[name]
        if not isinstance(optimizer, OptimizerConfig):
            continue
        path = f"optimizers.{name}"
        if isinstance(run.model, CustomModelConfig):
            note(path, "a custom model class sets its own optimizers; remove it")
        elif part is None and isinstance(run.model, _ONE_PART):
            note(path, f"a {run.model.type} model has no {name} part; remove it")
        _check_optimizer(optimizer, path, note)


def _check_optimizer(optimizer: OptimizerConfig, path: str, note: Note) -> None:
    if (
        isinstance(optimizer, SgdConfig)
        and optimizer.nesterov
        and optimizer.momentum == 0
    ):
        note(f"{path}.nesterov", "needs momentum > 0")
    rate = optimizer.learning_rate
    if (
        isinstance(rate, PiecewiseConfig)
        and len(rate.values) != len(rate.boundaries) + 1
    ):
        text = (
            f"needs {len(rate.boundaries) + 1} values, one more than boundaries, "
            f"got {len(rate.values)}"
        )
        note(f"{path}.learning_rate.values", text)
