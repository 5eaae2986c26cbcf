"""Host transforms of dates that are written as text: their parts, and differences.

    DateParts("day", ("month", "weekday"))({"day": Strings.of(["2024-05-01"])})
    DateDifference("born", "day")({"born": born, "day": day})

A text that cannot be read is an error that names it: a typing mistake must not become a
missing value. An empty text is a missing date.
"""

from __future__ import annotations

import datetime
import functools
import math
import re
import zoneinfo
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import FeatureError, did_you_mean
from estimax.feature_columns.transforms.formulas import check_none_missing
from estimax.feature_columns.transforms.texts import parse_distinct, texts_of
from estimax.feature_columns.transforms.transform import (
    BundleFormat,
    Record,
    Transform,
    column_of,
)

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
DateUnit = Literal["seconds", "minutes", "hours", "days", "weeks", "years"]
SECONDS: Mapping[str, float] = {
    **{"seconds": 1.0, "minutes": 60.0, "hours": 3600.0, "days": 86400.0},
    **{"weeks": 7 * 86400.0, "years": 365.25 * 86400.0},
}
_ISO = re.compile(
    r"(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})"
    r"(?:[T ](\d{1,2}):(\d{2})(?::(\d{2})(?:[.,]\d+)?)?\s*(Z|[+-]\d{2}:?\d{2})?)?"
)
_MOST_PARSED = 100_000  # texts that are remembered, of all columns together


@functools.lru_cache(_MOST_PARSED)
def date_of_text(text: str, form: str | None) -> datetime.datetime | None:
    """Return the date that a text means; None if it is none.

    It has a time zone if the text has an offset such as Z or +02:00.

    >>> date_of_text("2024-05-01T13:45", None)
    datetime.datetime(2024, 5, 1, 13, 45)
    """
    try:
        if form is not None:
            return datetime.datetime.strptime(text, form)
        found = _ISO.fullmatch(text)
        if found is None:
            return None
        *numbers, offset = found.groups()
        year, month, day, hour, minute, second = (int(n or 0) for n in numbers)
        zone = None if offset is None else _zone_of_offset(offset)
        return datetime.datetime(year, month, day, hour, minute, second, tzinfo=zone)
    except ValueError:
        return None


def _zone_of_offset(offset: str) -> datetime.timezone:
    if offset == "Z":
        return datetime.UTC
    passed = datetime.timedelta(hours=int(offset[1:3]), minutes=int(offset[-2:]))
    return datetime.timezone(-passed if offset[0] == "-" else passed)


@functools.lru_cache(64)
def zone_of(name: str, what: str) -> zoneinfo.ZoneInfo:
    """Return a time zone; raise `FeatureError`, which begins with `what`, for others.

    >>> zone_of("Europe/Berlin", "day").key
    'Europe/Berlin'
    """
    try:
        return zoneinfo.ZoneInfo(name)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        known = zoneinfo.available_timezones()
        if not known:
            advice = "; this machine has no time zones: pip install tzdata"
        else:
            near = did_you_mean(name, known)
            advice = near if "mean" in near else "; write one such as Europe/Berlin"
        end = "" if advice.endswith("?") else "."
        raise FeatureError(f"{what}: unknown time zone {name!r}{advice}{end}") from None


def read_date(
    key: str, text: str, form: str | None, time_zone: str | None
) -> datetime.datetime | None:
    """Return the date of a text, in a time zone if one is given; None if it is empty.

    Raises:
      FeatureError: The text is no date.
    """
    text = text.strip()
    if not text:
        return None
    date = date_of_text(text, form)
    if date is not None and date.tzinfo is not None and time_zone is not None:
        try:
            return date.astimezone(zone_of(time_zone, f"feature {key!r}"))
        except OverflowError:  # before the year 1 or after 9999
            date = None
    if date is not None:
        return date
    wanted = "a date such as 2024-05-01 or 2024-05-01 13:45"
    if form is not None:
        wanted = f"a date of the format {form!r}"
    raise FeatureError(
        f"feature {key!r}: expected {wanted}, found {text!r}. Correct it, "
        "leave it empty if it is missing, or set the format of the column."
    )


