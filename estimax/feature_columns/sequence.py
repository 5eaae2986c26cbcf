"""Sequence columns: ids or numbers at every step of a sequence."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn

from estimax import staging
from estimax.core import display
from estimax.core.errors import FeatureError
from estimax.core.parse_spec import STRING, VarLenFeature
from estimax.core.sparse import Ids
from estimax.feature_columns import transforms
from estimax.feature_columns.categorical import (
    categorical_column_with_hash_bucket,
    categorical_column_with_identity,
    categorical_column_with_vocabulary_file,
    categorical_column_with_vocabulary_list,
)
from estimax.feature_columns.column import (
    CategoricalColumn,
    Features,
    ParseSpec,
    rounds_time,
)
from estimax.feature_columns.numeric import numeric_column
from estimax.feature_columns.transforms.transform import OutOfRange


@dataclass(frozen=True)
class SequenceCategoricalColumn(CategoricalColumn):
    """Ids at every step; made by `sequence_categorical_column_with_…`.

    Args:
      categorical_column: The same column without steps; it has one feature.
    """

    is_sequence: ClassVar[bool] = True

    categorical_column: CategoricalColumn

    @property
    def name(self) -> str:
        return self.categorical_column.name

    @property
    def num_buckets(self) -> int:
        """The number of ids."""
        return self.categorical_column.num_buckets

    @property
    def parse_example_spec(self) -> ParseSpec:
        return self.categorical_column.parse_example_spec

    @property
    def id_source(self) -> transforms.IdSource:
        return self.categorical_column.id_source

    @property
    def timed_by(self) -> tuple[str, int | None]:
        """The feature whose steps count, and None since it has ids."""
        return self.categorical_column.key, None

    def step_ids(self, features: Features, out_of_range: OutOfRange) -> Ids:
        """Return the ids of every step, [B, T, L], computed on the host.

        Args:
          features: The features of a batch by key.
          out_of_range: What to do with ids out of range; see `transforms.PadIds`.
        """
        source = self.id_source
        # As `pad_ids` does: sources that stay in range need no check.
        checked = transforms.pad_ids(source, out_of_range).out_of_range
        transform = transforms.SequenceIds(source, checked, rounded=rounds_time())
        ids: Ids = staging.stage(transform, features)
        return ids


def sequence_categorical_column_with_identity(
    key: str, num_buckets: int, default_value: int | None = None
) -> SequenceCategoricalColumn:
    """Take the integers at every step of a sequence as ids.

    Use it in `SequenceFeatures`, wrapped in `indicator_column` or `embedding_column`.
    The other arguments are those of `categorical_column_with_identity`.

    Args:
      key: The feature, of integers: [B, T], or [B, T, L] with several at a step.
      num_buckets: The number of ids; valid ones are in [0, num_buckets).
      default_value: The id for integers out of range; if None, they are an error in
        `embedding_column`, and not counted by `indicator_column`.

    Returns:
      A categorical sequence column.

    Raises:
      FeatureError: `num_buckets` is below 1, or `default_value` is out of range.

    Example:
      >>> from estimax import feature_columns as fc
      >>> clicks = fc.sequence_categorical_column_with_identity("clicks", 2)
      >>> layer = fc.SequenceFeatures([fc.indicator_column(clicks)])
      >>> block, lengths = layer.apply({}, {"clicks": [[1, 0, 1], [0, -1, -1]]})
      >>> block.shape, lengths.tolist()
      ((2, 3, 2), [3, 1])
    """
    plain = categorical_column_with_identity(key, num_buckets, default_value)
    return SequenceCategoricalColumn(plain)


def sequence_categorical_column_with_hash_bucket(
    key: str, hash_bucket_size: int, dtype: Any = STRING
) -> SequenceCategoricalColumn:
    """Take the hash of each value at every step of a sequence as its id.

    Use it in `SequenceFeatures`, wrapped in `indicator_column` or `embedding_column`.

    Args:
      key: The feature, of strings or integers: [B, T], or [B, T, L] with several
        values at a step.
      hash_bucket_size: The number of ids; different values may share one.
      dtype: The type of the feature: string, or an integer type. Integers are hashed
        as decimal text.

    Returns:
      A categorical sequence column.

    Raises:
      FeatureError: `hash_bucket_size` is below 1, or `dtype` is of another kind.

    Example:
      >>> from estimax import feature_columns as fc
      >>> words = fc.sequence_categorical_column_with_hash_bucket("words", 1000)
      >>> words.step_ids({"words": [["Oslo", "Rome"]]}, "error").ids.tolist()
      [[[578], [349]]]
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
    """Take the position in a list of each value at every step as its id.

    Use it in `SequenceFeatures`, wrapped in `indicator_column` or `embedding_column`.
    A value that has no id gives a step of zeros, which counts in the length.

    Args:
      key: The feature, of strings or integers: [B, T], or [B, T, L] with several
        values at a step.
      vocabulary_list: The values, distinct, all strings or all integers.
      dtype: The type of the feature; by default the type of the list.
      default_value: The id of a value that is not in the list. With -1 it has no id.
      num_oov_buckets: The number of ids, behind the ids of the list, that such values
        get by hash instead.

    Returns:
      A categorical sequence column.

    Raises:
      FeatureError: As for `categorical_column_with_vocabulary_list`.

    Example:
      >>> from estimax import feature_columns as fc
      >>> notes = fc.sequence_categorical_column_with_vocabulary_list("n", ["c", "d"])
      >>> notes.step_ids({"n": [["d", "c", "x", "d"]]}, "error").ids.tolist()
      [[[1], [0], [-1], [1]]]
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
    """Take the line number in a file of each value at every step as its id.

    Use it in `SequenceFeatures`, wrapped in `indicator_column` or `embedding_column`.
    The arguments are in TensorFlow's order, which is not the order of
    `categorical_column_with_vocabulary_file`.

    Args:
      key: The feature, of strings or integers: [B, T], or [B, T, L] with several
        values at a step.
      vocabulary_file: The path of a file with one word per line.
      vocabulary_size: How many words of the file to use; by default all.
      num_oov_buckets: The number of ids, behind the ids of the file, that values not
        in the file get by hash.
      default_value: The id of such values instead. By default they have none.
      dtype: The type of the feature: string, or an integer type.

    Returns:
      A categorical sequence column.

    Raises:
      FeatureError: As for `categorical_column_with_vocabulary_file`.

    Example:
      >>> from estimax import feature_columns as fc
      >>> column = fc.sequence_categorical_column_with_vocabulary_file("w", "w.txt", 9)
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


