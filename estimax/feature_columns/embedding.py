"""Embeddings: a row of a table per id, combined into one row per example."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
from flax import linen as nn

from estimax import variables
from estimax.core.errors import FeatureError
from estimax.feature_columns.column import (
    CategoricalColumn,
    Features,
    ParseSpec,
    check_categorical,
    variable_scope,
)
from estimax.feature_columns.composed import WeightedCategoricalColumn
from estimax.feature_columns.embedding_table import Table
from estimax.feature_columns.lookup import Place
from estimax.feature_columns.sequence import (
    SequenceCategoricalColumn,
    sequence_of,
)

WEIGHTS = "embedding_weights"


@dataclass(frozen=True)
class EmbeddingColumn:
    """Rows of a table, its own or shared by name; see `embedding_column`.

    A shared table is one in the whole model, or with `per_layer` one in every layer.
    """

    categorical_column: CategoricalColumn
    table: Table
    shared_embedding_collection_name: str | None = None
    per_layer: bool = False

    @property
    def name(self) -> str:
        """The categorical column's, marked as embedding."""
        kind = "shared_" if self.shared_embedding_collection_name else ""
        return f"{self.categorical_column.name}_{kind}embedding"

    @property
    def dimension(self) -> int:
        """The width of the table."""
        return self.table.dimension

    @property
    def variable_shape(self) -> tuple[int, ...]:
        """One row of the table."""
        return (self.table.dimension,)

    @property
    def parse_example_spec(self) -> ParseSpec:
        """The categorical column's."""
        return self.categorical_column.parse_example_spec

    @property
    def is_sequence(self) -> bool:
        """Whether it has a row at every step of a sequence."""
        return isinstance(self.categorical_column, SequenceCategoricalColumn)

    @property
    def timed_by(self) -> tuple[str, int | None]:
        """The feature of ids."""
        return sequence_of(self).timed_by

    def block(self, layer: nn.Module, features: Features, trainable: bool) -> jax.Array:
        """The combined rows."""
        column = self.categorical_column
        return self.table.block(layer, self._place, column, features, trainable)

    def ready(self, layer: nn.Module, features: Features) -> variables.ReadyRows | None:
        """In training, what several such columns can look up together."""
        return self.table.ready(layer, self._place, self.categorical_column, features)

    def steps(self, layer: nn.Module, features: Features, trainable: bool) -> jax.Array:
        """The combined rows of every step."""
        column = sequence_of(self)
        return self.table.steps(layer, self._place, column, features, trainable)

    @property
    def _place(self) -> Place:
        shared = self.shared_embedding_collection_name
        if shared is None or self.per_layer:
            return Place(shared or self.name, WEIGHTS)
        return Place(None, variable_scope(shared))


def owns_table(column: object) -> bool:
    """Whether a column has a table to itself, under its own name."""
    if not isinstance(column, EmbeddingColumn):
        return False
    return column.shared_embedding_collection_name is None


def embedding_column(
    categorical_column: CategoricalColumn,
    dimension: int,
    combiner: str = "mean",
    initializer: Callable[..., Any] | None = None,
    ckpt_to_load_from: str | None = None,
    tensor_name_in_ckpt: str | None = None,
    max_norm: float | None = None,
    trainable: bool = True,
    use_safe_embedding_lookup: bool = True,
    row_updates: bool = True,
) -> EmbeddingColumn:
    """A trained row of `dimension` numbers per id, combined by mean, sqrtn or sum.

    `initializer` is one of JAX's: called with a key, a shape and a dtype. Without one
    the rows start as a truncated normal of σ = 1/√dimension. Or they start as the
    variable `tensor_name_in_ckpt` of a checkpoint, or of a directory's newest.

    A step moves the rows of its batch only. `row_updates=False` makes the table
    ordinary weights, moved as a whole: momentum and weight decay then reach every row
    in every step, at a cost that grows with the table.

    >>> from estimax.feature_columns import categorical_column_with_hash_bucket
    >>> city = categorical_column_with_hash_bucket("city", 1000)
    >>> embedding_column(city, 8).name
    'city_embedding'
    """
    check_categorical(categorical_column, "embedding_column")
    table = Table(
        *(dimension, combiner, initializer, ckpt_to_load_from, tensor_name_in_ckpt),
        *(max_norm, trainable, use_safe_embedding_lookup, row_updates),
    )
    _check_table(table, f"embedding_column of {categorical_column.name!r}")
    return EmbeddingColumn(categorical_column, table)


