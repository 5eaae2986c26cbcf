"""Encodings of numbers for networks: piecewise linear, and periodic.

    age = numeric_column("age")
    edges = quantile_boundaries(ages, bins=24)
    net = input_layer(features, [piecewise_linear_column(age, edges)])

A network learns slowly from a single number whose values are spread unevenly. Several
numbers that are linear in one range each, or waves of several lengths, are easier.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from estimax.core.errors import FeatureError
from estimax.feature_columns.column import Features, ParseSpec
from estimax.feature_columns.computed import NumberColumn, check_source
from estimax.feature_columns.lookup import VariablePlace

_MOST_POINTS = 512  # between which k-means looks for the ends of clusters


@dataclass(frozen=True)
class PiecewiseLinearColumn:
    """Piecewise-linear codes of numbers; made by `piecewise_linear_column`.

    Args:
      source_column: The numeric column.
      boundaries: The edges of the bins, ascending.
    """

    source_column: NumberColumn
    boundaries: tuple[float, ...]

    @property
    def name(self) -> str:
        """The source's name, with `_piecewise_linear` behind it."""
        return f"{self.source_column.name}_piecewise_linear"

    @property
    def variable_shape(self) -> tuple[int, ...]:
        """The shape of one row: the source's, and the bins with the flag."""
        return (*self.source_column.shape, len(self.boundaries))

    @property
    def parse_example_spec(self) -> ParseSpec:
        """How the feature is stored in an Example."""
        return self.source_column.parse_example_spec

    def numbers(self, features: Features) -> jax.Array:
        """Return the numbers that are encoded, float32 [B, N]; NaN if missing.

        Args:
          features: The features of a batch by key.
        """
        return numbers_or_nan(self.source_column, features)

    def block(self, layer: nn.Module, features: Features, trainable: bool) -> jax.Array:
        """Return the codes, position by position: [B, N].

        Args:
          layer: Not used: there are no variables.
          features: The features of a batch by key.
          trainable: Not used.
        """
        numbers = self.numbers(features)
        codes = piecewise_linear(numbers, jnp.asarray(self.boundaries, jnp.float32))
        return jnp.reshape(codes, (numbers.shape[0], math.prod(self.variable_shape)))


def piecewise_linear_column(
    source_column: NumberColumn, boundaries: Sequence[float]
) -> PiecewiseLinearColumn:
    """Encode a number as how far it has come through each of several bins.

    Use it in networks, for numbers whose effect is not a straight line or whose values
    are spread unevenly. Unlike `bucketized_column` it keeps the order and the place
    within a bin. A bin below the number is 1, a bin above it is 0, and its own bin is
    the share of the bin below it. After the bins comes a flag, which is 1 if the number
    is missing (NaN); all bins are 0 then, so the weights of the flag are what a network
    learns for a missing value.

    Args:
      source_column: A `numeric_column`, or a column of one number, such as
        `expression_column`.
      boundaries: The edges of the bins, ascending; n edges make n - 1 bins.
        `quantile_boundaries` chooses them. Values are compared as float32.

    Returns:
      A dense column of n numbers for each number of the source.

    Raises:
      FeatureError: The source is no numeric column, or `boundaries` are fewer than
        two, not finite or not ascending.

    Example:
      >>> from estimax import feature_columns as fc
      >>> age = fc.piecewise_linear_column(fc.numeric_column("age"), [0, 20, 60])
      >>> ages = {"age": [10.0, 30.0, float("nan")]}
      >>> fc.DenseFeatures([age]).apply({}, ages).tolist()
      [[0.5, 0.0, 0.0], [1.0, 0.25, 0.0], [0.0, 0.0, 1.0]]
    """
    check_source(source_column, "piecewise_linear_column")
    what = f"piecewise_linear_column of {source_column.name!r}"
    edges = _validate_numbers(boundaries, what, "boundaries", 2)
    if any(a >= b for a, b in itertools.pairwise(np.asarray(edges, np.float32))):
        raise FeatureError(
            f"{what}: boundaries must increase, as float32 too, got {boundaries!r}."
        )
    return PiecewiseLinearColumn(source_column, edges)


