"""Requests: check the features that a caller sends and convert them to raw form.

    batch = read_request(signature.inputs, {"age": [31, 46]}, origins_of(plan))

Numbers are widened if nothing is lost. They are never guessed: 1.5 is no integer, "3"
no number and True not 1. Every error names the feature, what was expected and what was
found.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import (
    BundleError,
    FeatureError,
    InputError,
    SpecError,
    did_you_mean,
)
from estimax.core.numbers import cast
from estimax.core.raw_values import as_raw, frame_columns
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.export.signature import LONE_FEATURE, STRING, TensorInfo, input_name
from estimax.staging import plan as plans
from estimax.staging.recording import Origin
from estimax.transforms.transform import is_present


def read_request(
    specs: Sequence[TensorInfo], features: Any, origins: Iterable[Origin]
) -> dict[Origin, Any]:
    """Return the features as a raw batch; raise BundleError if one does not fit."""
    by_name = {input_name(origin): origin for origin in origins}
    columns = frame_columns(features)
    if columns is not None:
        features = columns
    if not isinstance(features, Mapping):
        if all(origin.key is not None for origin in by_name.values()):
            names = ", ".join(spec.name for spec in specs)
            raise BundleError(
                f"expected a dict of features ({names}), found "
                f"{type(features).__name__}."
            )
        features = {LONE_FEATURE: features}
    named = {str(name): value for name, value in features.items()}
    check_names(specs, named)
    batch = {by_name[s.name]: column_from(s, named[s.name]) for s in specs}
    try:
        plans.batch_size(batch)
    except SpecError as error:
        raise BundleError(str(error)) from None
    return batch


def check_names(specs: Sequence[TensorInfo], features: Mapping[str, Any]) -> None:
    """Raise BundleError if a feature is missing or unknown."""
    expected = [spec.name for spec in specs]
    unknown = [name for name in features if name not in expected]
    missing = [name for name in expected if name not in features]
    if unknown:
        raise BundleError(
            f"unknown feature {unknown[0]!r}"
            f"{did_you_mean(unknown[0], missing or expected)}"
        )
    if missing:
        raise BundleError(
            f"feature {missing[0]!r} is missing; the signature needs "
            f"{', '.join(expected)}, found {', '.join(features) or 'none'}."
        )


def column_from(spec: TensorInfo, value: Any) -> Any:  # ndarray, Strings or Sparse
    """Return one feature in the raw form of its spec."""
    if spec.kind == "sparse":
        return _sparse_from(spec, value)
    if isinstance(value, Sparse):
        raise _unfit(spec, "a sparse value")
    return _shaped(spec, _typed(spec, _array(spec, value)))


def _array(spec: TensorInfo, value: Any) -> NDArray[Any] | Strings:
    if isinstance(value, Strings):
        return value
    try:
        array = as_raw(value)
    except InputError as error:
        raise _unfit(spec, f"an array of another kind: {error}") from None
    if isinstance(array, Sparse):
        raise _unfit(spec, "rows of different lengths")
    return array


def _typed(spec: TensorInfo, array: NDArray[Any] | Strings) -> NDArray[Any] | Strings:
    """Return the same values in the dtype of the spec; raise if that loses any."""
    if array.size == 0:
        empty = np.empty(array.shape, object if spec.dtype == STRING else spec.dtype)
        return Strings.of(empty) if spec.dtype == STRING else empty
    if isinstance(array, Strings):
        if spec.dtype != STRING:
            raise _unfit(spec, "text")
        return array
    if spec.dtype == STRING:
        raise _unfit(spec, f"dtype {array.dtype.name}")
    wanted = np.dtype(spec.dtype)
    if array.dtype == wanted:
        return array
    # Wanted kind -> kinds that fit. "V" are jax's own small floats, such as bfloat16.
    widens = {"f": "Vfiu", "V": "Vfiu", "i": "iu", "u": "iu", "c": "cfiu"}
    if array.dtype.kind not in widens.get(wanted.kind, ""):
        raise _unfit(spec, f"dtype {array.dtype.name}")
    if wanted.kind in "iu":
        _check_range(spec, array, wanted)
    return cast(array, wanted)


def _check_range(spec: TensorInfo, array: NDArray[Any], wanted: np.dtype[Any]) -> None:
    limits = np.iinfo(wanted)
    worst = next(
        (v for v in (int(array.min()), int(array.max())) if not _within(limits, v)),
        None,
    )
    if worst is not None:
        raise _unfit(spec, f"{worst}, which does not fit")


def _within(limits: np.iinfo[Any], value: int) -> bool:
    return int(limits.min) <= value <= int(limits.max)


def _shaped(spec: TensorInfo, array: Any) -> Any:  # ndarray or Strings, as given
    if array.ndim == 0:
        raise _unfit(spec, "a single value; send a list, one per row")
    if array.shape[1:] == spec.tail:
        return array
    # Accept [B] for [B, 1] and the reverse: clients mix them up, and the values are
    # the same.
    if _without_ones(array.shape[1:]) == _without_ones(spec.tail):
        return array.reshape((len(array), *spec.tail))
    raise _unfit(spec, f"shape {_shape_text((None, *array.shape[1:]))}")


def _without_ones(shape: Iterable[int | None]) -> list[int | None]:
    return [n for n in shape if n != 1]


def _sparse_from(spec: TensorInfo, value: Any) -> Sparse:
    if isinstance(value, Sparse):
        if len(value.dense_shape) != len(spec.shape):
            raise _unfit(spec, f"a sparse value of shape {value.dense_shape}")
        return value.with_values(_typed(spec, _array(spec, value.values)))
    if len(spec.shape) > 2:
        return _sparse_from_nested(spec, value)
    if isinstance(value, np.ndarray | Strings):
        return _sparse_from_dense(spec, value)
    if hasattr(value, "to_pylist"):  # a pyarrow array
        value = value.to_pylist()
    return _sparse_from_rows(spec, value)


def _sparse_from_rows(spec: TensorInfo, rows: Sequence[Any]) -> Sparse:
    """Return lists of any lengths, one per row, as a sparse value.

    A single value counts as a list of one. '' and -1 are left out, as in a rectangle,
    because many clients pad with them.
    """
    lists = [_as_list(row) for row in rows]
    lengths = np.array([len(row) for row in lists], np.int64)
    flat = [item for row in lists for item in row]
    values = _typed(spec, _array(spec, flat))
    if values.ndim != 1:
        raise _unfit(spec, "lists within lists")
    starts = np.cumsum(lengths) - lengths
    places = np.arange(len(flat)) - np.repeat(starts, lengths)
    indices = np.stack([np.repeat(np.arange(len(lists)), lengths), places], axis=1)
    kept = np.flatnonzero(_present(values))
    shape = (len(lists), int(lengths.max(initial=0)))
    return Sparse(indices[kept], values[kept], shape)


def _sparse_from_nested(spec: TensorInfo, rows: Any) -> Sparse:
    """Return lists of lists, e.g. several ids per step, as a sparse value."""
    try:
        found = Sparse.of_rows(rows)
    except FeatureError:
        raise _unfit(spec, "values nested to different depths") from None
    if len(found.values):
        return _sparse_from(spec, found)
    # Empty rows do not show how deeply they are nested; the spec does.
    values = _typed(spec, np.empty(0))
    shape = (len(found), *(0 for _ in spec.shape[1:]))
    return Sparse(np.zeros((0, len(shape)), np.int64), values, shape)


def _as_list(row: Any) -> list[Any]:
    if isinstance(row, np.ndarray):
        listed: list[Any] = np.atleast_1d(row).tolist()
        return listed
    if row is None:
        return []
    return list(row) if isinstance(row, list | tuple) else [row]


def _sparse_from_dense(spec: TensorInfo, value: NDArray[Any] | Strings) -> Sparse:
    """Return a rectangle as a sparse value without '' and -1, as TensorFlow does."""
    if value.ndim == 1 and not isinstance(value, Strings) and value.dtype == object:
        return _sparse_from_rows(spec, value.tolist())
    array = _typed(spec, _array(spec, value))
    if array.ndim == 1:
        array = array.reshape((-1, 1))
    if array.ndim != 2:
        raise _unfit(spec, f"shape {_shape_text((None, *array.shape[1:]))}")
    rows, width = array.shape
    flat = array.reshape((-1,))
    present = _present(flat)
    values = flat[np.flatnonzero(present)]
    return Sparse(np.argwhere(present.reshape(rows, width)), values, (rows, width))


def _present(values: NDArray[Any] | Strings) -> NDArray[np.bool_]:
    """Return which values are not '' or -1. Floats are always present."""
    if isinstance(values, Strings) or values.dtype.kind == "i":
        return is_present(values)
    return np.ones(len(values), bool)


def _unfit(spec: TensorInfo, found: str) -> BundleError:
    form = "sparse " if spec.kind == "sparse" else ""
    return BundleError(
        f"feature {spec.name!r}: expected {form}{spec.dtype} of shape "
        f"{_shape_text(spec.shape)}, found {found}."
    )


def _shape_text(shape: Iterable[int | None]) -> str:
    """Return a shape as text, [B, 3]; [B, ?] if rows differ in length."""
    first, *rest = ("?" if n is None else str(n) for n in shape)
    return "[" + ", ".join(["B" if first == "?" else first, *rest]) + "]"
