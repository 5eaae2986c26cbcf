"""Columns of one number that the host computes from raw features.

    ratio = expression_column("price / area")
    net = input_layer(features, [ratio, bucketized_column(ratio, [1000, 5000])])

They go where a `numeric_column` goes: into layers, buckets, piecewise-linear and
periodic codes. A result may be missing: the column has its default then, or raises an
error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from estimax import staging
from estimax.core.errors import FeatureError
from estimax.core.parse_spec import STRING, FixedLenFeature
from estimax.feature_columns import transforms
from estimax.feature_columns.column import Features, ParseSpec, check_key
from estimax.feature_columns.numeric import NumericColumn
from estimax.feature_columns.transforms.dates import DateUnit

HostNumber = transforms.Expression | transforms.DateDifference


@dataclass(frozen=True)
class ComputedColumn:
    """A number that the host computes; made by `expression_column` and others.

    Args:
      transform: Computes the number, NaN if it is missing.
      name: The name of the column.
      default_value: Replaces a missing number; None makes it an error.
      normalizer_fn: Scales the number, on the device.
      stored: How each feature that it reads is stored in an Example.
    """

    transform: HostNumber
    name: str
    default_value: float | None
    normalizer_fn: transforms.Scaling | None
    stored: FixedLenFeature

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one row: one number."""
        return (1,)

    @property
    def variable_shape(self) -> tuple[int, ...]:
        """The shape of one row: one number."""
        return (1,)

    @property
    def parse_example_spec(self) -> ParseSpec:
        """How the features are stored in an Example."""
        return dict.fromkeys(self.transform.keys, self.stored)

    @property
    def filling(self) -> transforms.Scaling | None:
        """The scaling with the default as its `fill`; None if there is neither."""
        scaling, default = self.normalizer_fn, self.default_value
        if default is None or (scaling is not None and scaling.fill is not None):
            return scaling
        return replace(scaling or transforms.Scaling(), fill=default)

    def values(self, features: Features) -> jax.Array:
        """Return the normalized numbers, float32 [B, 1].

        Args:
          features: The features of a batch by key.
        """
        self.declare_default(features)
        filling = self.filling
        required = filling is None or filling.fill is None
        staged = staging.stage(replace(self.transform, required=required), features)
        numbers = staged if filling is None else filling(staged)
        return jnp.asarray(numbers)

    def declare_default(self, features: Features) -> None:
        """Record that a request may leave the features out: they are missing then.

        Args:
          features: The features of a batch by key.
        """
        if self.stored.default_value == "":
            return  # an empty text is missing
        for key in self.transform.keys:
            staging.declare_default(features.get(key), math.nan)

    def block(self, layer: nn.Module, features: Features, trainable: bool) -> jax.Array:
        """Return the normalized numbers, float32 [B, 1].

        Args:
          layer: Not used: there are no variables.
          features: The features of a batch by key.
          trainable: Not used.
        """
        return self.values(features)


NumberColumn = NumericColumn | ComputedColumn


def expression_column(
    expression: str,
    *,
    name: str | None = None,
    default_value: float | None = None,
    normalizer_fn: transforms.Scaling | None = None,
) -> ComputedColumn:
    """Compute a number from other features, the same in training, bundle and server.

    Use it for ratios, differences, logarithms and conditions, in place of code in the
    `input_fn` that a server would have to repeat. An expression is data, not Python:

    - numbers, `pi`, `nan` (missing), and names of features; a name with other
      characters than letters, digits and _ is written between backquotes
    - `+ - * / // % **`, comparisons (1 if true, 0 if not), `and`, `or`, `not`, and
      `A if CONDITION else B`, with the precedence of Python
    - `abs`, `ceil`, `clip(x, low, high)`, `coalesce(x, …)` (the first that is not
      missing), `cos`, `exp`, `expm1`, `floor`, `isnan`, `log`, `log10`, `log1p`,
      `log2`, `max`, `min`, `round(x, digits)`, `sign`, `sin`, `sqrt`, `tan`, `tanh`,
      `where(condition, a, b)`

    The host computes it with 64 bits. What is computed from a missing number (NaN) is
    missing, and so is a result that is no finite number, such as a division by zero.
    `isnan`, `coalesce` and the branch of a condition that is not taken are exceptions,
    and so are `false and missing` and `true or missing`.

    Args:
      expression: The expression, such as "log1p(price / area)".
      name: The name of the column; None: the expression itself.
      default_value: Replaces a missing result. None makes it an error, except in
        piecewise-linear columns and trees, which take missing numbers, and buckets,
        where a missing number is in the last one.
      normalizer_fn: An `ex.transforms.Scaling` of the result; its `fill` is a default,
        too. A Python function is not possible: write it into the expression.

    Returns:
      A dense column of one number, which may be the source of `bucketized_column`,
      `piecewise_linear_column` and `periodic_column`.

    Raises:
      FeatureError: The expression cannot be read, has an unknown function or names no
        feature; or another argument has the wrong type. The message has the position.

    Example:
      >>> from estimax import feature_columns as fc
      >>> ratio = fc.expression_column("price / area", default_value=0)
      >>> rows = {"price": [6.0, 1.0], "area": [2.0, 0.0]}
      >>> fc.DenseFeatures([ratio]).apply({}, rows).tolist()
      [[3.0], [0.0]]
    """
    if not isinstance(expression, str):
        raise FeatureError(
            f"expression_column: expression must be a str, got {expression!r}."
        )
    transform = transforms.Expression(expression)
    stored = FixedLenFeature((1,), "float32", math.nan)
    return _computed(
        transform, "expression_column", name, default_value, normalizer_fn, stored
    )


