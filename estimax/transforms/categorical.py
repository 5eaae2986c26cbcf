"""Sources that map value by value: a hash, a vocabulary, or the number itself."""

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
from estimax.native import hashing
from estimax.native.hashing import MISSING
from estimax.transforms.entries import (
    IdArray,
    IdSource,
    Values,
    column_of,
    decimal_text,
    exceeds_int64,
    value_entries,
)
from estimax.transforms.fingerprint import fingerprint64
from estimax.transforms.words import WordList


@dataclass(frozen=True)
class HashBucket:
    """Fingerprint modulo `num_buckets`; integers are hashed as decimal text.

    >>> source = HashBucket("city", 1000)
    >>> source.entries({"city": Strings.of(["Oslo", ""])}).values
    array([578])
    """

    key: str
    num_buckets: int
    is_integer: bool = False

    @property
    def name(self) -> str:
        """The key."""
        return self.key

    @property
    def keys(self) -> tuple[str, ...]:
        """The raw feature it reads."""
        return (self.key,)

    @property
    def stays_in_range(self) -> bool:
        """A remainder always does."""
        return True

    def entries(self, raw: Mapping[str, Any]) -> Sparse:
        """The ids, each at its place."""
        return value_entries(self, raw)

    def ids_of(self, values: Values, *, drop: bool) -> IdArray:
        """Hash every value."""
        if isinstance(values, Strings):
            return hashing.hash_strings(values, self.num_buckets, drop_empty=drop)
        if exceeds_int64(values):
            # None of an unsigned dtype can be the -1 that is dropped.
            return self.ids_of(decimal_text(values), drop=False)
        return hashing.hash_integers(values, self.num_buckets, drop_minus_one=drop)


@dataclass(frozen=True)
class Vocabulary:
    """The place in a word list; other words by hash into OOV buckets, or `default`.

    >>> source = Vocabulary("city", WordList.of(["Rome", "Oslo"]))
    >>> source.entries({"city": Strings.of(["Oslo", "", "Bonn"])}).values
    array([ 1, -1])
    """

    key: str
    words: WordList
    num_oov_buckets: int = 0
    default: int = -1

    @property
    def name(self) -> str:
        """The key."""
        return self.key

    @property
    def keys(self) -> tuple[str, ...]:
        """The raw feature it reads."""
        return (self.key,)

    @property
    def is_integer(self) -> bool:
        """Whether the words are integers."""
        return self.words.is_integer

    @property
    def num_buckets(self) -> int:
        """Words and OOV buckets together."""
        return len(self.words) + self.num_oov_buckets

    @property
    def stays_in_range(self) -> bool:
        """Unless the default is too large, which TensorFlow allows."""
        return self.num_oov_buckets > 0 or self.default < self.num_buckets

    def entries(self, raw: Mapping[str, Any]) -> Sparse:
        """The ids, each at its place."""
        return value_entries(self, raw)

    def ids_of(self, values: Values, *, drop: bool) -> IdArray:
        """Find every value."""
        rest = {"oov_buckets": self.num_oov_buckets, "default": self.default}
        return self.words.ids_of(values, drop=drop, **rest)


@dataclass(frozen=True)
class Identity:
    """The integer itself; with a `default` also for those outside [0, num_buckets).

    >>> Identity("n", 3).entries({"n": np.array([2, -1, 7])}).values
    array([2, 7])
    """

    key: str
    num_buckets: int
    default: int | None = None

    @property
    def name(self) -> str:
        """The key."""
        return self.key

    @property
    def keys(self) -> tuple[str, ...]:
        """The raw feature it reads."""
        return (self.key,)

    @property
    def is_integer(self) -> bool:
        """Always."""
        return True

    @property
    def stays_in_range(self) -> bool:
        """Only when a default catches the others."""
        return self.default is not None

    def entries(self, raw: Mapping[str, Any]) -> Sparse:
        """The ids, each at its place."""
        return value_entries(self, raw)

    def ids_of(self, values: Values, *, drop: bool) -> IdArray:
        """Take every value as its id."""
        if isinstance(values, np.ndarray) and exceeds_int64(values):
            values = np.minimum(values, np.iinfo(np.int64).max)  # out of range, too
        given = np.asarray(values).astype(np.int64)
        ids = given
        if self.default is not None:
            outside = (given < 0) | (given >= self.num_buckets)
            ids = np.where(outside, self.default, given)
        return np.where(given == -1, MISSING, ids) if drop else ids


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