@dataclass(frozen=True, repr=False)
class SequenceNumericColumn:
    """Numbers at every step; made by `sequence_numeric_column`.

    Args:
      key: The feature.
      shape: The shape of a step.
      default_value: The number where the feature has none.
      dtype: The type of the feature, by name.
      normalizer_fn: A function applied to the numbers, or None.
    """

    is_sequence: ClassVar[bool] = True

    key: str
    shape: tuple[int, ...]
    default_value: float
    dtype: str
    normalizer_fn: Callable[[Any], Any] | None

    def __repr__(self) -> str:
        return display.format_fields(self)

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
        """How the feature is stored in an Example."""
        return {self.key: VarLenFeature(self.dtype)}

    @property
    def timed_by(self) -> tuple[str, int | None]:
        """The feature whose steps count; how many numbers make one."""
        return self.key, math.prod(self.shape)

    def steps(self, layer: nn.Module, features: Features, trainable: bool) -> jax.Array:
        """Return the numbers of every step, [B, T, N].

        Args:
          layer: Not used: there are no variables.
          features: The features of a batch by key.
          trainable: Not used.
        """
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
    """Take the numbers at every step of a sequence.

    Use it in `SequenceFeatures`, for sparse features such as those parsed as
    `VarLenFeature`.

    Args:
      key: The feature, which must be sparse.
      shape: The shape of a step: in a feature of rank 2, that many consecutive values
        are one step.
      default_value: The number where the feature has none.
      dtype: The type of the feature in Examples: an integer or float type.
      normalizer_fn: Applied to the numbers as float32, on the device and element by
        element; missing numbers are left alone.

    Returns:
      A sequence column.

    Raises:
      FeatureError: `shape`, `default_value` or `dtype` is invalid.
      TypeError: `normalizer_fn` is not callable, or `shape` has no integers.

    Example:
      >>> from estimax import feature_columns as fc
      >>> from estimax.core.sparse import Sparse
      >>> layer = fc.SequenceFeatures([fc.sequence_numeric_column("speed", shape=2)])
      >>> rows = Sparse.of_rows([[1.0, 2.0, 3.0, 4.0], [5.0, 6.0]])
      >>> block, lengths = layer.apply({}, {"speed": rows})
      >>> block.shape, lengths.tolist()
      ((2, 2, 2), [2, 1])
    """
    # A numeric column checks all arguments but the default in the same way.
    plain = numeric_column(key, shape, None, dtype, normalizer_fn)
    if not isinstance(default_value, int | float):
        raise FeatureError(
            f"sequence_numeric_column {key!r}: default_value must be a number, got "
            f"{default_value!r}."
        )
    return SequenceNumericColumn(
        key, plain.shape, float(default_value), plain.dtype, normalizer_fn
    )
