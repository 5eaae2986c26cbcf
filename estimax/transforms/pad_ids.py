"""The last step on the host: entries become a rectangle of int32 ids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import FeatureError
from estimax.core.sparse import Ids, Sparse
from estimax.native.hashing import MISSING
from estimax.transforms.categorical import (
    Cross,
    HashBucket,
    Identity,
    Vocabulary,
    Weighted,
)
from estimax.transforms.dense import Bucketize
from estimax.transforms.entries import (
    IdArray,
    IdSource,
    column_of,
    dense_ids,
    padded,
    widened,
)

OutOfRange = Literal["drop", "error", "error_below"]
_MOST_IDS = 2**31 - 1


@dataclass(frozen=True)
class PadIds:
    """A source's ids as `Ids` [B, L], -1 where there is none.

    Ids at or above `num_buckets` are dropped (an indicator shows zeros for them) or an
    error (a table has no such row); "error_below" refuses negative ids as well.

    >>> PadIds(Identity("n", 9))({"n": np.array([[1, 2, 3]])}).ids
    array([[ 1,  2,  3, -1]], dtype=int32)
    """

    source: IdSource
    out_of_range: OutOfRange = "drop"

    def __post_init__(self) -> None:
        check_bucket_count(self.source)

    @property
    def name(self) -> str:
        """The name of the column."""
        return self.source.name

    @property
    def keys(self) -> tuple[str, ...]:
        """The raw features it reads."""
        return self.source.keys

    def __call__(self, raw: Mapping[str, Any]) -> Ids:
        """Transform a batch."""
        plain = self._plain(raw)
        if plain is not None:
            return Ids(widened(plain, -1))
        rectangle = self._rectangle(raw)
        if rectangle is not None:
            return Ids(widened(self._checked(rectangle), -1))
        if isinstance(self.source, Cross):
            ids, starts = self.source.row_ids(raw)
            return Ids(padded(self._checked(ids), starts, -1))
        entries = self.source.entries(raw)
        starts = entries.starts
        ids = padded(self._checked(np.asarray(entries.values)), starts, -1)
        if not isinstance(self.source, Weighted):
            return Ids(ids)
        weights = self.source.weights(raw, entries)
        return Ids(ids, padded(weights, starts, 0.0))

    def _plain(self, raw: Mapping[str, Any]) -> NDArray[np.int32] | None:
        """Dense integers that are ids already, none out of range: no more to do."""
        if not isinstance(self.source, Identity):
            return None
        column = column_of(raw, self.source.key)
        if not isinstance(column, np.ndarray) or column.dtype.kind not in "iu":
            return None
        if not column.size or column.min() < -1:
            return None
        if column.max() >= self.source.num_buckets:
            return None
        return column.astype(np.int32).reshape(len(column), -1)

    def _checked(self, ids: IdArray) -> NDArray[np.int32]:
        return checked_ids(self.source, ids, self.out_of_range)

    def _rectangle(self, raw: Mapping[str, Any]) -> IdArray | None:
        """The ids as [B, W] when the feature is dense: the common case, no indices."""
        if isinstance(self.source, Bucketize):
            return self.source.dense_ids(raw)
        if isinstance(self.source, HashBucket | Vocabulary | Identity):
            column = column_of(raw, self.source.key)
            if not isinstance(column, Sparse):
                return dense_ids(self.source, column)
        return None


def pad_ids(source: IdSource, out_of_range: OutOfRange) -> PadIds:
    """Pad a source's ids; those that stay in range share one transform for all uses."""
    if out_of_range == "error" and source.stays_in_range:
        out_of_range = "drop"
    return PadIds(source, out_of_range)


def check_bucket_count(source: IdSource) -> None:
    """Raise if a source has more ids than a device can count."""
    if source.num_buckets > _MOST_IDS:
        raise FeatureError(
            f"column {source.name!r} has {source.num_buckets} buckets; the device "
            f"counts up to {_MOST_IDS}. Use fewer buckets."
        )


def checked_ids(
    source: IdSource, ids: IdArray, out_of_range: OutOfRange
) -> NDArray[np.int32]:
    """A source's ids as int32, -1 for each that is missing or to be dropped."""
    limit = source.num_buckets
    if not source.stays_in_range and ids.max(initial=-1) >= limit:
        if out_of_range != "drop":
            raise _outside(source, ids[ids >= limit])
        ids = np.where(ids < limit, ids, -1)
    if out_of_range == "error_below":
        negative = ids[(ids < 0) & (ids != MISSING)]
        if len(negative):
            raise _outside(source, negative)
    return np.maximum(ids, -1).astype(np.int32)


def _outside(source: IdSource, ids: IdArray) -> FeatureError:
    keys = ", ".join(map(repr, source.keys))
    found = int(ids[0])
    # Larger ones, of uint64, were set to this: see Identity.
    shown = f"{found} or larger" if found == np.iinfo(np.int64).max else str(found)
    return FeatureError(
        f"column {source.name!r} of feature {keys}: id {shown} is not in "
        f"[0, {source.num_buckets}), the rows of its table ({len(ids)} such ids in "
        "this batch). Raise num_buckets, or give the column a default_value."
    )
