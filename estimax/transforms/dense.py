"""Host transforms of dense features: numbers as float32, and the number of rows.

A column uses `Numbers` for integers of 64 bits, which a device cannot hold; other
numbers reach the device without a transform. `RowCount` serves models that read no
value of any feature, such as a baseline.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import FeatureError
from estimax.core.numbers import as_float32, is_real
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.transforms.entries import column_of


@dataclass(frozen=True)
class Numbers:
    """The numbers of a dense feature, as float32 of rank 2 or more.

    >>> Numbers("time_ms")({"time_ms": np.array([2**40, 3])}).tolist()
    [[1099511627776.0], [3.0]]
    """

    key: str

    @property
    def name(self) -> str:
        """The key."""
        return self.key

    @property
    def keys(self) -> tuple[str, ...]:
        """The raw feature it reads."""
        return (self.key,)

    def __call__(self, raw: Mapping[str, Any]) -> NDArray[np.float32]:
        """Transform a batch."""
        column = column_of(raw, self.key)
        if isinstance(column, Sparse | Strings) or not is_real(column.dtype):
            found = getattr(column, "dtype", type(column).__name__)
            raise FeatureError(
                f"feature {self.key!r}: expected dense numbers, found {found} in a "
                "batch. Every batch must have the kinds of values of the first."
            )
        return as_float32(column)


@dataclass(frozen=True)
class RowCount:
    """One False for each row of a feature of any kind; only the length matters.

    >>> RowCount()({"rows": np.array([2**40, 3])})
    array([False, False])
    """

    key: str = "rows"

    @property
    def name(self) -> str:
        """The key."""
        return self.key

    @property
    def keys(self) -> tuple[str, ...]:
        """The raw feature it reads."""
        return (self.key,)

    def __call__(self, raw: Mapping[str, Any]) -> NDArray[np.bool_]:
        """Count the rows of a batch."""
        return np.zeros(len(raw[self.key]), np.bool_)
