"""An embedding table: where it lives, how it starts, how its rows are combined."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from numpy.typing import NDArray

from estimax import checkpoints, variables
from estimax.core.errors import FeatureError, MissingFileError, did_you_mean
from estimax.core.sparse import Ids
from estimax.feature_columns.column import CategoricalColumn, Features
from estimax.feature_columns.ids import ids_of, step_ids_of
from estimax.feature_columns.lookup import (
    Initializer,
    Place,
    check_combiner,
    clip_norm,
    combine,
    dense_rows,
    ready_rows,
    table_rows,
)
from estimax.feature_columns.sequence import SequenceCategoricalColumn
from estimax.transforms.transform import OutOfRange

# Numbers that are drawn at once. What drawing needs besides is as large as they are.
_BLOCK = 1 << 20


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
    row_updates: bool = True

    def block(
        self,
        layer: nn.Module,
        place: Place,
        column: CategoricalColumn,
        features: Features,
        trainable: bool,
    ) -> jax.Array:
        """One combined row per example: [B, dimension]."""
        ids = ids_of(column, features, self._out_of_range)
        return self._combined(layer, place, column, ids, trainable)

    def steps(
        self,
        layer: nn.Module,
        place: Place,
        column: SequenceCategoricalColumn,
        features: Features,
        trainable: bool,
    ) -> jax.Array:
        """One combined row per step: [B, T, dimension]."""
        ids = step_ids_of(column, features, self._out_of_range)
        return self._combined(layer, place, column, ids, trainable)

    def ready(
        self,
        layer: nn.Module,
        place: Place,
        column: CategoricalColumn,
        features: Features,
    ) -> variables.ReadyRows | None:
        """What `block` would combine, if that is at most one row for an example."""
        if self.max_norm is not None or not self.row_updates:
            return None
        ids = ids_of(column, features, self._out_of_range)
        if ids.weights is not None or ids.ids.shape[1:] != (1,):
            return None
        return ready_rows(layer, place, ids.ids)

    @property
    def _out_of_range(self) -> OutOfRange:
        return "error" if self.use_safe_embedding_lookup else "error_below"

    def _combined(
        self,
        layer: nn.Module,
        place: Place,
        column: CategoricalColumn,
        ids: Ids,
        trainable: bool,
    ) -> jax.Array:
        check_combiner(self.combiner, column.name)
        trainable = trainable and self.trainable
        shape = (column.num_buckets, self.dimension)
        start = self._initializer(place)
        if self.row_updates or not trainable:
            rows = table_rows(layer, place, shape, start, ids.ids, trainable=trainable)
        else:
            rows = dense_rows(layer, place, shape, start, ids.ids)
        if self.max_norm is not None:
            rows = clip_norm(rows, self.max_norm)
        prune = self.use_safe_embedding_lookup
        return combine(rows, ids, self.combiner, prune=prune)

    def _initializer(self, place: Place) -> Initializer:
        if self.ckpt_to_load_from is not None:
            return lambda key, shape, dtype: self._loaded(place, shape)
        if self.initializer is not None:
            return self.initializer
        # Redrawn at ±2σ and not rescaled, as TensorFlow does.
        return _by_blocks(nn.initializers.truncated_normal(self.dimension**-0.5))

    def _loaded(self, place: Place, shape: tuple[int, int]) -> jax.Array:
        """The rows that a checkpoint, or the newest of a directory, holds."""
        given, name = self.ckpt_to_load_from, self.tensor_name_in_ckpt
        assert given is not None
        assert name is not None

        def read(_: Any) -> NDArray[np.float32]:
            return np.asarray(checkpoints.open_source(given).read(name), np.float32)

        self._check_source(place, shape, given, name)
        # Read when it runs and not when it is traced: a run that resumes, evaluates or
        # predicts takes its rows from its own checkpoint, and the file may be gone.
        struct: Any = jax.ShapeDtypeStruct  # its constructor is not annotated
        wanted = struct(shape, jnp.float32)
        # The argument is for jax: it counts a callback without any as a constant.
        rows: jax.Array = jax.pure_callback(read, wanted, jnp.zeros(()))
        return rows

    def _check_source(
        self, place: Place, shape: tuple[int, int], given: str, name: str
    ) -> None:
        try:
            shapes = checkpoints.open_source(given).shapes
        except MissingFileError:
            return
        if name not in shapes:
            near = did_you_mean(name, shapes)
            raise FeatureError(f"{place.shown}: no {name!r} in {given}{near}")
        if shapes[name] != shape:
            raise FeatureError(
                f"{place.shown}: {name!r} in {given} has shape {shapes[name]}, the "
                f"table has {shape}."
            )


def _by_blocks(initializer: Initializer) -> Initializer:
    """The same for a large table, in the memory of the table and a block of its rows.

    For an initializer that does not look at the number of rows.
    """

    def start(key: jax.Array, shape: tuple[int, int], dtype: Any) -> jax.Array:
        rows = _BLOCK // shape[1]
        if shape[0] <= rows:
            return initializer(key, shape, dtype)

        def put(index: jax.Array, table: jax.Array) -> jax.Array:
            drawn = initializer(jax.random.fold_in(key, index), (rows, shape[1]), dtype)
            # The last block is moved back to end where the table does.
            return jax.lax.dynamic_update_slice(table, drawn, (index * rows, 0))

        blocks = -(-shape[0] // rows)
        table: jax.Array = jax.lax.fori_loop(0, blocks, put, jnp.zeros(shape, dtype))
        return table

    return start
