"""Sources of ids: hashes, vocabularies, integers as they are, weights and crosses.

`HashBucket`, `Vocabulary` and `Identity` map each value of one feature by itself.
`Weighted` adds weights to another source. `Cross` hashes combinations of features.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.core.device_dtypes import as_float32
from estimax.core.errors import FeatureError
from estimax.core.sparse import Ids, Sparse
from estimax.core.strings import Strings
from estimax.feature_columns.transforms.transform import (
    BundleFormat,
    IdArray,
    IdSource,
    OutOfRange,
    Record,
    check_type,
    column_of,
    decimal_text,
    exceeds_int64,
    ids_of_rows,
    pad_rows,
    widen,
)
from estimax.feature_columns.transforms.words import (
    WordList,
    fingerprint64,
    read_words,
    write_words,
)
from estimax.native import hashing
from estimax.native.example_types import FeatureValues
from estimax.native.hashing import MISSING

DEFAULT_HASH_KEY = 0xDECAFCAFFE
_WRAP = 2**64


@dataclass(frozen=True)
class HashBucket(IdSource):
    """The hash of each value, modulo the number of buckets.

    Use it when no vocabulary is known. It is the source of
    `categorical_column_with_hash_bucket`, with TensorFlow's hash function.

    Args:
      key: The feature.
      num_buckets: The number of ids; different values may share one.
      is_integer: Whether the feature has integers, which are hashed as decimal text.
      strip: Whether white space around a word is removed first.

    Example:
      >>> source = HashBucket("city", 1000)
      >>> source.entries({"city": Strings.of(["Oslo", ""])}).values
      array([578])
    """

    kind = "hash_bucket"

    key: str
    num_buckets: int
    is_integer: bool = False
    strip: bool = False

    def ids_of(self, values: FeatureValues, *, drop: bool) -> IdArray:
        if isinstance(values, Strings):
            values = values.strip() if self.strip else values
            return hashing.hash_strings(values, self.num_buckets, drop_empty=drop)
        if exceeds_int64(values):
            # An unsigned value is never the -1 that is dropped.
            return self.ids_of(decimal_text(values), drop=False)
        return hashing.hash_integers(values, self.num_buckets, drop_minus_one=drop)

    def to_json(self, bundle: BundleFormat) -> Record:
        return _without_strip(vars(self))


@dataclass(frozen=True)
class Vocabulary(IdSource):
    """The position of each value in a word list.

    It is the source of `categorical_column_with_vocabulary_list` and `…_file`, and the
    transform of `ex.lookup.string_to_index`. A value that is not in the list gets the
    hash of one of the out-of-vocabulary (OOV) buckets behind the words, or the default
    if there are none.

    Args:
      key: The feature.
      words: The words, all strings or all integers.
      num_oov_buckets: The number of ids for values that are not in the list.
      default: The id of such values if there are no OOV buckets; -1 means none.
      strip: Whether white space around a word is removed first.

    Example:
      >>> source = Vocabulary("city", WordList.of(["Rome", "Oslo"]))
      >>> source.entries({"city": Strings.of(["Oslo", "", "Bonn"])}).values
      array([ 1, -1])
    """

    kind = "vocabulary"

    key: str
    words: WordList
    num_oov_buckets: int = 0
    default: int = -1
    strip: bool = False

    @property
    def is_integer(self) -> bool:
        return self.words.is_integer

    @property
    def num_buckets(self) -> int:
        return len(self.words) + self.num_oov_buckets

    @property
    def stays_in_range(self) -> bool:
        # TensorFlow allows a default that is too large, so we do.
        return self.num_oov_buckets > 0 or self.default < self.num_buckets

    @property
    def id_range(self) -> tuple[int, int]:
        """The lowest and the highest id of the transform; -1 is padding of Sparse."""
        ids = {0, self.num_buckets - 1}
        if not self.num_oov_buckets:
            ids.add(self.default)
        return min(ids), max(ids)

    def ids_of(self, values: FeatureValues, *, drop: bool) -> IdArray:
        if self.strip and isinstance(values, Strings):
            values = values.strip()
        return self.words.ids_of(
            values, oov_buckets=self.num_oov_buckets, default=self.default, drop=drop
        )

    def __call__(self, raw: Mapping[str, Any]) -> NDArray[np.int32] | Ids:
        """Return the position of every value: an array of the shape of the feature.

        '' is a word like any other. A sparse feature becomes padded `Ids`.
        """
        value = raw[self.key]
        if isinstance(value, Sparse):
            return self.make_ids(raw, "drop")
        check_type(self, value)
        ids = self.ids_of(value.reshape((-1,)), drop=False)
        return ids.astype(np.int32).reshape(value.shape)

    def to_json(self, bundle: BundleFormat) -> Record:
        # The digest is in the file's name: two vocabularies of one key do not collide.
        readable = re.sub(r"[^A-Za-z0-9_.-]", "_", self.key)
        name = f"{readable}-{self.words.digest.hex()[:8]}.txt"
        words = write_words(self.words, bundle.assets, name)
        return {**_without_strip(vars(self)), "words": words}

    @classmethod
    def from_json(cls, fields: Record, bundle: BundleFormat) -> Vocabulary:
        words = read_words(fields["words"], bundle.assets)
        return cls(**{**fields, "words": words})


def _without_strip(fields: Mapping[str, Any]) -> Record:
    """Return the fields; without `strip` as they were before there was one."""
    return {k: v for k, v in fields.items() if k != "strip" or v}


@dataclass(frozen=True)
class Identity(IdSource):
    """Integers that are ids already.

    It is the source of `categorical_column_with_identity`.

    Args:
      key: The feature.
      num_buckets: The number of ids; valid ones are in [0, num_buckets).
      default: The id for integers out of range; None keeps those as they are.

    Example:
      >>> Identity("n", 3).entries({"n": np.array([2, -1, 7])}).values
      array([2, 7])
    """

    kind = "identity"

    key: str
    num_buckets: int
    default: int | None = None

    @property
    def is_integer(self) -> bool:
        return True

    @property
    def stays_in_range(self) -> bool:
        return self.default is not None

    def ids_of(self, values: FeatureValues, *, drop: bool) -> IdArray:
        if isinstance(values, np.ndarray) and exceeds_int64(values):
            # Clipped, since a cast would make it negative; it stays out of range.
            values = np.minimum(values, np.iinfo(np.int64).max)
        given = np.asarray(values).astype(np.int64)
        ids = given
        if self.default is not None:
            outside = (given < 0) | (given >= self.num_buckets)
            ids = np.where(outside, self.default, given)
        return np.where(given == -1, MISSING, ids) if drop else ids

    def make_ids(self, raw: Mapping[str, Any], out_of_range: OutOfRange) -> Ids:
        column = column_of(raw, self.key)
        # The common case: dense integers, all in range. -1 is "no id" either way.
        if (
            isinstance(column, np.ndarray)
            and column.dtype.kind in "iu"
            and column.size
            and column.min() >= -1
            and column.max() < self.num_buckets
        ):
            return Ids(widen(column.astype(np.int32).reshape(len(column), -1), -1))
        return super().make_ids(raw, out_of_range)


@dataclass(frozen=True)
class Weighted(IdSource):
    """Another source's ids, with the weights that a second feature gives.

    It is the source of `weighted_categorical_column`. Ids and weights are paired by
    their order and not by their position, as in TensorFlow. A dense weight of 0 is no
    entry, so it must stand where the id is missing as well.

    Args:
      source: Which id each value has.
      weight_key: The feature with the weights.
      dtype: The type of the weights, by name.

    Example:
      >>> source = Weighted(Identity("n", 9), "w")
      >>> raw = {"n": np.array([[4, 5]]), "w": np.array([[0.5, 2.0]])}
      >>> source.make_ids(raw, "drop").weights.tolist()
      [[0.5, 2.0]]
    """

    kind = "weighted"

    source: IdSource
    weight_key: str
    dtype: str = "float32"

    @property
    def name(self) -> str:
        return f"{self.source.name}_weighted_by_{self.weight_key}"

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.source.keys, self.weight_key)))

    @property
    def num_buckets(self) -> int:
        return self.source.num_buckets

    @property
    def stays_in_range(self) -> bool:
        return self.source.stays_in_range

    def entries(self, raw: Mapping[str, Any]) -> Sparse:
        return self.source.entries(raw)

    def make_ids(self, raw: Mapping[str, Any], out_of_range: OutOfRange) -> Ids:
        entries = self.source.entries(raw)
        starts = entries.starts
        ids = ids_of_rows(self, entries.values, starts, out_of_range).ids
        return Ids(ids, pad_rows(self.weights(raw, entries), starts, 0.0))

    def weights(self, raw: Mapping[str, Any], ids: Sparse) -> NDArray[np.float32]:
        """Return one weight for every entry of the ids.

        Args:
          raw: The raw features of a batch by key.
          ids: What `entries` returned for the batch.

        Raises:
          FeatureError: The weights are of another type, or not as many as the ids.
        """
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
        # A layer of TensorFlow casts float64 to float32 first, so both are one type.
        wide = {"float64": "float32"}
        if wide.get(found, found) != wide.get(self.dtype, self.dtype):
            raise FeatureError(
                f"column {self.name!r}: the weights in feature {self.weight_key!r} are "
                f"{found}, the column's dtype is {self.dtype}."
            )

    def to_json(self, bundle: BundleFormat) -> Record:
        return {**vars(self), "source": bundle.write(self.source)}

    @classmethod
    def from_json(cls, fields: Record, bundle: BundleFormat) -> Weighted:
        return cls(**{**fields, "source": bundle.read(fields["source"])})


@dataclass(frozen=True)
class Cross(IdSource):
    """All combinations of the values of several features, hashed.

    It is the source of `crossed_column`. Sparse parts are hashed before dense ones, as
    in TensorFlow: a raw feature fed as dense gives other ids than the same feature
    parsed as `VarLenFeature`.

    Args:
      parts: Keys of raw features, or sources of ids; two or more.
      num_buckets: The number of ids; different combinations may share one.
      hash_key: The seed of the hash; None or 0 for TensorFlow's default.

    Example:
      >>> source = Cross(("a", "b"), 1000)
      >>> values = {"a": Strings.of(["x", "y"]), "b": np.array([[1, 2], [3, 4]])}
      >>> source.entries(values).dense_shape
      (2, 2)
    """

    kind = "cross"

    parts: tuple[str | IdSource, ...]
    num_buckets: int
    hash_key: int | None = None

    @property
    def name(self) -> str:
        names = (part if isinstance(part, str) else part.name for part in self.parts)
        return "_X_".join(sorted(names))

    @property
    def keys(self) -> tuple[str, ...]:
        each = ((p,) if isinstance(p, str) else p.keys for p in self.parts)
        return tuple(dict.fromkeys(key for keys in each for key in keys))

    def entries(self, raw: Mapping[str, Any]) -> Sparse:
        ids, starts = self._rows(raw)
        counts = np.diff(starts)
        rows = np.repeat(np.arange(len(counts)), counts)
        indices = np.stack([rows, np.arange(len(ids)) - starts[rows]], axis=1)
        return Sparse(indices, ids, (len(counts), int(counts.max(initial=0))))

    def make_ids(self, raw: Mapping[str, Any], out_of_range: OutOfRange) -> Ids:
        return ids_of_rows(self, *self._rows(raw), out_of_range)

    def to_json(self, bundle: BundleFormat) -> Record:
        parts = [p if isinstance(p, str) else bundle.write(p) for p in self.parts]
        return {**vars(self), "parts": parts}

    @classmethod
    def from_json(cls, fields: Record, bundle: BundleFormat) -> Cross:
        parts = (p if isinstance(p, str) else bundle.read(p) for p in fields["parts"])
        return cls(**{**fields, "parts": tuple(parts)})

    def _rows(self, raw: Mapping[str, Any]) -> tuple[IdArray, IdArray]:
        """Return the ids, row after row, and where each row starts."""
        values, starts = self._part_rows(raw)
        seed = (self.hash_key or DEFAULT_HASH_KEY) % _WRAP
        return hashing.cross_rows(values, starts, seed, self.num_buckets)

    def _part_rows(self, raw: Mapping[str, Any]) -> tuple[NDArray[np.uint64], IdArray]:
        """Return the values of all parts in hashing order, and each part's starts."""
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
        # The parts' values become one array, so each part's starts move by its offset.
        ends = np.cumsum([0, *(len(values) for values, _ in ordered)])
        starts = [s + e for (_, s), e in zip(ordered, ends, strict=False)]
        return np.concatenate([values for values, _ in ordered]), np.stack(starts)


def _dense_rows(key: str, column: FeatureValues) -> tuple[NDArray[np.uint64], IdArray]:
    if column.ndim > 2:
        raise FeatureError(
            f"feature {key!r}: a raw key of a cross must have rank 1 or 2, got shape "
            f"{column.shape}."
        )
    batch, width = column.shape
    return _hashable(key, column.reshape((-1,))), np.arange(batch + 1) * width


def _hashable(key: str, values: FeatureValues) -> NDArray[np.uint64]:
    """Return the hashes of strings; integers are not hashed here but as they are."""
    if isinstance(values, Strings):
        return fingerprint64(values)
    if values.size and values.dtype.kind not in "iu":
        raise FeatureError(
            f"feature {key!r}: a raw key of a cross must hold integers or strings, got "
            f"{values.dtype}. Put a number through bucketized_column, or convert the "
            "feature in the input_fn."
        )
    return np.ascontiguousarray(values, np.int64).view(np.uint64)
