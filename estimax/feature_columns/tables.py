"""Columns for a whole table: `tabular_columns`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from estimax.core.errors import FeatureError
from estimax.core.raw_values import as_raw
from estimax.core.strings import Strings
from estimax.feature_columns.categorical import categorical_column_with_vocabulary_list
from estimax.feature_columns.encodings import (
    piecewise_linear_column,
    quantile_boundaries,
)
from estimax.feature_columns.numeric import numeric_column
from estimax.feature_columns.transforms import Scaling

_SMOOTH_CLIP = 3.0


def tabular_columns(
    features: Mapping[str, Any], bins: int | None = None, min_count: int | None = None
) -> list[Any]:
    """Make the columns of a table for `ex.TabularClassifier` and `TabularRegressor`.

    Numbers get two columns: a `piecewise_linear_column` with `quantile_boundaries`, and
    the number itself, scaled by its median and quartiles and bounded. Texts get a
    vocabulary of the words of the table; rare and unknown words share an id. A column
    without any value, or with one value only, is left out.

    Args:
      features: The training rows: arrays [rows] by name, numbers or texts.
      bins: The largest number of bins of a number. None: 8 for less than 2,000 rows, 16
        for less than 10,000 and 24 above.
      min_count: How often a word must occur to have an id of its own. None: once per
        2,000 rows, but at least 2 and at most 10 times.

    Returns:
      Feature columns: dense ones, and categorical ones that are not wrapped.

    Raises:
      FeatureError: There are no features, one is neither numbers nor texts or has
        several values in a row, or no feature has two different values.

    Example:
      >>> import estimax as ex
      >>> rows = {"age": [20.0, 30.0, 40.0], "city": ["Oslo", "Rome", "Oslo"]}
      >>> columns = ex.feature_columns.tabular_columns(rows)
      >>> [column.name for column in columns]
      ['age_piecewise_linear', 'age', 'city']
    """
    columns: list[Any] = []
    for key, values in features.items():
        raw = as_raw(values, f"feature {key!r}")
        if isinstance(raw, Strings):
            columns += _text_columns(key, raw, min_count)
        elif isinstance(raw, np.ndarray) and raw.dtype.kind in "biuf":
            columns += _number_columns(key, raw, bins)
        else:
            raise FeatureError(
                f"tabular_columns: feature {key!r} must be numbers or texts, one for "
                f"each row; got {type(values).__name__}. Make its column yourself."
            )
    if not columns:
        raise FeatureError(
            "tabular_columns: no feature has two different values to learn from."
        )
    return columns


def bins_for(rows: int) -> int:
    """Return how many bins a number gets by default.

    >>> bins_for(1_000), bins_for(1_000_000)
    (8, 24)
    """
    return 8 if rows < 2_000 else 16 if rows < 10_000 else 24


def _number_columns(
    key: str, values: np.ndarray[Any, Any], bins: int | None
) -> list[Any]:
    if values.size != len(values):
        raise FeatureError(
            f"tabular_columns: feature {key!r} has rows of shape {values.shape[1:]}; "
            "one number for each row is expected. Make its column yourself."
        )
    numbers = values.reshape(-1).astype(np.float32)
    finite = numbers[np.isfinite(numbers)]
    if not finite.size or (finite.size == numbers.size and np.ptp(finite) == 0):
        return []
    source = numeric_column(key)
    count = bins_for(len(values)) if bins is None else bins
    return [
        piecewise_linear_column(source, quantile_boundaries(finite, count)),
        numeric_column(key, normalizer_fn=robust_scaling(finite)),
    ]


def robust_scaling(values: Any) -> Scaling:
    """Return a scaling by median and quartiles; missing becomes the median.

    Where half of the values are equal, the range takes the place of the quartiles.

    >>> robust_scaling(np.array([0.0, 1.0, 2.0, 3.0, 400.0])).std
    2.0
    """
    low, quarter, median, three, high = np.quantile(
        np.asarray(values, np.float64), [0.0, 0.25, 0.5, 0.75, 1.0]
    )
    scale = three - quarter
    if scale <= 0:
        scale = (high - low) / 2
    return Scaling(
        fill=float(median),
        mean=float(median),
        std=float(scale) if scale > 0 else 1.0,
        smooth_clip=_SMOOTH_CLIP,
    )


def _text_columns(key: str, texts: Strings, min_count: int | None) -> list[Any]:
    words = [word.decode() if isinstance(word, bytes) else word for word in texts]
    least = min_count
    if least is None:
        least = min(10, max(2, len(words) // 2_000))
    kept = words_of(words, least)
    if len(set(words)) < 2:
        return []
    column = categorical_column_with_vocabulary_list(
        key, kept or sorted(set(words) - {""})[:1], num_oov_buckets=1
    )
    return [column]


def words_of(texts: Iterable[str], min_count: int) -> list[str]:
    """Return the words that occur often enough, most frequent first.

    >>> words_of(["b", "a", "b", ""], 1)
    ['b', 'a']
    """
    counts = Counter(texts)
    del counts[""]  # a missing value
    enough = [(word, count) for word, count in counts.items() if count >= min_count]
    enough.sort(key=lambda pair: (-pair[1], pair[0]))
    return [word for word, _ in enough]
