"""The layers that compute columns: dense, linear, and of sequences.

    DenseFeatures      dense columns side by side, [B, N]         `input_layer`
    LinearModel        a weight per id or number, [B, units]      `linear_model`
    SequenceFeatures   sequence columns, [B, T, N], and lengths   `sequence_input_layer`

The function beside each class makes the layer and calls it, inside a `model_fn`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import MutableMapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from estimax import staging
from estimax.core.errors import FeatureError
from estimax.feature_columns import transforms
from estimax.feature_columns.column import (
    DenseColumn,
    Features,
    check_batches,
    check_features,
    check_no_sequence,
    check_scopes,
    is_categorical,
    is_dense,
    is_sequence,
    sort_columns,
)
from estimax.feature_columns.embedding import EmbeddingColumn, owns_table
from estimax.feature_columns.lookup import (
    VariablePlace,
    check_combiner,
    combine,
    layer_name,
    table_rows,
    zeros,
)
from estimax.feature_columns.number_matrix import stage_numbers
from estimax.staging import variables


class DenseFeatures(nn.Module):
    """A Flax layer that turns features into [B, N], for dense columns.

    Use it in Flax modules; inside a `model_fn`, `input_layer` is shorter. The columns'
    blocks are concatenated in order of the columns' names.

    Args:
      feature_columns: One dense column, or an iterable of them.
      trainable: Whether the variables of the columns are trained.
      parent: The Flax module that the layer belongs to; set by Flax.
      name: The name of the layer, which begins the names of its variables.

    Raises:
      FeatureError: There are no columns, two have the same name, or one is categorical
        or a sequence column.

    Example:
      >>> from estimax import feature_columns as fc
      >>> layer = fc.DenseFeatures([fc.numeric_column("b"), fc.numeric_column("a")])
      >>> layer.apply({}, {"a": [1.0, 2.0], "b": [3.0, 4.0]}).tolist()
      [[1.0, 3.0], [2.0, 4.0]]
    """

    feature_columns: Any  # one column, or an iterable of them
    trainable: bool = True

    def __post_init__(self) -> None:
        columns = sort_columns(self.feature_columns, "DenseFeatures")
        for column in columns:
            check_no_sequence(column, "DenseFeatures")
            if not is_dense(column):
                raise FeatureError(
                    f"DenseFeatures: column {column.name!r} is categorical, not dense. "
                    "Wrap it in embedding_column or indicator_column."
                )
        check_scopes(filter(owns_table, columns), "DenseFeatures")
        self.feature_columns = columns
        super().__post_init__()

    @nn.compact
    def __call__(
        self,
        features: Features,
        cols_to_output_tensors: MutableMapping[DenseColumn, jax.Array] | None = None,
    ) -> jax.Array:
        """Compute all columns; put each one's block into `cols_to_output_tensors`."""
        check_features(features, self.feature_columns, "DenseFeatures")
        staged = stage_numbers(self.feature_columns, features)
        blocks: dict[str, variables.ColumnBlock] = {}
        widths: list[int] = []
        for together, run in itertools.groupby(self.feature_columns, staged.has):
            columns = tuple(run)
            if together:
                blocks[columns[0].name] = staged.block(columns)
                widths += [math.prod(column.shape) for column in columns]
                continue
            own = {c.name: self._block(c, features) for c in columns}
            blocks |= own
            widths += [block.shape[1] for block in own.values()]
        check_batches(blocks, "DenseFeatures")
        joined: jax.Array = staging.as_model_input(
            variables.side_by_side(list(blocks.values())),
            *(features, self.feature_columns, widths),
        )
        if cols_to_output_tensors is not None:
            split = jnp.split(joined, list(itertools.accumulate(widths))[:-1], axis=1)
            named = zip(self.feature_columns, split, strict=True)
            cols_to_output_tensors.update(named)
        return joined

    def _block(self, column: DenseColumn, features: Features) -> variables.ColumnBlock:
        """Return a column's block, or in training the rows that it is made of."""
        gathered = None
        if isinstance(column, EmbeddingColumn):
            gathered = column.gather_rows(self, features)
        if gathered is not None:
            return gathered
        return column.block(self, features, self.trainable)


