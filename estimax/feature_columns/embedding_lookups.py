"""Embedding lookups in variables that a `model_fn` declares by hand.

    table = ex.get_variable("emb", (1_000_000, 16))
    rows = ex.embedding_lookup(table, features["item"])           # [B, 16]
    bag = ex.embedding_lookup_sparse(table, features["tags"])     # [B, 16]

If the ids are a feature as it came from the input, or words that
`ex.lookup.string_to_index` found, the host checks them and makes them distinct, and the
step updates these rows alone, as for `embedding_column`. Ids that the `model_fn`
computes are clamped, counted and made distinct on the device.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from estimax import staging
from estimax.core.errors import FeatureError
from estimax.core.sparse import Ids, Sparse
from estimax.core.spec import ModeKeys
from estimax.feature_columns.lookup import check_combiner, clip_norm, combine
from estimax.feature_columns.transforms import Vocabulary
from estimax.feature_columns.transforms.embedding_lookups import TableBags, TableIds
from estimax.staging import variables


def embedding_lookup(
    table: jax.Array, ids: ArrayLike, max_norm: float | None = None
) -> jax.Array:
    """Look up ids in a table; training updates the rows that were looked up.

    Use it in a `model_fn` for a table that `ex.get_variable` declared, as
    `tf.nn.embedding_lookup` is used. The step gathers and updates only the rows of its
    batch, so its cost does not depend on the size of the table. It is fastest for ids
    that are a feature as it came from the input, or the result of
    `ex.lookup.string_to_index` with OOV buckets. Several lookups in one table are
    summed into one update.

    A variable that the loss also reads otherwise, for example in an L2 penalty over the
    whole table, is updated as a whole. An array that is not a variable can be looked up
    too.

    Args:
      table: What `ex.get_variable`, or `self.param` of a Flax module, returned in this
        call of the `model_fn`, of shape [V, D]; or [V], for one weight for each id.
      ids: Integers of any shape, in [0, V): a feature or a computed array.
      max_norm: Rows with a larger L2 norm are scaled down to it; None for no limit.

    Returns:
      The rows, of shape `ids.shape + table.shape[1:]`.

    Raises:
      FeatureError: An id of the input is not in [0, V); the message names the feature,
        the row, the id and V. Or the ids are not integers. Computed ids out of range
        are clamped to [0, V), and a warning logs their number once.

    Example:
      >>> import numpy as np
      >>> import estimax as ex
      >>> def model_fn(features, labels, mode):
      ...     table = ex.get_variable("emb", (1000, 4))
      ...     rows = ex.embedding_lookup(table, features["item"])
      ...     loss = jnp.mean((rows.sum(axis=-1) - labels) ** 2)
      ...     return ex.EstimatorSpec(
      ...         mode, loss=loss, train_op=ex.optimizers.Adagrad(0.5)
      ...     )
      >>> batch = {"item": np.array([7, 999])}, np.array([1.0, 2.0], np.float32)
      >>> model = ex.Estimator(model_fn)
      >>> _ = model.train(lambda: [batch] * 30)
      >>> model.get_variable_value("emb")[[7, 999]].sum(axis=1).round(2).tolist()
      [1.0, 2.0]
      >>> embedding_lookup(jnp.eye(3), [[2, 0]]).shape
      (1, 2, 3)
    """
    _check_table(table, "embedding_lookup")
    where = _ids_of(table, ids)
    return _clip_rows(_rows_of(table, where), where.ndim, max_norm)


def embedding_lookup_sparse(
    table: jax.Array,
    ids: Sparse | ArrayLike,
    weights: Sparse | ArrayLike | None = None,
    combiner: str = "mean",
    max_norm: float | None = None,
) -> jax.Array:
    """Look up any number of ids per example and combine their rows to one.

    Use it in a `model_fn` for multi-valued features, as
    `tf.nn.embedding_lookup_sparse` and `tf.nn.safe_embedding_lookup_sparse` are used.
    An example without ids gets zeros. Everything else is as for `embedding_lookup`.

    Args:
      table: What `ex.get_variable` returned in this call of the `model_fn`, of shape
        [V, D] or [V].
      ids: A sparse feature (`ex.Sparse`) of integers in [0, V); or a dense array
        [B, L], in which -1 means "no id".
      weights: A weight for each id: a sparse feature with the same indices, or a dense
        array of the same shape. None weighs all ids equally.
      combiner: "sum" adds the weighted rows, "mean" divides the sum by the sum of the
        weights, "sqrtn" by the root of the sum of their squares.
      max_norm: Rows with a larger L2 norm are scaled down to it before they are
        combined; None for no limit.

    Returns:
      One row for each example: [B, D], or [B] for a table [V].

    Raises:
      FeatureError: As for `embedding_lookup`; or the combiner is unknown, or the
        weights are not where the ids are.

    Example:
      >>> table = jnp.array([[1.0, 1.0], [3.0, 5.0], [9.0, 9.0]])
      >>> tags = Sparse.of_rows([[0, 1], [], [2]])
      >>> embedding_lookup_sparse(table, tags, combiner="mean").tolist()
      [[2.0, 3.0], [0.0, 0.0], [9.0, 9.0]]
    """
    _check_table(table, "embedding_lookup_sparse")
    check_combiner(combiner, "embedding_lookup_sparse")
    bags = _bags_of(table, ids, weights)
    rows = _clip_rows(_rows_of(table, bags.ids), bags.ids.ndim, max_norm)
    row_shape = table.shape[1:]
    flat = rows.reshape(*bags.ids.shape, math.prod(row_shape))
    combined = combine(flat, bags, combiner, prune=False)
    return combined.reshape(-1, *row_shape)


def _check_table(table: Any, function: str) -> None:
    if not getattr(table, "shape", ()):
        raise FeatureError(
            f"{function}: expected a table [V, D] or [V], such as "
            f"ex.get_variable('emb', (V, D)); got {type(table).__name__}."
        )


def _ids_of(table: jax.Array, ids: Any) -> jax.Array:
    """Return ids as int32, in the range of the table."""
    if staging.can_stage(ids):
        key = _label(ids, "ids")
        staged: jax.Array = staging.stage(TableIds(key, table.shape[0]), {key: ids})
        return staged
    return _clamp_ids(table, ids, "embedding_lookup", lowest=0)


def _bags_of(table: jax.Array, ids: Any, weights: Any) -> Ids:
    """Return ids and weights [B, L]; -1 where there is no id."""
    if isinstance(ids, Ids):  # what `ex.lookup.string_to_index` returns for Sparse
        ids = ids.ids
    key, size = _label(ids, "ids"), table.shape[0]
    is_staged = staging.can_stage(ids)
    if is_staged and (weights is None or staging.can_stage(weights)):
        other = None if weights is None else _label(weights, "weights")
        given = {key: ids} if other is None else {key: ids, other: weights}
        both: Ids = staging.stage(TableBags(key, size, other), given)
        return both
    if is_staged:
        bags: Ids = staging.stage(TableBags(key, size), {key: ids})
    else:
        bags = Ids(_clamp_ids(table, ids, "embedding_lookup_sparse", lowest=-1))
    if bags.ids.ndim != 2:
        raise FeatureError(
            f"embedding_lookup_sparse: expected ids [B, L], got {bags.ids.shape}."
        )
    if weights is None:
        return bags
    if jnp.shape(weights) != bags.ids.shape:
        raise FeatureError(
            f"embedding_lookup_sparse: expected weights of the shape of the ids, "
            f"{bags.ids.shape}; got {jnp.shape(weights)}. Weights of sparse ids must "
            "be a sparse feature."
        )
    return Ids(bags.ids, jnp.asarray(weights, jnp.float32))


def _label(value: Any, otherwise: str) -> str:
    """Return the key of the feature that an array object is, for messages."""
    trace = staging.current()
    origin = trace.origin(value) if trace is not None else None
    if origin is None:
        return otherwise
    return origin.part if origin.key is None else str(origin.key)


def _clamp_ids(table: jax.Array, ids: Any, function: str, *, lowest: int) -> jax.Array:
    """Return ids of the model_fn as rows of the table.

    Positions in a vocabulary were found on the host, and are known to be in range.
    Other ids are clamped, and those out of range are counted.
    """
    if not jnp.issubdtype(ids.dtype, jnp.integer):
        raise FeatureError(
            f"{function}: ids must be integers, got an array of {ids.dtype}."
        )
    size = table.shape[0]
    trace = staging.current()
    if trace is not None and _are_words(trace.call_of(ids), lowest, size):
        # The same object: by it, the lookup finds the distinct ids of the host.
        words: jax.Array = ids
        return words
    if trace is not None and trace.mode != ModeKeys.PREDICT:
        named = variables.declared_name(table)
        bad = jnp.sum((ids < lowest) | (ids >= size), dtype=jnp.int32)
        trace.count_out_of_range(named[0] if named else "a table", size, bad)
    return jnp.clip(ids, lowest, size - 1).astype(jnp.int32)


def _are_words(call: staging.HostCall | None, lowest: int, size: int) -> bool:
    """Return whether a call finds words, all of them at an index in [lowest, size)."""
    if call is None or not isinstance(call.transform, Vocabulary):
        return False
    first, last = call.transform.id_range
    return first >= lowest and last < size


def _rows_of(table: jax.Array, ids: jax.Array) -> jax.Array:
    named = variables.declared_name(table)
    if named is not None and named[1]:
        return variables.lookup_declared(named[0], table, ids)
    return jnp.take(jnp.asarray(table), jnp.maximum(ids, 0), axis=0, mode="clip")


def _clip_rows(rows: jax.Array, rank: int, max_norm: float | None) -> jax.Array:
    """Limit the norm of rows; the first `rank` dimensions are those of the ids."""
    if max_norm is None:
        return rows
    flat = rows.reshape(*rows.shape[:rank], math.prod(rows.shape[rank:]))
    return clip_norm(flat, max_norm).reshape(rows.shape)
