"""Host transforms of dense features: numbers, buckets, and the number of rows.

A column uses `Numbers` for 64-bit integers, which a device cannot hold; another number
that a layer reads alone reaches the device without a transform. The numeric columns of
a layer are one `NumberMatrix`, so that a compiled program does not grow with their
number. `Bucketize` finds the bucket of each number, and `Scaling` is a normalizer that
a bundle can carry. `RowCount` is for models that read no value of any feature, such as
a baseline.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.core.device_dtypes import as_float32, is_real
from estimax.core.errors import FeatureError
from estimax.core.sparse import Ids, Sparse
from estimax.core.strings import Strings
from estimax.feature_columns.transforms.transform import (
    BundleFormat,
    IdArray,
    IdSource,
    OutOfRange,
    Record,
    Transform,
    column_of,
    ids_of_matrix,
)


@dataclass(frozen=True)
class Numbers(Transform):
    """The numbers of a dense feature, as float32 of rank 2 or more.

    `numeric_column` uses it for 64-bit integers.

    Args:
      key: The feature.

    Example:
      >>> Numbers("time_ms")({"time_ms": np.array([2**40, 3])}).tolist()
      [[1099511627776.0], [3.0]]
    """

    kind = "numbers"

    key: str

    def __call__(self, raw: Mapping[str, Any]) -> NDArray[np.float32]:
        """Return the numbers of a batch; raise `FeatureError` if they are none."""
        column = column_of(raw, self.key)
        if isinstance(column, Sparse | Strings) or not is_real(column.dtype):
            found = getattr(column, "dtype", type(column).__name__)
            raise FeatureError(
                f"feature {self.key!r}: expected dense numbers, found {found} in a "
                "batch. Every batch must have the kinds of values of the first."
            )
        return as_float32(column)


@dataclass(frozen=True)
class NumberMatrix(Transform):
    """The numbers of several dense features side by side, as float32 [B, N].

    `input_layer` uses it for its numeric columns.

    Args:
      features: The features, in order.
      widths: How many numbers each has in a row.

    Example:
      >>> both = NumberMatrix(("age", "size"), (1, 2))
      >>> raw = {"age": np.array([30, 40]), "size": np.array([[1.5, 2.0], [2.5, 3.0]])}
      >>> both(raw).tolist()
      [[30.0, 1.5, 2.0], [40.0, 2.5, 3.0]]
    """

    kind = "number_matrix"

    features: tuple[str, ...]
    widths: tuple[int, ...]

    @property
    def name(self) -> str:
        return "numbers"

    @property
    def keys(self) -> tuple[str, ...]:
        return self.features

    def __call__(self, raw: Mapping[str, Any]) -> NDArray[np.float32]:
        """Return the numbers of a batch; raise `FeatureError` if they are none."""
        columns = [
            self._column(raw[key], key, width)
            for key, width in zip(self.features, self.widths, strict=True)
        ]
        matrix = np.empty((len(columns[0]), sum(self.widths)), np.float32)
        # One call, which also converts: a thousand columns take 0.3 ms for 128 rows.
        with np.errstate(over="ignore"):  # floats out of range become infinite
            np.concatenate(columns, axis=1, out=matrix, casting="unsafe")
        return matrix

    def _column(self, value: Any, key: str, width: int) -> NDArray[Any]:
        if type(value) is not np.ndarray or not is_real(value.dtype) or not value.ndim:
            value = Numbers(key)({key: value})
        if value.ndim == 2 and value.shape[1] == width:
            column: NDArray[Any] = value
            return column
        if math.prod(value.shape[1:]) != width:
            raise FeatureError(
                f"feature {key!r}: expected {width} numbers a row, got shape "
                f"{value.shape} in a batch. Every batch must have the shapes of the "
                "first."
            )
        flat: NDArray[Any] = value.reshape(len(value), width)
        return flat

    def to_json(self, bundle: BundleFormat) -> Record:
        return {"features": list(self.features), "widths": list(self.widths)}

    @classmethod
    def from_json(cls, fields: Record, bundle: BundleFormat) -> NumberMatrix:
        features, widths = fields["features"], fields["widths"]
        if len(features) != len(widths) or not features:
            raise ValueError(f"{len(features)} features have {len(widths)} widths")
        return cls(tuple(features), tuple(widths))


@dataclass(frozen=True)
class RowCount(Transform):
    """One False for each row of a feature of any kind; only the length matters.

    A model that reads no value of any feature uses it to learn the batch size.

    Args:
      key: The name under which the feature is passed in.

    Example:
      >>> RowCount()({"rows": np.array([2**40, 3])})
      array([False, False])
    """

    kind = "row_count"

    key: str = "rows"

    def __call__(self, raw: Mapping[str, Any]) -> NDArray[np.bool_]:
        """Return one False per row of a batch."""
        return np.zeros(len(raw[self.key]), np.bool_)


@dataclass(frozen=True)
class Scaling:
    """A normalizer: (log1p(x) - mean) / std, with `fill` in place of NaN.

    Use it as the `normalizer_fn` of `numeric_column`. Unlike a Python function it is
    data, so it works for 64-bit integers, inside crosses, and in exported bundles.

    Args:
      fill: What replaces NaN before anything else; None leaves NaN.
      log1p: Whether to take log(1 + x) first.
      mean: What is subtracted.
      std: What the difference is divided by.
      smooth_clip: A bound c for the result: y becomes y / sqrt(1 + (y / c)**2), which
        is close to y if it is small and stays within (-c, c). None: no bound.

    Example:
      >>> Scaling(fill=3.0, mean=1.0, std=2.0)(np.array([5.0, np.nan])).tolist()
      [2.0, 1.0]
      >>> Scaling(smooth_clip=3.0)(np.array([0.1, 1e6])).round(2).tolist()
      [0.1, 3.0]
    """

    fill: float | None = None
    log1p: bool = False
    mean: float = 0.0
    std: float = 1.0
    smooth_clip: float | None = None

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
        if self.mean != 0.0 or self.std != 1.0:
            # A Python float keeps the array's own precision. A large Python int would
            # not fit the integers of a device.
            x = (x - float(self.mean)) / float(self.std)
        if self.smooth_clip is None:
            return x
        bound = float(self.smooth_clip)
        # Clipped before it is squared: infinite numbers have a result, too.
        x = xp.clip(x, -1e6 * bound, 1e6 * bound)
        return x / xp.sqrt(1.0 + xp.square(x / bound))


def _scaling_record(scaling: Scaling) -> Record:
    """Return the fields; without a bound as they were before there was one."""
    record = dict(vars(scaling))
    if scaling.smooth_clip is None:
        del record["smooth_clip"]
    return record


@dataclass(frozen=True)
class Bucketize(IdSource):
    """The bucket of every number of a dense feature [B, width].

    It is the source of `bucketized_column`. Bucket k holds the x with exactly k
    boundaries ≤ x; NaN goes to the last. The ids of position p come after those of
    position p - 1.

    Args:
      key: The feature.
      boundaries: The boundaries, ascending; n boundaries make n + 1 buckets.
      width: How many numbers a row has.
      normalizer: Applied to the numbers first. Only a `Scaling` can be exported.
      numbers: Computes the numbers. None: they are those of the feature.

    Example:
      >>> source = Bucketize("age", (18.0, 65.0), width=1)
      >>> source.entries({"age": np.array([17.0, 18.0, 70.0])}).values
      array([0, 1, 2])
    """

    kind = "bucketize"

    key: str
    boundaries: tuple[float, ...]
    width: int = 1
    normalizer: Callable[[Any], Any] | None = None
    numbers: Transform | None = None

    @property
    def name(self) -> str:
        return f"{self.key}_bucketized"

    @property
    def keys(self) -> tuple[str, ...]:
        return (self.key,) if self.numbers is None else self.numbers.keys

    @property
    def num_buckets(self) -> int:
        return self.width * (len(self.boundaries) + 1)

    def entries(self, raw: Mapping[str, Any]) -> Sparse:
        ids = self._matrix(raw)
        indices = np.indices(ids.shape).reshape(2, -1).T
        return Sparse(indices, ids.reshape(-1), ids.shape)

    def make_ids(self, raw: Mapping[str, Any], out_of_range: OutOfRange) -> Ids:
        return ids_of_matrix(self, self._matrix(raw), out_of_range)

    def to_json(self, bundle: BundleFormat) -> Record:
        scaling = self.normalizer
        if not isinstance(scaling, Scaling | None):
            raise FeatureError(
                f"column {self.name!r}: its normalizer_fn would have to run on the "
                "host, inside a cross or under weights, and a bundle cannot carry "
                "Python code. Use ex.transforms.Scaling, which is data; or drop it and "
                "scale the boundaries instead, or normalize in the input_fn."
            )
        record = {
            **vars(self),
            "boundaries": list(self.boundaries),
            "normalizer": None if scaling is None else _scaling_record(scaling),
        }
        # Without it the record is that of older versions.
        inner = record.pop("numbers")
        return record if inner is None else {**record, "numbers": bundle.write(inner)}

    @classmethod
    def from_json(cls, fields: Record, bundle: BundleFormat) -> Bucketize:
        scaling, inner = fields.get("normalizer"), fields.get("numbers")
        return cls(
            **{
                **fields,
                "boundaries": tuple(fields["boundaries"]),
                "normalizer": None if scaling is None else Scaling(**scaling),
                "numbers": None if inner is None else bundle.read(inner),
            }
        )

    def _matrix(self, raw: Mapping[str, Any]) -> IdArray:
        """Return the ids as [B, width]; no number is ever missing."""
        values = self._numbers(raw)
        edges = np.asarray(self.boundaries, np.float32)
        # NumPy sorts NaN behind every number, so it gets the last bucket.
        buckets = np.searchsorted(edges, values, side="right").astype(np.int64)
        return buckets + np.arange(self.width) * (len(edges) + 1)

    def _numbers(self, raw: Mapping[str, Any]) -> NDArray[np.float32]:
        inner = raw if self.numbers is None else {self.key: self.numbers(raw)}
        values = column_of(inner, self.key)
        if isinstance(values, Sparse | Strings) or not is_real(values.dtype):
            found = "sparse" if isinstance(values, Sparse) else "not numeric"
            raise FeatureError(
                f"feature {self.key!r}: a bucketized column needs dense numbers, but "
                f"the feature is {found}. Parse it as FixedLenFeature."
            )
        # A layer of TensorFlow casts float64 to float32 before it normalizes.
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
