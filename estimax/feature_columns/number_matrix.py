"""The numeric columns of a layer as one matrix, which the host makes.

    together = stage_numbers(columns, features)
    block = together.block(run)          # [B, N] of neighbouring columns

A column alone is an argument of the compiled program, a slice of the packed batch, a
cast and an operand of a concatenation. With a thousand columns, JAX and XLA spent 40 s
on those before the first step. As a matrix they are one argument, and the numbers of
each `Scaling` are constants of one expression for all columns; the bits are the same.

A column stays apart if its `normalizer_fn` is a Python function, if the model computed
its feature, or if it needs an error message: `NumericColumn.values` raises that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from estimax import staging
from estimax.feature_columns import transforms
from estimax.feature_columns.column import Features
from estimax.feature_columns.numeric import NumericColumn
from estimax.staging.trace import HostOnly, Trace

_FEWEST = 2  # columns: one alone is no shorter as a matrix
_AS_IS = transforms.Scaling()


@dataclass(frozen=True)
class StagedNumbers:
    """Columns whose numbers are in a matrix [B, N].

    Attributes:
      matrix: The numbers of all columns in order, not yet scaled; None without columns.
      places: The first and the last position, exclusive, of each column by its name.
    """

    matrix: jax.Array | None
    places: dict[str, tuple[int, int]]

    def has(self, column: Any) -> bool:
        """Return whether a column, one of those of the layer, is in the matrix."""
        return column.name in self.places

    def block(self, columns: Sequence[NumericColumn]) -> jax.Array:
        """Return the normalized numbers of neighbouring columns, float32 [B, N]."""
        first, last = columns[0].name, columns[-1].name
        start, end = self.places[first][0], self.places[last][1]
        assert self.matrix is not None
        numbers = self.matrix
        if (start, end) != (0, numbers.shape[1]):
            numbers = numbers[:, start:end]
        return _scale(numbers, columns)


def stage_numbers(columns: Sequence[Any], features: Features) -> StagedNumbers:
    """Stage the numeric columns among `columns` that can be one matrix.

    Args:
      columns: The columns of a layer, in order.
      features: The features of a batch by key, which has those of all columns.
    """
    trace = staging.current()
    if trace is None:
        return StagedNumbers(None, {})
    found = [c for c in columns if _is_plain(c, features, trace)]
    if len(found) < _FEWEST:
        return StagedNumbers(None, {})
    # A batch whose features differ in length: the columns apart raise the error.
    if any(_rows(c, features) != _rows(found[0], features) for c in found):
        return StagedNumbers(None, {})
    places, end = {}, 0
    for column in found:
        column.declare_default(features)
        start, end = end, end + math.prod(column.shape)
        places[column.name] = start, end
    transform = transforms.NumberMatrix(
        tuple(column.key for column in found),
        tuple(math.prod(column.shape) for column in found),
    )
    return StagedNumbers(staging.stage(transform, features), places)


def _is_plain(column: Any, features: Features, trace: Trace) -> bool:
    """Return whether the host can put the numbers of a column into a matrix."""
    if type(column) is not NumericColumn:
        return False
    if not isinstance(column.normalizer_fn, transforms.Scaling | None):
        return False
    if column.text is not None:
        return False
    value = features[column.key]
    origin = trace.origin(value)
    if origin is None:
        return False
    is_wide = trace.is_wide(origin)
    if isinstance(value, HostOnly):
        if not is_wide:
            return False
    elif not is_wide and not _is_exact_in_float32(value.dtype, column):
        return False
    shape = value.shape
    return len(shape) > 0 and math.prod(shape[1:]) == math.prod(column.shape)


def _is_exact_in_float32(dtype: Any, column: NumericColumn) -> bool:
    if column.normalizer_fn is None:
        return bool(dtype == jnp.bool_) or _is_number(dtype)
    # A Scaling computes in the dtype of its feature.
    return bool(dtype == jnp.float32) or bool(jnp.issubdtype(dtype, jnp.integer))


def _is_number(dtype: Any) -> bool:
    return any(jnp.issubdtype(dtype, kind) for kind in (jnp.integer, jnp.floating))


def _rows(column: NumericColumn, features: Features) -> Any:  # may be symbolic
    return features[column.key].shape[0]


def _scale(numbers: jax.Array, columns: Sequence[NumericColumn]) -> jax.Array:
    """Return the normalized numbers: what each `Scaling` would return, bit by bit."""
    if all(column.normalizer_fn is None for column in columns):
        return numbers
    scalings: list[transforms.Scaling] = []
    for column in columns:
        scalings += [column.normalizer_fn or _AS_IS] * math.prod(column.shape)  # type: ignore[list-item]

    def each(value: Callable[[transforms.Scaling], Any], dtype: Any) -> Any:
        return np.array([[value(scaling) for scaling in scalings]], dtype)  # [1, N]

    fills = each(lambda s: s.fill is not None, bool)
    if fills.any():
        fill = each(lambda s: s.fill or 0.0, np.float32)
        numbers = jnp.where(fills & jnp.isnan(numbers), fill, numbers)
    logs = each(lambda s: s.log1p, bool)
    if logs.any():
        # Zero where there is no logarithm: one of a negative number would be NaN.
        numbers = jnp.where(logs, jnp.log1p(jnp.where(logs, numbers, 0.0)), numbers)
    mean = each(lambda s: s.mean, np.float32)
    std = each(lambda s: s.std, np.float32)
    if mean.any() or (std != 1).any():
        numbers = (numbers - mean) / std
    bounded = each(lambda s: s.smooth_clip is not None, bool)
    if bounded.any():
        bound = each(lambda s: s.smooth_clip or 1.0, np.float64)
        most = (1e6 * bound).astype(np.float32)
        clipped = jnp.clip(numbers, -most, most)
        part = clipped / bound.astype(np.float32)
        clipped = clipped / jnp.sqrt(1.0 + jnp.square(part))
        numbers = jnp.where(bounded, clipped, numbers)
    return numbers
