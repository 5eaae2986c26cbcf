"""The dtypes and shapes of the elements of a dataset, read off the first one."""

from __future__ import annotations

from typing import Any

import numpy as np

from estimax.core.errors import InputError
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.input.ops.batching import (
    PaddedBatch,
    RaggedBatch,
    Rebatch,
    SparseBatch,
    StackedBatch,
)
from estimax.input.ops.grouping import Buckets
from estimax.input.signatures import TensorSpec
from estimax.input.streams.columns import Ragged, as_column
from estimax.input.streams.stream import Context, DatasetNode, chain_of
from estimax.input.streams.structure import Structure, is_dataset, map_leaves

_BATCHING = (Buckets, PaddedBatch, RaggedBatch, Rebatch, SparseBatch, StackedBatch)


def element_spec_of(node: DatasetNode) -> Structure:
    """Return a structure of `TensorSpec`; after batch the first size is None."""
    stream = node.open(Context(seed=0))
    try:
        chunk = stream.read(1)
    finally:
        stream.close()
    if chunk is None:
        raise InputError("element_spec: the dataset has no elements to look at.")
    is_batch = any(isinstance(one, _BATCHING) for one in chain_of(node))
    return map_leaves(lambda leaf: _spec(leaf, is_batch), chunk.element(0))


def _spec(leaf: Any, is_batch: bool) -> Any:
    if is_dataset(leaf):  # of a window
        return leaf
    column = as_column(leaf)
    if isinstance(column, Sparse):
        return TensorSpec((None,) * len(column.dense_shape), _dtype(column.values))
    if isinstance(column, Ragged):
        ragged = (None,) * (column.ragged_rank + 1)
        return TensorSpec((*ragged, *column.values.shape[1:]), _dtype(column.values))
    shape: tuple[int | None, ...] = column.shape
    if is_batch and shape:
        shape = (None, *shape[1:])
    return TensorSpec(shape, _dtype(column))


def _dtype(values: np.ndarray[Any, Any] | Strings) -> str:
    return "string" if isinstance(values, Strings) else values.dtype.name
