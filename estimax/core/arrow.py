"""Conversion of Arrow arrays to numbers, `Strings` or `Sparse`, mostly without a copy.

    arrow_column(table["age"], None, "column 'age'")     # ndarray
    arrow_column(table["clicks"], None, "…")              # lists become Sparse

Numbers keep their dtype and text becomes `Strings`. Decimals become float64. Dates and
times become integers in their unit (days, seconds, …) since the epoch or midnight. A
missing value becomes the default. Without a default, missing text becomes empty and a
missing number is an error.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import InputError
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings

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