def piecewise_linear(numbers: jax.Array, edges: jax.Array) -> jax.Array:
    """Return codes [..., n] of numbers [...], with edges [n] or [..., n].

    >>> piecewise_linear(jnp.array([1.5]), jnp.array([0.0, 1.0, 3.0])).tolist()
    [[1.0, 0.25, 0.0]]
    """
    missing = jnp.isnan(numbers)[..., None]
    low, high = edges[..., :-1], edges[..., 1:]
    share = jnp.clip((numbers[..., None] - low) / (high - low), 0.0, 1.0)
    codes = jnp.where(missing, 0.0, share)
    return jnp.concatenate([codes, missing.astype(jnp.float32)], axis=-1)


@dataclass(frozen=True)
class PeriodicColumn:
    """Sines and cosines of numbers; made by `periodic_column`.

    Args:
      source_column: The numeric column.
      periods: The lengths of the waves.
      trainable: Whether the lengths are trained.
    """

    source_column: NumberColumn
    periods: tuple[float, ...]
    trainable: bool

    @property
    def name(self) -> str:
        """The source's name, with `_periodic` behind it."""
        return f"{self.source_column.name}_periodic"

    @property
    def variable_shape(self) -> tuple[int, ...]:
        """The shape of one row: the source's, and a sine and cosine of each period."""
        return (*self.source_column.shape, 2 * len(self.periods))

    @property
    def parse_example_spec(self) -> ParseSpec:
        """How the feature is stored in an Example."""
        return self.source_column.parse_example_spec

    def block(self, layer: nn.Module, features: Features, trainable: bool) -> jax.Array:
        """Return the sines, then the cosines, position by position: [B, N].

        Args:
          layer: The layer that holds the frequencies, if they are trained.
          features: The features of a batch by key.
          trainable: Whether the variables are trained.
        """
        numbers = numbers_or_nan(self.source_column, features)
        missing = ~jnp.isfinite(numbers)[..., None]
        # Replaced before they are multiplied: 0 * NaN in a gradient would be NaN.
        known = jnp.where(missing, 0.0, numbers[..., None])
        turns = known * self._frequencies(layer, trainable)
        # Whole turns are dropped: sine and cosine lose digits at large arguments.
        angles = 2 * jnp.pi * (turns - jnp.round(turns))
        waves = jnp.concatenate(
            [
                jnp.where(missing, 0.0, jnp.sin(angles)),
                jnp.where(missing, 0.0, jnp.cos(angles)),
            ],
            axis=-1,
        )
        return jnp.reshape(waves, (numbers.shape[0], math.prod(self.variable_shape)))

    def _frequencies(self, layer: nn.Module, trainable: bool) -> jax.Array:
        start = 1.0 / np.asarray(self.periods, np.float32)
        if not (self.trainable and trainable):
            return jnp.asarray(start)

        def initial(_: jax.Array) -> jax.Array:
            return jnp.asarray(start)

        place = VariablePlace(self.name, "frequencies")
        found: jax.Array = place.declare(
            layer, lambda module: module.param(place.name, initial)
        )
        return found


