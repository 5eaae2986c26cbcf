"""Which columns of the files a run reads, and as what.

    columns_of(run)     # {"age": "float", "city": "text", "late": "float"}

A column is read once, so all features that share it must agree on its kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from estimax.config.schema.features import (
    Feature,
    Hashed,
    Identity,
    Numeric,
    Vocabulary,
)
from estimax.config.schema.model import CustomModel, MultiClassHead
from estimax.config.schema.run import Run

Kind = Literal["float", "int", "text"]


def columns_of(run: Run) -> dict[str, Kind | None]:
    """Each column's kind; None leaves it to the reader."""
    kinds: dict[str, Kind | None] = {}
    for name, feature in run.features.items():
        if (kind := kind_of(feature)) is not None:
            column = getattr(feature, "column", None) or name
            # Whole numbers serve as numbers; the other way round they would not.
            kinds[column] = "int" if kinds.get(column) == "int" else kind
    if run.data.weight is not None:
        kinds[run.data.weight] = "float"
    kinds[run.data.label] = label_kind(run)
    return kinds


def kind_of(feature: Feature) -> Kind | None:
    """How a feature reads its column; None when it is made of other features."""
    if isinstance(feature, Numeric):
        return "float"
    if isinstance(feature, Identity):
        return "int"
    if isinstance(feature, Vocabulary):
        words = feature.list_ or ()
        return "int" if words and not isinstance(words[0], str) else "text"
    return "text" if isinstance(feature, Hashed) else None


def label_kind(run: Run) -> Kind | None:
    """How the label is read."""
    if run.data.label_vocabulary is not None:
        return "text"
    if isinstance(run.model, CustomModel):
        return None
    return "int" if isinstance(run.model.head, MultiClassHead) else "float"


def clashes(features: Mapping[str, Feature]) -> list[tuple[str, str]]:
    """Features that read a column as text where an earlier one reads numbers."""
    readers: dict[str, tuple[str, Kind]] = {}
    found = []
    for name, feature in features.items():
        kind = kind_of(feature)
        if kind is None:
            continue
        column = getattr(feature, "column", None) or name
        first, other = readers.setdefault(column, (name, kind))
        if (kind == "text") != (other == "text"):
            text = f"reads column {column!r} as {_WORDS[kind]}, {first!r} as "
            found.append((name, text + _WORDS[other]))
    return found


_WORDS = {"float": "numbers", "int": "whole numbers", "text": "text"}
