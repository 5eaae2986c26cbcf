"""Host transforms of dense features: numbers as float32, and the number of rows.

A column uses `Numbers` for integers of 64 bits, which a device cannot hold; other
numbers reach the device without a transform. `RowCount` serves models that read no
value of any feature, such as a baseline.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import FeatureError
from estimax.core.numbers import as_float32, is_real
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.transforms.entries import IdArray, column_of


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


@dataclass(frozen=True)
class Scaling:
    """(log1p(x) - mean) / std, with `fill` in place of a missing x.

    >>> Scaling(fill=3.0, mean=1.0, std=2.0)(np.array([5.0, np.nan])).tolist()
    [2.0, 1.0]
    """

    fill: float | None = None
    log1p: bool = False
    mean: float = 0.0
    std: float = 1.0

    def __call__(self, x: Any) -> Any:
        """Scale a NumPy or JAX array of any shape."""
        on_host = isinstance(x, np.ndarray | np.generic | float | int)
        if on_host:
            xp: Any = np
        else:
            import jax.numpy as xp
        if self.fill is not None and xp.issubdtype(xp.asarray(x).dtype, xp.floating):
            x = xp.where(xp.isnan(x), xp.asarray(self.fill, x.dtype), x)
        if self.log1p:
            x = xp.log1p(x)
        if self.mean == 0.0 and self.std == 1.0:
            return x
        # Arithmetic with Python's floats keeps the array's own precision; large Python
        # integers would not fit a device's.
        return (x - float(self.mean)) / float(self.std)


@dataclass(frozen=True)
class Bucketize:
    """The bucket of every position of a numeric feature [B, width].

    Bucket k holds the x with exactly k boundaries ≤ x; NaN goes to the last. Position
    p's ids come after those of position p - 1.

    >>> source = Bucketize("age", (18.0, 65.0), width=1)
    >>> source.entries({"age": np.array([17.0, 18.0, 70.0])}).values
    array([0, 1, 2])
    """

    key: str
    boundaries: tuple[float, ...]
    width: int = 1
    normalizer: Callable[[Any], Any] | None = None

    @property
    def name(self) -> str:
        """The key, marked as bucketized."""
        return f"{self.key}_bucketized"

    @property
    def keys(self) -> tuple[str, ...]:
        """The raw feature it reads."""
        return (self.key,)

    @property
    def num_buckets(self) -> int:
        """All positions' buckets together."""
        return self.width * (len(self.boundaries) + 1)

    @property
    def stays_in_range(self) -> bool:
        """Every number has a bucket."""
        return True

    def entries(self, raw: Mapping[str, Any]) -> Sparse:
        """The ids, one per position."""
        ids = self.dense_ids(raw)
        indices = np.indices(ids.shape).reshape(2, -1).T
        return Sparse(indices, ids.reshape(-1), ids.shape)

    def dense_ids(self, raw: Mapping[str, Any]) -> IdArray:
        """The ids as [B, width]: no number is ever missing."""
        values = self._numbers(raw)
        edges = np.asarray(self.boundaries, np.float32)
        # NumPy sorts NaN behind every number: the last bucket, as it should be.
        buckets = np.searchsorted(edges, values, side="right").astype(np.int64)
        return buckets + np.arange(self.width) * (len(edges) + 1)

    def _numbers(self, raw: Mapping[str, Any]) -> NDArray[np.float32]:
        values = column_of(raw, self.key)
        if isinstance(values, Sparse | Strings) or not is_real(values.dtype):
            found = "sparse" if isinstance(values, Sparse) else "not numeric"
            raise FeatureError(
                f"feature {self.key!r}: a bucketized column needs dense numbers, but "
                f"the feature is {found}. Parse it as FixedLenFeature."
            )
        # As in a layer of TensorFlow: float64 becomes float32 before anyone looks.
        if values.dtype == np.float64:
            values = as_float32(values)
        if self.normalizer is not None:
            values = np.asarray(self.normalizer(values))
        if math.prod(values.shape[1:]) != self.width:
            raise FeatureError(
                f"feature {self.key!r}: expected {self.width} numbers a row, got "
                f"shape {values.shape}. Set the numeric_column's shape."
            )
        return as_float32(values).reshape(len(values), self.width)
