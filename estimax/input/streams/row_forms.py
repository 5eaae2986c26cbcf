"""RowForm: how the value of one row is obtained from a column that `map` has computed.

    row_of(column, 3)                     # np.float64(1.5)
    RowForm("python").row(column, 3)      # 1.5, as the function returned it

A function that is called for one row may return a Python number, or a sparse value
that is as wide as its row. A column holds the values of many rows as one array; its
form gives back exactly what the function would have returned for each of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.input.streams.columns import DataColumn, as_value, row_of


@dataclass(frozen=True, eq=False)
class RowForm:
    """The type of the values that the rows of a column stand for.

    Attributes:
      kind: "row" if `row_of` returns the value; "python" for a bool, int or float;
        "point" for an array without axes; "sparse" for a `Sparse` that is only as wide
        as its values require; "constant" for a value that is the same in every row.
      constant: The value, if `kind` is "constant".
      as_column: Whether the value is converted to a column, as an element of a dataset
        that does not consist of rows.
    """

    kind: Literal["row", "python", "point", "sparse", "constant"] = "row"
    constant: Any = None
    as_column: bool = False

    def row(self, column: DataColumn, i: int) -> Any:
        """Return the value of row i."""
        value = self._row(column, i)
        return as_value(value) if self.as_column else value

    def _row(self, column: DataColumn, i: int) -> Any:
        if self.kind == "constant":
            return self.constant
        value = row_of(column, i)
        if self.kind == "python":
            return value.item()
        if self.kind == "point":
            return np.asarray(value)
        return tightened(value) if self.kind == "sparse" else value

    def rows(self, column: DataColumn) -> list[Any]:
        """Return the values of all rows."""
        if self.kind == "row" and not self.as_column:
            if isinstance(column, Strings) and column.ndim == 1:
                return column.tolist()
            if isinstance(column, np.ndarray):
                return list(column)
        return [self.row(column, i) for i in range(len(column))]

    def batch(self, column: DataColumn) -> DataColumn:
        """Return what stacking the values of all rows gives."""
        if self.kind == "sparse":
            assert isinstance(column, Sparse)
            return tightened(column)
        # A part of a longer column is copied, as stacking does: whoever writes into a
        # batch must not change rows of another one, or of a cache.
        if isinstance(column, np.ndarray) and column.base is not None:
            return column.copy()
        return column

    def is_like(self, other: RowForm) -> bool:
        """Return whether columns of both forms can be joined."""
        return (
            self.kind == other.kind
            and self.constant is other.constant
            and self.as_column == other.as_column
        )


ROW = RowForm()


def tightened(sparse: Sparse) -> Sparse:
    """Return a sparse value whose last axis ends behind its last value."""
    if sparse.is_lists:
        return Sparse.of_lists(sparse.values, sparse.starts)
    width = int(np.asarray(sparse.indices)[:, -1].max(initial=-1)) + 1
    shape = (*sparse.dense_shape[:-1], width)
    return Sparse(sparse.indices, sparse.values, shape)