def input_layer(
    features: Features,
    feature_columns: Any,  # one column, or an iterable of them
    trainable: bool = True,
    cols_to_output_tensors: MutableMapping[DenseColumn, jax.Array] | None = None,
    name: str | None = None,
) -> jax.Array:
    """Turn features into [B, N] inside a `model_fn`, for dense columns.

    Use it as the first layer of a network. It makes and calls a `DenseFeatures`.

    Args:
      features: The features of a batch by key.
      feature_columns: One dense column, or an iterable of them.
      trainable: Whether the variables of the columns are trained.
      cols_to_output_tensors: A dict to be filled with the block of each column.
      name: The name of the layer; by default `input_layer`, then `input_layer_1`, ….

    Returns:
      float32 [B, N], the columns in order of their names.

    Raises:
      FeatureError: As for `DenseFeatures`; or features are not a dict, one is missing,
        or they differ in their number of rows.
      SpecError: It was called outside of a `model_fn` and of Flax modules.

    Example:
      >>> from estimax import feature_columns as fc
      >>> class Net(nn.Module):
      ...     @nn.compact
      ...     def __call__(self, features):
      ...         return fc.input_layer(features, [fc.numeric_column("age", shape=2)])
      >>> Net().apply({}, {"age": [[1.0, 2.0], [3.0, 4.0]]}).shape
      (2, 2)
    """
    called = layer_name(name, "input_layer")
    layer = DenseFeatures(feature_columns, trainable, name=called)
    block: jax.Array = layer(features, cols_to_output_tensors)
    return block


class LinearModel(nn.Module):
    """A Flax layer of logits [B, units], linear in dense and categorical columns.

    Use it in Flax modules; inside a `model_fn`, `linear_model` is shorter. Every id of
    a categorical column and every number of a dense column has a weight, zero at
    first. A bucketized column counts as categorical.

    Args:
      feature_columns: One dense or categorical column, or an iterable of them.
      units: The number of logits.
      sparse_combiner: How the weights of several ids of one column are combined:
        "sum", "mean" or "sqrtn".
      trainable: Whether the variables are trained.
      parent: The Flax module that the layer belongs to; set by Flax.
      name: The name of the layer, which begins the names of its variables.

    Raises:
      FeatureError: There are no columns, two have the same name, one is a sequence
        column, or the combiner is unknown.

    Example:
      >>> from estimax import feature_columns as fc
      >>> layer = fc.LinearModel([fc.numeric_column("age")], units=2)
      >>> logits, made = layer.init_with_output(jax.random.key(0), {"age": [1.0]})
      >>> logits.tolist(), made["params"]["age"]["weights"].shape
      ([[0.0, 0.0]], (1, 2))
    """

    feature_columns: Any  # one column, or an iterable of them
    units: int = 1
    sparse_combiner: str = "sum"
    trainable: bool = True

    def __post_init__(self) -> None:
        self.feature_columns = sort_columns(self.feature_columns, "LinearModel")
        for column in self.feature_columns:
            check_no_sequence(column, "LinearModel")
            check_combiner(self.sparse_combiner, f"column {column.name!r}")
        check_scopes(self.feature_columns, "LinearModel")
        super().__post_init__()

    @nn.compact
    def __call__(self, features: Features) -> jax.Array:
        """Compute the logits."""
        check_features(features, self.feature_columns, "LinearModel")
        terms = {
            c.name: staging.as_model_input(
                self._term(c, features), features, [c], [self.units]
            )
            for c in self.feature_columns
        }
        check_batches(terms, "LinearModel")
        bias = zeros(self, "bias_weights", (self.units,), trainable=self.trainable)
        total: jax.Array = sum(terms.values()) + bias
        return total

    def _term(self, column: Any, features: Features) -> jax.Array:
        """Return what one column adds to the logits, [B, units]."""
        if is_categorical(column):
            return self._categorical_term(column, features)
        block = column.block(self, features, self.trainable)
        shape = (block.shape[1], self.units)
        weights = VariablePlace(column.name, "weights").declare(
            self, lambda m: zeros(m, "weights", shape, trainable=self.trainable)
        )
        product: jax.Array = block @ weights
        return product

    def _categorical_term(self, column: Any, features: Features) -> jax.Array:
        ids = column.ids(features, "error")
        rows = table_rows(
            self,
            VariablePlace(column.name, "weights"),
            (column.num_buckets, self.units),
            nn.initializers.zeros,
            ids.ids,
            trainable=self.trainable,
        )
        return combine(rows, ids, self.sparse_combiner)