def periodic_column(
    source_column: NumberColumn, periods: Sequence[float], trainable: bool = False
) -> PeriodicColumn:
    """Encode a number as sines and cosines of given periods.

    Use it for numbers that repeat, such as the hour of a day (period 24) or the day of
    a year (365.25): 23 o'clock is then close to 0. With `trainable=True` and periods
    of several magnitudes it also encodes numbers with fine structure. A missing number
    (NaN) or an infinite one gives zeros, which no number does.

    Args:
      source_column: A `numeric_column`, or a column of one number, such as
        `expression_column`.
      periods: The lengths of the waves, in the unit of the numbers.
      trainable: Whether training changes the periods, beginning with those given.

    Returns:
      A dense column of twice as many numbers as there are periods, for each number of
      the source: all sines, then all cosines.

    Raises:
      FeatureError: The source is no numeric column, or `periods` is empty or has a
        number that is not above 0.

    Example:
      >>> from estimax import feature_columns as fc
      >>> hour = fc.periodic_column(fc.numeric_column("hour"), [24])
      >>> waves = fc.DenseFeatures([hour]).apply({}, {"hour": [0.0, 6.0]})
      >>> abs(waves).round(3).tolist()
      [[0.0, 1.0], [1.0, 0.0]]
    """
    check_source(source_column, "periodic_column")
    what = f"periodic_column of {source_column.name!r}"
    found = _validate_numbers(periods, what, "periods", 1)
    if any(period <= 0 for period in found):
        raise FeatureError(f"{what}: periods must be above 0, got {periods!r}.")
    return PeriodicColumn(source_column, found, bool(trainable))


