"""Date columns: parts of a date as numbers.

day = date_column("day", ["year", "month", "weekday", "days_since"])
net = input_layer(features, [day])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax
from flax import linen as nn

from estimax import staging
from estimax.core.errors import FeatureError
from estimax.core.parse_spec import STRING, FixedLenFeature
from estimax.feature_columns.column import Features, ParseSpec, check_key
from estimax.feature_columns.transforms.dates import (
    DEFAULT_PARTS,
    EPOCH,
    DatePart,
    DateParts,
)


@dataclass(frozen=True)
class DateColumn:
    """Parts of dates as numbers; made by `date_column`.

    Args:
      transform: Turns the texts into numbers, on the host.
    """

    transform: DateParts

    @property
    def key(self) -> str:
        """The feature."""
        return self.transform.key

    @property
    def name(self) -> str:
        """The key, with `_date` behind it."""
        return f"{self.key}_date"

    @property
    def variable_shape(self) -> tuple[int, ...]:
        """The shape of one row: one number for each part, two if it is cyclic."""
        return (self.transform.width,)

    @property
    def parse_example_spec(self) -> ParseSpec:
        """How the feature is stored in an Example: as text, empty if it is missing."""
        return {self.key: FixedLenFeature((1,), STRING, "")}

    def block(self, layer: nn.Module, features: Features, trainable: bool) -> jax.Array:
        """Return the numbers of the parts, float32 [B, N].

        Args:
          layer: Not used: there are no variables.
          features: The features of a batch by key.
          trainable: Not used.
        """
        return self.values(features)

    def values(self, features: Features) -> jax.Array:
        """Return the numbers of the parts, float32 [B, N].

        Args:
          features: The features of a batch by key.
        """
        staged: jax.Array = staging.stage(self.transform, features)
        return staged


def date_column(
    key: str,
    parts: Sequence[DatePart] = DEFAULT_PARTS,
    *,
    cyclic: bool = False,
    since: str = EPOCH,
    format: str | None = None,
    time_zone: str | None = None,
) -> DateColumn:
    """Take the parts of a date as numbers, the same in training, bundle and server.

    Use it for text such as 2024-05-01, 2024-05-01 13:45, 2024-05-01T13:45:10.5+02:00
    or 2024/5/1; `format` says another way of writing. An offset such as Z or +02:00 is
    ignored, and parts are of the date as it is written, unless there is a `time_zone`.
    Parts are scaled for networks:

    - `year`: (year - year of `since`) / 10
    - `month`, `weekday` (from Monday), `day`: from -1 for the first to 1 for the last
    - `hour`: from -1 for midnight to 1 for 23:00, with the minutes as a fraction
    - `days_since`: days after `since` / 365.25, with the time as a fraction
    - `missing`: 1 if there is no date, otherwise 0

    An empty text is a missing date: all its parts are 0 except `missing`.

    Args:
      key: The feature, of text.
      parts: The parts to take, in the order of the result.
      cyclic: Whether month, weekday, day and hour are a sine and a cosine each, so that
        December is near January.
      since: The date that `year` and `days_since` count from, as YYYY-MM-DD.
      format: How the dates are written, as for Python's `strptime`, such as "%d.%m.%Y".
      time_zone: A time zone such as "Europe/Berlin", to whose clocks a text with an
        offset is converted, with summer time. A text without one is of this zone.

    Returns:
      A dense column. A text that is no date is a `FeatureError` when it is read.

    Raises:
      FeatureError: A part is unknown or listed twice, `parts` is empty, `since` is
        no date, or the time zone is unknown.

    Example:
      >>> from estimax import feature_columns as fc
      >>> day = fc.date_column("day", ["weekday", "days_since"], since="2024-01-01")
      >>> block = fc.DenseFeatures([day]).apply({}, {"day": ["2024-01-01", ""]})
      >>> block.tolist()
      [[-1.0, 0.0], [0.0, 0.0]]
    """
    check_key(key, "date_column")
    if isinstance(parts, str):
        raise FeatureError(f"date_column {key!r}: parts must be a list, got {parts!r}.")
    return DateColumn(DateParts(key, tuple(parts), cyclic, since, format, time_zone))
