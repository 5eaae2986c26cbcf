"""Host transforms of text that means a number or a date.

    TextNumbers("price", "point")({"price": Strings.of(["$1,302.10", ""])})
    DateParts("day", ("month", "weekday"))({"day": Strings.of(["2024-05-01"])})

Each distinct text is parsed once, in Python. A text that cannot be read is an error
that names it: a typing mistake must not become a missing value.
"""

from __future__ import annotations

import datetime
import functools
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import FeatureError, did_you_mean
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.feature_columns.transforms.transform import (
    BundleFormat,
    Record,
    Transform,
    column_of,
)

NumberFormat = Literal["point", "comma"]
DatePart = Literal["year", "month", "weekday", "day", "hour", "days_since", "missing"]
DATE_PARTS: tuple[DatePart, ...] = get_args(DatePart)
DEFAULT_PARTS: tuple[DatePart, ...] = (
    *("year", "month", "weekday", "day", "hour", "days_since"),
)
# Parts that return to their beginning: the first value, and how many there are.
PERIODS: Mapping[str, tuple[int, int]] = {
    "month": (1, 12),
    "weekday": (0, 7),
    "day": (1, 31),
    "hour": (0, 24),
}
EPOCH = "1970-01-01"
_DIGITS = {
    style: re.compile(
        rf"[+-]?(\d+|\d{{1,3}}([{mark}'\s]\d{{3}})+)?({point}\d*)?([eE][+-]?\d+)?"
    )
    for style, mark, point in (("point", ",", r"\."), ("comma", ".", ","))
}
_MARKS = re.compile(r"\s*[$€£¥%]\s*")
_ISO = re.compile(
    r"(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})"
    r"(?:[T ](\d{1,2}):(\d{2})(?::(\d{2})(?:[.,]\d+)?)?\s*(?:Z|[+-]\d{2}:?\d{2})?)?"
)
_MOST_PARSED = 100_000  # texts that are remembered, of all columns together


def number_of_text(text: str, style: NumberFormat) -> float | None:
    """Return the number that a text means: NaN if it is empty, None if it is none.

    >>> number_of_text("$1,302.10", "point"), number_of_text("3,25", "comma")
    (1302.1, 3.25)
    """
    plain = _MARKS.sub("", text).strip()
    if not plain:
        return None if text.strip() else math.nan
    if not _DIGITS[style].fullmatch(plain) or not any(map(str.isdigit, plain)):
        return None
    if style == "comma":
        plain = plain.replace(".", "").replace(",", ".")
    return float(re.sub(r"[,'\s]", "", plain))


@functools.lru_cache(_MOST_PARSED)
def date_of_text(text: str, form: str | None) -> datetime.datetime | None:
    """Return the date that a text means; None if it is none.

    >>> date_of_text("2024-05-01T13:45", None)
    datetime.datetime(2024, 5, 1, 13, 45)
    """
    try:
        if form is not None:
            return datetime.datetime.strptime(text, form)
        found = _ISO.fullmatch(text)
        if found is None:
            return None
        year, month, day, hour, minute, second = (int(n or 0) for n in found.groups())
        return datetime.datetime(year, month, day, hour, minute, second)
    except ValueError:
        return None


@dataclass(frozen=True)
class TextNumbers(Transform):
    """Numbers that are written as text, such as $1,302.10, 65% and 3,25.

    `numeric_column` uses it if it is given `text`. Blanks, signs of currencies and %
    are ignored: 65% is 65. An empty text is NaN, or an error.

    Args:
      key: The feature.
      style: "point" for 1,302.10, "comma" for 1.302,10.
      required: Whether an empty text is an error.

    Example:
      >>> TextNumbers("price", "comma")({"price": Strings.of(["3,25 €"])}).tolist()
      [[3.25]]
    """

    kind = "text_numbers"

    key: str
    style: NumberFormat = "point"
    required: bool = False

    def __post_init__(self) -> None:
        if self.style not in get_args(NumberFormat):
            raise FeatureError(
                f"feature {self.key!r}: text must be 'point' or 'comma', got "
                f"{self.style!r}."
            )

    def __call__(self, raw: Mapping[str, Any]) -> NDArray[np.float32]:
        """Return the numbers of a batch; raise `FeatureError` if a text is none."""
        values = column_of(raw, self.key)
        if isinstance(values, np.ndarray) and values.dtype.kind in "biuf":
            return values.astype(np.float32)  # a client sent numbers
        texts = _texts(self.key, values)

        def parse(text: str) -> tuple[float, ...]:
            number = number_of_text(text, self.style)
            if number is None:
                sample = "1,302.10" if self.style == "point" else "1.302,10"
                raise FeatureError(
                    f"feature {self.key!r}: expected a number such as {sample}, found "
                    f"{text!r}. Correct it, or leave it empty if it is missing."
                )
            if self.required and math.isnan(number):
                raise FeatureError(
                    f"feature {self.key!r}: a number is missing. Give the column a "
                    "default_value, or a normalizer_fn=ex.transforms.Scaling(fill=…)."
                )
            return (number,)

        return _parse_distinct(texts, parse, 1).reshape(texts.shape)


