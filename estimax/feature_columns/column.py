"""What a column is: an immutable description, of one or more of these kinds.

| kind        | gives                       | used by                                  |
| ----------- | --------------------------- | ---------------------------------------- |
| dense       | floats [B, *variable_shape] | `DenseFeatures`, `LinearModel`           |
| categorical | ids [B, L], maybe weights   | `LinearModel`; indicator, embedding, …   |
| sequence    | floats [B, T, *shape]       | `SequenceFeatures`                       |

A column holds no data and no variables, so equal arguments make equal columns. Below
the kinds are the checks that columns and layers share.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import jax
from flax import linen as nn

from estimax import staging
from estimax.core.errors import FeatureError, did_you_mean
from estimax.core.parse_spec import FixedLenFeature, VarLenFeature
from estimax.core.sparse import Ids
from estimax.feature_columns import transforms
from estimax.feature_columns.transforms.transform import OutOfRange
from estimax.staging import variables

Features = Mapping[str, Any]  # key -> array, Strings, Sparse, or a traced stand-in
ParseSpec = dict[str, FixedLenFeature | VarLenFeature]


class Column(Protocol):
    """What every column has."""

    @property
    def name(self) -> str:
        """The name, unique in a layer; the column's variables are named after it."""

    @property
    def parse_example_spec(self) -> ParseSpec:
        """How the column's features are stored in an Example."""


class CategoricalColumn:
    """Base of the columns that give ids.

    The defaults here are for a column of one feature, with a `key` and a `dtype`. A new
    kind of categorical column defines `num_buckets`, the number of ids, and
    `id_source`, the `transforms.IdSource` that computes the ids on the host.
    """

    key: str
    dtype: str

    if TYPE_CHECKING:  # a field in some columns, a property in others

        @property
        def num_buckets(self) -> int: ...

    @property
    def name(self) -> str:
        """The name, unique in a layer; the column's variables are named after it."""
        return self.key

    @property
    def parse_example_spec(self) -> ParseSpec:
        """How the column's features are stored in an Example."""
        return {self.key: VarLenFeature(self.dtype)}

    @property
    def id_source(self) -> transforms.IdSource:
        """The source that turns raw features into ids on the host."""
        raise NotImplementedError

    def ids(self, features: Features, out_of_range: OutOfRange) -> Ids:
        """Return the padded ids [B, L], computed on the host.

        Args:
          features: The features of a batch by key.
          out_of_range: What to do with ids out of range; see `transforms.PadIds`.
        """
        transform = transforms.pad_ids(self.id_source, out_of_range)
        ids: Ids = staging.stage(transform, features)
        return ids


class DenseColumn(Column, Protocol):
    """A column that gives floats for each example."""

    @property
    def variable_shape(self) -> tuple[int, ...]:
        """The shape of one row."""

    def block(self, layer: nn.Module, features: Features, trainable: bool) -> jax.Array:
        """Return the column's floats, flat [B, N].

        Args:
          layer: The layer that holds the column's variables.
          features: The features of a batch by key.
          trainable: Whether the variables are trained.
        """


class SequenceColumn(Column, Protocol):
    """A column that gives floats for each step of a sequence.

    An indicator or embedding is one if it wraps a sequence column: see `is_sequence`.
    """

    @property
    def variable_shape(self) -> tuple[int, ...]:
        """The shape of one step."""

    @property
    def timed_by(self) -> tuple[str, int | None]:
        """The feature whose steps count; how many numbers make one (None for ids)."""

    def steps(self, layer: nn.Module, features: Features, trainable: bool) -> jax.Array:
        """Return the column's floats, [B, T, N].

        Args:
          layer: The layer that holds the column's variables.
          features: The features of a batch by key.
          trainable: Whether the variables are trained.
        """


class WrapperColumn:
    """Base of the columns that turn a categorical column into floats.

    They are dense, or sequence columns if the categorical column is one.
    """

    categorical_column: CategoricalColumn

    if TYPE_CHECKING:

        @property
        def name(self) -> str: ...

    @property
    def parse_example_spec(self) -> ParseSpec:
        """How the column's features are stored in an Example."""
        return self.categorical_column.parse_example_spec

    @property
    def is_sequence(self) -> bool:
        """Whether it gives floats at every step of a sequence."""
        return is_sequence(self.categorical_column)

    @property
    def timed_by(self) -> tuple[str, int | None]:
        """The feature whose steps count, and None since it has ids."""
        timed_by: tuple[str, int | None] = self._sequence.timed_by
        return timed_by

    def block(self, layer: nn.Module, features: Features, trainable: bool) -> jax.Array:
        """Return the column's floats, flat [B, N].

        Args:
          layer: The layer that holds the column's variables.
          features: The features of a batch by key.
          trainable: Whether the variables are trained.
        """
        raise NotImplementedError

    def steps(self, layer: nn.Module, features: Features, trainable: bool) -> jax.Array:
        """Return the column's floats at every step, [B, T, N].

        Args:
          layer: The layer that holds the column's variables.
          features: The features of a batch by key.
          trainable: Whether the variables are trained.
        """
        raise NotImplementedError

    @property
    def _sequence(self) -> Any:  # a SequenceCategoricalColumn
        column = self.categorical_column
        if not is_sequence(column):
            raise FeatureError(
                f"column {self.name!r} is not a sequence column: {column.name!r} is "
                "no sequence_categorical_column."
            )
        return column


