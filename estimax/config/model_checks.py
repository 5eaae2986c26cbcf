"""Checks of the sections `model` and `optimizers`, and of labels and metrics.

`metrics_of` and `better` describe the metrics of a head.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from estimax.config.columns import heads_of
from estimax.config.decode import is_broken
from estimax.config.feature_checks import (
    CATEGORICAL,
    DENSE,
    ENCODED,
    FeatureConfigs,
    Note,
    column_key,
    is_sequence,
    known_feature,
)
from estimax.config.schema.features import (
    BucketizedConfig,
    CrossedConfig,
    FeatureConfig,
    NumericConfig,
    PeriodicConfig,
    PiecewiseLinearConfig,
    TextConfig,
    WeightedConfig,
)
from estimax.config.schema.heads import (
    BinaryHeadConfig,
    LogisticHeadConfig,
    MultiClassHeadConfig,
    MultiHeadConfig,
    MultiLabelHeadConfig,
    PoissonHeadConfig,
    RegressionHeadConfig,
)
from estimax.config.schema.model import (
    BINARY,
    TREES,
    AverageModelConfig,
    BaselineModelConfig,
    CustomModelConfig,
    DeepFeatures,
    DeepFmModelConfig,
    DinModelConfig,
    EsmmModelConfig,
    KMeansModelConfig,
    LinearPart,
    ModelFnConfig,
    PerHeadModelConfig,
    RnnPart,
    SeveralModelsConfig,
    TabularPart,
)
from estimax.config.schema.optimizers import (
    AdamConfig,
    PiecewiseConfig,
    SgdConfig,
)
from estimax.config.schema.run import Run
from estimax.core.errors import did_you_mean

_CUSTOM = CustomModelConfig | ModelFnConfig
_CALLABLE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_PARTS = ("linear", "dnn", "rnn", "baseline")


def why_not_explained(model: Any, head: Any) -> str:
    """Return why a bundle of the model cannot explain its output; "" if it can."""
    members = [model]
    if isinstance(model, AverageModelConfig) and isinstance(model.models, Mapping):
        members = list(model.models.values())
    if any(isinstance(member, TREES) for member in members):
        return "trees have no gradients, so their output is not explained"
    if isinstance(model, KMeansModelConfig | BaselineModelConfig):
        return "the output of a baseline or of k-means is not explained"
    if isinstance(head, MultiHeadConfig):
        return (
            "a bundle explains models with one head; "
            "ex.inspection.integrated_gradients explains each head of this one"
        )
    if getattr(head, "label_dimension", 1) != 1:
        return (
            "a bundle explains one number, and this head has several; "
            "ex.inspection.integrated_gradients explains each"
        )
    return ""


def check_model(run: Run, note: Note, *, complete: bool) -> None:
    """Report problems of the model; `complete` says whether all of it was decoded."""
    model = run.model
    name = model.class_ if isinstance(model, CustomModelConfig) else None
    if isinstance(name, str) and not _CALLABLE.fullmatch(name):
        note("model.class", 'expected "package.module:Name"')
    if not isinstance(model, _CUSTOM):
        used: set[str] = set()
        takes_all = False
        for path, one in models_of(model):
            used |= _check_features(one, path, run.features, note, complete=complete)
            _check_recurrent(one, path, note)
            takes_all |= isinstance(one, BaselineModelConfig) or (
                isinstance(one, KMeansModelConfig) and one.features is None
            )
            part = getattr(one, "dnn", None)
            takes_all |= isinstance(part, TabularPart) and part.features is None
            takes_all |= isinstance(one, TREES) and one.features is None
        if complete and not takes_all:
            _check_all_used(run.features, used, note)
        if isinstance(model, SeveralModelsConfig):
            _check_several(model, note)
        if isinstance(model, AverageModelConfig):
            _check_average(model, run, note)
    _check_optimizers(run, note)


def models_of(model: Any) -> list[tuple[str, Any]]:
    """Return the models of a section with their addresses: one, or several by name.

    Models that could not be decoded are left out.
    """
    if not isinstance(model, SeveralModelsConfig):
        return [("model", model)]
    if is_broken(model.models):
        return []
    found = [(f"model.models.{name}", one) for name, one in model.models.items()]
    return [(path, one) for path, one in found if not is_broken(one)]


def _check_features(
    model: Any, path: str, features: FeatureConfigs, note: Note, *, complete: bool
) -> set[str]:
    """Report problems of the features that a model names; return those features."""
    used: set[str] = set()
    for here, names in _linear_references(model, path):
        references = [(f"{here}.{i}", name) for i, name in enumerate(names)]
        _check_references(references, features, note)
        used |= {name for _, name in references}
    for here, deep, wants_sequence in _deep_parts(model, path):
        references = list(_deep_references(deep, here))
        if complete and not references and not isinstance(model, DinModelConfig):
            note(here, "names no feature; add numeric, embedding or indicator")
        _check_references(references, features, note, wants_sequence)
        used |= {name for _, name in references}
    used.update(_check_attend(model, path, features, note))
    if complete and isinstance(model, DeepFmModelConfig):
        _check_pairs(model.dnn.features, path, note)
    return used


_MODEL_NAME = re.compile(r"[\w.\-]+", re.ASCII)


def _check_several(model: SeveralModelsConfig, note: Note) -> None:
    if is_broken(model.models):
        return
    if not model.models:
        note("model.models", "needs at least one model")
    for name in model.models:
        if not _MODEL_NAME.fullmatch(name):
            text = "use letters, digits and _ . - only, for the names of variables"
            note(f"model.models.{name}", text)
    for path, one in models_of(model):
        if isinstance(one.head, MultiHeadConfig):
            note(f"{path}.head", f"a model of {model.type} has one head; add a model")
        rnn = getattr(one, "rnn", None)
        if isinstance(rnn, RnnPart) and rnn.return_sequences is True:
            note(f"{path}.rnn.return_sequences", f"is not possible in {model.type}")
    if isinstance(model, AverageModelConfig) or is_broken(model.weights):
        return
    for name in model.weights:
        if name not in model.models:
            hint = did_you_mean(name, model.models)
            note(f"model.weights.{name}", f"no model has this name{hint}")


def _check_average(model: AverageModelConfig, run: Run, note: Note) -> None:
    if isinstance(model.head, MultiHeadConfig):
        note("model.head", "an average has one label; use per_head for several")
    for path, one in models_of(model):
        if not is_broken(one.head) and one.head not in (BINARY, model.head):
            note(f"{path}.head", "is that of the average; write it in model.head")
    if isinstance(model.held_out, str) and model.held_out == run.train.source:
        note("model.held_out", "is what the models train on; name other rows")
    if run.early_stopping is not None:
        text = "an average is evaluated at its end; set model.patience_steps"
        note("early_stopping", text)


def _linear_references(model: Any, path: str) -> Iterator[tuple[str, Sequence[str]]]:
    linear = getattr(model, "linear", None)
    if isinstance(linear, LinearPart):
        yield f"{path}.linear.features", linear.features
    part = getattr(model, "dnn", None)
    if isinstance(part, TabularPart) and part.features:
        yield f"{path}.dnn.features", part.features
    if isinstance(model, TREES) and model.features:
        yield f"{path}.features", model.features
    if isinstance(model, DeepFmModelConfig) and model.linear_features:
        yield f"{path}.linear_features", model.linear_features


def _deep_parts(model: Any, path: str) -> Iterator[tuple[str, DeepFeatures, bool]]:
    """Yield address and features of each dense part, and whether it takes sequences."""
    dnn, rnn = getattr(model, "dnn", None), getattr(model, "rnn", None)
    found = [
        ("dnn.features", dnn, "features", False),
        ("rnn.sequence", rnn, "sequence", True),
        ("rnn.context", rnn, "context", False),
    ]
    if isinstance(model, KMeansModelConfig):
        found.append(("features", model, "features", False))
    for here, part, key, wants_sequence in found:
        deep = getattr(part, key, None)
        if isinstance(deep, DeepFeatures):
            yield f"{path}.{here}", deep, wants_sequence


def _deep_references(deep: DeepFeatures, base: str) -> Iterator[tuple[str, str]]:
    for i, name in enumerate(deep.numeric):
        yield f"{base}.numeric.{i}", name
    for g, group in enumerate(deep.embedding):
        for i, name in enumerate(group.of):
            yield f"{base}.embedding.{g}.of.{i}", name
    for i, name in enumerate(deep.indicator):
        yield f"{base}.indicator.{i}", name


def _check_attend(
    model: Any, base: str, features: FeatureConfigs, note: Note
) -> list[str]:
    """Report problems of the pairs of a din model; return their features."""
    if not isinstance(model, DinModelConfig):
        return []
    used = []
    for i, pair in enumerate(model.attend):
        for key, wants_sequence in (("candidate", False), ("history", True)):
            path, name = f"{base}.attend.{i}.{key}", getattr(pair, key)
            feature = known_feature(name, features, path, note)
            if feature is None:
                continue
            used.append(name)
            _check_kind(feature, name, "embedding", path, note, wants_sequence)
    return used


def _check_recurrent(model: Any, path: str, note: Note) -> None:
    rnn = getattr(model, "rnn", None)
    if not isinstance(rnn, RnnPart) or is_broken(rnn.units):
        return
    if rnn.units is None and rnn.cell_fn is None:
        note(f"{path}.rnn", "needs its layers: units, or cell_fn")
    elif rnn.units is not None and rnn.cell_fn is not None:
        note(f"{path}.rnn.cell_fn", "conflicts with units; keep one of the two")


def _check_pairs(deep: DeepFeatures, path: str, note: Note) -> None:
    dims = [group.dim for group in deep.embedding for _ in group.of]
    if len(dims) < 2 or len(set(dims)) > 1:
        text = "deepfm multiplies embeddings; give two or more features of the same dim"
        note(f"{path}.dnn.features", text)


def _check_references(
    references: list[tuple[str, str]],
    features: FeatureConfigs,
    note: Note,
    wants_sequence: bool = False,
) -> None:
    taken: dict[str, str] = {}
    for path, name in references:
        feature = known_feature(name, features, path, note)
        if feature is None:
            continue
        use = path.split(".")[-2] if ".embedding." not in path else "embedding"
        _check_kind(feature, name, use, path, note, wants_sequence)
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
    feature: FeatureConfig,
    name: str,
    use: str,
    path: str,
    note: Note,
    wants_sequence: bool,
) -> None:
    if use == "numeric" and not isinstance(feature, (*DENSE, *ENCODED)):
        text = f"{name!r} is {feature.type}; put it under embedding or indicator"
        note(path, text)
    elif use in ("embedding", "indicator") and not isinstance(feature, CATEGORICAL):
        text = f"{name!r} is {feature.type}; put it under numeric, or bucketize it"
        note(path, text)
    elif wants_sequence and not is_sequence(feature):
        note(path, f"{name!r} is no sequence; set features.{name}.sequence to true")
    elif is_sequence(feature) and not wants_sequence:
        note(path, f"{name!r} is a sequence, for rnn.sequence and din's history only")


def _column_name(name: str, features: FeatureConfigs) -> str:
    """Return the name of a feature's column, from which its variables are named."""
    feature = features.get(name)
    if isinstance(feature, BucketizedConfig | PiecewiseLinearConfig | PeriodicConfig):
        source = features.get(feature.source)
        key = source.column if isinstance(source, NumericConfig) else None
        return f"{key or feature.source}_{feature.type}"
    if isinstance(feature, WeightedConfig) and feature.source != name:
        return f"{_column_name(feature.source, features)}_weighted_by_{feature.weights}"
    if isinstance(feature, CrossedConfig):
        # A cross of a cross is reported by `_check_crossed`. Ignore it here, because a
        # cross of itself would recurse without end.
        keys = [
            key
            for key in feature.keys
            if not is_broken(key) and not isinstance(features.get(key), CrossedConfig)
        ]
        return "_X_".join(sorted(_column_name(key, features) for key in keys))
    if isinstance(feature, TextConfig):
        return f"{feature.column or name}_text"
    return (column_key(name, feature) if feature is not None else None) or name