def quantile_boundaries(values: Any, bins: int = 24) -> tuple[float, ...]:
    """Choose edges of bins for `piecewise_linear_column` from the values of a feature.

    Half of the edges are quantiles of all values, so that bins hold about as many rows.
    The other half are quantiles of the distinct values, so that bins also divide what
    is rare: a column that is 0 in nine rows of ten would otherwise get hardly any edge
    above 0.

    Args:
      values: The numbers of the training rows, of any shape. Missing and infinite ones
        are left out.
      bins: The largest number of bins. There are fewer if there are few distinct
        values.

    Returns:
      The edges, ascending and distinct as float32: at least two.

    Raises:
      FeatureError: `bins` is below 1, or there is no finite value.

    Example:
      >>> from estimax import feature_columns as fc
      >>> fc.quantile_boundaries([0.0] * 9 + [1.0, 2.0, 3.0], bins=3)
      (0.0, 1.0, 2.0, 3.0)
    """
    if isinstance(bins, bool) or not isinstance(bins, int | np.integer) or bins < 1:
        raise FeatureError(f"quantile_boundaries: bins must be at least 1, got {bins}.")
    numbers = np.asarray(values, np.float32).reshape(-1)
    numbers = numbers[np.isfinite(numbers)]
    if not numbers.size:
        raise FeatureError("quantile_boundaries: there is no finite value.")
    distinct = np.unique(numbers)
    if len(distinct) == 1:
        only, top = float(distinct[0]), float(np.finfo(np.float32).max)
        above = float(np.float32(min(top, only + max(1.0, abs(only)))))
        return (only, above) if only < above else (0.0, only)
    if len(distinct) <= bins + 1:
        return tuple(float(edge) for edge in distinct)
    of_rows = np.quantile(numbers, np.linspace(0, 1, (bins + 1) // 2 + 1))
    # Without the first and the last, which are among the others.
    of_distinct = np.quantile(distinct, np.linspace(0, 1, bins // 2 + 2)[1:-1])
    edges = np.unique(np.concatenate([of_rows, of_distinct]).astype(np.float32))
    return tuple(float(edge) for edge in edges)


def k_means_boundaries(values: Any, buckets: int = 8) -> tuple[float, ...]:
    """Choose boundaries for `bucketized_column` between clusters of the values.

    Use it for a number whose values lie in groups of different sizes, such as prices of
    several kinds of goods. Buckets of quantiles have about as many rows each and split
    a large group; these have values that are close to each other. The clusters are
    the best of k-means in one dimension, and the same in every run.

    Args:
      values: The numbers of the training rows, of any shape. Missing and infinite ones
        are left out.
      buckets: The largest number of buckets. There are fewer if there are few distinct
        values.

    Returns:
      The boundaries, ascending and distinct as float32, at least one: the middles
      between neighbouring clusters.

    Raises:
      FeatureError: `buckets` is below 2, or there is no finite value.

    Example:
      >>> from estimax import feature_columns as fc
      >>> fc.k_means_boundaries([1.0, 2.0, 1.5, 100.0, 101.0], buckets=2)
      (51.0,)
    """
    if isinstance(buckets, bool) or not isinstance(buckets, int | np.integer):
        raise FeatureError(
            f"k_means_boundaries: buckets must be an int, got {buckets}."
        )
    if buckets < 2:
        raise FeatureError(
            f"k_means_boundaries: buckets must be at least 2, got {buckets}."
        )
    numbers = np.asarray(values, np.float64).reshape(-1)
    numbers = np.sort(numbers[np.isfinite(numbers)])
    if not numbers.size:
        raise FeatureError("k_means_boundaries: there is no finite value.")
    distinct = np.unique(numbers)
    if len(distinct) == 1:
        return (float(np.float32(distinct[0])),)
    centers = _centers(numbers, distinct, int(buckets))
    middles = np.unique(((centers[1:] + centers[:-1]) / 2).astype(np.float32))
    return tuple(float(middle) for middle in middles)


def _centers(numbers: Any, distinct: Any, count: int) -> Any:
    """Return the means of the best clusters of sorted numbers, by dynamic programming.

    The usual iterations would stay where they begin if one group has most of the rows.
    """
    if len(distinct) > _MOST_POINTS:
        # Points are quantiles of the rows and equal steps: no gap between groups is
        # inside of one, unless it is narrower than a step.
        steps = np.linspace(distinct[0], distinct[-1], _MOST_POINTS // 2)
        shares = np.quantile(numbers, np.linspace(0, 1, _MOST_POINTS // 2))
        distinct = np.unique(np.concatenate([steps, shares]))
    starts = np.unique(np.searchsorted(numbers, distinct, side="left"))
    # Sums up to each point, of numbers around 0, so that their squares keep digits.
    middle = float(numbers.mean())
    scale = float(np.abs(numbers - middle).max())
    centered = (numbers - middle) / scale
    rows = np.append(starts, len(numbers))
    linear = np.concatenate([[0.0], np.cumsum(centered)])[rows]
    squares = np.concatenate([[0.0], np.cumsum(centered**2)])[rows]
    # The squared distances of the rows from point i up to point j, [i, j].
    size = np.maximum(rows[None, :] - rows[:, None], 1)
    total = linear[None, :] - linear[:, None]
    cost = squares[None, :] - squares[:, None] - total**2 / size
    cost = np.where(rows[None, :] > rows[:, None], np.maximum(cost, 0.0), np.inf)
    best, begins = cost[0], []
    for _ in range(min(count, len(starts)) - 1):
        through = best[:, None] + cost
        begins.append(np.argmin(through, axis=0))
        best = np.min(through, axis=0)
    ends = [len(rows) - 1]
    for begin in reversed(begins):
        ends.insert(0, int(begin[ends[0]]))
    edges = rows[np.array([0, *ends])]
    found = [part.mean() for part in np.split(numbers, edges[1:-1])]
    return np.array(found)


def numbers_or_nan(source: NumberColumn, features: Features) -> jax.Array:
    """Return the numbers of a column; a request may leave the feature out."""
    return replace(source, default_value=math.nan).values(features)


def _validate_numbers(
    given: Any, what: str, argument: str, at_least: int
) -> tuple[float, ...]:
    is_list = isinstance(given, Sequence | np.ndarray) and not isinstance(given, str)
    numbers = list(given) if is_list else []
    is_finite = all(
        isinstance(number, int | float | np.integer | np.floating)
        and not isinstance(number, bool)
        and math.isfinite(number)
        for number in numbers
    )
    if len(numbers) < at_least or not is_finite:
        count = "one finite number" if at_least == 1 else "two finite numbers"
        raise FeatureError(
            f"{what}: {argument} must be a list of at least {count}, got {given!r}."
        )
    return tuple(float(number) for number in numbers)