def linear_model(
    features: Features,
    feature_columns: Any,  # one column, or an iterable of them
    units: int = 1,
    sparse_combiner: str = "sum",
    trainable: bool = True,
    name: str | None = None,
) -> jax.Array:
    """Compute linear logits [B, units] inside a `model_fn`.

    Use it for a linear model, or the wide part of a wide-and-deep one. It makes and
    calls a `LinearModel`.

    Args:
      features: The features of a batch by key.
      feature_columns: One dense or categorical column, or an iterable of them.
      units: The number of logits.
      sparse_combiner: How the weights of several ids of one column are combined:
        "sum", "mean" or "sqrtn".
      trainable: Whether the variables are trained.
      name: The name of the layer; by default `linear_model`, then `linear_model_1`, ….

    Returns:
      float32 [B, units], zero before training.

    Raises:
      FeatureError: As for `LinearModel`; or features are not a dict, one is missing,
        an id is out of range, or they differ in their number of rows.
      SpecError: It was called outside of a `model_fn` and of Flax modules.

    Example:
      >>> from estimax import feature_columns as fc
      >>> city = fc.categorical_column_with_hash_bucket("city", 1000)
      >>> class Net(nn.Module):
      ...     @nn.compact
      ...     def __call__(self, features):
      ...         return fc.linear_model(features, [city])
      >>> features = {"city": ["Oslo", "Rome"]}
      >>> Net().init_with_output(jax.random.key(0), features)[0].shape
      (2, 1)
    """
    name = layer_name(name, "linear_model")
    layer = LinearModel(feature_columns, units, sparse_combiner, trainable, name=name)
    logits: jax.Array = layer(features)
    return logits


class SequenceFeatures(nn.Module):
    """A Flax layer that turns features into ([B, T, N], lengths [B]).

    Use it in Flax modules; inside a `model_fn`, `sequence_input_layer` is shorter. The
    columns are concatenated in order of their names, and must have the same lengths.
    In a compiled model T is rounded up to a power of two: mask the steps at and after
    an example's length.

    Args:
      feature_columns: One sequence column, or an iterable of them.
      trainable: Whether the variables of the columns are trained.
      parent: The Flax module that the layer belongs to; set by Flax.
      name: The name of the layer, which begins the names of its variables.

    Raises:
      FeatureError: There are no columns, two have the same name, or one is categorical
        or no sequence column.

    Example:
      >>> from estimax import feature_columns as fc
      >>> from estimax.core.sparse import Sparse
      >>> layer = fc.SequenceFeatures([fc.sequence_numeric_column("x")])
      >>> block, lengths = layer.apply({}, {"x": Sparse.of_rows([[1.0, 2.0], [3.0]])})
      >>> block.tolist(), lengths.tolist()
      ([[[1.0], [2.0]], [[3.0], [0.0]]], [2, 1])
    """

    feature_columns: Any  # one column, or an iterable of them
    trainable: bool = True

    def __post_init__(self) -> None:
        self.feature_columns = sort_columns(self.feature_columns, "SequenceFeatures")
        for column in self.feature_columns:
            _check_sequence(column)
        check_scopes(filter(owns_table, self.feature_columns), "SequenceFeatures")
        super().__post_init__()

    @nn.compact
    def __call__(self, features: Features) -> tuple[jax.Array, jax.Array]:
        """Compute all columns, and the number of steps of each example."""
        check_features(features, self.feature_columns, "SequenceFeatures")
        columns = self.feature_columns
        # The lengths come first: only they compare all features, so their error names
        # the features that differ.
        parts = tuple(dict.fromkeys(column.timed_by for column in columns))
        lengths = staging.stage(transforms.SequenceLengths(parts), features)
        blocks = {c.name: c.steps(self, features, self.trainable) for c in columns}
        check_batches(blocks, "SequenceFeatures")
        joined: jax.Array = staging.as_model_input(
            jnp.concatenate(list(blocks.values()), axis=-1),
            *(features, columns, [block.shape[2] for block in blocks.values()], 2),
        )
        return joined, lengths


