"""Categorical columns of sequences: an id, or several, at every step."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from estimax import staging, transforms
from estimax.core.errors import FeatureError
from estimax.core.parse_spec import STRING, VarLenFeature
from estimax.feature_columns.categorical import (
    HashedCategoricalColumn,
    IdentityCategoricalColumn,
    VocabularyFileCategoricalColumn,
    VocabularyListCategoricalColumn,
    categorical_column_with_hash_bucket,
    categorical_column_with_identity,
    categorical_column_with_vocabulary_file,
    categorical_column_with_vocabulary_list,
)
from estimax.feature_columns.column import Features, ParseSpec, rounds_time
from estimax.feature_columns.numeric import numeric_column

Plain = (
    HashedCategoricalColumn
    | IdentityCategoricalColumn
    | VocabularyFileCategoricalColumn
    | VocabularyListCategoricalColumn
)


@dataclass(frozen=True)
class SequenceCategoricalColumn:
    """A categorical column whose feature has steps; see the four functions below."""

    categorical_column: Plain

    @property
    def is_sequence(self) -> bool:
        """Always."""
        return True

    @property
    def name(self) -> str:
        """The key."""
        return self.categorical_column.name

    @property
    def num_buckets(self) -> int:
        """How many ids there are."""
        return self.categorical_column.num_buckets

    @property
    def parse_example_spec(self) -> ParseSpec:
        """Any number of values."""
        return self.categorical_column.parse_example_spec

    @property
    def host_half(self) -> transforms.IdSource:
        """What makes the ids."""
        return self.categorical_column.host_half

    @property
    def timed_by(self) -> tuple[str, int | None]:
        """The feature of ids."""
        return self.categorical_column.key, None


def sequence_categorical_column_with_identity(
    key: str, num_buckets: int, default_value: int | None = None
) -> SequenceCategoricalColumn:
    """Integers in [0, num_buckets) at every step; others become the default, if any.

    >>> from estimax.feature_columns import indicator_column
    >>> clicks = sequence_categorical_column_with_identity("clicks", 9)
    >>> indicator_column(clicks).name
    'clicks_indicator'
    """
    plain = categorical_column_with_identity(key, num_buckets, default_value)
    return SequenceCategoricalColumn(plain)


def sequence_categorical_column_with_hash_bucket(
    key: str, hash_bucket_size: int, dtype: Any = STRING
) -> SequenceCategoricalColumn:
    """Strings (or integers, as decimal text) at every step, by hash.

    >>> sequence_categorical_column_with_hash_bucket("words", 1000).num_buckets
    1000
    """
    plain = categorical_column_with_hash_bucket(key, hash_bucket_size, dtype)
    return SequenceCategoricalColumn(plain)


def sequence_categorical_column_with_vocabulary_list(
    key: str,
    vocabulary_list: Iterable[str | bytes | int],
    dtype: Any = None,
    default_value: int = -1,
    num_oov_buckets: int = 0,
) -> SequenceCategoricalColumn:
    """Words at every step, by their place in a list.

    A word that is not in it gives a step of zeros, which counts in the length.

    >>> column = sequence_categorical_column_with_vocabulary_list("notes", ["c", "d"])
    >>> column.num_buckets
    2
    """
    plain = categorical_column_with_vocabulary_list(
        key, vocabulary_list, dtype, default_value, num_oov_buckets
    )
    return SequenceCategoricalColumn(plain)


def sequence_categorical_column_with_vocabulary_file(
    key: str,
    vocabulary_file: str | os.PathLike[str],
    vocabulary_size: int | None = None,
    num_oov_buckets: int = 0,
    default_value: int | None = None,
    dtype: Any = STRING,
) -> SequenceCategoricalColumn:
    """Words at every step, by their line in a file.

    The order of the arguments is TensorFlow's, and is not that of
    `categorical_column_with_vocabulary_file`.

    >>> column = sequence_categorical_column_with_vocabulary_file("w", "words.txt", 9)
    >>> column.num_buckets
    9
    """
    plain = categorical_column_with_vocabulary_file(
        *(key, vocabulary_file, vocabulary_size),
        dtype=dtype,
        default_value=default_value,
        num_oov_buckets=num_oov_buckets,
    )
    return SequenceCategoricalColumn(plain)


def sequence_of(column: Any) -> SequenceCategoricalColumn:  # an indicator or embedding
    """The sequence that a dense column wraps."""
    source = column.categorical_column
    if not isinstance(source, SequenceCategoricalColumn):
        raise FeatureError(
            f"column {column.name!r} is not of sequences: {source.name!r} is no "
            "sequence_categorical_column."
        )
    return source


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
