"""Predictions as Arrow columns, for Parquet files, Spark and Ray.

    answers = bundle.predict(table)
    arrow_answers(signature, answers)       # output name -> pyarrow array
    arrow_types(signature)                  # the same types, before any prediction

The types follow from the signature alone, so that every batch, file and worker has the
same. An output [B] or [B, 1] is one value per row, and [B, K] is a list per row. The
list of all classes is left out, because it is equal in every row.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import BundleError
from estimax.core.raw_values import is_arrow
from estimax.core.sparse import Sparse
from estimax.export.signature import STRING, Signature, TensorInfo


def without_class_lists(answers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the outputs that differ from row to row, by name.

    Heads also return all class ids and all classes, which are equal in every row.

    >>> without_class_lists({"scores": [0.5], "all_classes": [["no", "yes"]]})
    {'scores': [0.5]}
    """
    return {
        name: value
        for name, value in answers.items()
        # Of several heads, it is "<head>/all_classes".
        if not name.rpartition("/")[2].startswith("all_class")
    }


def arrow_types(signature: Signature, *, fixed_size: bool = False) -> dict[str, Any]:
    """Return output name to Arrow type, for the outputs that are written.

    `fixed_size` makes lists of a known length `fixed_size_list`, which Spark does not
    have.

    Raises:
      BundleError: An output has a dtype that Arrow does not have.
    """
    outputs = without_class_lists({spec.name: spec for spec in signature.outputs})
    return {name: _type_of(spec, fixed_size) for name, spec in outputs.items()}


def _type_of(spec: TensorInfo, fixed_size: bool) -> Any:
    import pyarrow as pa

    if spec.dtype == STRING:
        kind = pa.string()
    else:
        dtype = np.dtype(spec.dtype)
        # bfloat16 and the like have the kind "V"; float32 holds all their values.
        dtype = np.dtype(np.float32) if dtype.kind == "V" else dtype
        if dtype.kind not in "biuf":
            raise BundleError(
                f"output {spec.name!r}: {dtype} has no Arrow type. Call another "
                "signature, or export the real and imaginary parts as two outputs."
            )
        kind = pa.from_numpy_dtype(dtype)
    if spec.tail in ((), (1,)):
        return kind
    for size in reversed(spec.tail):
        kind = pa.list_(kind, size) if size and fixed_size else pa.list_(kind)
    return kind


def arrow_answers(signature: Signature, answers: Mapping[str, Any]) -> dict[str, Any]:
    """Return predictions as Arrow arrays of the types that `arrow_types` returns."""
    return {
        name: as_arrow(answers[name]).cast(kind)
        for name, kind in arrow_types(signature).items()
    }


def as_arrow(value: Any) -> Any:  # Any: a column in every form that readers return
    """Return a column as an Arrow array: one value, or one list, per row."""
    import pyarrow as pa

    if is_arrow(value):
        return value
    if isinstance(value, np.ndarray) and value.dtype != object:
        array = squeeze_column(value)
        if array.dtype.kind == "V":
            array = array.astype(np.float32)
        flat = pa.array(np.ascontiguousarray(array).reshape(-1))
        for axis in range(array.ndim - 1, 0, -1):
            rows, size = math.prod(array.shape[:axis]), array.shape[axis]
            if size:
                flat = pa.FixedSizeListArray.from_arrays(flat, size)
            else:
                flat = pa.ListArray.from_arrays(np.zeros(rows + 1, np.int32), flat)
        return flat
    if isinstance(value, np.ndarray) and squeeze_column(value).ndim == 1:
        # Words, in a fifth of the time that a list of them takes.
        with contextlib.suppress(pa.ArrowException):
            return pa.array(squeeze_column(value), pa.string())
    return pa.array(as_list(value))


def as_list(value: Any) -> list[Any]:
    """Return a column as a list of Python values; bytes are decoded.

    >>> as_list(np.array([[b"yes"], [b"no"]], object))
    ['yes', 'no']
    """
    if isinstance(value, Sparse):
        value = _lists_of(value)
    elif is_arrow(value):
        value = value.to_pylist()
    if isinstance(value, list):
        return [_decode_texts(item) for item in value]
    array = squeeze_column(np.asarray(value))
    items: list[Any] = array.tolist()
    return (
        [_decode_texts(item) for item in items] if array.dtype.kind in "OS" else items
    )


def squeeze_column(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array [B, 1] as [B], any other array unchanged."""
    is_column = array.ndim == 2 and array.shape[1] == 1
    return array[:, 0] if is_column else array


def _lists_of(value: Sparse) -> list[Any]:
    """Return the values of each row; single values if every row has one."""
    starts = value.starts.tolist()
    flat: list[Any] = np.asarray(value.values).tolist()
    if len(flat) == len(value) and starts == list(range(len(flat) + 1)):
        return flat
    return [flat[a:b] for a, b in itertools.pairwise(starts)]


def _decode_texts(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace")
    if isinstance(value, list | np.ndarray):
        return [_decode_texts(item) for item in value]
    return value
