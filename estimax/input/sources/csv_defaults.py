"""record_defaults: what TensorFlow's CSV functions are told about every column.

default_of(0.5, "x")        # float32, 0.5 stands in for a missing value
default_of(np.int64, "x")   # int64, a missing value is an error
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from estimax.core.errors import InputError
from estimax.core.strings import Strings
from estimax.input.sources.csv_blocks import (
    CsvFormat,
    read_first_row,
    read_rows,
    row_ends,
)
from estimax.input.sources.csv_schema import Field, dtype_of, split_row
from estimax.input.sources.file_blocks import ByteFile

_OF_PYTHON = ((bool, ""), (int, "int32"), (float, "float32"))


def default_of(given: Any, name: str) -> Field:
    """A column's dtype and default, from a default or a dtype.

    >>> default_of(-1, "a")
    Field(name='a', dtype='int32', default=-1, inferred=False)
    >>> default_of(np.array([], np.float64), "a")
    Field(name='a', dtype='float64', default=None, inferred=False)
    """
    if isinstance(given, type | np.dtype) or hasattr(given, "as_numpy_dtype"):
        return Field(name, dtype_of(getattr(given, "as_numpy_dtype", given), name))
    if isinstance(given, Strings):
        given = given.tolist()
    if isinstance(given, np.ndarray | list | tuple):
        if len(given) > 1:
            raise InputError(
                f"record_defaults[{name}]: expected one default, got {len(given)}."
            )
        if not len(given):
            return Field(name, dtype_of(getattr(given, "dtype", np.float32), name))
        given = given[0]
    if isinstance(given, str | bytes):
        text = given.encode() if isinstance(given, str) else given
        return Field(name, "string", text)
    for kind, dtype in _OF_PYTHON:
        if type(given) is kind and dtype:
            return Field(name, dtype, given)
    array = np.asarray(given)
    if array.shape or array.dtype.kind not in "if":
        raise InputError(
            f"record_defaults[{name}]: expected a number, text or a dtype, got "
            f"{given!r}."
        )
    return Field(name, dtype_of(array.dtype, name), array.item())


def csv_fields(
    path: str,
    form: CsvFormat,
    record_defaults: Sequence[Any],
    select_cols: Sequence[int] | None,
    exclude_cols: Sequence[int] | None = None,
) -> tuple[tuple[str, ...], tuple[Field, ...]]:
    """The names of all columns of a file (their numbers), and the wanted ones."""
    count = len(record_defaults)
    if exclude_cols is not None:
        count += len(exclude_cols)
        select_cols = [i for i in range(count) if i not in exclude_cols]
    elif select_cols is not None:
        count = max(_count_in(path, form), max(select_cols, default=0) + 1)
    return number_fields(count, record_defaults, select_cols)


def number_fields(
    count: int, record_defaults: Sequence[Any], select_cols: Sequence[int] | None
) -> tuple[tuple[str, ...], tuple[Field, ...]]:
    """Columns that have numbers for names."""
    chosen = list(range(count) if select_cols is None else select_cols)
    if chosen != sorted(set(chosen)) or len(chosen) != len(record_defaults):
        raise InputError(
            "select_cols must grow and have one record_default each, got "
            f"{chosen} and {len(record_defaults)} defaults."
        )
    names = tuple(map(str, range(count)))
    pairs = zip(chosen, record_defaults, strict=True)
    return names, tuple(default_of(given, str(i)) for i, given in pairs)


def _count_in(path: str, form: CsvFormat) -> int:
    """How many fields the first row has."""
    file = ByteFile(path, form.compression)
    _, offset, line = read_first_row(file, form)
    block = read_rows(file, offset, line, form)
    file.close()
    if not block.end:
        return 0
    row = block.data[: int(row_ends(block, form)[0])]
    return len(split_row(row.rstrip(b"\r\n"), form))