@dataclass(frozen=True)
class DateParts(Transform):
    """Numbers from dates, float32 [B, n], scaled for networks; used by `date_column`.

    Args:
      key: The feature.
      parts: The parts, in the order of the result; see `date_column`.
      cyclic: Whether parts that repeat are a sine and a cosine.
      since: The date that `year` and `days_since` count from, YYYY-MM-DD.
      format: How dates are written, as for `strptime`; None for ISO 8601.
      time_zone: The zone to which a text with an offset is converted; None ignores it.

    Example:
      >>> from estimax.core.strings import Strings
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
    time_zone: str | None = None

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
        if self.time_zone is not None:
            zone_of(self.time_zone, f"feature {self.key!r}")

    @property
    def width(self) -> int:
        """How many numbers a row has."""
        return _width(self.parts, self.cyclic)

    def __call__(self, raw: Mapping[str, Any]) -> NDArray[np.float32]:
        """Return the parts of the dates of a batch; raise if a text is no date."""
        texts = texts_of(self.key, column_of(raw, self.key))
        if math.prod(texts.shape[1:]) != 1:
            raise FeatureError(
                f"feature {self.key!r}: expected one date in a row, got shape "
                f"{texts.shape}."
            )
        return parse_distinct(texts, self._numbers, self.width)

    def to_json(self, bundle: BundleFormat) -> Record:
        return {**_date_fields(self), "parts": list(self.parts)}

    @classmethod
    def from_json(cls, fields: Record, bundle: BundleFormat) -> DateParts:
        return cls(**{**fields, "parts": tuple(fields["parts"])})

    def _numbers(self, text: str) -> tuple[float, ...]:
        """Return the numbers of one text; of a missing date, zeros and the flag."""
        date = read_date(self.key, text, self.format, self.time_zone)
        if date is None:
            flag = self.parts.index("missing") if "missing" in self.parts else None
            offset = 0 if flag is None else _width(self.parts[:flag], self.cyclic)
            return tuple(
                1.0 if flag is not None and i == offset else 0.0
                for i in range(self.width)
            )
        start = date_of_text(self.since, None)
        assert start is not None, "checked when the transform was made"
        found: list[float] = []
        for part in self.parts:
            found += self._part(part, date, start.replace(tzinfo=None))
        return tuple(found)

    def _part(
        self, part: DatePart, date: datetime.datetime, start: datetime.datetime
    ) -> list[float]:
        if part == "missing":
            return [0.0]
        if part == "year":
            return [(date.year - start.year) / 10]
        if part == "days_since":
            # Of clocks, so that midnights are whole days apart in summer, too.
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


@dataclass(frozen=True)
class DateDifference(Transform):
    """The time between two dates, float32 [B, 1]; used by `date_difference_column`.

    Args:
      start: The feature with the earlier date.
      end: The feature with the later date.
      unit: The unit of the result; a year has 365.25 days.
      format: How dates are written, as for `strptime`; None for ISO 8601.
      time_zone: The zone whose clocks are compared; see `date_difference_column`.
      required: Whether a missing result is an error. It is NaN otherwise.

    Example:
      >>> from estimax.core.strings import Strings
      >>> age = DateDifference("born", "day", "days")
      >>> born, day = Strings.of(["2024-01-01"]), Strings.of(["2024-03-01"])
      >>> age({"born": born, "day": day}).tolist()
      [[60.0]]
    """

    kind = "date_difference"

    start: str
    end: str
    unit: DateUnit = "days"
    format: str | None = None
    time_zone: str | None = None
    required: bool = False

    def __post_init__(self) -> None:
        if self.unit not in SECONDS:
            hint = did_you_mean(str(self.unit), SECONDS)
            end = "" if hint.endswith("?") else "."
            raise FeatureError(f"{self.name}: unknown unit {self.unit!r}{hint}{end}")
        if self.time_zone is not None:
            zone_of(self.time_zone, self.name)

    @property
    def name(self) -> str:
        return f"{self.end}_minus_{self.start}"

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.start, self.end)))

    def __call__(self, raw: Mapping[str, Any]) -> NDArray[np.float32]:
        """Return the differences of a batch; raise `FeatureError` for a bad text."""
        texts = {key: self._texts(raw, key) for key in self.keys}
        starts, ends = texts[self.start], texts[self.end]
        if len(starts) != len(ends):
            raise FeatureError(
                f"{self.name}: its features differ in rows: {len(starts)} and "
                f"{len(ends)}."
            )
        seconds = [self._seconds(*pair) for pair in zip(starts, ends, strict=True)]
        result = (np.array(seconds, np.float64) / SECONDS[self.unit]).astype(np.float32)
        if self.required:
            check_none_missing(f"date difference {self.name!r}", result, texts)
        return result.reshape(-1, 1)

    def to_json(self, bundle: BundleFormat) -> Record:
        return _date_fields(self)

    def _texts(self, raw: Mapping[str, Any], key: str) -> list[str]:
        texts = texts_of(key, column_of(raw, key))
        if math.prod(texts.shape[1:]) != 1:
            raise FeatureError(
                f"feature {key!r}: expected one date in a row, got shape {texts.shape}."
            )
        return [text.decode(errors="replace") for text in texts.tolist()]

    def _seconds(self, start: str, end: str) -> float:
        first = read_date(self.start, start, self.format, self.time_zone)
        last = read_date(self.end, end, self.format, self.time_zone)
        if first is None or last is None:
            return math.nan
        if self.time_zone is not None or None in (first.tzinfo, last.tzinfo):
            first, last = first.replace(tzinfo=None), last.replace(tzinfo=None)
        return (last - first).total_seconds()


def _date_fields(transform: Any) -> Record:
    """Return the fields; without a time zone as they were before there was one."""
    record = dict(vars(transform))
    if transform.time_zone is None:
        del record["time_zone"]
    return record


def _width(parts: tuple[DatePart, ...], cyclic: bool) -> int:
    return sum(2 if cyclic and part in PERIODS else 1 for part in parts)
