"""Checks of the features, each for itself and with those it is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from estimax.config.decode import is_broken
from estimax.config.origins import shown
from estimax.config.schema.features import (
    Bucketized,
    Crossed,
    Feature,
    Hashed,
    Identity,
    Numeric,
    Vocabulary,
)
from estimax.core.errors import did_you_mean

Note = Callable[[str, str], None]
CATEGORICAL = (Vocabulary, Hashed, Identity, Bucketized, Crossed)


def check_features(features: Mapping[str, Feature], label: str, note: Note) -> None:
    """Note what is wrong with features and with the references between them."""
    for name, feature in features.items():
        path = f"features.{name}"
        if "." in name or "*" in name:
            note(
                path, "a feature's name holds no dots or stars; use `column` for those"
            )
        if isinstance(label, str) and column_key(name, feature) == label:
            note(path, f"reads the label {label!r}; a model may not see it")
        if isinstance(feature, Vocabulary):
            _check_vocabulary(feature, path, note)
        elif isinstance(feature, Identity):
            _check_identity(feature, path, note)
        elif isinstance(feature, Bucketized):
            _check_bucketized(feature, features, path, note)
        elif isinstance(feature, Crossed):
            _check_crossed(feature, features, path, note)


def column_key(name: str, feature: Feature) -> str | None:
    """The data column that a feature reads; None when it reads other features."""
    if isinstance(feature, Numeric | Vocabulary | Hashed | Identity):
        return feature.column or name
    return None


def known_feature(
    name: str, features: Mapping[str, Feature], path: str, note: Note
) -> Feature | None:
    """The feature of this name; a note and None when there is none."""
    if is_broken(name):
        return None
    if name not in features:
        note(path, f"unknown feature {shown(name)}{did_you_mean(name, features)}")
        return None
    feature = features[name]
    return None if is_broken(feature) else feature


def _check_vocabulary(feature: Vocabulary, path: str, note: Note) -> None:
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
    """Return the words that stood in the list before, with their positions.

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


def _check_identity(feature: Identity, path: str, note: Note) -> None:
    default, buckets = feature.default, feature.buckets
    if isinstance(default, int) and isinstance(buckets, int) and default >= buckets:
        note(f"{path}.default", f"must be < buckets ({buckets}), got {default}")


def _check_bucketized(
    feature: Bucketized, features: Mapping[str, Feature], path: str, note: Note
) -> None:
    source = known_feature(feature.source, features, f"{path}.source", note)
    if source is not None and not isinstance(source, Numeric):
        text = f"{feature.source!r} is {source.type}; only numeric features are cut"
        note(f"{path}.source", text)
    boundaries = [b for b in feature.boundaries if isinstance(b, float)]
    for i in range(1, len(boundaries)):
        if boundaries[i] <= boundaries[i - 1]:
            text = f"must rise, got {boundaries[i]:g} after {boundaries[i - 1]:g}"
            note(f"{path}.boundaries.{i}", text)


def _check_crossed(
    feature: Crossed, features: Mapping[str, Feature], path: str, note: Note
) -> None:
    seen: set[str] = set()
    for i, key in enumerate(feature.keys):
        here = f"{path}.keys.{i}"
        part = known_feature(key, features, here, note)
        if isinstance(part, Numeric):
            note(here, f"{key!r} is numeric; cross a bucketized feature of it")
        elif isinstance(part, Crossed):
            note(here, f"{key!r} is a cross itself; list its keys instead")
        if key in seen:
            note(here, f"{key!r} is listed twice")
        if isinstance(key, str):
            seen.add(key)
