"""Crosses: every combination of one value per key, hashed to one id."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import FeatureError
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.native import hashing
from estimax.transforms.entries import IdArray, IdSource, Values, column_of
from estimax.transforms.fingerprint import fingerprint64

DEFAULT_HASH_KEY = 0xDECAFCAFFE
_WRAP = 2**64


@dataclass(frozen=True)
class Cross:
    """All combinations of the values of several keys, hashed.

    A part is the key of a raw feature, used as it was fed, or a source of ids. Sparse
    parts are hashed before dense ones, as TensorFlow does: a raw feature fed as dense
    gives other ids than the same one parsed as VarLenFeature.

    >>> source = Cross(("a", "b"), 1000)
    >>> values = {"a": Strings.of(["x", "y"]), "b": np.array([[1, 2], [3, 4]])}
    >>> source.entries(values).dense_shape
    (2, 2)
    """

    parts: tuple[str | IdSource, ...]
    num_buckets: int
    hash_key: int | None = None

    @property
    def name(self) -> str:
        """The parts' names, sorted and joined."""
        names = (part if isinstance(part, str) else part.name for part in self.parts)
        return "_X_".join(sorted(names))

    @property
    def keys(self) -> tuple[str, ...]:
        """The raw features of all parts, each once."""
        each = ((p,) if isinstance(p, str) else p.keys for p in self.parts)
        return tuple(dict.fromkeys(key for keys in each for key in keys))

    @property
    def stays_in_range(self) -> bool:
        """A remainder always does."""
        return True

    def entries(self, raw: Mapping[str, Any]) -> Sparse:
        """The ids, a row's at columns 0, 1, 2, …"""
        ids, starts = self.row_ids(raw)
        counts = np.diff(starts)
        rows = np.repeat(np.arange(len(counts)), counts)
        indices = np.stack([rows, np.arange(len(ids)) - starts[rows]], axis=1)
        return Sparse(indices, ids, (len(counts), int(counts.max(initial=0))))

    def row_ids(self, raw: Mapping[str, Any]) -> tuple[IdArray, IdArray]:
        """The ids row after row, and where each row's start."""
        values, starts = self._part_rows(raw)
        seed = (self.hash_key or DEFAULT_HASH_KEY) % _WRAP
        return hashing.cross_rows(values, starts, seed, self.num_buckets)

    def _part_rows(self, raw: Mapping[str, Any]) -> tuple[NDArray[np.uint64], IdArray]:
        """All parts' values in hashing order, and where each part's rows start."""
        sparse, dense = [], []
        for part in self.parts:
            if not isinstance(part, str):
                entries = part.entries(raw)
                ids = np.ascontiguousarray(entries.values, np.int64).view(np.uint64)
                sparse.append((ids, entries.starts))
                continue
            column = column_of(raw, part)
            if isinstance(column, Sparse):
                sparse.append((_hashable(part, column.values), column.starts))
            else:
                dense.append(_dense_rows(part, column))
        ordered = [*sparse, *dense]
        batches = [len(starts) - 1 for _, starts in ordered]
        if len(set(batches)) > 1:
            raise FeatureError(
                f"cross {self.name!r}: its features have different numbers of rows: "
                f"{batches}."
            )
        ends = np.cumsum([0, *(len(values) for values, _ in ordered)])
        starts = [s + e for (_, s), e in zip(ordered, ends, strict=False)]
        return np.concatenate([values for values, _ in ordered]), np.stack(starts)


def _dense_rows(key: str, column: Values) -> tuple[NDArray[np.uint64], IdArray]:
    if column.ndim > 2:
        raise FeatureError(
            f"feature {key!r}: a raw key of a cross must have rank 1 or 2, got shape "
            f"{column.shape}."
        )
    batch, width = column.shape
    return _hashable(key, column.reshape((-1,))), np.arange(batch + 1) * width


def _hashable(key: str, values: Values) -> NDArray[np.uint64]:
    """Strings by their hash, integers as they are (not hashed again)."""
    if isinstance(values, Strings):
        return fingerprint64(values)
    if values.size and values.dtype.kind not in "iu":
        raise FeatureError(
            f"feature {key!r}: a raw key of a cross must hold integers or strings, got "
            f"{values.dtype}. Put a number through bucketized_column, or convert the "
            "feature in the input_fn."
        )
    return np.ascontiguousarray(values, np.int64).view(np.uint64)