def date_difference_column(
    start: str,
    end: str,
    *,
    unit: DateUnit = "days",
    format: str | None = None,
    time_zone: str | None = None,
    name: str | None = None,
    default_value: float | None = None,
    normalizer_fn: transforms.Scaling | None = None,
) -> ComputedColumn:
    """Take the time from one date to another, such as an age or a delay.

    Use it for two features of text that `date_column` could read. The difference is
    negative if the dates are in the other order, and missing if one of them is empty.

    Args:
      start: The feature with the date to count from.
      end: The feature with the date to count to.
      unit: "seconds", "minutes", "hours", "days", "weeks" or "years" (365.25 days).
      format: How the dates are written, as for Python's `strptime`, such as "%d.%m.%Y".
      time_zone: A time zone such as "Europe/Berlin". The clocks of this zone are
        compared, so that its midnights are whole days apart in summer, too. None: the
        dates as they are written, or the time that passed if both have an offset such
        as Z or +02:00.
      name: The name of the column; None: such as `day_minus_born`.
      default_value: Replaces a missing result; see `expression_column`.
      normalizer_fn: An `ex.transforms.Scaling` of the result.

    Returns:
      A dense column of one number, like that of `expression_column`. A text that is no
      date is a `FeatureError` when it is read.

    Raises:
      FeatureError: The unit or the time zone is unknown, or an argument has the wrong
        type.

    Example:
      >>> from estimax import feature_columns as fc
      >>> age = fc.date_difference_column("born", "day", unit="weeks")
      >>> dates = {"born": ["2024-01-01", "2024-01-08"], "day": ["2024-01-15"] * 2}
      >>> fc.DenseFeatures([age]).apply({}, dates).tolist()
      [[2.0], [1.0]]
    """
    check_key(start, "date_difference_column")
    check_key(end, "date_difference_column")
    return _computed(
        transforms.DateDifference(start, end, unit, format, time_zone),
        "date_difference_column",
        name,
        default_value,
        normalizer_fn,
        FixedLenFeature((1,), STRING, ""),
    )


def _computed(
    transform: HostNumber,
    function: str,
    name: str | None,
    default_value: Any,
    normalizer_fn: Any,
    stored: FixedLenFeature,
) -> ComputedColumn:
    what = f"{function} {transform.name!r}"
    if name is not None and not (isinstance(name, str) and name):
        raise FeatureError(f"{what}: name must be a text, got {name!r}.")
    is_number = isinstance(default_value, int | float | np.integer | np.floating)
    if default_value is not None and not (is_number and math.isfinite(default_value)):
        raise FeatureError(
            f"{what}: default_value must be a finite number, got {default_value!r}."
        )
    if not isinstance(normalizer_fn, transforms.Scaling | None):
        raise FeatureError(
            f"{what}: normalizer_fn must be an ex.transforms.Scaling, got "
            f"{normalizer_fn!r}."
        )
    default = None if default_value is None else float(default_value)
    return ComputedColumn(
        transform, name or transform.name, default, normalizer_fn, stored
    )


def check_source(source: object, function: str) -> None:
    """Raise unless a column gives numbers, of which others can be made."""
    if not isinstance(source, NumberColumn):
        raise FeatureError(
            f"{function}: source_column must be a numeric_column or a column of one "
            f"number such as expression_column, got {source!r}."
        )