def sequence_input_layer(
    features: Features,
    feature_columns: Any,  # one column, or an iterable of them
    trainable: bool = True,
    name: str | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Turn features into sequences [B, T, N] and lengths [B] inside a `model_fn`.

    Use it as the first layer of a recurrent or attention network. It makes and calls a
    `SequenceFeatures`.

    Args:
      features: The features of a batch by key.
      feature_columns: One sequence column, or an iterable of them.
      trainable: Whether the variables of the columns are trained.
      name: The name of the layer; by default `sequence_features`, then
        `sequence_features_1`, ….

    Returns:
      float32 [B, T, N], the columns in order of their names; and int32 [B], the number
      of steps of each example.

    Raises:
      FeatureError: As for `SequenceFeatures`; or features are not a dict, one is
        missing, or they differ in rows or lengths.
      SpecError: It was called outside of a `model_fn` and of Flax modules.

    Example:
      >>> from estimax import feature_columns as fc
      >>> clicks = fc.sequence_categorical_column_with_identity("clicks", 9)
      >>> class Net(nn.Module):
      ...     @nn.compact
      ...     def __call__(self, features):
      ...         column = fc.embedding_column(clicks, 4)
      ...         return fc.sequence_input_layer(features, [column])
      >>> features = {"clicks": [[1, 2, 3], [4, -1, -1]]}
      >>> (block, lengths), _ = Net().init_with_output(jax.random.key(0), features)
      >>> block.shape, lengths.tolist()
      ((2, 3, 4), [3, 1])
    """
    called = layer_name(name, "sequence_features")
    layer = SequenceFeatures(feature_columns, trainable, name=called)
    block, lengths = layer(features)
    return block, lengths


def concatenate_context_input(
    context_input: jax.Array, sequence_input: jax.Array
) -> jax.Array:
    """Append a context to every step of a sequence.

    Use it to give a recurrent network features that do not change over time.

    Args:
      context_input: float32 [B, C].
      sequence_input: float32 [B, T, S].

    Returns:
      float32 [B, T, S + C].

    Raises:
      FeatureError: An argument has another rank or type.

    Example:
      >>> context, sequence = jnp.ones((1, 1)), jnp.zeros((1, 2, 1))
      >>> concatenate_context_input(context, sequence).tolist()
      [[[0.0, 1.0], [0.0, 1.0]]]
    """
    for name, given, rank in (
        ("context_input", context_input, 2),
        ("sequence_input", sequence_input, 3),
    ):
        if given.ndim != rank or given.dtype != jnp.float32:
            raise FeatureError(
                f"concatenate_context_input: {name} must be float32 of rank {rank}, "
                f"got {given.dtype} of shape {given.shape}."
            )
    shape = (*sequence_input.shape[:2], context_input.shape[1])
    repeated = jnp.broadcast_to(context_input[:, None], shape)
    return jnp.concatenate([sequence_input, repeated], axis=-1)


def _check_sequence(column: Any) -> None:
    if not is_sequence(column):
        raise FeatureError(
            f"SequenceFeatures: column {column.name!r} is not a sequence column; build "
            "it on sequence_numeric_column or sequence_categorical_column_with_…"
        )
    if is_categorical(column):
        raise FeatureError(
            f"SequenceFeatures: column {column.name!r} is categorical. Wrap it in "
            "embedding_column or indicator_column."
        )
