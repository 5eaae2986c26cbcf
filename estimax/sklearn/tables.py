"""Arrays and data frames as pyarrow tables, with the columns that a model reads.

    table = table_of(frame, names)            # int64, float64 and text; null is missing
    cast_columns(table, {"age": "float"})     # as training and the bundle read them

A column of integers may come as floats in the next table, and text as a category. The
kinds that the model was trained with decide how both are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from estimax.config.columns import KIND_NAMES, ColumnKind
from estimax.config.profile import NULL_WORDS
from estimax.core.errors import FeatureError

_MISSING_ID = -1  # categorical columns ignore it


def table_of(values: Any, names: Sequence[str]) -> Any:
    """Return a data frame or a matrix as a table of numbers and text.

    Args:
      values: A data frame of pandas or polars, a pyarrow Table, or an array [B, D].
      names: The names of the columns of the table.

    Raises:
      TypeError: A column has values that are neither numbers nor text nor dates.
      ValueError: A number is infinite.
    """
    columns = [_plain(column, names[i]) for i, column in enumerate(_columns(values))]
    return pa.table(dict(zip(names, columns, strict=True)))


def is_frame(values: Any) -> bool:
    """Return whether values have columns with names."""
    return hasattr(values, "columns") and hasattr(values, "__getitem__")


def _columns(values: Any) -> list[Any]:
    if isinstance(values, pa.Table):
        return list(values.columns)
    if hasattr(values, "iloc"):  # pandas, whose columns may have equal names
        return [values.iloc[:, i] for i in range(values.shape[1])]
    if is_frame(values):
        return [values[name] for name in values.columns]
    return list(np.asarray(values).T)


def _plain(values: Any, name: str) -> Any:
    """Return a column as int64, float64 or text."""
    column = _arrow(values, name)
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = column.type
    if pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return column.cast(pa.int64())
    if pa.types.is_integer(kind):
        is_large = pa.types.is_uint64(kind)
        return column.cast(pa.float64() if is_large else pa.int64(), safe=not is_large)
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return _finite(column.cast(pa.float64()), name)
    if pa.types.is_date(kind):
        return pc.strftime(column, format="%Y-%m-%d")
    if pa.types.is_timestamp(kind):
        seconds = column.cast(pa.timestamp("s"), safe=False)
        return pc.strftime(seconds, format="%Y-%m-%d %H:%M:%S")
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return column.cast(pa.string())
    try:
        return column.cast(pa.string())  # views of text, bytes in UTF-8
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        raise _no_column(name, str(kind)) from None


def _arrow(values: Any, name: str) -> Any:
    if isinstance(values, pa.ChunkedArray):
        return values.combine_chunks()
    if hasattr(values, "to_arrow"):  # polars
        return values.to_arrow()
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        pass  # such as numbers and words in one column
    texts = []
    for value in values:
        if isinstance(value, str | bool | int | float | np.number | np.bool_):
            is_missing = isinstance(value, float | np.floating) and np.isnan(value)
            texts.append(None if is_missing else f"{value}")
        elif value is None:
            texts.append(None)
        else:
            raise _no_column(name, type(value).__name__)
    return pa.array(texts, pa.string())


def _no_column(name: str, found: str) -> TypeError:
    # The first words are those of float(), which scikit-learn's own checks expect.
    return TypeError(
        f"argument must be a string or a number, not {found!r}: column {name!r} of X "
        "has no numbers, words or dates. Convert it, or leave it out."
    )


def _finite(column: Any, name: str) -> Any:
    if pc.any(pc.is_inf(column)).as_py():
        raise ValueError(
            f"Input X contains infinity: column {name!r} has an infinite number. "
            "Correct it; a missing number is NaN."
        )
    # NaN is null for pandas, and a number in Arrow.
    return pc.if_else(pc.is_nan(column), pa.scalar(None, pa.float64()), column)


def cast_columns(table: Any, kinds: Mapping[str, ColumnKind]) -> Any:
    """Return the columns that a model reads, each of its kind and without nulls.

    A missing number is NaN, a missing id is -1, and missing text is empty.

    Args:
      table: A table of `table_of`.
      kinds: What the model was trained with.

    Raises:
      FeatureError: A number was expected, and text was found.
    """
    return pa.table({n: _cast(table[n], kind, n) for n, kind in kinds.items()})


def _cast(column: Any, kind: ColumnKind, name: str) -> Any:
    is_text = pa.types.is_string(column.type)
    if is_text:
        column = _without_null_words(column)
    if kind == "text":
        return column.cast(pa.string()).fill_null("")
    if is_text:
        try:
            column = pc.utf8_trim_whitespace(column).cast(pa.float64())
        except pa.ArrowInvalid as error:
            raise FeatureError(
                f"column {name!r} of X: expected {KIND_NAMES[kind]}, as in the rows "
                f"that the model was trained on: {error}."
            ) from None
    if kind == "float":
        return column.cast(pa.float64(), safe=False).fill_null(float("nan"))
    if pa.types.is_floating(column.type):
        # A fraction is no id, so it counts as one that is missing.
        is_whole = pc.equal(column, pc.floor(column))
        column = pc.if_else(is_whole, column, pa.scalar(None, column.type))
    return column.cast(pa.int64(), safe=False).fill_null(_MISSING_ID)


def _without_null_words(column: Any) -> Any:
    trimmed = pc.utf8_trim_whitespace(column)
    is_missing = pc.is_in(trimmed, pa.array(NULL_WORDS))
    return pc.if_else(is_missing, pa.scalar(None, pa.string()), column)
