"""Transforms as JSON, with vocabularies as files beside it: what a bundle carries.

    record = to_json(transform, assets)      # writes assets/city-3f2a91c0.txt
    transform = from_json(record, assets)    # in a process without the model's code

Each class writes and reads its own fields (`to_json` and `from_json` in
`transform.py`). To add a class, add it to `_CLASSES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from estimax.core.errors import BundleError, FeatureError, did_you_mean
from estimax.feature_columns.transforms.categorical import (
    Cross,
    HashBucket,
    Identity,
    Vocabulary,
    Weighted,
)
from estimax.feature_columns.transforms.dates import DateDifference, DateParts
from estimax.feature_columns.transforms.embedding_lookups import TableBags, TableIds
from estimax.feature_columns.transforms.formulas import Expression
from estimax.feature_columns.transforms.labels import LabelNumbers
from estimax.feature_columns.transforms.numeric import (
    Bucketize,
    NumberMatrix,
    Numbers,
    RowCount,
)
from estimax.feature_columns.transforms.sequence import (
    SequenceIds,
    SequenceLengths,
    SequenceNumbers,
)
from estimax.feature_columns.transforms.texts import TextNumbers
from estimax.feature_columns.transforms.tokens import Tokens
from estimax.feature_columns.transforms.transform import (
    IdSource,
    OutOfRange,
    PadIds,
    Record,
    Transform,
)
from estimax.storage import json_text

_CLASSES: dict[str, type[Transform] | type[IdSource]] = {
    each.kind: each
    for each in (
        Bucketize,
        Cross,
        DateDifference,
        DateParts,
        Expression,
        HashBucket,
        Identity,
        LabelNumbers,
        NumberMatrix,
        Numbers,
        PadIds,
        RowCount,
        SequenceIds,
        SequenceLengths,
        SequenceNumbers,
        TableBags,
        TableIds,
        TextNumbers,
        Tokens,
        Vocabulary,
        Weighted,
    )
}


def to_json(transform: Transform | IdSource, assets_dir: str | Path) -> Record:
    """Describe a transform as plain JSON values.

    Use it to save what a model does on the host; an export does so for every bundle.

    Args:
      transform: One of the classes of `estimax.transforms`.
      assets_dir: The folder for vocabulary files, made if there is a vocabulary.

    Returns:
      A dict that `json.dumps` can write. `"type"` names the class.

    Raises:
      FeatureError: The transform is of another class, or contains a Python function.

    Example:
      >>> to_json(HashBucket("city", 100), "assets")
      {'type': 'hash_bucket', 'key': 'city', 'num_buckets': 100, 'is_integer': False}
    """
    return _Bundle(Path(assets_dir)).write(transform)


def from_json(record: Mapping[str, Any], assets_dir: str | Path) -> Any:  # a transform
    """Build the transform that `to_json` described.

    The record may come from anyone: its fields are checked before they are used.

    Args:
      record: What `to_json` returned.
      assets_dir: The folder with the vocabulary files.

    Returns:
      An equal transform.

    Raises:
      BundleError: The record or a vocabulary file is damaged or of an unknown type.
      FeatureError: The fields describe a transform that cannot exist.

    Example:
      >>> from_json({"type": "identity", "key": "n", "num_buckets": 3}, "assets")
      Identity(key='n', num_buckets=3, default=None)
    """
    return _Bundle(Path(assets_dir)).read(record)


@dataclass(frozen=True)
class _Bundle:
    """Writes and reads transforms; handed to those that contain others."""

    assets: Path

    def write(self, transform: Any) -> Record:
        kind = getattr(transform, "kind", None)
        if _CLASSES.get(str(kind)) is not type(transform):
            raise FeatureError(
                f"cannot write a {type(transform).__name__} into a bundle: it is not "
                "one of the transforms of estimax.transforms."
            )
        return {"type": kind, **transform.to_json(self)}

    def read(self, record: Any) -> Any:
        kind = json_text.text(
            {"type": "", **json_text.mapping(record, "transform")}, "type"
        )
        if kind not in _CLASSES:
            raise BundleError(
                f"unknown transform {kind!r}{did_you_mean(kind, _CLASSES)}"
            )
        fields = {name: value for name, value in record.items() if name != "type"}
        try:
            _check_fields(fields)
            return _CLASSES[kind].from_json(fields, self)
        except (BundleError, FeatureError):
            raise
        except (ValueError, TypeError, KeyError) as error:
            raise BundleError(f"transform {kind!r} cannot be read: {error}") from error


def _check_fields(fields: Record) -> None:
    """Raise ValueError for a field of a type or size that the kernels do not check."""
    for name, value in fields.items():
        is_valid = _VALID.get(name)
        if is_valid is not None and not is_valid(value):
            raise ValueError(f"{name} cannot be {value!r}")


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _is_count(value: Any) -> bool:
    return type(value) is int and 1 <= value < 2**63


def _is_list(value: Any, is_valid: Callable[[Any], bool]) -> bool:
    return isinstance(value, list) and all(map(is_valid, value))


_VALID: dict[str, Callable[[Any], bool]] = {
    "cyclic": lambda value: isinstance(value, bool),
    "format": lambda value: value is None or isinstance(value, str),
    "parts": lambda value: isinstance(value, list),
    "since": lambda value: isinstance(value, str),
    "start": lambda value: isinstance(value, str),
    "end": lambda value: isinstance(value, str),
    "style": lambda value: isinstance(value, str),
    "time_zone": lambda value: value is None or isinstance(value, str),
    "unit": lambda value: isinstance(value, str),
    "boundaries": lambda value: _is_list(value, _is_number),
    "default": lambda value: value is None or _is_number(value),
    "dtype": lambda value: isinstance(value, str),
    "expression": lambda value: isinstance(value, str),
    "features": lambda value: _is_list(value, lambda one: isinstance(one, str)),
    "hash_key": lambda value: value is None or type(value) is int,
    "is_integer": lambda value: isinstance(value, bool),
    "key": lambda value: isinstance(value, str),
    "lowercase": lambda value: isinstance(value, bool),
    "ngrams": lambda value: _is_list(value, _is_count),
    "num_buckets": _is_count,
    "num_oov_buckets": lambda value: value == 0 or _is_count(value),
    "out_of_range": lambda value: value in get_args(OutOfRange),
    "required": lambda value: isinstance(value, bool),
    "rounded": lambda value: isinstance(value, bool),
    "strip": lambda value: isinstance(value, bool),
    "tells_missing": lambda value: isinstance(value, bool),
    "weight_key": lambda value: value is None or isinstance(value, str),
    "width": _is_count,
    "widths": lambda value: _is_list(value, _is_count),
}