def _check_all_used(features: FeatureConfigs, used: set[str], note: Note) -> None:
    # A weighted feature may be that of a cross, and that of a bucketized feature.
    for _ in range(3):
        for name in list(used):
            used.update(_made_of(features.get(name)))
    for name in features:
        if name not in used:
            text = "no part of the model uses it; add it to the model or remove it"
            note(f"features.{name}", text)


def _made_of(feature: FeatureConfig | None) -> Sequence[str]:
    """Return the features that a feature is made of."""
    if isinstance(feature, CrossedConfig):
        return feature.keys
    if isinstance(feature, (BucketizedConfig, WeightedConfig, *ENCODED)):
        return [feature.source]
    return ()


def _check_optimizers(run: Run, note: Note) -> None:
    section: Any = run.optimizers
    if is_broken(section):
        return
    _check_parts(section, run.model, "optimizers", note)
    _check_model_optimizers(section.models, run.model, note)
    if section.freeze and isinstance(run.model, _CUSTOM):
        note("optimizers.freeze", "a custom model decides what it trains; remove it")
    for i, pattern in enumerate(section.freeze):
        if isinstance(pattern, str):
            _check_pattern(pattern, f"optimizers.freeze.{i}", note)
            _check_owner(pattern, run.model, f"optimizers.freeze.{i}", note)


