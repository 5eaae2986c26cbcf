"""Numbers at every step of a sequence."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from estimax import staging, transforms
from estimax.core.errors import FeatureError
from estimax.core.parse_spec import VarLenFeature
from estimax.feature_columns.column import Features, ParseSpec
from estimax.feature_columns.ids import rounds_time
from estimax.feature_columns.numeric import numeric_column


@dataclass(frozen=True)
class SequenceNumericColumn:
    """A sequence of numbers; see `sequence_numeric_column`."""

    key: str
    shape: tuple[int, ...]
    default_value: float
    dtype: str
    normalizer_fn: Callable[[Any], Any] | None

    @property
    def is_sequence(self) -> bool:
        """Always."""
        return True

    @property
    def name(self) -> str:
        """The key."""
        return self.key

    @property
    def variable_shape(self) -> tuple[int, ...]:
        """The shape of a step."""
        return self.shape

    @property
    def parse_example_spec(self) -> ParseSpec:
        """Any number of values."""
        return {self.key: VarLenFeature(self.dtype)}

    @property
    def timed_by(self) -> tuple[str, int | None]:
        """The feature, so many numbers a step."""
        return self.key, math.prod(self.shape)

    def steps(self, layer: nn.Module, features: Features, trainable: bool) -> jax.Array:
        """The numbers of every step, missing ones as the default."""
        transform = transforms.SequenceNumbers(
            *(self.key, math.prod(self.shape), self.default_value),
            # A normalizer runs on the device, where an export can trace it.
            tells_missing=self.normalizer_fn is not None,
            rounded=rounds_time(),
        )
        given = staging.stage(transform, features)
        if self.normalizer_fn is None:
            values: jax.Array = given
            return values
        normalized = jnp.asarray(self.normalizer_fn(given["values"]), jnp.float32)
        return jnp.where(given["present"], normalized, self.default_value)


def sequence_numeric_column(
    key: str,
    shape: int | Iterable[int] = (1,),
    default_value: float = 0.0,
    dtype: Any = "float32",
    normalizer_fn: Callable[[Any], Any] | None = None,
) -> SequenceNumericColumn:
    """Numbers at every step, from a sparse feature; missing ones are `default_value`.

    The normalizer works element by element, on float32, and not on missing numbers.

    >>> sequence_numeric_column("speed", shape=3).variable_shape
    (3,)
    """
    # All but the default is checked alike.
    plain = numeric_column(key, shape, None, dtype, normalizer_fn)
    if not isinstance(default_value, int | float):
        raise FeatureError(
            f"sequence_numeric_column {key!r}: default_value must be a number, got "
            f"{default_value!r}."
        )
    return SequenceNumericColumn(
        key, plain.shape, float(default_value), plain.dtype, normalizer_fn
    )
