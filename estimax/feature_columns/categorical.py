"""Categorical columns of one feature: by number, by vocabulary, by hash."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from estimax import transforms
from estimax.core.errors import FeatureError
from estimax.core.parse_spec import STRING, VarLenFeature, dtype_name
from estimax.feature_columns.column import ParseSpec, check_key


@dataclass(frozen=True)
class IdentityCategoricalColumn:
    """Integers as ids; see `categorical_column_with_identity`."""

    key: str
    num_buckets: int
    default_value: int | None

    @property
    def name(self) -> str:
        """The key."""
        return self.key

    @property
    def parse_example_spec(self) -> ParseSpec:
        """Any number of integers."""
        return {self.key: VarLenFeature("int64")}

    @property
    def host_half(self) -> transforms.Identity:
        """What makes the ids."""
        return transforms.Identity(self.key, self.num_buckets, self.default_value)


def categorical_column_with_identity(
    key: str, num_buckets: int, default_value: int | None = None
) -> IdentityCategoricalColumn:
    """Integers in [0, num_buckets) as ids; others become the default, if there is one.

    >>> categorical_column_with_identity("floor", 9).name
    'floor'
    """
    function = "categorical_column_with_identity"
    check_key(key, function)
    if num_buckets < 1:
        raise FeatureError(
            f"{function} {key!r}: num_buckets must be at least 1, got {num_buckets}."
        )
    if default_value is not None and not 0 <= default_value < num_buckets:
        raise FeatureError(
            f"{function} {key!r}: default_value must be in [0, {num_buckets}), got "
            f"{default_value}."
        )
    return IdentityCategoricalColumn(key, int(num_buckets), default_value)


@dataclass(frozen=True)
class HashedCategoricalColumn:
    """Hashes as ids; see `categorical_column_with_hash_bucket`."""

    key: str
    hash_bucket_size: int
    dtype: str

    @property
    def name(self) -> str:
        """The key."""
        return self.key

    @property
    def num_buckets(self) -> int:
        """The hash size."""
        return self.hash_bucket_size

    @property
    def parse_example_spec(self) -> ParseSpec:
        """Any number of values."""
        return {self.key: VarLenFeature(self.dtype)}

    @property
    def host_half(self) -> transforms.HashBucket:
        """What makes the ids."""
        is_integer = self.dtype != STRING
        return transforms.HashBucket(self.key, self.hash_bucket_size, is_integer)


def categorical_column_with_hash_bucket(
    key: str, hash_bucket_size: int, dtype: Any = STRING
) -> HashedCategoricalColumn:
    """Strings (or integers, as decimal text) by hash; different ones may share an id.

    >>> categorical_column_with_hash_bucket("city", 1000).num_buckets
    1000
    """
    function = "categorical_column_with_hash_bucket"
    check_key(key, function)
    check_hash_size(hash_bucket_size, f"{function} {key!r}")
    name = _checked_dtype(dtype, f"{function} {key!r}")
    return HashedCategoricalColumn(key, int(hash_bucket_size), name)


@dataclass(frozen=True)
class VocabularyListCategoricalColumn:
    """Places in a list as ids; see `categorical_column_with_vocabulary_list`."""

    key: str
    words: transforms.WordList
    dtype: str
    default_value: int
    num_oov_buckets: int

    @property
    def name(self) -> str:
        """The key."""
        return self.key

    @property
    def vocabulary_list(self) -> tuple[bytes | int, ...]:
        """The words, text as bytes."""
        return tuple(self.words.words.tolist())

    @property
    def num_buckets(self) -> int:
        """Words and OOV buckets together."""
        return len(self.words) + self.num_oov_buckets

    @property
    def parse_example_spec(self) -> ParseSpec:
        """Any number of values."""
        return {self.key: VarLenFeature(self.dtype)}

    @property
    def host_half(self) -> transforms.Vocabulary:
        """What makes the ids."""
        rest = (self.num_oov_buckets, self.default_value)
        return transforms.Vocabulary(self.key, self.words, *rest)


def categorical_column_with_vocabulary_list(
    key: str,
    vocabulary_list: Iterable[str | bytes | int],
    dtype: Any = None,
    default_value: int = -1,
    num_oov_buckets: int = 0,
) -> VocabularyListCategoricalColumn:
    """Words by their place in a list; others by hash into OOV buckets, or the default.

    >>> categorical_column_with_vocabulary_list("size", ["S", "M", "L"]).num_buckets
    3
    """
    check_key(key, "categorical_column_with_vocabulary_list")
    where = f"categorical_column_with_vocabulary_list {key!r}"
    words = list(vocabulary_list) if vocabulary_list is not None else []
    is_integer = _check_words(words, where)
    if num_oov_buckets < 0:
        raise FeatureError(
            f"{where}: num_oov_buckets must not be negative, got {num_oov_buckets}."
        )
    if num_oov_buckets and default_value != -1:
        raise FeatureError(_two_ways(where))
    name = ("int64" if is_integer else STRING) if dtype is None else dtype
    name = _checked_dtype(name, where)
    if (name != STRING) is not is_integer:
        kind = "integers" if is_integer else "strings"
        raise FeatureError(f"{where}: dtype is {name}, but the words are {kind}.")
    listed = transforms.WordList.of(words)
    rest = (int(default_value), int(num_oov_buckets))
    return VocabularyListCategoricalColumn(key, listed, name, *rest)


@dataclass(frozen=True)
class VocabularyFileCategoricalColumn:
    """Lines of a file as ids; see `categorical_column_with_vocabulary_file`."""

    key: str
    vocabulary_file: str
    vocabulary_size: int
    num_oov_buckets: int
    dtype: str
    default_value: int
    file_format: str | None

    @property
    def name(self) -> str:
        """The key."""
        return self.key

    @property
    def num_buckets(self) -> int:
        """Lines and OOV buckets together."""
        return self.vocabulary_size + self.num_oov_buckets

    @property
    def parse_example_spec(self) -> ParseSpec:
        """Any number of values."""
        return {self.key: VarLenFeature(self.dtype)}

    @property
    def host_half(self) -> transforms.Vocabulary:
        """What makes the ids; reads the file, once."""
        words = transforms.load_words(
            self.vocabulary_file,
            size=self.vocabulary_size,
            is_integer=self.dtype != STRING,
            is_tfrecord=_is_tfrecord(self.vocabulary_file, self.file_format),
        )
        rest = (self.num_oov_buckets, self.default_value)
        return transforms.Vocabulary(self.key, words, *rest)


def categorical_column_with_vocabulary_file(
    key: str,
    vocabulary_file: str | os.PathLike[str],
    vocabulary_size: int | None = None,
    dtype: Any = STRING,
    default_value: int | None = None,
    num_oov_buckets: int = 0,
    file_format: str | None = None,
) -> VocabularyFileCategoricalColumn:
    """Words by their line in a file; others by hash into OOV buckets, or the default.

    The arguments are in the order of TensorFlow 2 (version 1 had another). The file is
    read now only to count its lines, when `vocabulary_size` is not given.
    """
    check_key(key, "categorical_column_with_vocabulary_file")
    where = f"categorical_column_with_vocabulary_file {key!r}"
    if not vocabulary_file:
        raise FeatureError(f"{where}: vocabulary_file is missing.")
    if file_format not in (None, "tfrecord_gzip"):
        raise FeatureError(
            f"{where}: file_format must be None or 'tfrecord_gzip', got "
            f"{file_format!r}."
        )
    if num_oov_buckets < 0:
        raise FeatureError(
            f"{where}: num_oov_buckets must not be negative, got {num_oov_buckets}."
        )
    if num_oov_buckets and default_value is not None:
        raise FeatureError(_two_ways(where))
    name = _checked_dtype(dtype, where)
    path = os.fspath(vocabulary_file)
    if vocabulary_size is None:
        is_tfrecord = _is_tfrecord(path, file_format)
        vocabulary_size = transforms.count_words(path, is_tfrecord=is_tfrecord)
    elif vocabulary_size < 1:
        raise FeatureError(
            f"{where}: vocabulary_size must be at least 1, got {vocabulary_size}."
        )
    default = -1 if default_value is None else int(default_value)
    return VocabularyFileCategoricalColumn(
        *(key, path, int(vocabulary_size), int(num_oov_buckets)),
        *(name, default, file_format),
    )


def check_hash_size(size: Any, where: str) -> None:
    """Raise unless a hash has at least one bucket."""
    if size is None or size < 1:
        raise FeatureError(f"{where}: hash_bucket_size must be at least 1, got {size}.")


def _is_tfrecord(path: str, file_format: str | None) -> bool:
    return file_format == "tfrecord_gzip" or path.endswith("tfrecord.gz")


def _two_ways(where: str) -> str:
    return (
        f"{where}: give num_oov_buckets or default_value, not both; each says what to "
        "do with a word that is not in the vocabulary."
    )


def _checked_dtype(dtype: Any, where: str) -> str:
    name = dtype_name(dtype)
    if name != STRING and np.dtype(name).kind not in "iu":
        raise FeatureError(f"{where}: dtype must be string or an integer, got {name}.")
    return name


def _check_words(words: list[Any], where: str) -> bool:
    """Check a vocabulary; whether it is one of integers."""
    if not words:
        raise FeatureError(f"{where}: vocabulary_list must not be empty.")
    texts = sum(isinstance(word, str | bytes) for word in words)
    numbers = sum(isinstance(word, int | np.integer) for word in words)
    if len(words) not in (texts, numbers):
        raise FeatureError(
            f"{where}: vocabulary_list must hold only strings or only integers, such "
            f"as {words[0]!r}."
        )
    encoded = [word.encode() if isinstance(word, str) else word for word in words]
    if len(set(encoded)) != len(encoded):
        again = Counter(encoded).most_common(1)[0][0]
        raise FeatureError(f"{where}: vocabulary_list holds {again!r} twice.")
    return numbers == len(words)
