"""Dense columns of categorical ones: embeddings, and indicators that count ids.

An embedding is a row of a table for each id, combined to one row per example. Its path
in training:

    ids = categorical_column.ids(features, …)         computed on the host
    rows = variables.gathered_rows(path, ids)       the rows that the step gathered
    block = combine(rows, ids, combiner)              or `side_by_side`, see `layers.py`

The step then updates the gathered rows (`training/steps.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from numpy.typing import NDArray

from estimax import checkpoints
from estimax.core.display import format_value
from estimax.core.errors import FeatureError, MissingFileError, did_you_mean
from estimax.core.sparse import Ids
from estimax.feature_columns.categorical import WeightedCategoricalColumn
from estimax.feature_columns.column import (
    CategoricalColumn,
    Features,
    WrapperColumn,
    check_categorical,
    variable_scope,
)
from estimax.feature_columns.lookup import (
    VariablePlace,
    check_combiner,
    clip_norm,
    combine,
    count,
    table_rows,
    weight_rows,
)
from estimax.feature_columns.sequence import SequenceCategoricalColumn
from estimax.feature_columns.transforms.transform import OutOfRange
from estimax.staging import variables
from estimax.staging.variables.declare import Initializer

WEIGHTS = "embedding_weights"

# How many numbers an initializer draws at once: drawing needs as much memory again.
_DRAWN_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class EmbeddingTable:
    """The arguments of an embedding column that describe its table."""

    dimension: int
    combiner: str = "mean"
    initializer: Initializer | None = None
    ckpt_to_load_from: str | None = None
    tensor_name_in_ckpt: str | None = None
    max_norm: float | None = None
    trainable: bool = True
    use_safe_embedding_lookup: bool = True
    row_updates: bool = True

    def __repr__(self) -> str:
        return f"EmbeddingTable({', '.join(self._format_arguments())})"

    def _format_arguments(self) -> list[str]:
        """Return the arguments that are not the default, as text."""
        values = [(field, getattr(self, field.name)) for field in fields(self)]
        return [
            f"{f.name}={format_value(value)}"
            for f, value in values
            if value != f.default
        ]


@dataclass(frozen=True)
class EmbeddingColumn(WrapperColumn):
    """Rows of a table; made by `embedding_column` and `shared_embeddings`.

    Args:
      categorical_column: The column whose ids are looked up.
      table: The table, and how its rows are combined.
      shared_embedding_collection_name: The name of a shared table; None if the column
        has a table of its own.
      per_layer: Whether each layer has its own copy of a shared table. If not, there
        is one in the whole model.
    """

    categorical_column: CategoricalColumn
    table: EmbeddingTable
    shared_embedding_collection_name: str | None = None
    per_layer: bool = False

    @property
    def name(self) -> str:
        """The categorical column's name, with `_embedding` behind it."""
        kind = "shared_" if self.shared_embedding_collection_name else ""
        return f"{self.categorical_column.name}_{kind}embedding"

    @property
    def dimension(self) -> int:
        """The width of the table."""
        return self.table.dimension

    @property
    def variable_shape(self) -> tuple[int, ...]:
        """The shape of one row, (dimension,)."""
        return (self.table.dimension,)

    def block(self, layer: nn.Module, features: Features, trainable: bool) -> jax.Array:
        ids = self.categorical_column.ids(features, self._out_of_range)
        return self._combine_rows(layer, ids, trainable)

    def steps(self, layer: nn.Module, features: Features, trainable: bool) -> jax.Array:
        ids = self._sequence.step_ids(features, self._out_of_range)
        return self._combine_rows(layer, ids, trainable)

    def gather_rows(
        self, layer: nn.Module, features: Features
    ) -> variables.RowsToJoin | None:
        """Return the rows to join, if the block is at most one row per example.

        A layer joins the rows of all its columns at once, which is faster than column
        by column.

        Args:
          layer: The layer that holds the column's table.
          features: The features of a batch by key.

        Returns:
          None if `block` has more to do: several ids or weights per example, clipping,
          or a table that is updated as a whole; and outside of training for a large
          table.
        """
        if self.table.max_norm is not None or not self.table.row_updates:
            return None
        ids = self.categorical_column.ids(features, self._out_of_range)
        if ids.weights is not None or ids.ids.shape[1:] != (1,):
            return None
        shape = (self.categorical_column.num_buckets, self.table.dimension)
        return variables.rows_to_join(self._place.path(layer), shape, ids.ids)

    def _combine_rows(self, layer: nn.Module, ids: Ids, trainable: bool) -> jax.Array:
        """Look up ids [..., L], and combine their rows to [..., dimension]."""
        table, place = self.table, self._place
        name = self.categorical_column.name
        check_combiner(table.combiner, f"column {name!r}")
        trainable = trainable and table.trainable
        shape = (self.categorical_column.num_buckets, table.dimension)
        start = _initializer(table, place)
        if table.row_updates or not trainable:
            rows = table_rows(layer, place, shape, start, ids.ids, trainable=trainable)
        else:
            rows = weight_rows(layer, place, shape, start, ids.ids)
        if table.max_norm is not None:
            rows = clip_norm(rows, table.max_norm)
        return combine(rows, ids, table.combiner, prune=table.use_safe_embedding_lookup)

    def __repr__(self) -> str:
        shared = self.shared_embedding_collection_name
        parts = [repr(self.categorical_column), *self.table._format_arguments()]
        parts += [f"shared_embedding_collection_name={shared!r}"] if shared else []
        return f"EmbeddingColumn({', '.join(parts)})"

    @property
    def _out_of_range(self) -> OutOfRange:
        return "error" if self.table.use_safe_embedding_lookup else "error_below"

    @property
    def _place(self) -> VariablePlace:
        shared = self.shared_embedding_collection_name
        if shared is None or self.per_layer:
            return VariablePlace(shared or self.name, WEIGHTS)
        return VariablePlace(None, variable_scope(shared))


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
    """Turn a categorical column into trained vectors.

    Use it to feed a categorical column with many ids to a dense layer. Each id has a
    row of `dimension` numbers; an example with several ids gets their combination, one
    without ids gets zeros.

    Args:
      categorical_column: Any categorical column, also of sequences.
      dimension: The width of a row.
      combiner: How the rows of several ids are combined: "mean", "sqrtn" (the sum
        divided by the root of the number of ids) or "sum".
      initializer: A function of key, shape and dtype, such as those of
        `jax.nn.initializers`. By default a truncated normal with a standard deviation
        of 1/√dimension.
      ckpt_to_load_from: A checkpoint, or a model directory, whose variable the table
        starts as.
      tensor_name_in_ckpt: The name of that variable.
      max_norm: Rows with a larger norm are scaled down to it before they are combined.
      trainable: Whether training changes the table.
      use_safe_embedding_lookup: Whether out-of-vocabulary ids of -1, and weights ≤ 0,
        are left out. If not, such ids are an error.
      row_updates: Whether a step updates only the rows of its batch. False makes the
        table an ordinary parameter: momentum and weight decay then reach every row in
        every step, at a cost that grows with the table.

    Returns:
      A dense column of width `dimension`, or a sequence column if the categorical
      column is one.

    Raises:
      FeatureError: The column is not categorical, `dimension` is below 1,
        `initializer` is not callable, or one of `ckpt_to_load_from` and
        `tensor_name_in_ckpt` is missing.

    Example:
      >>> from estimax import feature_columns as fc
      >>> city = fc.categorical_column_with_hash_bucket("city", 1000)
      >>> layer = fc.DenseFeatures([fc.embedding_column(city, 8)])
      >>> features = {"city": ["Oslo", "Rome"]}
      >>> block, made = layer.init_with_output(jax.random.key(0), features)
      >>> block.shape, made["tables"]["city_embedding"]["embedding_weights"].shape
      ((2, 8), (1000, 8))
    """
    check_categorical(categorical_column, "embedding_column")
    table = EmbeddingTable(
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
    """Turn several categorical columns into vectors of one shared table.

    Use it for features with the same ids, such as the origin and the destination of a
    trip. The table is a variable at the top of the model, named after the collection;
    all layers that use the name share it.

    Args:
      categorical_columns: Columns of one type, with the same number of buckets.
      dimension: The width of a row.
      combiner: How the rows of several ids are combined: "mean", "sqrtn" or "sum".
      initializer: A function of key, shape and dtype; see `embedding_column`.
      shared_embedding_collection_name: The name of the table; by default the sorted
        names of the columns, joined.
      ckpt_to_load_from: A checkpoint, or a model directory, whose variable the table
        starts as.
      tensor_name_in_ckpt: The name of that variable.
      max_norm: Rows with a larger norm are scaled down to it before they are combined.
      trainable: Whether training changes the table.
      use_safe_embedding_lookup: Whether out-of-vocabulary ids of -1, and weights ≤ 0,
        are left out. If not, such ids are an error.
      row_updates: Whether a step updates only the rows of its batch; see
        `embedding_column`.

    Returns:
      One embedding column per categorical column, in the order given.

    Raises:
      FeatureError: The columns are not categorical, not of one type, or differ in
        their number of buckets; or an argument is invalid as for `embedding_column`.

    Example:
      >>> from estimax import feature_columns as fc
      >>> pair = [fc.categorical_column_with_identity(key, 9) for key in ("to", "from")]
      >>> [column.name for column in fc.shared_embeddings(pair, 4)]
      ['to_shared_embedding', 'from_shared_embedding']
    """
    table = EmbeddingTable(
        *(dimension, combiner, initializer, ckpt_to_load_from, tensor_name_in_ckpt),
        *(max_norm, trainable, use_safe_embedding_lookup, row_updates),
    )
    columns = _validate_alike(categorical_columns, "shared_embeddings")
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
    """Turn several categorical columns into vectors of one table in each layer.

    This is the `shared_embeddings` of TensorFlow 1. The variable is
    `<layer>/<collection>/embedding_weights`, so a wide and a deep layer share nothing.
    New programs use `shared_embeddings`.

    Args:
      categorical_columns: Columns of one type, with the same number of buckets.
      dimension: The width of a row.
      combiner: How the rows of several ids are combined: "mean", "sqrtn" or "sum".
      initializer: A function of key, shape and dtype; see `embedding_column`.
      shared_embedding_collection_name: The name of the table; by default the sorted
        names of the columns, joined.
      ckpt_to_load_from: A checkpoint, or a model directory, whose variable the table
        starts as.
      tensor_name_in_ckpt: The name of that variable.
      max_norm: Rows with a larger norm are scaled down to it before they are combined.
      trainable: Whether training changes the table.
      use_safe_embedding_lookup: Whether out-of-vocabulary ids of -1, and weights ≤ 0,
        are left out. If not, such ids are an error.

    Returns:
      One embedding column per categorical column, in the order given.

    Raises:
      FeatureError: As for `shared_embeddings`.

    Example:
      >>> from estimax import feature_columns as fc
      >>> pair = [fc.categorical_column_with_identity(key, 9) for key in ("to", "from")]
      >>> fc.shared_embedding_columns(pair, 4)[0].shared_embedding_collection_name
      'from_to_shared_embedding'
    """
    columns = shared_embeddings(
        *(categorical_columns, dimension, combiner, initializer),
        *(shared_embedding_collection_name, ckpt_to_load_from, tensor_name_in_ckpt),
        *(max_norm, trainable, use_safe_embedding_lookup),
    )
    return [replace(column, per_layer=True) for column in columns]


def owns_table(column: object) -> bool:
    """Return whether a column has a table of its own, under its own name."""
    if not isinstance(column, EmbeddingColumn):
        return False
    return column.shared_embedding_collection_name is None


def _collection_of(columns: Sequence[CategoricalColumn]) -> str:
    names = sorted(column.name for column in columns)
    return "_".join(names) + "_shared_embedding"


def _check_table(table: EmbeddingTable, where: str) -> None:
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


def _validate_alike(
    given: Sequence[CategoricalColumn], function: str
) -> list[CategoricalColumn]:
    columns = list(given)
    if not columns:
        raise FeatureError(f"{function}: categorical_columns must not be empty.")
    for column in columns:
        check_categorical(column, function)
    plain = [_unwrap_column(column) for column in columns]
    kinds = {type(column).__name__ for column in plain}
    if len(kinds) > 1:
        raise FeatureError(
            f"{function}: all columns must be of one type, got "
            f"{', '.join(sorted(kinds))}."
        )
    sizes = {column.name: column.num_buckets for column in plain}
    if len(set(sizes.values())) > 1:
        raise FeatureError(
            f"{function}: all columns must have the same number of buckets, got "
            f"{sizes}."
        )
    return columns


def _unwrap_column(column: CategoricalColumn) -> CategoricalColumn:
    if isinstance(column, WeightedCategoricalColumn | SequenceCategoricalColumn):
        return column.categorical_column
    return column


def _initializer(table: EmbeddingTable, place: VariablePlace) -> Initializer:
    if table.ckpt_to_load_from is not None:
        return lambda key, shape, dtype: _load_rows(table, place, shape)
    if table.initializer is not None:
        return table.initializer
    return _default_initializer(table.dimension)


@functools.cache
def _default_initializer(dimension: int) -> Initializer:
    """Return one function for all tables of a width, so that it is compiled once."""
    # Drawn again beyond ±2σ and not rescaled, as in TensorFlow.
    normal = nn.initializers.truncated_normal(dimension**-0.5)
    return variables.apart(_by_blocks(normal))


def _load_rows(
    table: EmbeddingTable, place: VariablePlace, shape: tuple[int, int]
) -> jax.Array:
    """Return the rows of a checkpoint, or of the newest one of a directory."""
    given, name = table.ckpt_to_load_from, table.tensor_name_in_ckpt
    assert given is not None
    assert name is not None

    def read(_: Any) -> NDArray[np.float32]:
        return np.asarray(checkpoints.open_source(given).read(name), np.float32)

    _check_source(place, shape, given, name)
    # Read when the program runs and not when it is traced: a run that resumes,
    # evaluates or predicts takes the rows from its own checkpoint, and this file may be
    # gone by then.
    struct: Any = jax.ShapeDtypeStruct  # its constructor is not annotated
    wanted = struct(shape, jnp.float32)
    # The argument is a dummy: jax treats a callback without arguments as a constant.
    rows: jax.Array = jax.pure_callback(read, wanted, jnp.zeros(()))
    return rows


def _check_source(
    place: VariablePlace, shape: tuple[int, int], given: str, name: str
) -> None:
    try:
        shapes = checkpoints.open_source(given).shapes
    except MissingFileError:
        return
    if name not in shapes:
        near = did_you_mean(name, shapes, listed_as="found")
        raise FeatureError(f"{place.display_name}: no {name!r} in {given}{near}")
    if shapes[name] != shape:
        raise FeatureError(
            f"{place.display_name}: {name!r} in {given} has shape {shapes[name]}, the "
            f"table has {shape}."
        )


def _by_blocks(initializer: Initializer) -> Initializer:
    """Draw a large table block by block, to save memory.

    Only for an initializer that does not depend on the number of rows.
    """

    def start(key: jax.Array, shape: tuple[int, int], dtype: Any) -> Any:
        rows = _DRAWN_AT_ONCE // shape[1]
        if shape[0] <= rows:
            return initializer(key, shape, dtype)

        def put(index: jax.Array, table: jax.Array) -> jax.Array:
            drawn = initializer(jax.random.fold_in(key, index), (rows, shape[1]), dtype)
            # dynamic_update_slice moves the last block back to where the table ends.
            return jax.lax.dynamic_update_slice(table, drawn, (index * rows, 0))

        blocks = -(-shape[0] // rows)
        table: jax.Array = jax.lax.fori_loop(0, blocks, put, jnp.zeros(shape, dtype))
        return table

    return start


@dataclass(frozen=True)
class IndicatorColumn(WrapperColumn):
    """Counts of ids; made by `indicator_column`.

    Args:
      categorical_column: The column whose ids are counted.
    """

    categorical_column: CategoricalColumn

    @property
    def name(self) -> str:
        """The categorical column's name, with `_indicator` behind it."""
        return f"{self.categorical_column.name}_indicator"

    @property
    def variable_shape(self) -> tuple[int, ...]:
        """The shape of one row, (1, num_buckets)."""
        return (1, self.categorical_column.num_buckets)

    def block(self, layer: nn.Module, features: Features, trainable: bool) -> jax.Array:
        # "drop": an id out of range is not counted.
        ids = self.categorical_column.ids(features, "drop")
        return count(ids, self.categorical_column.num_buckets)

    def steps(self, layer: nn.Module, features: Features, trainable: bool) -> jax.Array:
        ids = self._sequence.step_ids(features, "drop")
        return count(ids, self.categorical_column.num_buckets)


def indicator_column(categorical_column: CategoricalColumn) -> IndicatorColumn:
    """Turn a categorical column into counts: one-hot, or multi-hot for several ids.

    Use it to feed a categorical column with few ids to a dense layer; for many ids,
    `embedding_column` is smaller. A weighted column gives the total weight of each id.

    Args:
      categorical_column: Any categorical column, also of sequences.

    Returns:
      A dense column of width `num_buckets`.

    Raises:
      FeatureError: The column is not categorical.

    Example:
      >>> import jax
      >>> from estimax import feature_columns as fc
      >>> size = fc.categorical_column_with_vocabulary_list("size", ["S", "M", "L"])
      >>> layer = fc.DenseFeatures([fc.indicator_column(size)])
      >>> layer.apply({}, {"size": [["M"], ["S"]]}).tolist()
      [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
    """
    check_categorical(categorical_column, "indicator_column")
    return IndicatorColumn(categorical_column)
