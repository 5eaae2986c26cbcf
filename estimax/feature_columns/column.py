"""What a column is: an immutable description, of one or more of these kinds.

| kind        | gives                       | who reads it                             |
| ----------- | --------------------------- | ---------------------------------------- |
| dense       | floats [B, *variable_shape] | `DenseFeatures`, `LinearModel`           |
| categorical | ids [B, L], maybe weights   | `LinearModel`; indicator, embedding, …   |
| sequence    | floats [B, T, *shape]       | `SequenceFeatures`                       |

A column holds no data and no variables, so equal arguments make equal columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import jax
from flax import linen as nn

from estimax import staging, variables
from estimax.core.errors import FeatureError
from estimax.core.parse_spec import FixedLenFeature, VarLenFeature
from estimax.transforms import IdSource

Features = Mapping[str, Any]  # key -> array, Strings, Sparse, or what a trace hands out
ParseSpec = dict[str, FixedLenFeature | VarLenFeature]


class Column(Protocol):
    """What every column has."""

    @property
    def name(self) -> str:
        """Unique among the columns of a layer; names the variables."""

    @property
    def parse_example_spec(self) -> ParseSpec:
        """How the column's features are stored in an Example."""


class CategoricalColumn(Column, Protocol):
    """A column of ids."""

    @property
    def num_buckets(self) -> int:
        """How many ids there are."""

    @property
    def host_half(self) -> IdSource:
        """What turns raw features into ids, on the host."""


class DenseColumn(Column, Protocol):
    """A column of floats."""

    @property
    def variable_shape(self) -> tuple[int, ...]:
        """The shape of one row."""

    def block(self, layer: nn.Module, features: Features, trainable: bool) -> jax.Array:
        """The column's floats, flat [B, N]; its variables live in the layer."""


class SequenceColumn(Column, Protocol):
    """A column of floats at every step of a sequence.

    Indicators and embeddings are this and dense, by what they wrap: `is_sequence`.
    """

    @property
    def variable_shape(self) -> tuple[int, ...]:
        """The shape of one step."""

    @property
    def timed_by(self) -> tuple[str, int | None]:
        """The feature that has the steps; how many of its numbers make one."""

    def steps(self, layer: nn.Module, features: Features, trainable: bool) -> jax.Array:
        """The column's floats, [B, T, N]; its variables live in the layer."""


# Asked of the type: a property of an instance may read a vocabulary file.
def is_categorical(column: object) -> bool:
    """Whether a value is a categorical column."""
    return hasattr(type(column), "host_half")


def is_dense(column: object) -> bool:
    """Whether a value is a dense column."""
    return hasattr(type(column), "block")


def is_sequence(column: object) -> bool:
    """Whether a column, dense or categorical, is one of sequences."""
    return bool(getattr(column, "is_sequence", False))


def is_column(value: object) -> bool:
    """Whether a value is a column of any kind."""
    return hasattr(type(value), "parse_example_spec")


def variable_scope(name: str) -> str:
    """The part of a variable's name that a column's name becomes.

    >>> variable_scope("home city")
    'home_city'
    """
    return re.sub(r"[^A-Za-z0-9_.\-]", "_", name)


def rounds_time() -> bool:
    """Whether T is rounded up: in compiled programs, where every shape costs one."""
    return staging.current() is not None


def check_key(key: object, function: str) -> None:
    """Raise unless a feature key is text."""
    if not isinstance(key, str):
        raise FeatureError(f"{function}: key must be a str, got {key!r}.")


def check_no_sequence(column: Any, user: str) -> None:
    """Raise if a column is of sequences, which only `SequenceFeatures` can use."""
    if is_sequence(column):
        raise FeatureError(
            f"{user}: column {column.name!r} is of sequences. SequenceFeatures (or "
            "sequence_input_layer) reads those, through indicator_column or "
            "embedding_column if they are categorical."
        )


def check_categorical(column: object, function: str) -> None:
    """Raise unless a column is categorical."""
    if not is_categorical(column):
        raise FeatureError(
            f"{function}: needs a categorical column, got {_shown(column)}. A "
            "numeric_column becomes one through bucketized_column."
        )


def sorted_columns(feature_columns: Any, layer: str) -> tuple[Any, ...]:
    """Check what a user gave as columns; returns them in order of their names."""
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
                f"{layer}: {_shown(column)} is no feature column; build one with "
                "numeric_column, embedding_column, …"
            )
    columns.sort(key=lambda column: column.name)
    names = [column.name for column in columns]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise FeatureError(
            f"{layer}: several columns have the name {', '.join(map(repr, repeated))}; "
            "names must differ, since they name the variables."
        )
    return tuple(columns)


def check_scopes(columns: Iterable[Any], layer: str) -> None:
    """Raise if two columns would have one variable: names lose letters on the way."""
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


def check_features(features: object, layer: str) -> None:
    """Raise unless features are a dict."""
    if not isinstance(features, Mapping):
        raise FeatureError(
            f"{layer}: features must be a dict of arrays by key, got "
            f"{type(features).__name__}."
        )


def check_batches(blocks: Mapping[str, variables.Part], layer: str) -> None:
    """Raise unless all columns give the same number of rows."""
    sizes = {name: block.shape[0] for name, block in blocks.items()}
    first = next(iter(sizes))
    for name, size in sizes.items():
        if size != sizes[first]:
            raise FeatureError(
                f"{layer}: column {first!r} has {sizes[first]} rows, column {name!r} "
                f"has {size}; all features of a batch must have as many."
            )


def _shown(value: object) -> str:
    name = getattr(value, "name", None)
    kind = type(value).__name__
    return f"{kind} {name!r}" if isinstance(name, str) else f"{value!r} ({kind})"
