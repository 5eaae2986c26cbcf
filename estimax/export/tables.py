"""The forms in which callers give the features of a request, as columns by name.

    columns_of({"age": [31, 46], "city": "Oslo"})     # a scalar is for every row
    columns_of([{"age": 31}, {"age": None}])          # rows; None is missing
    columns_of(data_frame)                            # pandas, pyarrow, polars

Only the form changes here. `requests.py` checks and converts the values.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from estimax.core.errors import BundleError, InputError
from estimax.core.raw_values import frame_columns

_SCALARS = (str, bytes, int, float, complex, np.generic, type(None))


def columns_of(features: Any) -> dict[str, Any] | None:
    """Return the columns of a request by name; None if it is not a table.

    Args:
      features: A mapping of columns or single values, a list of mappings, one for each
        row, a data frame, or an Arrow table. A row that lacks a column has None there.

    Raises:
      BundleError: Two columns have the same name, or a row is not a mapping.
    """
    if isinstance(features, Mapping):
        return _with_rows({str(name): value for name, value in features.items()})
    try:
        columns = frame_columns(features)
    except InputError as error:
        raise BundleError(str(error)) from None
    if columns is not None:
        return columns
    if hasattr(features, "iloc") and hasattr(features, "to_dict"):
        return _columns_of_rows([features.to_dict()])  # a row of a data frame
    is_list = isinstance(features, list | tuple) and len(features) > 0
    if is_list and isinstance(features[0], Mapping):
        return _columns_of_rows(features)
    return None


def _with_rows(columns: dict[str, Any]) -> dict[str, Any]:
    """Return the columns with every single value repeated for all rows."""
    scalars = [name for name, value in columns.items() if is_scalar(value)]
    if not scalars:
        return columns
    others = (len(value) for value in columns.values() if not is_scalar(value))
    rows = next(others, 1)
    return columns | {name: [columns[name]] * rows for name in scalars}


def is_scalar(value: Any) -> bool:
    """Return whether a value is a single number or text, and not a column."""
    return isinstance(value, _SCALARS) or getattr(value, "ndim", 1) == 0


def _columns_of_rows(rows: Sequence[Any]) -> dict[str, Any]:
    try:
        names = dict.fromkeys(itertools.chain.from_iterable(rows))
        return {str(name): [row.get(name) for row in rows] for name in names}
    except (AttributeError, TypeError):
        pass
    place = next(i for i, row in enumerate(rows) if not isinstance(row, Mapping))
    raise BundleError(
        f"row {place}: expected a dict of features, found {type(rows[place]).__name__}."
    )