def _check_parts(section: Any, model: Any, base: str, note: Note) -> None:
    """Report optimizers that are not valid, or for which the model has no part."""
    for name in _PARTS:
        optimizer = getattr(section, name)
        if optimizer is None or is_broken(optimizer):
            continue
        path = f"{base}.{name}"
        if isinstance(model, _CUSTOM):
            note(path, "a custom model class sets its own optimizers; remove it")
        elif not is_broken(model) and not _has_part(model, name):
            note(path, f"a {model.type} model has no {name} part; remove it")
        _check_optimizer(optimizer, path, note)


def _check_model_optimizers(given: Any, model: Any, note: Note) -> None:
    """Report optimizers of models that `per_head` does not have."""
    if is_broken(given) or is_broken(model) or not given:
        return
    if not isinstance(model, SeveralModelsConfig):
        text = "is for the models of per_head and average; remove it"
        note("optimizers.models", text)
        return
    known = {} if is_broken(model.models) else model.models
    for name, section in given.items():
        path = f"optimizers.models.{name}"
        if name not in known:
            note(path, f"no model has this name{did_you_mean(name, known)}")
        elif not is_broken(section):
            _check_parts(section, known[name], path, note)


def _check_owner(pattern: str, model: Any, path: str, note: Note) -> None:
    """Report a pattern that does not tell of which model of `per_head` it is."""
    if not isinstance(model, PerHeadModelConfig) or is_broken(model.models):
        return
    starts = (".*", *(f"{name}/" for name in model.models))
    if not pattern.startswith(starts):
        listed = " or ".join(starts)
        note(path, f"must begin with the name of a model: {listed}")


