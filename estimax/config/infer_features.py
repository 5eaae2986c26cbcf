"""Choose features for the columns of a table.

    useless(column)                     # "numbers the rows", or None
    features_of(column, taken)

The rules are listed in `infer`, which asks for the features of each column.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from estimax.config.profile import ColumnProfile
from estimax.config.profile_text import DateProfile

_MOST_WORDS = 10_000  # of a vocabulary; a column with more is hashed
_MOST_IDS = 24  # values of a whole number that is a category
_FEW_WORDS = 8  # one-hot encoded instead of embedded
_LONG_TAIL = 3.0  # skew from which the logarithm is taken
# Numbers with these names are codes, whose order and distance mean nothing.
_CODE_NAME = re.compile(r"(^|[_ .])(zip|(zip|post|postal)[_ ]?code|plz)$", re.I)
_ID_NAME = re.compile(r"(^|[_ .])(id|uuid|guid|index|row|rownum|rowid|key)$", re.I)
# Whole numbers with these names, each of which occurs in many rows, name a thing.
_THING_NAME = re.compile(
    r"(^|[_ .])(id|code|key|store|shop|branch|user|customer|client|item|product|sku|"
    r"article|station|route|flight|line|zone|region|district|dept|department|account|"
    r"merchant|campaign|vehicle|device|terminal|machine|sensor|channel|category|"
    r"class|group|cluster)([_ ]?(id|nr|no|number|code))?$"
    r"|[a-z](Id|ID|Code|Nr)$",
    re.I,
)
_LEAST_REPEATS = 20  # rows of a value on average, of a number that names things
_EVEN = 0.5  # unevenness of counts below which a number is one of a list of ids
_MOST_IDS_LISTED = 200_000
_FEW_REPEATS = 5  # rows of an id on average, too few to learn


@dataclass(frozen=True)
class InferredFeature:
    """A feature, and the parts of the model that use it."""

    name: str
    section: Mapping[str, Any]  # as in a run file
    remark: str
    deep: Literal["numeric", "indicator", "embedding"] | None = None
    is_wide: bool = False
    words: int = 0
    # Another reading of a column, for models that learn which of the two helps.
    is_extra: bool = False


def useless(column: ColumnProfile) -> str | None:
    """Return why a column is left out; None if it is a feature."""
    if not column.name.strip():
        return "has no name"
    if column.present == 0:
        return "has no values"
    if column.distinct == 1 and not column.missing:
        return f"is {column.words[0][0]!r} in every row"
    if column.is_date or column.distinct == 1:
        return None
    is_unique = column.distinct == column.present and column.rows > 20
    is_id = column.is_rising or _ID_NAME.search(column.name)
    if column.kind == "int" and is_unique and is_id:
        return "numbers the rows"
    repeats = column.present / max(1, column.distinct)
    if column.kind == "int" and _ID_NAME.search(column.name) and repeats < _FEW_REPEATS:
        return f"is an id with {repeats:.1f} rows for each value: too few to learn"
    if column.kind == "text":
        many = column.distinct > 0.5 * column.present and column.rows > 20
        return "is different in most rows: a name or free text" if many else None
    return None


def features_of(column: ColumnProfile, taken: set[str]) -> list[InferredFeature]:
    """Return the features of a column; one without a section cannot be read."""
    is_text = column.is_stored_as_text
    if column.distinct == 1:
        return [_presence_feature(column, taken, is_text=is_text)]
    if column.dates is not None:
        return [_date_feature(column, column.dates, taken, is_text=is_text)]
    is_code = column.kind == "int" and _CODE_NAME.search(column.name)
    if column.kind == "text" or (is_code and is_text):
        return [_words_feature(column, taken)]
    if column.infinite and not is_text:
        return [InferredFeature(column.name, {}, "has infinite numbers")]
    if _is_thing(column):
        return _thing_features(column, taken, is_text=is_text)
    return _number_features(column, taken)


def _number_features(column: ColumnProfile, taken: set[str]) -> list[InferredFeature]:
    name = _name(column.name, taken)
    key = _column_key(name, column)
    remark = f"{column.low:g} to {column.high:g}"
    if _is_category(column):
        # One-hot encoded, so that a value that is not listed counts for nothing.
        values = sorted(int(word) for word, _ in column.words)
        listed = {"type": "vocabulary", **key, "list": values}
        remark += f", {column.distinct} different values"
        remark += _missing(column)
        words = InferredFeature(name, listed, remark, "indicator", True)
        # A missing whole number has no value that a numeric feature could fill.
        if column.missing:
            return [words]
        # A deep part would extend the number beyond its range: flights of November by
        # those of January to October had a loss of 0.528 with it, 0.515 without. Codes
        # of the network and cuts of trees end at the range.
        return [words, replace(_number_too(column, taken), is_extra=True)]
    section: dict[str, Any] = {"type": "numeric", **key}
    if column.text_style is not None:
        section["text"] = column.text_style
        remark += f", such as {column.words[0][0]}"
    if column.missing:
        section["default"] = "mean"
        remark += _missing(column)
    if column.infinite:
        remark += f", {column.infinite:,} infinite count as missing"
    if column.low >= 0 and column.skew > _LONG_TAIL and column.distinct > 2:
        section["transform"] = "log1p"
        remark += ", long tail"
    section["normalize"] = "zscore"
    if column.distinct == 2 or not column.quantiles:
        return [InferredFeature(name, section, remark, "numeric", True)]
    number = InferredFeature(name, section, remark, "numeric")
    return [number, *_cuts(name, column, taken)]


def _cuts(
    number: str, column: ColumnProfile, taken: set[str]
) -> tuple[InferredFeature, ...]:
    """Return the number, a feature of this name, cut at its deciles."""
    if not column.quantiles:
        return ()
    edges = [_short(edge) for edge in column.quantiles]
    cut = {"type": "bucketized", "source": number, "boundaries": edges}
    name = _name(f"{number}_buckets", taken)
    return (InferredFeature(name, cut, "deciles", None, True),)


def _presence_feature(
    column: ColumnProfile, taken: set[str], *, is_text: bool
) -> InferredFeature:
    """Return the feature of a column with one value: whether it is there."""
    (value, _), *_ = column.words
    if column.kind == "float" and not is_text:
        return InferredFeature(
            column.name, {}, f"is {value} in every row where it is not missing"
        )
    word: str | int = int(value) if column.kind == "int" else value.strip()
    name = _name(column.name, taken)
    key = _column_key(name, column)
    section: dict[str, Any] = {"type": "vocabulary", **key, "list": [word]}
    if isinstance(word, str):
        section["strip"] = True
    remark = f"{value!r} or nothing{_missing(column)}"
    return InferredFeature(name, section, remark, "indicator", True, 1)


def _date_feature(
    column: ColumnProfile, dates: DateProfile, taken: set[str], *, is_text: bool
) -> InferredFeature:
    """Return the parts of a date that differ between rows."""
    if not is_text:
        return InferredFeature(
            column.name,
            {},
            "has dates of a Parquet type; store them as text such as 2024-05-01",
        )
    name = _name(column.name, taken)
    has_days = dates.days > 1
    wanted = {
        "year": dates.years > 1,
        "month": dates.months > 1,
        "weekday": has_days,
        "day": has_days,
        "hour": dates.has_time,
        "days_since": True,
        "missing": column.missing > 0,
    }
    section: dict[str, Any] = {"type": "date", **_column_key(name, column)}
    section["parts"] = [part for part, is_used in wanted.items() if is_used]
    section["since"] = dates.first
    if dates.format is not None:
        section["format"] = dates.format
    remark = f"{dates.first} to {dates.last}{_missing(column)}"
    return InferredFeature(name, section, remark, "numeric")


def _is_thing(column: ColumnProfile) -> bool:
    """Return whether a whole number is one of a list of ids, such as of shops."""
    if column.kind != "int" or column.distinct <= _MOST_IDS:
        return False
    if column.present < _LEAST_REPEATS * column.distinct:
        return False
    return bool(_THING_NAME.search(column.name)) or _is_even(column)


def _is_even(column: ColumnProfile) -> bool:
    """Return whether a range of whole numbers is filled, by about as many rows each."""
    span = column.high - column.low + 1
    return column.unevenness < _EVEN and span <= 1.1 * column.distinct


def _thing_features(
    column: ColumnProfile, taken: set[str], *, is_text: bool
) -> list[InferredFeature]:
    name = _name(column.name, taken)
    key = _column_key(name, column)
    remark = f"{column.distinct:,} ids, {column.present // column.distinct:,} rows each"
    remark += _missing(column)
    section: dict[str, Any]
    if column.low >= 0 and column.high <= min(4 * column.distinct, _MOST_IDS_LISTED):
        # The last id is that of numbers which training has not seen.
        size = int(column.high) + 2
        section = {"type": "identity", **key, "buckets": size, "default": size - 1}
    elif is_text:
        return [_words_feature(column, taken, name=name)]
    else:
        size = 2 ** math.ceil(math.log2(2 * column.distinct))
        section = {"type": "hashed", **key, "buckets": size, "dtype": "int64"}
    ids = InferredFeature(name, section, remark, "embedding", True, column.distinct)
    if _THING_NAME.search(column.name) or column.missing:
        return [ids]
    # The name does not say so: days of a month are even, too, and a weight for each
    # of them is learned by heart.
    number = _number_too(column, taken)
    return [replace(ids, is_extra=True), number, *_cuts(number.name, column, taken)]


def _number_too(column: ColumnProfile, taken: set[str]) -> InferredFeature:
    """Return the number of a column that is a category as well."""
    name = _name(f"{column.name}_number", taken)
    section = {"type": "numeric", "column": column.name, "normalize": "zscore"}
    return InferredFeature(name, section, "as a number, too", "numeric")


def _missing(column: ColumnProfile) -> str:
    share = column.missing / column.rows
    return f", {share:.1%} missing" if column.missing else ""


def _short(edge: float) -> float | int:
    """Return a whole number as an int, which is shorter in a run file."""
    return int(edge) if edge.is_integer() else edge


def _is_category(column: ColumnProfile) -> bool:
    """Return whether a whole number has few values, all of them small."""
    return (
        column.kind == "int"
        and abs(column.low) < 4 * _MOST_IDS
        and abs(column.high) < 4 * _MOST_IDS
        and 2 < column.distinct <= _MOST_IDS
        and column.present >= 20 * column.distinct
    )


def _words_feature(
    column: ColumnProfile, taken: set[str], *, name: str | None = None
) -> InferredFeature:
    name = name or _name(column.name, taken)
    key = _column_key(name, column)
    listed = ", ".join(word for word, _ in column.words[:3])
    remark = f"{column.distinct:,} words: {listed}"
    if column.distinct > 3:
        remark += ", …"
    remark += _missing(column)
    if column.distinct > _MOST_WORDS:
        buckets = 2 ** math.ceil(math.log2(column.distinct))
        section: dict[str, Any] = {"type": "hashed", **key, "buckets": buckets}
        section["strip"] = True
        return InferredFeature(name, section, remark, "embedding", True, buckets)
    # A word of a few rows would be learned by heart; such words share one id.
    enough = min(20, column.rows // 1_000)
    is_cut = 1 < enough <= column.words[0][1]
    section = {
        "type": "vocabulary",
        **key,
        "from_data": {"min_count": enough} if is_cut else {},
        **({"oov_buckets": 1} if is_cut else {}),
        "strip": True,
    }
    is_few = column.distinct <= _FEW_WORDS
    deep: Literal["indicator", "embedding"] = "indicator" if is_few else "embedding"
    return InferredFeature(name, section, remark, deep, True, column.distinct)


def _name(column: str, taken: set[str]) -> str:
    """Return a feature name of letters, digits and underscores that is not taken."""
    plain = re.sub(r"\W+", "_", column).strip("_") or "column"
    plain = plain[:100]
    name, number = plain, 2
    while name in taken:
        name, number = f"{plain}_{number}", number + 1
    taken.add(name)
    return name


def _column_key(name: str, column: ColumnProfile) -> dict[str, str]:
    return {} if name == column.name else {"column": column.name}