@dataclass(frozen=True)
class DateParts(Transform):
    """Numbers from dates, float32 [B, n], scaled for networks; used by `date_column`.

    Args:
      key: The feature.
      parts: The parts, in the order of the result; see `date_column`.
      cyclic: Whether parts that repeat are a sine and a cosine.
      since: The date that `year` and `days_since` count from, YYYY-MM-DD.
      format: How dates are written, as for `strptime`; None for ISO 8601.

    Example:
      >>> parts = DateParts("day", ("month", "weekday"))
      >>> parts({"day": Strings.of(["2024-12-30", ""])}).tolist()
      [[1.0, -1.0], [0.0, 0.0]]
    """

    kind = "date_parts"

    key: str
    parts: tuple[DatePart, ...] = DEFAULT_PARTS
    cyclic: bool = False
    since: str = EPOCH
    format: str | None = None

    def __post_init__(self) -> None:
        unknown = next((p for p in self.parts if p not in DATE_PARTS), None)
        if unknown is not None or not self.parts:
            hint = did_you_mean(str(unknown), DATE_PARTS) if self.parts else ""
            raise FeatureError(
                f"feature {self.key!r}: parts must be some of {', '.join(DATE_PARTS)}; "
                f"got {self.parts!r}{hint}"
            )
        if len(set(self.parts)) != len(self.parts):
            raise FeatureError(f"feature {self.key!r}: a part is listed twice.")
        if date_of_text(self.since, None) is None:
            raise FeatureError(
                f"feature {self.key!r}: since must be a date such as {EPOCH}, got "
                f"{self.since!r}."
            )

    @property
    def width(self) -> int:
        """How many numbers a row has."""
        return _width(self.parts, self.cyclic)

    def __call__(self, raw: Mapping[str, Any]) -> NDArray[np.float32]:
        """Return the parts of the dates of a batch; raise if a text is no date."""
        texts = _texts(self.key, column_of(raw, self.key))
        if math.prod(texts.shape[1:]) != 1:
            raise FeatureError(
                f"feature {self.key!r}: expected one date in a row, got shape "
                f"{texts.shape}."
            )
        return _parse_distinct(texts, self._numbers, self.width)

    def to_json(self, bundle: BundleFormat) -> Record:
        return {**vars(self), "parts": list(self.parts)}

    @classmethod
    def from_json(cls, fields: Record, bundle: BundleFormat) -> DateParts:
        return cls(**{**fields, "parts": tuple(fields["parts"])})

    def _numbers(self, text: str) -> tuple[float, ...]:
        """Return the numbers of one text; of a missing date, zeros and the flag."""
        text = text.strip()
        if not text:
            flag = self.parts.index("missing") if "missing" in self.parts else None
            offset = 0 if flag is None else _width(self.parts[:flag], self.cyclic)
            return tuple(
                1.0 if flag is not None and i == offset else 0.0
                for i in range(self.width)
            )
        date = date_of_text(text, self.format)
        if date is None:
            sample = "2024-05-01 or 2024-05-01 13:45"
            wanted = f"a date such as {sample}"
            if self.format is not None:
                wanted = f"a date of the format {self.format!r}"
            raise FeatureError(
                f"feature {self.key!r}: expected {wanted}, found {text!r}. Correct it, "
                "leave it empty if it is missing, or set the format of the column."
            )
        start = date_of_text(self.since, None)
        assert start is not None, "checked when the transform was made"
        found: list[float] = []
        for part in self.parts:
            found += self._part(part, date, start)
        return tuple(found)

    def _part(
        self, part: DatePart, date: datetime.datetime, start: datetime.datetime
    ) -> list[float]:
        if part == "missing":
            return [0.0]
        if part == "year":
            return [(date.year - start.year) / 10]
        if part == "days_since":
            # Zones are ignored: all dates of a column are of the same place.
            passed = date.replace(tzinfo=None) - start
            return [passed / datetime.timedelta(days=365.25)]
        values = {
            "month": date.month,
            "weekday": date.weekday(),
            "day": date.day,
            "hour": date.hour + date.minute / 60,
        }
        first, count = PERIODS[part]
        value = values[part] - first
        if self.cyclic:
            angle = 2 * math.pi * value / count
            return [math.sin(angle), math.cos(angle)]
        return [2 * value / (count - 1) - 1]


def _width(parts: tuple[DatePart, ...], cyclic: bool) -> int:
    return sum(2 if cyclic and part in PERIODS else 1 for part in parts)


def _texts(key: str, values: Any) -> Strings:
    if isinstance(values, Strings):
        return values
    found = "sparse" if isinstance(values, Sparse) else str(values.dtype)
    raise FeatureError(
        f"feature {key!r}: expected text, found {found} values. Pass one text a row."
    )


def _parse_distinct(
    texts: Strings, parse: Callable[[str], tuple[float, ...]], width: int
) -> NDArray[np.float32]:
    """Return the numbers of every text, [n, width]; each distinct text parsed once."""
    known: dict[bytes, tuple[float, ...]] = {}
    rows = []
    for text in texts.tolist():
        found = known.get(text)
        if found is None:
            found = known[text] = parse(text.decode(errors="replace"))
        rows.append(found)
    return np.asarray(rows, np.float32).reshape(len(rows), width)