def _has_part(model: Any, name: str) -> bool:
    """Return whether a model, or one of those of `per_head`, has a part."""
    models = [one for _, one in models_of(model)]
    if name == "baseline":
        return any(isinstance(one, BaselineModelConfig) for one in models)
    return any(hasattr(one, name) for one in models)


def _check_pattern(pattern: str, path: str, note: Note) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        note(path, f"is not a regular expression: {error}")


def _check_optimizer(optimizer: Any, path: str, note: Note) -> None:
    if (
        isinstance(optimizer, SgdConfig)
        and optimizer.nesterov
        and optimizer.momentum == 0
    ):
        note(f"{path}.nesterov", "needs momentum > 0")
    if isinstance(optimizer, AdamConfig) and optimizer.lazy is True:
        for key in ("amsgrad", "generation"):
            if getattr(optimizer, key) not in (False, "legacy"):
                note(f"{path}.{key}", "cannot be combined with lazy; remove one")
    clips = ("clip_value", "clip_norm", "clip_global_norm")
    given = [k for k in clips if isinstance(getattr(optimizer, k, None), float)]
    if len(given) > 1:
        note(f"{path}.{given[1]}", f"conflicts with {given[0]}; keep one of the two")
    rate = getattr(optimizer, "learning_rate", None)
    if (
        isinstance(rate, PiecewiseConfig)
        and len(rate.values) != len(rate.boundaries) + 1
    ):
        text = (
            f"needs {len(rate.boundaries) + 1} values, one more than boundaries, "
            f"got {len(rate.values)}"
        )
        note(f"{path}.learning_rate.values", text)


