"""What the input thread does to every batch before the compiled step sees it.

    plan = Plan(raw=…, calls=…, groups=…)           # from a recorded trace
    arrays = plan.prepare(flatten(features, labels))   # numbers only, fixed layout

The result is a dict of dicts of NumPy arrays: `raw` features that the model reads as
they are, `staged` results of host transforms, and for row-wise tables the `unique` ids
of the batch with the `inverse` place of every id among them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import FeatureError, SpecError
from estimax.core.sparse import Ids, Sparse
from estimax.core.staging import Call, Origin, Raw, as_raw
from estimax.core.strings import Strings

RawBatch = Mapping[Origin, Raw]
PreparedBatch = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class RowGroup:
    """Calls whose ids are made unique together, for the tables that they index."""

    name: str
    calls: tuple[str, ...]
    vocabulary: int  # V of those tables: also the id that pads the unique list


@dataclass(frozen=True)
class Plan:
    """The host's part of a model in one mode; runs in the input thread."""

    raw: tuple[Origin, ...]
    calls: tuple[Call, ...]
    groups: tuple[RowGroup, ...] = ()

    def prepare(self, batch: RawBatch) -> PreparedBatch:
        """Turn a raw batch into the arrays that the compiled function takes."""
        staged = {call.name: call.run(batch) for call in self.calls}
        prepared: PreparedBatch = {
            "raw": {o.name: as_device_dtype(o, _given(batch, o)) for o in self.raw},
            "staged": staged,
            "unique": {},
            "inverse": {},
        }
        for group in self.groups:
            ids = {name: _ids_of(staged[name]) for name in group.calls}
            unique, inverse = make_unique(ids, group.vocabulary)
            prepared["unique"][group.name] = unique
            prepared["inverse"][group.name] = inverse
        return prepared


def flatten(features: Any, labels: Any) -> dict[Origin, Raw]:
    """Name every raw value of a batch by where it came from."""
    flat: dict[Origin, Raw] = {}
    for part, value in (("features", features), ("labels", labels)):
        if isinstance(value, Mapping):
            flat |= {Origin(part, k): as_raw(v) for k, v in value.items()}
        elif value is not None:
            flat[Origin(part, None)] = as_raw(value)
    return flat


def unflatten(part: str, values: Mapping[Origin, Any]) -> Any:
    """Put the features (or labels) together again: a dict, one array, or None."""
    found = {o.key: value for o, value in values.items() if o.part == part}
    if not found:
        return {} if part == "features" else None
    return found.get(None, found)


def batch_size(batch: RawBatch) -> int:
    """The number of examples of a raw batch; every value must agree."""
    sizes = {origin.name: _length(value) for origin, value in batch.items()}
    if len(set(sizes.values())) > 1:
        raise SpecError(
            "the first dimensions of a batch differ: "
            + ", ".join(f"{name} has {n}" for name, n in sorted(sizes.items()))
            + ". Every feature and label needs one row per example."
        )
    return next(iter(sizes.values()), 0)


def as_device_dtype(origin: Origin, value: NDArray[Any]) -> NDArray[Any]:
    """Narrow 64-bit numbers to the 32 bits that devices compute with."""
    if value.dtype == np.float64:
        return value.astype(np.float32)
    if value.dtype in (np.int64, np.uint64, np.uint32):
        narrow = value.astype(np.int32)
        if not np.array_equal(narrow, value):
            worst = value[narrow != value].reshape(-1)[0]
            raise FeatureError(
                f"{origin.name} holds {worst}, which does not fit 32 bits. Large ids "
                "belong in categorical_column_with_hash_bucket(key, size, "
                "dtype=np.int64), which hashes them on the host."
            )
        return narrow
    return value


def make_unique(
    ids: Mapping[str, NDArray[np.int32]], vocabulary: int
) -> tuple[NDArray[np.int32], dict[str, NDArray[np.int32]]]:
    """The sorted distinct ids of several calls, and where each id went.

    The list has a length that depends on shapes alone (so that one program serves
    every batch), padded with `vocabulary`, which is no row. As in TensorFlow, an
    example without any id touches row 0 with a zero gradient; optimizers can tell.

    >>> make_unique({"a": np.array([[7, -1], [-1, -1]], np.int32)}, 100)[0]
    array([  0,   7, 100, 100], dtype=int32)
    """
    flat = np.concatenate([array.reshape(-1) for array in ids.values()])
    distinct, places = np.unique(flat, return_inverse=True)
    if distinct.size and distinct[0] < 0:
        # Only -1 is negative: it sorts first, and its place becomes -1.
        distinct, places = distinct[1:], places - 1
        if _has_empty_row(ids) and (not distinct.size or distinct[0] != 0):
            distinct = np.concatenate([np.zeros(1, distinct.dtype), distinct])
            places = np.where(places >= 0, places + 1, places)
    unique = np.full(min(flat.size, vocabulary), vocabulary, np.int32)
    unique[: distinct.size] = distinct
    flat_places: NDArray[np.int32] = places.astype(np.int32)
    inverse: dict[str, NDArray[np.int32]] = {}
    start = 0
    for name, array in ids.items():
        inverse[name] = flat_places[start : start + array.size].reshape(array.shape)
        start += array.size
    return unique, inverse


def _has_empty_row(ids: Mapping[str, NDArray[np.int32]]) -> bool:
    rows = (array.reshape(len(array), -1) for array in ids.values())
    return any(bool((row.max(axis=1, initial=-1) < 0).any()) for row in rows)


def _ids_of(staged: Any) -> NDArray[np.int32]:
    ids: NDArray[np.int32] = staged.ids if isinstance(staged, Ids) else staged
    return ids


def _given(batch: RawBatch, origin: Origin) -> NDArray[Any]:
    value = batch.get(origin)
    if isinstance(value, np.ndarray):
        return value
    found = "missing" if value is None else type(value).__name__
    raise FeatureError(
        f"{origin.name}: the model was built with a batch where this was a numeric "
        f"array; in this batch it is {found}."
    )


def _length(value: Raw) -> int:
    if isinstance(value, Strings | Sparse):
        return len(value)
    return len(value) if np.ndim(value) else 0
