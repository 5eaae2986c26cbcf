"""Embeddings: a row of a table per id, combined into one row per example."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from estimax import checkpoints
from estimax.core.errors import FeatureError
from estimax.feature_columns.column import (
    CategoricalColumn,
    Features,
    ParseSpec,
    check_categorical,
)
from estimax.feature_columns.column_variables import Initializer, table_rows
from estimax.feature_columns.combine import check_combiner, clip_norm, combine
from estimax.feature_columns.ids import ids_of
from estimax.feature_columns.weighted import WeightedCategoricalColumn


@dataclass(frozen=True)
class Table:
    """What an embedding table is and how its rows are combined."""

    dimension: int
    combiner: str
    initializer: Initializer | None
    ckpt_to_load_from: str | None
    tensor_name_in_ckpt: str | None
    max_norm: float | None
    trainable: bool
    use_safe_embedding_lookup: bool

    def block(
        self,
        layer: nn.Module,
        scope: str,
        column: CategoricalColumn,
        features: Features,
        trainable: bool,
    ) -> jax.Array:
        """One combined row per example: [B, dimension]."""
        check_combiner(self.combiner, column.name)
        is_safe = self.use_safe_embedding_lookup
        ids = ids_of(column, features, "error" if is_safe else "error_below")
        rows = table_rows(
            *(layer, scope, "embedding_weights"),
            (column.num_buckets, self.dimension),
            self._initializer(scope),
            ids.ids,
            trainable=trainable and self.trainable,
        )
        if self.max_norm is not None:
            rows = clip_norm(rows, self.max_norm)
        return combine(rows, ids, self.combiner, prune=is_safe)

    def _initializer(self, scope: str) -> Initializer:
        if self.ckpt_to_load_from is not None:
            return lambda key, shape, dtype: self._loaded(scope, shape)
        if self.initializer is not None:
            return self.initializer
        # Redrawn at ±2σ and not rescaled, as TensorFlow does.
        start: Initializer = nn.initializers.truncated_normal(self.dimension**-0.5)
        return start

    def _loaded(self, scope: str, shape: tuple[int, int]) -> jax.Array:
        """The rows that a checkpoint, or the newest of a directory, holds."""
        assert self.ckpt_to_load_from is not None
        assert self.tensor_name_in_ckpt is not None
        given = self.ckpt_to_load_from
        checkpoint = checkpoints.latest(given) if Path(given).is_dir() else None
        found = checkpoints.read_array(checkpoint or given, self.tensor_name_in_ckpt)
        if found.shape != shape:
            raise FeatureError(
                f"{scope}: {self.tensor_name_in_ckpt!r} in {given} has shape "
                f"{found.shape}, the table has {shape}."
            )
        return jnp.asarray(found)


@dataclass(frozen=True)
class EmbeddingColumn:
    """Rows of an own table; see `embedding_column`."""

    categorical_column: CategoricalColumn
    table: Table

    @property
    def name(self) -> str:
        """The categorical column's, marked as embedding."""
        return f"{self.categorical_column.name}_embedding"

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

    def block(self, layer: nn.Module, features: Features, trainable: bool) -> jax.Array:
        """The combined rows."""
        column = self.categorical_column
        return self.table.block(layer, self.name, column, features, trainable)


@dataclass(frozen=True)
class SharedEmbeddingColumn:
    """Rows of a table that several columns share; see `shared_embeddings`."""

    categorical_column: CategoricalColumn
    table: Table
    shared_embedding_collection_name: str

    @property
    def name(self) -> str:
        """The categorical column's, marked as shared embedding."""
        return f"{self.categorical_column.name}_shared_embedding"

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

    def block(self, layer: nn.Module, features: Features, trainable: bool) -> jax.Array:
        """The combined rows."""
        column, scope = self.categorical_column, self.shared_embedding_collection_name
        return self.table.block(layer, scope, column, features, trainable)


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
) -> EmbeddingColumn:
    """A trained row of `dimension` numbers per id, combined by mean, sqrtn or sum.

    `initializer` is one of JAX's: called with a key, a shape and a dtype. Without one
    the rows start as a truncated normal of σ = 1/√dimension.

    >>> from estimax.feature_columns import categorical_column_with_hash_bucket
    >>> city = categorical_column_with_hash_bucket("city", 1000)
    >>> embedding_column(city, 8).name
    'city_embedding'
    """
    check_categorical(categorical_column, "embedding_column")
    table = Table(
        *(dimension, combiner, initializer, ckpt_to_load_from, tensor_name_in_ckpt),
        *(max_norm, trainable, use_safe_embedding_lookup),
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
) -> list[SharedEmbeddingColumn]:
    """One embedding column per categorical column, all reading one table.

    >>> from estimax.feature_columns import categorical_column_with_identity
    >>> pair = [categorical_column_with_identity(key, 9) for key in ("to", "from")]
    >>> [column.name for column in shared_embeddings(pair, 4)]
    ['to_shared_embedding', 'from_shared_embedding']
    """
    columns = list(categorical_columns)
    if not columns:
        raise FeatureError("shared_embeddings: categorical_columns must not be empty.")
    for column in columns:
        check_categorical(column, "shared_embeddings")
    _check_alike(columns)
    table = Table(
        *(dimension, combiner, initializer, ckpt_to_load_from, tensor_name_in_ckpt),
        *(max_norm, trainable, use_safe_embedding_lookup),
    )
    _check_table(table, "shared_embeddings")
    name = shared_embedding_collection_name
    if not name:
        names = sorted(column.name for column in columns)
        name = "_".join(names) + "_shared_embedding"
    return [SharedEmbeddingColumn(column, table, name) for column in columns]


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


def _check_alike(columns: Sequence[CategoricalColumn]) -> None:
    plain = [
        c.categorical_column if isinstance(c, WeightedCategoricalColumn) else c
        for c in columns
    ]
    kinds = {type(column).__name__ for column in plain}
    if len(kinds) > 1:
        raise FeatureError(
            "shared_embeddings: all columns must be of one type, got "
            f"{', '.join(sorted(kinds))}."
        )
    sizes = {column.name: column.num_buckets for column in plain}
    if len(set(sizes.values())) > 1:
        raise FeatureError(
            f"shared_embeddings: all columns must have as many buckets, got {sizes}."
        )