def check_labels(run: Run, note: Note) -> None:
    """Report labels that do not fit the heads."""
    data, model = run.data, run.model
    if is_broken(data) or is_broken(data.label) or is_broken(data.labels):
        return
    if is_broken(model):
        if data.label is None and not data.labels:
            note("data.label", "required key is missing")
        return
    if isinstance(model, KMeansModelConfig):
        if data.label is not None or data.labels:
            key = "label" if data.label is not None else "labels"
            note(f"data.{key}", "k-means uses no labels; remove it")
        return
    head = getattr(model, "head", None)
    names = _label_names(model, head)
    if names is None:
        if data.label is None and not data.labels:
            note("data.label", "required key is missing")
        elif data.labels and not isinstance(model, _CUSTOM):
            note("data.labels", "is for several heads; write `label`")
    else:
        _check_names(data.labels, names, note)
        if data.label is not None:
            note("data.label", "conflicts with labels; keep labels")
    for name, one in heads_of(run).items():
        path = f"model.head.heads.{name}" if name else "model.head"
        if isinstance(model, PerHeadModelConfig):
            path = f"model.models.{name}.head"
        if is_broken(one):
            continue
        _check_words(run, one, path, note)
        if name and getattr(one, "name", None) is not None:
            note(f"{path}.name", f"is the key, {name!r}; remove it")


def _label_names(model: Any, head: Any) -> list[str] | None:
    """Return the names of several labels; None for one label, or unknown ones."""
    if isinstance(model, EsmmModelConfig):
        return ["click", "conversion"]
    return list(head.heads) if isinstance(head, MultiHeadConfig) else None


def _check_names(labels: Any, names: list[str], note: Note) -> None:
    for name in names:
        if name not in labels:
            note("data.labels", f"needs a column for {name!r}")
    for name in labels:
        if name not in names:
            hint = did_you_mean(name, names)
            note(f"data.labels.{name}", f"no head has this name{hint}")


def _check_words(run: Run, head: Any, head_path: str, note: Note) -> None:
    own = getattr(head, "label_vocabulary", None)
    words = run.data.label_vocabulary if own is None else own
    path = "data.label_vocabulary" if own is None else f"{head_path}.label_vocabulary"
    if words is None or is_broken(words):
        return
    if isinstance(head, RegressionHeadConfig | PoissonHeadConfig | LogisticHeadConfig):
        if not isinstance(getattr(run.model, "head", None), MultiHeadConfig):
            note(path, "a regression has no classes; remove it")
    elif isinstance(head, BinaryHeadConfig) and len(words) != 2:
        note(path, f"a binary head needs 2 words, got {len(words)}")
    elif (
        isinstance(head, MultiClassHeadConfig | MultiLabelHeadConfig)
        and isinstance(head.classes, int)
        and len(words) != head.classes
    ):
        note(path, f"{head.classes} classes need as many words, got {len(words)}")


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
    if isinstance(head, MultiHeadConfig):
        found = {name: metrics_of(one) for name, one in head.heads.items()}
        named = [f"{metric}/{name}" for name, own in found.items() for metric in own]
        return ["loss", *named] if all(found.values()) else []
    thresholds = head.thresholds or () if isinstance(head, BinaryHeadConfig) else ()
    at = [
        f"{name}/positive_threshold_{threshold:g}"
        for threshold in thresholds
        for name in ("accuracy", "precision", "recall")
        if isinstance(threshold, float)
    ]
    name = getattr(head, "name", None)
    suffix = f"/{name}" if isinstance(name, str) else ""
    return [f"{metric}{suffix}" for metric in (*_METRICS.get(type(head), ()), *at)]


def better(metric: str) -> str | None:
    """Return whether a metric is best at its "max" or "min"; None if unknown.

    >>> better("auc"), better("average_loss/dwell"), better("label/mean")
    ('max', 'min', None)
    """
    if metric.partition("/")[0].endswith("loss"):
        return "min"
    best_high = ("accuracy", "auc", "precision", "recall")
    return "max" if metric.startswith(best_high) else None
