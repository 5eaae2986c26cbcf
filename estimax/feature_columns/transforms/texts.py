"""The host transform of text that means a number.

    TextNumbers("price", "point")({"price": Strings.of(["$1,302.10", ""])})

Each distinct text is parsed once, in Python. A text that cannot be read is an error
that names it: a typing mistake must not become a missing value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import FeatureError
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.feature_columns.transforms.transform import Transform, column_of

NumberFormat = Literal["point", "comma"]
_DIGITS = {
    style: re.compile(
        rf"[+-]?(\d+|\d{{1,3}}([{mark}'\s]\d{{3}})+)?({point}\d*)?([eE][+-]?\d+)?"
    )
    for style, mark, point in (("point", ",", r"\."), ("comma", ".", ","))
}
_MARKS = re.compile(r"\s*[$€£¥%]\s*")


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
        texts = texts_of(self.key, values)

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

        return parse_distinct(texts, parse, 1).reshape(texts.shape)


def texts_of(key: str, values: Any) -> Strings:
    """Return the texts of a feature; raise `FeatureError` if it has other values."""
    if isinstance(values, Strings):
        return values
    found = "sparse" if isinstance(values, Sparse) else str(values.dtype)
    raise FeatureError(
        f"feature {key!r}: expected text, found {found} values. Pass one text a row."
    )


def parse_distinct(
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
