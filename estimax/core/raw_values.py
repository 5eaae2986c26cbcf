"""Conversion of array-likes to raw values: NumPy numbers, `Strings` or `Sparse`.

    as_raw(["Oslo", None])                       # Strings; a missing text is empty
    as_raw(pd.Series([1, 2], dtype="Int64"))     # int64
    as_raw(pa.array([[1, 2], []]))               # Sparse

All inputs of a model pass through `as_raw`: datasets, generators, data frames, tables
and requests. Numbers keep their values. Values that are neither numbers nor text
(dates, structured arrays, missing numbers) raise an `InputError` that names the
feature, the dtype and the conversion to use.

`arrow_column` converts Arrow arrays, mostly without a copy. Numbers keep their dtype
and text becomes `Strings`. Decimals become float64. Dates and times become integers in
their unit (days, seconds) since the epoch or midnight. Lists become `Sparse`. A missing
value becomes the default. Without a default, missing text becomes empty and a missing
number is an error.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

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
        return _require_unmasked(value, where)
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


def _require_unmasked(value: np.ma.MaskedArray[Any, Any], where: str) -> NDArray[Any]:
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


ArrowColumn = NDArray[Any] | Strings | Sparse


def is_arrow(value: Any) -> bool:
    """Return whether a value is a pyarrow array, without importing pyarrow."""
    return hasattr(value, "null_count") and hasattr(value, "type")


def arrow_column(
    values: Any, default: Any, where: str, first_row: int = 0
) -> ArrowColumn:
    """Convert an Arrow array.

    Args:
      values: A pyarrow Array or ChunkedArray.
      default: Replaces missing values; None for no default.
      where: What error messages begin with.
      first_row: The number of the first row in error messages.

    Raises:
      InputError: The type has no conversion (a struct, for example), or a number is
        missing and there is no default.
    """
    from pyarrow import types

    if hasattr(values, "num_chunks"):
        one = values.num_chunks == 1
        values = values.chunk(0) if one else values.combine_chunks()
    values = _plain(values)
    kind = values.type
    if types.is_fixed_size_list(kind):
        return _rectangle(values, default, where, first_row)
    if types.is_list(kind) or types.is_large_list(kind):
        return _sparse(values, default, where)
    return _flat(values, default, where, first_row)


def _plain(values: Any) -> Any:
    """Return the same values without dictionary, extension type or views of text."""
    from pyarrow import types

    kind = values.type
    if isinstance(kind, _extension_type()):
        return _plain(values.storage)
    if types.is_dictionary(kind):
        return _plain(values.dictionary_decode())
    if types.is_string_view(kind):
        return values.cast("string")
    if types.is_binary_view(kind) or types.is_fixed_size_binary(kind):
        return values.cast("binary")
    return values


def _extension_type() -> Any:
    import pyarrow as pa

    return pa.BaseExtensionType


def _flat(
    values: Any, default: Any, where: str, first_row: int = 0
) -> NDArray[Any] | Strings:
    """Convert numbers or text; missing values become the default."""
    from pyarrow import types

    values = _plain(values)
    kind = values.type
    is_text = any(
        check(kind)
        for check in (
            types.is_string,
            types.is_large_string,
            types.is_binary,
            types.is_large_binary,
        )
    )
    is_time = types.is_temporal(kind) and not types.is_interval(kind)
    if types.is_decimal(kind):
        values = values.cast("float64")
    elif is_time:
        values = values.view("int64" if kind.bit_width == 64 else "int32")
    elif not is_text and not types.is_boolean(kind) and not _is_number(kind):
        raise InputError(
            f"{where}: cannot use values of type {kind}. Leave the column out, or "
            "convert it to numbers, text or lists of these first (flatten() a struct)."
        )
    if values.null_count:
        if default is not None:
            values = values.fill_null(_scalar(default, values.type))
        elif not is_text:  # Strings reads a missing value as empty
            raise _missing(values, kind, where, first_row)
    if is_text:
        return Strings.of(values)
    array: NDArray[Any] = values.to_numpy(zero_copy_only=not types.is_boolean(kind))
    return array


def _is_number(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_integer(kind) or types.is_floating(kind))


def _scalar(value: Any, kind: Any) -> Any:
    import pyarrow as pa

    return pa.scalar(value, kind)


def _missing(values: Any, kind: Any, where: str, first_row: int) -> InputError:
    is_null = values.is_null().to_numpy(zero_copy_only=False)
    row = first_row + int(np.flatnonzero(is_null)[0])
    return InputError(
        f"{where}, row {row}: expected {kind}, found a missing value. Fill missing "
        "values with fill_null(…), or pass defaults={column: …} to parquet_files."
    )


def _rectangle(
    values: Any, default: Any, where: str, first_row: int
) -> NDArray[Any] | Strings:
    """Convert lists of a fixed length to an array [B, length]."""
    kind = values.type
    if values.null_count:
        raise _missing(values, kind, where, first_row)
    inner = _flat(values.flatten(), default, where)
    return inner.reshape((len(values), kind.list_size))


def _sparse(values: Any, default: Any, where: str) -> Sparse:
    """Convert lists to `Sparse`, nested lists to rank 3; a missing list is empty."""
    from pyarrow import types

    offsets = np.asarray(values.offsets)
    if len(offsets) and offsets[0]:
        offsets = offsets - offsets[0]  # of a slice; `flatten` starts at its values
    if values.null_count:
        # The buffer of a missing list may hold values, which do not count.
        lengths = np.diff(offsets)
        lengths[values.is_null().to_numpy(zero_copy_only=False)] = 0
        offsets = np.concatenate([[0], np.cumsum(lengths)])
    flat = values.flatten()
    if types.is_list(flat.type) or types.is_large_list(flat.type):
        outer = Sparse.of_lists(np.arange(len(flat)), offsets)
        inner = _sparse(flat, default, where)
        places = outer.indices[inner.indices[:, 0]]
        shape = (*outer.dense_shape, inner.dense_shape[1])
        return Sparse(np.hstack([places, inner.indices[:, 1:]]), inner.values, shape)
    return Sparse.of_lists(_flat(flat, default, where), offsets)
