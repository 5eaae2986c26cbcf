r"""Transforms as JSON, vocabularies as files beside it: what a bundle carries.

    record = to_json(transform, assets)      # writes assets/city-3f2a91c0.txt
    transform = from_json(record, assets)    # the same transform, in a process that
                                             # knows nothing of the model's code

A vocabulary file has one word per line, so that people can read it. Words that contain
a line feed would break that, so such a file is escaped: \n for a line feed, \\ for a
backslash.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

import numpy as np

from estimax.core.errors import BundleError, FeatureError, did_you_mean
from estimax.core.strings import Strings
from estimax.transforms.categorical import (
    Cross,
    HashBucket,
    Identity,
    Vocabulary,
    Weighted,
)
from estimax.transforms.dense import Bucketize, Numbers, RowCount, Scaling
from estimax.transforms.entries import IdSource
from estimax.transforms.pad_ids import OutOfRange, PadIds
from estimax.transforms.sequence import (
    SequenceIds,
    SequenceLengths,
    SequenceNumbers,
)
from estimax.transforms.words import WordList
from estimax.wire import files, json_text

Record = dict[str, Any]  # plain JSON values
Transform = (
    PadIds
    | SequenceIds
    | SequenceNumbers
    | SequenceLengths
    | Numbers
    | RowCount
    | IdSource
)


def to_json(transform: Transform, assets_dir: str | Path) -> Record:
    """Describe a transform as plain JSON values; vocabularies go to `assets_dir`.

    >>> to_json(HashBucket("city", 100), "assets")
    {'type': 'hash_bucket', 'key': 'city', 'num_buckets': 100, 'is_integer': False}
    """
    assets = Path(assets_dir)
    match transform:
        case PadIds():
            source = to_json(transform.source, assets)
            return {"type": "pad_ids", **_fields(transform), "source": source}
        case SequenceIds():
            source = to_json(transform.source, assets)
            return {"type": "sequence_ids", **_fields(transform), "source": source}
        case SequenceNumbers():
            return {"type": "sequence_numbers", **_fields(transform)}
        case SequenceLengths():
            pairs = [list(part) for part in transform.parts]
            return {"type": "sequence_lengths", "parts": pairs}
        case Numbers():
            return {"type": "numbers", **_fields(transform)}
        case RowCount():
            return {"type": "row_count", **_fields(transform)}
        case HashBucket():
            return {"type": "hash_bucket", **_fields(transform)}
        case Identity():
            return {"type": "identity", **_fields(transform)}
        case Vocabulary():
            return {"type": "vocabulary", **_vocabulary_fields(transform, assets)}
        case Bucketize():
            return {"type": "bucketize", **_bucketize_fields(transform)}
        case Cross():
            parts = [_part_to_json(part, assets) for part in transform.parts]
            return {"type": "cross", **_fields(transform), "parts": parts}
        case Weighted():
            source = to_json(transform.source, assets)
            return {"type": "weighted", **_fields(transform), "source": source}
    raise FeatureError(
        f"cannot write a {type(transform).__name__} into a bundle: it is none of the "
        "transforms that estimax knows how to describe."
    )


def from_json(record: Mapping[str, Any], assets_dir: str | Path) -> Any:  # a transform
    """Build the transform that `to_json` described.

    >>> from_json({"type": "identity", "key": "n", "num_buckets": 3}, "assets")
    Identity(key='n', num_buckets=3, default=None)
    """
    kind = json_text.text(
        {"type": "", **json_text.mapping(record, "transform")}, "type"
    )
    if kind not in _BUILDERS:
        raise BundleError(f"unknown transform {kind!r}{did_you_mean(kind, _BUILDERS)}")
    fields = {name: value for name, value in record.items() if name != "type"}
    try:
        _check_fields(fields)
        return _BUILDERS[kind](fields, Path(assets_dir))
    except (BundleError, FeatureError):
        raise
    except (ValueError, TypeError, KeyError) as error:
        raise BundleError(f"transform {kind!r} cannot be read: {error}") from error


def _check_fields(fields: Record) -> None:
    """Raise ValueError for a field that the compiled kernels could not bear."""
    for name, value in fields.items():
        fits = _FITTING.get(name)
        if fits is not None and not fits(value):
            raise ValueError(f"{name} cannot be {value!r}")


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _is_count(value: Any) -> bool:
    return type(value) is int and 1 <= value < 2**63


_FITTING: dict[str, Callable[[Any], bool]] = {
    "boundaries": lambda value: isinstance(value, list) and all(map(_is_number, value)),
    "default": lambda value: value is None or _is_number(value),
    "dtype": lambda value: isinstance(value, str),
    "hash_key": lambda value: value is None or type(value) is int,
    "is_integer": lambda value: isinstance(value, bool),
    "key": lambda value: isinstance(value, str),
    "num_buckets": _is_count,
    "num_oov_buckets": lambda value: value == 0 or _is_count(value),
    "out_of_range": lambda value: value in get_args(OutOfRange),
    "rounded": lambda value: isinstance(value, bool),
    "tells_missing": lambda value: isinstance(value, bool),
    "weight_key": lambda value: isinstance(value, str),
    "width": _is_count,
}


def _part_to_json(part: str | IdSource, assets: Path) -> str | Record:
    return part if isinstance(part, str) else to_json(part, assets)


def _fields(transform: Any) -> Record:
    return dict(vars(transform))


def _bucketize_fields(transform: Bucketize) -> Record:
    scaling = transform.normalizer
    if not isinstance(scaling, Scaling | None):
        raise FeatureError(
            f"column {transform.name!r}: its normalizer_fn would have to run on the "
            "host, inside a cross or under weights, and a bundle cannot carry Python "
            "code. Use ex.transforms.Scaling, which is data; or drop it and scale the "
            "boundaries instead, or normalize in the input_fn."
        )
    return {
        **_fields(transform),
        "boundaries": list(transform.boundaries),
        "normalizer": None if scaling is None else _fields(scaling),
    }


def _vocabulary_fields(transform: Vocabulary, assets: Path) -> Record:
    words = transform.words
    listed: list[Any] = words.words.tolist()
    if words.is_integer:
        lines, form = [str(number).encode() for number in listed], "integers"
    elif any(b"\n" in word for word in listed):
        lines, form = [_escaped(word) for word in listed], "escaped"
    else:
        lines, form = listed, "lines"
    readable = re.sub(r"[^A-Za-z0-9_.-]", "_", transform.key)
    name = f"{readable}-{words.digest.hex()[:8]}.txt"
    assets.mkdir(parents=True, exist_ok=True)
    (assets / name).write_bytes(b"".join(line + b"\n" for line in lines))
    return {
        "key": transform.key,
        "words": {"file": name, "format": form, "sha256": words.digest.hex()},
        "num_oov_buckets": transform.num_oov_buckets,
        "default": transform.default,
    }


def _escaped(word: bytes) -> bytes:
    return word.replace(b"\\", b"\\\\").replace(b"\n", b"\\n")


def _unescaped(line: bytes) -> bytes:
    return re.sub(rb"\\(.)", lambda m: b"\n" if m[1] == b"n" else m[1], line)


def _read_words(record: Mapping[str, str], assets: Path) -> WordList:
    try:
        path = files.regular_file(assets, json_text.text(record, "file"))
    except ValueError as error:
        raise BundleError(f"vocabulary in {assets}: {error}.") from None
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except OSError as error:
        raise BundleError(f"vocabulary {path}: {error.strerror}.") from error
    if record["format"] == "integers":
        words = WordList(np.array([int(line) for line in lines], np.int64))
    else:
        unescape = record["format"] == "escaped"
        array = np.empty(len(lines), object)
        array[:] = [_unescaped(line) for line in lines] if unescape else lines
        words = WordList(Strings.of(array))
    if words.digest.hex() != record["sha256"]:
        raise BundleError(
            f"vocabulary {path}: its words are not those that were exported; the file "
            "was changed or cut."
        )
    return words


def _build_vocabulary(fields: Record, assets: Path) -> Vocabulary:
    return Vocabulary(**{**fields, "words": _read_words(fields["words"], assets)})


def _build_bucketize(fields: Record, _: Path) -> Bucketize:
    scaling = fields.get("normalizer")
    return Bucketize(
        **{
            **fields,
            "boundaries": tuple(fields["boundaries"]),
            "normalizer": None if scaling is None else Scaling(**scaling),
        }
    )


def _build_cross(fields: Record, assets: Path) -> Cross:
    parts = (p if isinstance(p, str) else from_json(p, assets) for p in fields["parts"])
    return Cross(**{**fields, "parts": tuple(parts)})


def _build_lengths(fields: Record, _: Path) -> SequenceLengths:
    return SequenceLengths(tuple((key, width) for key, width in fields["parts"]))


def _with_source(
    kind: type[PadIds] | type[SequenceIds] | type[Weighted],
) -> Callable[[Record, Path], PadIds | SequenceIds | Weighted]:
    def build(fields: Record, assets: Path) -> PadIds | SequenceIds | Weighted:
        return kind(**{**fields, "source": from_json(fields["source"], assets)})

    return build


_BUILDERS: dict[str, Callable[[Record, Path], Any]] = {
    "bucketize": _build_bucketize,
    "cross": _build_cross,
    "hash_bucket": lambda fields, _: HashBucket(**fields),
    "identity": lambda fields, _: Identity(**fields),
    "numbers": lambda fields, _: Numbers(**fields),
    "pad_ids": _with_source(PadIds),
    "row_count": lambda fields, _: RowCount(**fields),
    "sequence_ids": _with_source(SequenceIds),
    "sequence_lengths": _build_lengths,
    "sequence_numbers": lambda fields, _: SequenceNumbers(**fields),
    "vocabulary": _build_vocabulary,
    "weighted": _with_source(Weighted),
}