# These ask the type: a property of an instance may read a vocabulary file.
def is_categorical(column: object) -> bool:
    """Return whether a value is a categorical column.

    Args:
      column: Any value.

    Example:
      >>> from estimax.feature_columns import numeric_column
      >>> is_categorical(numeric_column("age"))
      False
    """
    return hasattr(type(column), "id_source")


def is_dense(column: object) -> bool:
    """Return whether a value is a dense column.

    Args:
      column: Any value.

    Example:
      >>> from estimax.feature_columns import numeric_column
      >>> is_dense(numeric_column("age"))
      True
    """
    return hasattr(type(column), "block")


def is_sequence(column: object) -> bool:
    """Return whether a column, dense or categorical, has steps of a sequence.

    Args:
      column: Any value.

    Example:
      >>> from estimax.feature_columns import sequence_numeric_column
      >>> is_sequence(sequence_numeric_column("speed"))
      True
    """
    return bool(getattr(column, "is_sequence", False))


def is_column(value: object) -> bool:
    """Return whether a value is a column of any kind."""
    return hasattr(type(value), "parse_example_spec")


def variable_scope(name: str) -> str:
    """Return a column's name as it appears in the names of its variables.

    >>> variable_scope("home city")
    'home_city'
    """
    return re.sub(r"[^A-Za-z0-9_.\-]", "_", name)


def rounds_time() -> bool:
    """Return whether T is rounded up: in compiled models, where each shape compiles."""
    return staging.current() is not None


def check_key(key: object, function: str) -> None:
    """Raise unless a feature key is text."""
    if not isinstance(key, str):
        raise FeatureError(f"{function}: key must be a str, got {key!r}.")


def check_no_sequence(column: Any, user: str) -> None:
    """Raise if a column is a sequence column, which only `SequenceFeatures` takes."""
    if is_sequence(column):
        raise FeatureError(
            f"{user}: column {column.name!r} is a sequence column. SequenceFeatures "
            "(or sequence_input_layer) takes those, wrapped in indicator_column or "
            "embedding_column if they are categorical."
        )


def check_categorical(column: object, function: str) -> None:
    """Raise unless a column is categorical."""
    if not is_categorical(column):
        raise FeatureError(
            f"{function}: needs a categorical column, got {_format_value(column)}. A "
            "numeric_column becomes one through bucketized_column."
        )


def sort_columns(feature_columns: Any, layer: str) -> tuple[Any, ...]:
    """Check what a user gave as columns; return them in order of their names."""
    if isinstance(feature_columns, Mapping):
        raise FeatureError(
            f"{layer}: feature_columns must be a list of columns, got a dict."
        )
    given = feature_columns
    columns = list(given) if isinstance(given, Iterable | Iterator) else [given]
    if not columns:
        raise FeatureError(f"{layer}: feature_columns must not be empty.")
    for column in columns:
        if not is_column(column):
            raise FeatureError(
                f"{layer}: {_format_value(column)} is no feature column; build one "
                "with numeric_column, embedding_column, …"
            )
    columns.sort(key=lambda column: column.name)
    counts = Counter(column.name for column in columns)
    repeated = sorted(name for name, count in counts.items() if count > 1)
    if repeated:
        raise FeatureError(
            f"{layer}: several columns have the name {', '.join(map(repr, repeated))}; "
            "names must differ, since they name the variables."
        )
    return tuple(columns)


def check_scopes(columns: Iterable[Any], layer: str) -> None:
    """Raise if the variables of two columns would have the same name."""
    owners: dict[str, str] = {}
    for column in columns:
        scope = variable_scope(column.name)
        owner = owners.setdefault(scope, column.name)
        if owner != column.name:
            raise FeatureError(
                f"{layer}: the variables of the columns {owner!r} and {column.name!r} "
                f"would both be called {scope!r}, because such a name keeps only A-Z, "
                "a-z, 0-9, '_', '.' and '-'. Rename one of the features."
            )


def check_features(features: object, columns: Iterable[Any], layer: str) -> None:
    """Raise unless features are a dict that has all that the columns read."""
    if not isinstance(features, Mapping):
        raise FeatureError(
            f"{layer}: features must be a dict of arrays by key, got "
            f"{type(features).__name__}."
        )
    keys = {key: c.name for c in columns for key in c.parse_example_spec}
    missing = [key for key in keys if key not in features]
    if not missing:
        return
    found = [str(key) for key in features]
    if len(missing) == 1:
        needs, found_words = f"column {keys[missing[0]]!r} needs feature", "which is"
    else:
        needs, found_words = "its columns need features", "which are"
    near = did_you_mean(missing[0], found, listed_as="found")
    raise FeatureError(
        f"{layer}: {needs} {', '.join(map(repr, missing))}, {found_words} not among "
        f"the features{near}"
    )


def check_batches(blocks: Mapping[str, variables.ColumnBlock], layer: str) -> None:
    """Raise unless all columns give the same number of rows."""
    sizes = {name: block.shape[0] for name, block in blocks.items()}
    first = next(iter(sizes))
    for name, size in sizes.items():
        if size != sizes[first]:
            raise FeatureError(
                f"{layer}: column {first!r} has {sizes[first]} rows, column {name!r} "
                f"has {size}; all features of a batch must have the same number."
            )


def _format_value(value: object) -> str:
    name = getattr(value, "name", None)
    kind = type(value).__name__
    return f"{kind} {name!r}" if isinstance(name, str) else f"{value!r} ({kind})"