def shared_embeddings(
    categorical_columns: Sequence[CategoricalColumn],
    dimension: int,
    combiner: str = "mean",
    initializer: Callable[..., Any] | None = None,
    shared_embedding_collection_name: str | None = None,
    ckpt_to_load_from: str | None = None,
    tensor_name_in_ckpt: str | None = None,
    max_norm: float | None = None,
    trainable: bool = True,
    use_safe_embedding_lookup: bool = True,
    row_updates: bool = True,
) -> list[EmbeddingColumn]:
    """One embedding column per categorical column, all reading one table.

    The table is a variable at the top of the model, named as the collection: layers
    that name it share it. The other arguments are those of `embedding_column`.

    >>> from estimax.feature_columns import categorical_column_with_identity
    >>> pair = [categorical_column_with_identity(key, 9) for key in ("to", "from")]
    >>> [column.name for column in shared_embeddings(pair, 4)]
    ['to_shared_embedding', 'from_shared_embedding']
    """
    table = Table(
        *(dimension, combiner, initializer, ckpt_to_load_from, tensor_name_in_ckpt),
        *(max_norm, trainable, use_safe_embedding_lookup, row_updates),
    )
    columns = _checked_alike(categorical_columns, "shared_embeddings")
    _check_table(table, "shared_embeddings")
    name = shared_embedding_collection_name or _collection_of(columns)
    return [EmbeddingColumn(column, table, name) for column in columns]


def shared_embedding_columns(
    categorical_columns: Sequence[CategoricalColumn],
    dimension: int,
    combiner: str = "mean",
    initializer: Callable[..., Any] | None = None,
    shared_embedding_collection_name: str | None = None,
    ckpt_to_load_from: str | None = None,
    tensor_name_in_ckpt: str | None = None,
    max_norm: float | None = None,
    trainable: bool = True,
    use_safe_embedding_lookup: bool = True,
) -> list[EmbeddingColumn]:
    """TensorFlow 1's `shared_embeddings`: one table in every layer that reads it.

    The variable is `<layer>/<collection>/embedding_weights`, so that a wide and a deep
    layer share nothing.

    >>> from estimax.feature_columns import categorical_column_with_identity
    >>> pair = [categorical_column_with_identity(key, 9) for key in ("to", "from")]
    >>> shared_embedding_columns(pair, 4)[0].shared_embedding_collection_name
    'from_to_shared_embedding'
    """
    columns = shared_embeddings(
        *(categorical_columns, dimension, combiner, initializer),
        *(shared_embedding_collection_name, ckpt_to_load_from, tensor_name_in_ckpt),
        *(max_norm, trainable, use_safe_embedding_lookup),
    )
    return [replace(column, per_layer=True) for column in columns]


def _collection_of(columns: Sequence[CategoricalColumn]) -> str:
    names = sorted(column.name for column in columns)
    return "_".join(names) + "_shared_embedding"


def _check_table(table: Table, where: str) -> None:
    if table.dimension is None or table.dimension < 1:
        raise FeatureError(
            f"{where}: dimension must be at least 1, got {table.dimension}."
        )
    if (table.ckpt_to_load_from is None) is not (table.tensor_name_in_ckpt is None):
        raise FeatureError(
            f"{where}: ckpt_to_load_from and tensor_name_in_ckpt go together; one of "
            "them is missing."
        )
    if table.initializer is not None and not callable(table.initializer):
        raise FeatureError(
            f"{where}: initializer must be callable (one of jax.nn.initializers), got "
            f"{table.initializer!r}."
        )


def _checked_alike(
    given: Sequence[CategoricalColumn], function: str
) -> list[CategoricalColumn]:
    columns = list(given)
    if not columns:
        raise FeatureError(f"{function}: categorical_columns must not be empty.")
    for column in columns:
        check_categorical(column, function)
    plain = [_unwrapped(column) for column in columns]
    kinds = {type(column).__name__ for column in plain}
    if len(kinds) > 1:
        raise FeatureError(
            f"{function}: all columns must be of one type, got "
            f"{', '.join(sorted(kinds))}."
        )
    sizes = {column.name: column.num_buckets for column in plain}
    if len(set(sizes.values())) > 1:
        raise FeatureError(
            f"{function}: all columns must have as many buckets, got {sizes}."
        )
    return columns


def _unwrapped(column: CategoricalColumn) -> CategoricalColumn:
    if isinstance(column, WeightedCategoricalColumn | SequenceCategoricalColumn):
        return column.categorical_column
    return column
