"""Checks of the section `features`: references between features, and contradictions."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from estimax.config.columns import columns_read, kind_of
from estimax.config.decode import is_broken
from estimax.config.nodes import format_value
from estimax.config.schema.features import (
    COMPUTED,
    Bins,
    BucketizedConfig,
    CrossedConfig,
    DateConfig,
    DateDifferenceConfig,
    ExpressionConfig,
    FeatureConfig,
    GivenRange,
    HashedConfig,
    IdentityConfig,
    KMeansBoundaries,
    NumericConfig,
    PeriodicConfig,
    PiecewiseLinearConfig,
    Quantiles,
    TextConfig,
    VocabularyConfig,
    WeightedConfig,
)
from estimax.core import formulas
from estimax.core.errors import did_you_mean

DENSE = (NumericConfig, DateConfig, *COMPUTED)  # what a network takes as it is
ENCODED = (PiecewiseLinearConfig, PeriodicConfig)  # numbers made of a number
Note = Callable[[str, str], None]  # (address, text): report a problem
FeatureConfigs = Mapping[str, FeatureConfig]
CATEGORICAL = (
    VocabularyConfig,
    HashedConfig,
    TextConfig,
    IdentityConfig,
    BucketizedConfig,
    CrossedConfig,
    WeightedConfig,
)


def check_features(
    features: FeatureConfigs, labels: Collection[object], note: Note
) -> None:
    """Report problems of features and of the references between them."""
    for name, feature in features.items():
        path = f"features.{name}"
        if "." in name or "*" in name:
            note(
                path,
                "a feature name must not contain dots or stars; use `column` for those",
            )
        for key in keys_of(name, feature):
            if isinstance(key, str) and key in labels:
                note(path, f"reads the label {key!r}; a model may not see it")
        if getattr(feature, "strip", None) is True:
            _check_strip(feature, f"{path}.strip", note)
        delimiter = getattr(feature, "delimiter", None)
        if delimiter == "":
            note(f"{path}.delimiter", "must not be empty")
        check = _FEATURE_CHECKS.get(type(feature))
        if check is not None:
            check(feature, features, path, note)


def column_key(name: str, feature: FeatureConfig) -> str | None:
    """Return the data column that a feature reads; None if it reads other features."""
    if isinstance(
        feature,
        NumericConfig
        | DateConfig
        | VocabularyConfig
        | HashedConfig
        | TextConfig
        | IdentityConfig,
    ):
        return feature.column or name
    return None


def keys_of(name: str, feature: FeatureConfig) -> list[str]:
    """Return the data columns of the values of a feature; none if it has sources."""
    if isinstance(feature, COMPUTED):
        return columns_read(name, feature)
    key = column_key(name, feature)
    return [] if key is None else [key]


def _check_strip(feature: Any, path: str, note: Note) -> None:
    if is_sequence(feature):
        note(path, "is not for sequences; remove it")
    elif kind_of(feature) != "text":
        note(path, "is for words, and these are whole numbers; remove it")


def is_sequence(feature: FeatureConfig) -> bool:
    """Return whether the values of a feature are a sequence."""
    return bool(getattr(feature, "sequence", False))


def known_feature(
    name: str, features: FeatureConfigs, path: str, note: Note
) -> FeatureConfig | None:
    """Return the feature of a name; report a problem and return None without one."""
    if is_broken(name):
        return None
    if name not in features:
        note(
            path, f"unknown feature {format_value(name)}{did_you_mean(name, features)}"
        )
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
    for key in ("size", "file_format"):
        if isinstance(getattr(feature, key), int | str) and feature.file is None:
            note(f"{path}.{key}", "is for words of a file; remove it")
    if isinstance(feature.default, int) and feature.oov_buckets:
        note(f"{path}.default", "conflicts with oov_buckets; keep one of the two")
    words = list(feature.list_ or ())
    if len({isinstance(word, str) for word in words}) > 1:
        note(f"{path}.list", "mixes texts and numbers; quote the numbers")
    for i, word in repeats(words):
        note(f"{path}.list.{i}", f"{format_value(word)} is listed twice")


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


def _check_text(
    feature: TextConfig, features: FeatureConfigs, path: str, note: Note
) -> None:
    for i, length in repeats(list(feature.ngrams)):
        note(f"{path}.ngrams.{i}", f"{length} is listed twice")
    if isinstance(feature.hash_buckets, int):
        if isinstance(feature.max_size, int):
            note(f"{path}.max_size", "conflicts with hash_buckets; keep one of the two")
        if feature.oov_buckets:
            text = "conflicts with hash_buckets, which has an id for every token"
            note(f"{path}.oov_buckets", f"{text}; remove it")


def _check_identity(
    feature: IdentityConfig, features: FeatureConfigs, path: str, note: Note
) -> None:
    default, buckets = feature.default, feature.buckets
    if isinstance(default, int) and isinstance(buckets, int) and default >= buckets:
        note(f"{path}.default", f"must be < buckets ({buckets}), got {default}")


def _check_bucketized(
    feature: BucketizedConfig | PiecewiseLinearConfig,
    features: FeatureConfigs,
    path: str,
    note: Note,
) -> None:
    _check_source(feature, features, path, note)
    if isinstance(feature.boundaries, Quantiles | KMeansBoundaries | Bins):
        return
    boundaries = [b for b in feature.boundaries if isinstance(b, float)]
    for i in range(1, len(boundaries)):
        if boundaries[i] <= boundaries[i - 1]:
            text = f"must increase, got {boundaries[i]:g} after {boundaries[i - 1]:g}"
            note(f"{path}.boundaries.{i}", text)


def _check_source(
    feature: Any, features: FeatureConfigs, path: str, note: Note
) -> None:
    source = known_feature(feature.source, features, f"{path}.source", note)
    if source is not None and not isinstance(source, (NumericConfig, *COMPUTED)):
        text = f"{feature.source!r} is {source.type}; name a numeric feature"
        note(f"{path}.source", text)


def _check_encoded(
    feature: PiecewiseLinearConfig | PeriodicConfig,
    features: FeatureConfigs,
    path: str,
    note: Note,
) -> None:
    if isinstance(feature, PiecewiseLinearConfig):
        _check_bucketized(feature, features, path, note)
    else:
        _check_source(feature, features, path, note)
    source = None if is_broken(feature.source) else features.get(feature.source)
    if isinstance(source, NumericConfig) and source.sequence is True:
        text = f"{feature.source!r} is a sequence, which cannot be encoded"
        note(f"{path}.source", text)


def _check_crossed(
    feature: CrossedConfig, features: FeatureConfigs, path: str, note: Note
) -> None:
    seen: set[str] = set()
    for i, key in enumerate(feature.keys):
        here = f"{path}.keys.{i}"
        part = known_feature(key, features, here, note)
        if isinstance(part, (NumericConfig, *COMPUTED, *ENCODED)):
            note(here, f"{key!r} is {part.type}; cross a bucketized feature of it")
        elif isinstance(part, TextConfig):
            note(here, f"{key!r} is text, which cannot be crossed")
        elif isinstance(part, DateConfig):
            note(here, f"{key!r} is a date, which cannot be crossed")
        elif isinstance(part, CrossedConfig):
            note(here, f"{key!r} is a cross itself; list its keys instead")
        elif isinstance(part, WeightedConfig):
            note(here, f"{key!r} is weighted; cross {part.source!r} instead")
        elif isinstance(part, HashedConfig) and part.strip is True:
            text = f"{key!r} has `strip`, but a cross hashes the text as it is"
            note(here, f"{text}; cross a vocabulary feature, or remove strip")
        elif part is not None and is_sequence(part):
            note(here, f"{key!r} is a sequence, which cannot be crossed")
        if key in seen:
            note(here, f"{key!r} is listed twice")
        if isinstance(key, str):
            seen.add(key)


def _check_numeric(
    feature: NumericConfig, features: FeatureConfigs, path: str, note: Note
) -> None:
    if feature.normalizer_fn is not None:
        for key in ("transform", "normalize"):
            if getattr(feature, key) is not None:
                text = "conflicts with normalizer_fn; keep one of the two"
                note(f"{path}.{key}", text)
    if isinstance(feature.text, str):
        if feature.sequence is True:
            note(f"{path}.text", "is not for sequences; remove it")
        if feature.delimiter is not None or math.prod(feature.shape) != 1:
            note(f"{path}.text", "needs one number in a row; remove shape or text")
    _check_range(feature.normalize, path, note)


def _check_range(given: Any, path: str, note: Note) -> None:
    if (
        isinstance(given, GivenRange)
        and isinstance(given.min, float)
        and isinstance(given.max, float)
        and given.min >= given.max
    ):
        text = f"must be > min ({given.min:g}), got {given.max:g}"
        note(f"{path}.normalize.max", text)


def _check_expression(
    feature: ExpressionConfig, features: FeatureConfigs, path: str, note: Note
) -> None:
    if not is_broken(feature.expression):
        formulas.check(
            feature.expression, lambda text: note(f"{path}.expression", text)
        )
    _check_range(feature.normalize, path, note)


def _check_date(
    feature: DateConfig, features: FeatureConfigs, path: str, note: Note
) -> None:
    seen: set[str] = set()
    for i, part in enumerate(feature.parts):
        if part in seen:
            note(f"{path}.parts.{i}", f"{part!r} is listed twice")
        if not is_broken(part):
            seen.add(part)
    if isinstance(feature.since, str):
        try:
            datetime.date.fromisoformat(feature.since)
        except ValueError:
            text = f"expected a date such as 2024-05-01, got {feature.since!r}"
            note(f"{path}.since", text)
    _check_zone(feature.time_zone, path, note)


def _check_date_difference(
    feature: DateDifferenceConfig, features: FeatureConfigs, path: str, note: Note
) -> None:
    if feature.from_ == feature.to and isinstance(feature.to, str):
        note(f"{path}.to", f"is the column of `from`, {feature.to!r}; name another one")
    _check_zone(feature.time_zone, path, note)
    _check_range(feature.normalize, path, note)


def _check_zone(zone: Any, path: str, note: Note) -> None:
    if not isinstance(zone, str):
        return
    import zoneinfo

    known = zoneinfo.available_timezones()
    if zone not in known:
        near = did_you_mean(zone, known)
        advice = near if "mean" in near else "; write one such as Europe/Berlin"
        if not known:
            advice = "; this machine has no time zones: pip install tzdata"
        note(f"{path}.time_zone", f"unknown time zone {zone!r}{advice}")


def _check_weighted(
    feature: WeightedConfig, features: FeatureConfigs, path: str, note: Note
) -> None:
    source = known_feature(feature.source, features, f"{path}.source", note)
    if isinstance(source, TextConfig):
        note(
            f"{path}.source", f"{feature.source!r} is text, whose words have no weights"
        )
    elif source is not None and not isinstance(source, CATEGORICAL):
        note(f"{path}.source", f"{feature.source!r} is numeric; name a categorical one")
    elif isinstance(source, WeightedConfig):
        note(f"{path}.source", f"{feature.source!r} is weighted itself")


_FEATURE_CHECKS: dict[type, Callable[[Any, FeatureConfigs, str, Note], None]] = {
    NumericConfig: _check_numeric,
    ExpressionConfig: _check_expression,
    DateConfig: _check_date,
    DateDifferenceConfig: _check_date_difference,
    VocabularyConfig: _check_vocabulary,
    TextConfig: _check_text,
    IdentityConfig: _check_identity,
    BucketizedConfig: _check_bucketized,
    PiecewiseLinearConfig: _check_encoded,
    PeriodicConfig: _check_encoded,
    CrossedConfig: _check_crossed,
    WeightedConfig: _check_weighted,
}
