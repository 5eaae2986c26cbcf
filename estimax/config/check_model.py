"""Checks of the model: every reference known, every feature and optimizer used."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from estimax.config.check_features import CATEGORICAL, Note, column_key, known_feature
from estimax.config.decode import is_broken
from estimax.config.schema.features import Bucketized, Crossed, Feature, Numeric
from estimax.config.schema.model import (
    ClickPart,
    CustomModel,
    DcnModel,
    DeepFeatures,
    DeepFmModel,
    DnnModel,
    DnnPart,
    LinearModel,
    LinearPart,
)
from estimax.config.schema.optimizers import Optimizer, Piecewise, Sgd
from estimax.config.schema.run import Run

_ONE_PART = DnnModel | LinearModel | DeepFmModel | DcnModel
_CALLABLE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def check_model(run: Run, note: Note, *, complete: bool) -> None:
    """Note what is wrong with the model; `complete` when all of it was decoded."""
    model = run.model
    if isinstance(model, CustomModel):
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
            note("model.dnn.features", "names no feature: add numeric, embedding, ...")
        _check_references(references, run.features, note)
        used += references
        if complete and isinstance(model, DeepFmModel):
            _check_pairs(dnn.features, note)
    if complete:
        _check_all_used(run.features, {name for _, name in used}, note)
    _check_optimizers(run, note)


def parts(run: Run) -> tuple[LinearPart | None, DnnPart | ClickPart | None]:
    """The wide and the deep part of a stock model, where it has them."""
    return getattr(run.model, "linear", None), getattr(run.model, "dnn", None)


def _check_pairs(deep: DeepFeatures, note: Note) -> None:
    dims = [group.dim for group in deep.embedding for _ in group.of]
    if len(dims) < 2 or len(set(dims)) > 1:
        text = "deepfm multiplies embeddings: name two or more, all of one dim"
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
    references: list[tuple[str, str]], features: Mapping[str, Feature], note: Note
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


def _check_kind(feature: Feature, name: str, use: str, path: str, note: Note) -> None:
    if use == "numeric" and not isinstance(feature, Numeric):
        text = f"{name!r} is {feature.type}; put it under embedding or indicator"
        note(path, text)
    elif use in ("embedding", "indicator") and not isinstance(feature, CATEGORICAL):
        text = f"{name!r} is numeric; put it under numeric, or bucketize it"
        note(path, text)


def _column_name(name: str, features: Mapping[str, Feature]) -> str:
    """What the feature's column is called, and hence its variables."""
    feature = features.get(name)
    if isinstance(feature, Bucketized):
        source = features.get(feature.source)
        key = source.column if isinstance(source, Numeric) else None
        return f"{key or feature.source}_bucketized"
    if isinstance(feature, Crossed):
        # A cross of crosses is reported elsewhere; here it must only not go on.
        keys = [
            key
            for key in feature.keys
            if not is_broken(key) and not isinstance(features.get(key), Crossed)
        ]
        return "_X_".join(sorted(_column_name(key, features) for key in keys))
    return (column_key(name, feature) if feature is not None else None) or name


def _check_all_used(
    features: Mapping[str, Feature], used: set[str], note: Note
) -> None:
    for name in list(used):
        feature = features.get(name)
        if isinstance(feature, Crossed):
            used.update(feature.keys)
    for name in list(used):
        feature = features.get(name)
        if isinstance(feature, Bucketized):
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
        if not isinstance(optimizer, Optimizer):
            continue
        path = f"optimizers.{name}"
        if isinstance(run.model, CustomModel):
            note(path, "a class of your own brings its own optimizers; remove it")
        elif part is None and isinstance(run.model, _ONE_PART):
            note(path, f"a {run.model.type} model has no {name} part; remove it")
        _check_optimizer(optimizer, path, note)


def _check_optimizer(optimizer: Optimizer, path: str, note: Note) -> None:
    if isinstance(optimizer, Sgd) and optimizer.nesterov and optimizer.momentum == 0:
        note(f"{path}.nesterov", "needs momentum > 0")
    rate = optimizer.learning_rate
    if isinstance(rate, Piecewise) and len(rate.values) != len(rate.boundaries) + 1:
        text = (
            f"needs {len(rate.boundaries) + 1} values, one more than boundaries, "
            f"got {len(rate.values)}"
        )
        note(f"{path}.learning_rate.values", text)
