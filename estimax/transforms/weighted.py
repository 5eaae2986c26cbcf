"""Ids with a weight each, from a second feature."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import FeatureError
from estimax.core.numbers import as_float32
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.transforms.entries import IdSource, column_of


@dataclass(frozen=True)
class Weighted:
    """A source's ids, paired with the weights of another feature in order of entries.

    Weights are paired by order and not by place, as TensorFlow does: a dense weight of
    0 is no entry, so it must stand where the id is missing too.
    """

    source: IdSource
    weight_key: str
    dtype: str = "float32"

    @property
    def name(self) -> str:
        """The ids' name and the weights'."""
        return f"{self.source.name}_weighted_by_{self.weight_key}"

    @property
    def keys(self) -> tuple[str, ...]:
        """The raw features of ids and weights."""
        return tuple(dict.fromkeys((*self.source.keys, self.weight_key)))

    @property
    def num_buckets(self) -> int:
        """That of the ids."""
        return self.source.num_buckets

    @property
    def stays_in_range(self) -> bool:
        """Whether the ids do."""
        return self.source.stays_in_range

    def entries(self, raw: Mapping[str, Any]) -> Sparse:
        """The ids, without their weights."""
        return self.source.entries(raw)

    def weights(self, raw: Mapping[str, Any], ids: Sparse) -> NDArray[np.float32]:
        """One weight for every entry of the ids."""
        column = column_of(raw, self.weight_key)
        values = column.values if isinstance(column, Sparse) else column
        self._check_dtype(values)
        numbers = np.asarray(values)
        if not isinstance(column, Sparse):
            numbers = numbers[numbers != 0]
        found, expected = len(numbers), len(ids.values)
        if found != expected:
            raise FeatureError(
                f"column {self.name!r}: feature {self.weight_key!r} gives {found} "
                f"weights for {expected} ids of {self.source.name!r}. A dense weight "
                "of 0 counts as missing, and so does a dense id of -1 or ''."
            )
        return as_float32(numbers)

    def _check_dtype(self, values: Any) -> None:
        found = "string" if isinstance(values, Strings) else values.dtype.name
        # As in a layer of TensorFlow: float64 becomes float32 before anyone looks.
        wide = {"float64": "float32"}
        if wide.get(found, found) != wide.get(self.dtype, self.dtype):
            raise FeatureError(
                f"column {self.name!r}: the weights in feature {self.weight_key!r} are "
                f"{found}, the column's dtype is {self.dtype}."
            )
