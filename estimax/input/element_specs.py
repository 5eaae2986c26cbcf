"""Specs: the dtypes and shapes of elements, as given by a user or read off a dataset.

    TensorSpec(shape=(None, 3), dtype="float32")

`check_generator` implements the arguments of `Dataset.from_generator`. As in tf.data,
an element must have the structure of the signature, dtypes that convert without loss,
and shapes that match.

`element_spec_of` reads the specs of a dataset off its first element.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
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
from estimax.input.streams.columns import Ragged, as_column, as_value
from estimax.input.streams.stream import Context, DatasetNode, chain_of
from estimax.input.streams.structure import (
    InputTypeError,
    Structure,
    describe,
    is_dataset,
    map_leaves,
)


@dataclass(frozen=True)
class TensorSpec:
    """The shape and dtype of a value, for `Dataset.from_generator`.

    Args:
      shape: The shape of the value. None accepts any rank; None in place of a size
        accepts any size.
      dtype: A NumPy dtype or its name; `str`, `bytes` or `"string"` for text.

    Example:
      >>> from estimax.input import Dataset
      >>> data = Dataset.from_generator(
      ...     lambda: ([1, 2], [3]), output_signature=TensorSpec((None,), "float32"))
      >>> [(row.dtype.name, row.tolist()) for row in data]
      [('float32', [1.0, 2.0]), ('float32', [3.0])]
    """

    shape: tuple[int | None, ...] | None = None
    dtype: Any = "float32"


def check_generator(
    generator: Callable[..., Iterable[Structure]],
    args: tuple[Any, ...],
    output_types: Structure,
    output_shapes: Structure,
    output_signature: Structure,
) -> Callable[[], Iterable[Structure]]:
    """Return a function without arguments that yields checked elements."""
    if not callable(generator):
        raise InputError(
            "from_generator needs a function that makes the generator, got "
            f"{type(generator).__name__}: pass `f`, not `f()`."
        )
    if output_signature is not None and output_types is not None:
        raise InputTypeError(
            "from_generator: give output_signature, or output_types and "
            "output_shapes, not both."
        )
    signature = output_signature
    if signature is None and output_types is not None:
        signature = _signature(output_types, output_shapes)
    if signature is None:
        return (lambda: generator(*args)) if args else generator

    def yield_elements() -> Iterator[Structure]:
        for number, element in enumerate(generator(*args)):
            yield _conform(element, signature, f"from_generator, element {number}")

    return yield_elements


def _signature(types: Structure, shapes: Structure) -> Structure:
    """Combine structures of dtypes and shapes into one of `TensorSpec`."""
    if isinstance(types, Mapping):
        return {k: _signature(types[k], shapes and shapes[k]) for k in types}
    if isinstance(types, tuple):
        parts = shapes if shapes is not None else [None] * len(types)
        return tuple(map(_signature, types, parts))
    return TensorSpec(None if shapes is None else tuple(shapes), types)


def _conform(element: Structure, signature: Structure, where: str) -> Structure:
    """Return an element converted to its signature; raise if it does not match."""
    if isinstance(element, list) and isinstance(signature, tuple):
        element = tuple(element)
    if not _has_structure(element, signature):
        raise InputTypeError(
            f"{where}: expected the structure {describe(signature)}, got "
            f"{describe(element)}."
        )
    return map_leaves(
        lambda spec, value: _convert(value, spec, where), signature, element
    )


def _has_structure(element: Structure, signature: Structure) -> bool:
    if isinstance(signature, Mapping):
        return (
            isinstance(element, Mapping)
            and element.keys() == signature.keys()
            and all(_has_structure(element[key], signature[key]) for key in signature)
        )
    if isinstance(signature, tuple):
        return (
            isinstance(element, tuple)
            and len(element) == len(signature)
            and all(map(_has_structure, element, signature))
        )
    return not isinstance(element, Mapping | tuple)


def _convert(value: Any, spec: Any, where: str) -> Any:
    """Return one value in the dtype of its spec; raise if dtype or shape differ."""
    wanted = _dtype(spec.dtype)
    column = as_column(value)
    if isinstance(column, Sparse | Ragged):
        return column
    if not hasattr(value, "dtype") and not column.size:
        # An empty list has no dtype of its own, so it takes the dtype of the spec.
        nothing = np.empty(column.shape, object if wanted is None else wanted)
        column = as_column(nothing)
        assert not isinstance(column, Sparse | Ragged)
    if isinstance(column, Strings) != (wanted is None):
        found = "text" if isinstance(column, Strings) else str(column.dtype)
        raise _wrong(where, "dtype", spec.dtype, found)
    if not isinstance(column, Strings) and wanted is not None:
        # Python numbers convert, but never a float to an int. NumPy values convert to
        # another kind (int64 to float32); within a kind the dtype must be the same.
        exact = hasattr(value, "dtype")
        fits = np.can_cast(column.dtype, wanted, "same_kind") and not (
            exact and column.dtype != wanted and column.dtype.kind == wanted.kind
        )
        if not fits:
            raise _wrong(where, "dtype", wanted, str(column.dtype))
        column = column.astype(wanted)
    shape = None if spec.shape is None else tuple(spec.shape)
    if shape is not None and not _fits(column.shape, shape):
        raise _wrong(where, "shape", shape, str(column.shape))
    return as_value(column)


def _dtype(dtype: Any) -> np.dtype[Any] | None:
    """Return a NumPy dtype, or None for text."""
    if dtype in (str, bytes, "string", "str", "bytes"):
        return None
    found = np.dtype(getattr(dtype, "as_numpy_dtype", dtype))
    return None if found.kind in "OSU" else found


def _fits(found: tuple[int, ...], wanted: tuple[int | None, ...]) -> bool:
    return len(found) == len(wanted) and all(
        size in (None, -1, n) for n, size in zip(found, wanted, strict=True)
    )


def _wrong(where: str, what: str, wanted: Any, found: str) -> InputTypeError:
    return InputTypeError(f"{where}: expected {what} {wanted}, got {found}.")


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
        return TensorSpec((None,) * len(column.dense_shape), _dtype_of(column.values))
    if isinstance(column, Ragged):
        ragged = (None,) * (column.ragged_rank + 1)
        return TensorSpec((*ragged, *column.values.shape[1:]), _dtype_of(column.values))
    shape: tuple[int | None, ...] = column.shape
    if is_batch and shape:
        shape = (None, *shape[1:])
    return TensorSpec(shape, _dtype_of(column))


def _dtype_of(values: np.ndarray[Any, Any] | Strings) -> str:
    return "string" if isinstance(values, Strings) else values.dtype.name
