"""Whether the texts of a column are dates, or numbers with other characters.

    read = parse_dates(["01.05.2024", "13.05.2024"])
    read[0]                                       # "%d.%m.%Y"
    parse_text_numbers(["$302.10", "$1,000"])[0]  # "point"

`profile` asks for the distinct texts of a column. They are read by the parsers that
training and bundles use, so what is found here is what is read there.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

# Formats other than ISO 8601, the first that reads all values is taken.
_FORMATS = (
    *("%d.%m.%Y", "%d.%m.%Y %H:%M", "%d.%m.%Y %H:%M:%S", "%m/%d/%Y", "%d/%m/%Y"),
    *("%m/%d/%Y %H:%M", "%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M:%S", "%d/%m/%Y %H:%M:%S"),
    *("%m-%d-%Y", "%d-%m-%Y", "%m/%d/%y", "%d/%m/%y", "%d-%b-%Y", "%d-%b-%y"),
    *("%b %d, %Y", "%B %d, %Y", "%d %B %Y", "%d %b %Y", "%Y-%m", "%Y%m%d"),
)
_COMPACT = "%Y%m%d"  # eight digits, which are a number in other columns
_YEARS = (1800, 2200)  # a date outside of these is no date
_MOST_TEXTS = 20_000  # distinct texts of a column that are read


@dataclass(frozen=True)
class DateProfile:
    """What the dates of a column are."""

    format: str | None  # as of strptime; None: ISO 8601
    first: str  # YYYY-MM-DD
    last: str
    has_time: bool
    order: Literal["rising", "falling"] | None  # of the rows, if there is one
    years: int = 1  # how many different years, months and days there are
    months: int = 1
    days: int = 1

    @property
    def sorts_as_text(self) -> bool:
        """Whether the order of the texts is the order of the dates."""
        return self.format in (None, "%Y-%m", _COMPACT)


def parse_dates(
    texts: Sequence[str], *, compact: bool = False
) -> tuple[str | None, list[datetime.datetime]] | None:
    """Return the format and the dates of texts; None if one of them is no date.

    `compact` asks for dates of eight digits only.
    """
    from estimax.feature_columns.transforms.dates import date_of_text

    step = max(1, len(texts) // _MOST_TEXTS)
    some = texts[::step]
    for form in (_COMPACT,) if compact else (None, *_FORMATS):
        found = []
        for text in some:
            date = date_of_text(text, form)
            if date is None or not _YEARS[0] <= date.year <= _YEARS[1]:
                break
            found.append(date.replace(tzinfo=None))
        else:
            if step > 1:
                every = [date_of_text(text, form) for text in texts]
                if None in every:
                    return None
                found = [d.replace(tzinfo=None) for d in every if d is not None]
            return form, found
    return None


def describe_dates(
    form: str | None, dates: Sequence[datetime.datetime], rows: Any
) -> DateProfile:
    """Return what the dates of a column are.

    Args:
      form: How they are written.
      dates: The distinct dates.
      rows: The position in `dates` of each row, in the order of the file.
    """
    import numpy as np

    # By day: the rows of a day may be in another order.
    passed = np.array(dates, "datetime64[D]")[rows]
    order: Literal["rising", "falling"] | None = None
    if len(dates) > 1:
        steps = np.diff(passed.astype(np.int64))
        order = "rising" if (steps >= 0).all() else None
        order = "falling" if (steps <= 0).all() else order
    return DateProfile(
        form,
        min(dates).date().isoformat(),
        max(dates).date().isoformat(),
        any(date.time() != datetime.time() for date in dates),
        order,
        len({date.year for date in dates}),
        len({date.month for date in dates}),
        len({date.day for date in dates}),
    )


def parse_text_numbers(
    texts: Sequence[str],
) -> tuple[Literal["point", "comma"] | None, Any]:
    """Return how texts write numbers, and the numbers; None if they are other text."""
    import numpy as np

    from estimax.feature_columns.transforms.texts import number_of_text

    styles: tuple[Literal["point", "comma"], ...] = ("point", "comma")
    for style in styles:
        found = []
        for text in texts:
            number = number_of_text(text, style)
            if number is None:
                break
            found.append(number)
        else:
            return style, np.array(found)
    return None, None
