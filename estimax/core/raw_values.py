"""Conversion of array-likes to raw values: NumPy numbers, `Strings` or `Sparse`.

    as_raw(["Oslo", None])                       # Strings; a missing text is empty
    as_raw(pd.Series([1, 2], dtype="Int64"))     # int64
    as_raw(pa.array([[1, 2], []]))               # Sparse

All inputs of a model pass through `as_raw`: datasets, generators, data frames, tables
and requests. Numbers keep their values. Values that are neither numbers nor text
(dates, structured arrays, missing numbers) raise an `InputError` that names the
feature, the dtype and the conversion to use.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.core.arrow import arrow_column, is_arrow
from estimax.core.device_dtypes import cast
from estimax.core.errors import InputError
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings, is_text

RawValue = NDArray[Any] | Strings | Sparse

# Type characters of bool, integers, floats and complex numbers of up to 64 bits a part.
_PLAIN = frozenset("?bhilqpBHILQPefdFD")


def is_plain(value: Any) -> bool:
    """Return whether a value is an ndarray of numbers that needs no conversion.

    >>> is_plain(np.ones(2)), is_plain(np.ones(2, ">f4")), is_plain(np.array(["a"]))
    (True, False, False)
    """
    # Not `isinstance`: a masked array is a subclass and must not lose its mask.
    if type(value) is not np.ndarray:
        return False
    dtype = value.dtype
    if dtype.char in _PLAIN:
        return bool(dtype.isnative)
    # bfloat16 and other extension dtypes of jax have the kind "V".
    return dtype.kind == "V" and dtype.type is not np.void


def as_raw(value: Any, where: str = "") -> RawValue:
    """Convert an array-like to numbers, `Strings` or `Sparse`.

    Args:
      value: A NumPy array, list, pandas Series, pyarrow array, or an array of jax,
        torch or TensorFlow. An array of lists, as pandas has them, becomes `Sparse`.
      where: What error messages begin with, e.g. "feature 'age'".

    Raises:
      InputError: The value cannot be converted to numbers or text.
    """
    if is_plain(value) or isinstance(value, Strings):
        known: RawValue = value
        return known
    if isinstance(value, Sparse):
        return _with_raw_values(value, where)
    if is_arrow(value):
        return arrow_column(value, None, where or "an Arrow array")
    if hasattr(value, "dense_shape") and hasattr(value, "indices"):
        shape = tuple(int(n) for n in np.asarray(value.dense_shape))
        values: Any = as_raw(value.values, where)
        return Sparse(np.asarray(value.indices, np.int64), values, shape)
    array = _as_numpy(value, where)
    if not is_text(array):
        return _as_native(array, where)
    if array.size and isinstance(array.flat[0], list | tuple | np.ndarray):
        return _with_raw_values(Sparse.of_rows(array), where)
    try:
        return Strings.of(array)
    except InputError as error:
        raise InputError(
            f"{_at(where)}dtype {getattr(value, 'dtype', array.dtype)} may hold only "
            f"text (str or bytes): {error} Convert it to text with .astype(str), or to "
            "numbers with pd.to_numeric or .astype(float), and fill missing values."
        ) from error


def frame_columns(value: Any) -> dict[str, Any] | None:
    """Return the columns of a data frame or Arrow table by name; None for others.

    Tables of other libraries, such as polars, are read through Arrow's C protocol.

    Raises:
      InputError: Two columns have the same name.
    """
    if hasattr(value, "iloc") and hasattr(value, "columns"):
        names = [str(name) for name in value.columns]
        columns = [value.iloc[:, place] for place in range(len(names))]
    elif hasattr(value, "column_names") and hasattr(value, "columns"):
        names, columns = value.column_names, value.columns
    elif hasattr(value, "__arrow_c_stream__") and hasattr(value, "columns"):
        import pyarrow as pa

        return frame_columns(pa.table(value))
    else:
        return None
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise InputError(
            f"column {twice[0]!r} is there twice; every column of a table needs a name "
            "of its own."
        )
    return dict(zip(names, columns, strict=True))


def _with_raw_values(value: Sparse, where: str) -> Sparse:
    values = as_raw(value.values, where)
    if isinstance(values, Sparse):
        raise InputError(f"{_at(where)}the values of a Sparse must not be lists.")
    return value if values is value.values else value.with_values(values)


def _as_numpy(value: Any, where: str) -> NDArray[Any]:
    if isinstance(value, np.ma.MaskedArray):
        return _unmasked(value, where)
    if isinstance(value, np.ndarray):
        return np.asarray(value)  # of a subclass such as memmap: a plain view
    if hasattr(value, "isna") and hasattr(value, "to_numpy"):
        return _from_pandas(value, where)
    if hasattr(value, "detach"):  # torch converts no tensor that requires a gradient
        value = value.detach().cpu()
    if not hasattr(value, "__array__") and hasattr(value, "numpy"):
        value = value.numpy()
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise InputError(
            f"{_at(where)}cannot make an array of it: {error}. Give rows of different "
            "lengths as ex.Sparse.of_rows(rows)."
        ) from error
    if array.dtype.kind in "SU" and not hasattr(value, "dtype"):
        # A NumPy array of text drops zero bytes at the end of a value, and turns
        # numbers among the values into text. An array of objects keeps both.
        return np.asarray(value, object)
    return array


def _unmasked(value: np.ma.MaskedArray[Any, Any], where: str) -> NDArray[Any]:
    mask = np.ma.getmaskarray(value)
    data = np.asarray(value.data)
    if not mask.any():
        return data
    if is_text(data):
        return np.where(mask, "", data.astype(object))
    raise InputError(
        f"{_at(where)}{mask.sum()} values of a masked array of {data.dtype} are "
        "missing. Fill them first with .filled(value)."
    )


def _from_pandas(value: Any, where: str) -> NDArray[Any]:
    """Convert a Series, Index or extension array; missing text becomes empty.

    Missing numbers are an error: pandas would return integers with missing values as
    floats or objects.
    """
    dtype = getattr(value, "dtype", None)  # a frame has none
    if dtype is None or isinstance(dtype, np.dtype):
        return np.asarray(value.to_numpy())
    if dtype.kind in "mM":
        raise _is_time(str(dtype), where)
    missing = np.asarray(value.isna())
    # Without a dtype, some versions of pandas return nullable numbers as objects.
    numbers = getattr(dtype, "numpy_dtype", None) if dtype.kind in "biuf" else None
    present = value[~missing].to_numpy(dtype=numbers)
    if not missing.any():
        return np.asarray(present)
    if is_text(present):
        filled = np.full(len(value), "", object)
        filled[~missing] = present
        return filled
    raise InputError(
        f"{_at(where)}dtype {dtype}: {missing.sum()} of {len(value)} values are "
        "missing. Fill them first with .fillna(value); missing floats become NaN with "
        ".astype('float64')."
    )


def _as_native(array: NDArray[Any], where: str) -> NDArray[Any]:
    """Return an array of numbers in a native dtype; raise for other values."""
    dtype = array.dtype
    if is_plain(array):
        return array
    if dtype.kind in "mM":
        raise _is_time(str(dtype), where)
    if dtype.kind in "biufc":
        native = {"g": np.dtype(np.float64), "G": np.dtype(np.complex128)}
        return cast(array, native.get(dtype.char, dtype.newbyteorder("=")))
    if dtype.names:
        raise InputError(
            f"{_at(where)}a structured array of dtype {dtype} is several columns. Give "
            f"each as a feature of its own: array[{dtype.names[0]!r}]."
        )
    raise InputError(
        f"{_at(where)}dtype {dtype} is neither numbers nor text. Convert it with "
        ".astype or .view first."
    )


def _is_time(dtype: str, where: str) -> InputError:
    return InputError(
        f"{_at(where)}dtype {dtype} is neither a number nor text. Convert it first, "
        "for instance with .astype('int64') to a number in its unit or with "
        ".astype(str) to text, or leave it out."
    )


def _at(where: str) -> str:
    return f"{where}: " if where else ""
