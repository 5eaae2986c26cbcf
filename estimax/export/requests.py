"""Requests: check the features that a caller sends and convert them to raw form.

    read = RequestReader(signature.inputs, origins_of(plan))
    batch = read({"age": [31, 46]})

Numbers are converted if nothing is lost, 3.0 to the integer 3 too. They are never
guessed: 1.5 is no integer, "3" no number and True not 1. A missing value (None, NaN,
pandas' NA, Arrow's null, or no such key) becomes the default of the feature; missing
text is empty, and so is a missing list. Every error names the feature, what was
expected and what was found; one about missing values names all of their features.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from estimax.core.device_dtypes import cast
from estimax.core.errors import (
    BundleError,
    FeatureError,
    InputError,
    SpecError,
    did_you_mean,
)
from estimax.core.raw_values import as_raw, is_arrow, is_plain
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings, is_missing
from estimax.export.signature import LONE_FEATURE, STRING, TensorInfo, input_name
from estimax.export.tables import columns_of, is_scalar
from estimax.feature_columns.transforms.transform import is_present
from estimax.staging import host_plan as plans
from estimax.staging.trace import NestedKey, Origin

_NO_DEFAULT: Final = (
    "The features have no default, so the model cannot fill them; `estimax show` tells "
    "which it can."
)


class MissingValueError(BundleError):
    """A feature lacks a value, and the model does not fill it.

    Args:
      spec: The feature.
      row: The first row without a value.
    """

    def __init__(self, spec: TensorInfo, row: int) -> None:
        found = f"a missing value in row {row}, and it has no default"
        super().__init__(_unfit_text(spec, found))
        self.row = row


class RequestReader:
    """Reads requests with the inputs of a signature.

    Args:
      specs: The inputs of the signature.
      origins: The features of the model, which the inputs name.
    """

    def __init__(self, specs: Sequence[TensorInfo], origins: Iterable[Origin]) -> None:
        by_name = {input_name(origin): origin for origin in origins}
        self._specs = {spec.name: spec for spec in specs}
        self._columns = [(by_name[spec.name], spec) for spec in specs]
        self._is_lone = any(origin.key is None for origin in by_name.values())
        self._is_nested = any(isinstance(o.key, NestedKey) for o in by_name.values())

    def __call__(
        self, features: Any, *, ignore_extra: bool = False
    ) -> dict[Origin, Any]:
        """Return the features as a raw batch; raise BundleError if one does not fit."""
        named = self._name_columns(features)
        rows = _row_count(features, named)
        check_names(
            self._specs, named, ignore_extra=ignore_extra, has_rows=rows is not None
        )
        absent = (None,) * (rows or 0)
        try:
            batch = {
                origin: column_from(spec, named.get(spec.name, absent))
                for origin, spec in self._columns
            }
            plans.batch_size(batch)
        except MissingValueError as error:
            raise self._find_all_missing(named) or error from None
        except SpecError as error:
            raise BundleError(str(error)) from None
        return batch

    def _find_all_missing(self, named: Mapping[str, Any]) -> BundleError | None:
        """Return an error that names all features with a missing value, if several."""
        found: dict[str, int] = {}
        for name, value in named.items():
            try:
                if name in self._specs:
                    column_from(self._specs[name], value)
            except MissingValueError as error:
                found[name] = error.row
            except BundleError:
                continue  # of another kind; the missing values are told first
        if len(found) < 2:
            return None
        rows = ", ".join(f"{name!r} in row {row}" for name, row in found.items())
        return BundleError(
            f"expected a value in every row, found missing values: {rows}. "
            f"{_NO_DEFAULT}"
        )

    def _name_columns(self, features: Any) -> Mapping[str, Any]:
        if self._is_nested and _has_structure(features):
            # Also a dict of the names in the signature, "user/age", is accepted.
            flat = plans.flatten(features, None)
            return {input_name(origin): value for origin, value in flat.items()}
        columns = columns_of([features] if self._is_row(features) else features)
        if columns is not None:
            return columns
        if self._is_lone:
            return {LONE_FEATURE: features}
        if isinstance(features, list | tuple) and not features:
            return dict.fromkeys(self._specs, ())
        raise BundleError(
            f"expected a dict of features ({', '.join(self._specs)}), a list of dicts "
            f"or a data frame, found {type(features).__name__}."
        )

    def _is_row(self, features: Any) -> bool:
        """Return whether a dict is one row: single values, and lists as a row has."""
        if not isinstance(features, Mapping):
            return False
        lists = [
            _is_list(features[name]) and _matches(_shape(features[name]), spec.tail)
            for name, spec in self._specs.items()
            if spec.kind == "dense" and spec.tail and name in features
        ]
        return any(map(is_scalar, features.values())) and any(lists) and all(lists)


def _has_structure(features: Any) -> bool:
    """Return whether features are a tuple, or a dict with dicts or tuples in it."""
    if not isinstance(features, Mapping):
        return isinstance(features, tuple) and bool(features)
    return any(isinstance(value, Mapping | tuple) for value in features.values())


def is_filled(spec: TensorInfo) -> bool:
    """Return whether a missing value of a feature is replaced, and is no error.

    >>> is_filled(TensorInfo("age", "float32", (None,)))
    False
    >>> is_filled(TensorInfo("city", "string", (None,)))
    True
    """
    if spec.kind == "sparse":
        return True
    return None not in spec.tail and (spec.default is not None or spec.dtype == STRING)


def check_names(
    specs: Mapping[str, TensorInfo],
    features: Mapping[str, Any],
    *,
    ignore_extra: bool = False,
    has_rows: bool = True,
) -> None:
    """Raise BundleError if a feature is unknown, or is missing and not filled.

    Args:
      specs: The inputs of a signature by name.
      features: The columns of a request by name.
      ignore_extra: Whether to ignore unknown columns.
      has_rows: Whether the number of rows is known. Otherwise no column is filled.
    """
    missing = [name for name in specs if name not in features]
    unknown = [name for name in features if name not in specs]
    if unknown and not ignore_extra:
        near = did_you_mean(unknown[0], missing or list(specs))
        advice = "" if missing else ". Pass ignore_extra=True to ignore other columns."
        raise BundleError(f"unknown {_list_names(unknown)}{near}{advice}")
    needed = [name for name in missing if not has_rows or not is_filled(specs[name])]
    if needed:
        are = "is" if len(needed) == 1 else "are"
        raise BundleError(
            f"{_list_names(needed)} {are} missing; the signature needs "
            f"{', '.join(specs)}, found {', '.join(features) or 'none'}."
        )
    for name in missing:
        # A misspelled column must not be ignored, and its feature filled.
        similar = difflib.get_close_matches(name, unknown, n=1, cutoff=0.8)
        if similar:
            raise BundleError(
                f"feature {name!r} is missing, found a column {similar[0]!r}. Rename "
                "the column, or leave it out if it is another one."
            )


def _row_count(features: Any, named: Mapping[str, Any]) -> int | None:
    """Return how many rows a request has; None if it has no column that tells."""
    if isinstance(features, list | tuple) and features:
        return len(features)
    return next((len(column) for column in named.values()), None)


def _list_names(names: Sequence[str]) -> str:
    word = "feature" if len(names) == 1 else "features"
    return f"{word} {', '.join(map(repr, names))}"


def column_from(spec: TensorInfo, value: Any) -> Any:  # ndarray, Strings or Sparse
    """Return one feature in the raw form of its spec."""
    if spec.kind == "sparse":
        return _sparse_from(spec, value)
    if isinstance(value, Sparse):
        raise _unfit(spec, "a sparse value")
    if spec.tail and _is_list(value):
        value = with_blank_rows(spec, value)
    return _as_shape(spec, _as_dtype(spec, _array(spec, value)))


def with_blank_rows(spec: TensorInfo, rows: Sequence[Any]) -> Sequence[Any]:
    """Return rows of several values, in which None stands for each missing value.

    >>> with_blank_rows(TensorInfo("point", "float32", (None, 2)), [None, [1, 2]])
    [[None, None], [1, 2]]
    """
    is_blank = [row is None for row in rows]
    tail = [n for n in spec.tail if n is not None]
    if len(tail) < len(spec.tail) or not any(is_blank):
        return rows
    if all(map(is_scalar, rows)) and math.prod(tail) == 1:
        return rows  # [B] for [B, 1]
    blank = np.full(tail, None).tolist()
    return [
        blank if is_none else row for row, is_none in zip(rows, is_blank, strict=True)
    ]


def _array(spec: TensorInfo, value: Any) -> NDArray[Any] | Strings:
    if isinstance(value, Strings) or is_plain(value):
        known: NDArray[Any] | Strings = value
        return known
    direct = _convert_directly(spec, value)
    if direct is not None:
        return direct
    if spec.dtype != STRING:
        missing = _missing_mask(value)
        if missing is not None and (spec.default is not None or _is_list(value)):
            return _fill_missing(spec, value, missing)
    try:
        array = as_raw(value)
    except InputError as error:
        raise _unfit(spec, f"an array of another kind: {error}") from None
    return _rectangle(spec, array) if isinstance(array, Sparse) else array


def _rectangle(spec: TensorInfo, lists: Sparse) -> NDArray[Any] | Strings:
    """Return lists of one length, as a data frame has them, as an array [B, length]."""
    if len(lists.values) != math.prod(lists.dense_shape):
        raise _unfit(spec, "rows of different lengths")
    return lists.values.reshape(lists.dense_shape)


def _convert_directly(spec: TensorInfo, value: Any) -> NDArray[Any] | Strings | None:
    """Convert lists and arrays of text or numbers alone, fast; None for others."""
    if spec.dtype == STRING:
        if type(value) is np.ndarray and value.dtype == object and value.ndim == 1:
            value = value.tolist()
        return Strings.of_text(value) if isinstance(value, list) else None
    if not isinstance(value, list):
        return None
    try:
        array = np.array(value)
    except ValueError:  # rows of different lengths
        return None
    return array if is_plain(array) else None


def _missing_mask(value: Any) -> NDArray[np.bool_] | None:
    """Return where an array-like has a missing value that is not NaN; None: nowhere."""
    if is_arrow(value):
        found: Any = value.is_null() if value.null_count else None
    elif isinstance(value, np.ma.MaskedArray):
        found = np.ma.getmaskarray(value)
    elif hasattr(value, "isna") and hasattr(value, "to_numpy"):
        found = value.isna()
    else:
        array = _objects(value)
        found = None if array is None else np.frompyfunc(is_missing, 1, 1)(array)
    if found is None:
        return None
    mask = np.asarray(found).astype(bool)
    return mask if mask.any() else None


def _shape(value: Any) -> tuple[int, ...]:
    try:
        return np.shape(value)
    except ValueError:  # rows of different lengths
        return ()


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _objects(value: Any) -> NDArray[Any] | None:
    """Return lists and arrays of Python objects as an array; None for other values."""
    if not _is_list(value) and not isinstance(value, np.ndarray):
        return None
    try:
        array = np.asarray(value)
    except ValueError:  # rows of different lengths
        return None
    return array if array.dtype == object else None


def _fill_missing(
    spec: TensorInfo, value: Any, missing: NDArray[np.bool_]
) -> NDArray[Any]:
    """Return the values as numbers, with the default for those that are missing."""
    if spec.default is None:
        row = int(np.argwhere(missing)[0][0])
        raise MissingValueError(spec, row)
    if is_arrow(value):
        present: Any = value.drop_null()
    elif _is_list(value):
        present = np.asarray(value, object)[~missing].tolist()
    else:
        present = value[~missing]
        present = present.tolist() if present.dtype == object else present
    numbers = _array(spec, present)
    if isinstance(numbers, Strings):
        raise _unfit(spec, "text")
    filled = np.full(missing.shape, spec.default, np.result_type(spec.dtype, numbers))
    filled[~missing] = numbers
    return filled


def _as_dtype(
    spec: TensorInfo, array: NDArray[Any] | Strings
) -> NDArray[Any] | Strings:
    """Return the same values in the dtype of the spec; raise if that loses any."""
    if array.size == 0:
        empty = np.empty(array.shape, object if spec.dtype == STRING else spec.dtype)
        return Strings.of(empty) if spec.dtype == STRING else empty
    if isinstance(array, Strings):
        if spec.dtype != STRING:
            raise _unfit(spec, "text")
        return array
    if spec.dtype == STRING:
        # Not converted here: 7 and 7.0 would be different words.
        raise _unfit(spec, f"dtype {array.dtype.name}; convert the column to text")
    wanted = np.dtype(spec.dtype)
    if array.dtype.kind == "f":
        array = _without_nan(spec, array)
    if array.dtype == wanted:
        return array
    # Wanted kind -> kinds that fit. "V" are jax's own small floats, such as bfloat16.
    widens = {"f": "Vfiu", "V": "Vfiu", "i": "iuf", "u": "iuf", "c": "cfiu"}
    if array.dtype.kind not in widens.get(wanted.kind, ""):
        raise _unfit(spec, f"dtype {array.dtype.name}")
    if wanted.kind in "iu":
        _check_range(spec, array, wanted)
    return cast(array, wanted)


def _without_nan(spec: TensorInfo, array: NDArray[Any]) -> NDArray[Any]:
    """Return the numbers with the default of the feature, if any, in place of NaN."""
    default = spec.default
    if default is None or default != default:
        return array
    missing = np.isnan(array)
    return (
        np.where(missing, np.asarray(default, array.dtype), array)
        if missing.any()
        else array
    )


def _check_range(spec: TensorInfo, array: NDArray[Any], wanted: np.dtype[Any]) -> None:
    limits = np.iinfo(wanted)
    if array.dtype.kind == "f":
        # pandas has integers with missing values as floats.
        broken = array[~np.isfinite(array) | (np.trunc(array) != array)]
        if broken.size:
            raise _unfit(spec, f"dtype {array.dtype.name} with {broken.flat[0]}")
    worst = next(
        (v for v in (int(array.min()), int(array.max())) if not _within(limits, v)),
        None,
    )
    if worst is not None:
        raise _unfit(spec, f"{worst}, which does not fit")


def _within(limits: np.iinfo[Any], value: int) -> bool:
    return int(limits.min) <= value <= int(limits.max)


def _as_shape(spec: TensorInfo, array: Any) -> Any:  # ndarray or Strings, as given
    if array.ndim == 0:
        raise _unfit(spec, "a single value; send a list, one per row")
    if len(array) == 0:  # of no rows, which do not show their shape
        return array.reshape((0, *(size or 0 for size in spec.tail)))
    tail = array.shape[1:]
    if tail == spec.tail or _matches(tail, spec.tail):
        return array
    # Accept [B] for [B, 1] and the reverse: clients mix them up, and the values are
    # the same.
    if None not in spec.tail and _without_ones(tail) == _without_ones(spec.tail):
        return array.reshape((len(array), *spec.tail))
    raise _unfit(spec, f"shape {_shape_text((None, *array.shape[1:]))}")


def _matches(tail: tuple[int, ...], expected: tuple[int | None, ...]) -> bool:
    return len(tail) == len(expected) and all(
        size in (None, n) for n, size in zip(tail, expected, strict=True)
    )


def _without_ones(shape: Iterable[int | None]) -> list[int | None]:
    return [n for n in shape if n != 1]


def _sparse_from(spec: TensorInfo, value: Any) -> Sparse:
    if isinstance(value, Sparse):
        if len(value.dense_shape) != len(spec.shape):
            raise _unfit(spec, f"a sparse value of shape {value.dense_shape}")
        return value.with_values(_as_dtype(spec, _array(spec, value.values)))
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
    values = _as_dtype(spec, _array(spec, flat))
    if values.ndim != 1:
        raise _unfit(spec, "lists within lists")
    starts = np.cumsum(lengths) - lengths
    places = np.arange(len(flat)) - np.repeat(starts, lengths)
    indices = np.stack([np.repeat(np.arange(len(lists)), lengths), places], axis=1)
    kept = np.flatnonzero(_present_mask(values))
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
    values = _as_dtype(spec, np.empty(0))
    shape = (len(found), *(0 for _ in spec.shape[1:]))
    return Sparse(np.zeros((0, len(shape)), np.int64), values, shape)


def _as_list(row: Any) -> list[Any]:
    if isinstance(row, np.ndarray):
        listed: list[Any] = np.atleast_1d(row).tolist()
        return listed
    if is_missing(row):
        return []
    return list(row) if isinstance(row, list | tuple) else [row]


def _sparse_from_dense(spec: TensorInfo, value: NDArray[Any] | Strings) -> Sparse:
    """Return a rectangle as a sparse value without '' and -1, as TensorFlow does."""
    if value.ndim == 1 and not isinstance(value, Strings) and value.dtype == object:
        return _sparse_from_rows(spec, value.tolist())
    array = _as_dtype(spec, _array(spec, value))
    if array.ndim == 1:
        array = array.reshape((-1, 1))
    if array.ndim != 2:
        raise _unfit(spec, f"shape {_shape_text((None, *array.shape[1:]))}")
    rows, width = array.shape
    flat = array.reshape((-1,))
    present = _present_mask(flat)
    values = flat[np.flatnonzero(present)]
    return Sparse(np.argwhere(present.reshape(rows, width)), values, (rows, width))


def _present_mask(values: NDArray[Any] | Strings) -> NDArray[np.bool_]:
    """Return which values are not '' or -1. Floats are always present."""
    if isinstance(values, Strings) or values.dtype.kind == "i":
        return is_present(values)
    return np.ones(len(values), bool)


def _unfit(spec: TensorInfo, found: str) -> BundleError:
    return BundleError(_unfit_text(spec, found))


def _unfit_text(spec: TensorInfo, found: str) -> str:
    form = "sparse " if spec.kind == "sparse" else ""
    return (
        f"feature {spec.name!r}: expected {form}{spec.dtype} of shape "
        f"{_shape_text(spec.shape)}, found {found}."
    )


def _shape_text(shape: Iterable[int | None]) -> str:
    """Return a shape as text, [B, 3]; [B, ?] if rows differ in length."""
    first, *rest = ("?" if n is None else str(n) for n in shape)
    return "[" + ", ".join(["B" if first == "?" else first, *rest]) + "]"
