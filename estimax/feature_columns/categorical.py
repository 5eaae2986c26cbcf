"""Categorical columns: by integer, by hash, by vocabulary, weighted and crossed.

`transforms/categorical.py` has the host half of each, the source of its ids.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from estimax.core.errors import FeatureError
from estimax.core.parse_spec import STRING, VarLenFeature, dtype_name
from estimax.feature_columns import transforms
from estimax.feature_columns.column import (
    CategoricalColumn,
    ParseSpec,
    check_categorical,
    check_key,
    check_no_sequence,
    is_categorical,
)


@dataclass(frozen=True)
class IdentityCategoricalColumn(CategoricalColumn):
    """Integers as ids; made by `categorical_column_with_identity`.

    Args:
      key: The feature.
      num_buckets: The number of ids.
      default_value: The id for integers out of range, or None.
    """

    key: str
    num_buckets: int
    default_value: int | None

    @property
    def parse_example_spec(self) -> ParseSpec:
        return {self.key: VarLenFeature("int64")}

    @property
    def id_source(self) -> transforms.Identity:
        return transforms.Identity(self.key, self.num_buckets, self.default_value)


def categorical_column_with_identity(
    key: str, num_buckets: int, default_value: int | None = None
) -> IdentityCategoricalColumn:
    """Take the integers of a feature as ids.

    Use it when the feature is numbered from 0 already. In a dense feature, -1 means
    that there is no id.

    Args:
      key: The feature, of integers.
      num_buckets: The number of ids; valid ones are in [0, num_buckets).
      default_value: The id for integers out of range. If None, they are an error in
        `embedding_column` and `linear_model`, and not counted by `indicator_column`.

    Returns:
      A categorical column.

    Raises:
      FeatureError: `num_buckets` is below 1, or `default_value` is out of range.

    Example:
      >>> from estimax import feature_columns as fc
      >>> floor = fc.categorical_column_with_identity("floor", 3)
      >>> layer = fc.DenseFeatures([fc.indicator_column(floor)])
      >>> layer.apply({}, {"floor": [2, 0]}).tolist()
      [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
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
class HashedCategoricalColumn(CategoricalColumn):
    """Hashes as ids; made by `categorical_column_with_hash_bucket`.

    Args:
      key: The feature.
      hash_bucket_size: The number of ids.
      dtype: The type of the feature, by name.
      strip: Whether white space around a word is removed.
    """

    key: str
    hash_bucket_size: int
    dtype: str
    strip: bool = False

    @property
    def num_buckets(self) -> int:
        """The number of ids."""
        return self.hash_bucket_size

    @property
    def id_source(self) -> transforms.HashBucket:
        is_integer = self.dtype != STRING
        size = self.hash_bucket_size
        return transforms.HashBucket(self.key, size, is_integer, self.strip)


def categorical_column_with_hash_bucket(
    key: str, hash_bucket_size: int, dtype: Any = STRING, *, strip: bool = False
) -> HashedCategoricalColumn:
    """Take the hash of each value, modulo `hash_bucket_size`, as its id.

    Use it when no vocabulary is known, or it grows. Different values may share an id.
    The hash is TensorFlow's, so ids are those of `tf.feature_column`.

    Args:
      key: The feature, of strings or integers.
      hash_bucket_size: The number of ids.
      dtype: The type of the feature: string, or an integer type. Integers are hashed
        as decimal text.
      strip: Whether white space around a word is removed before it is hashed.

    Returns:
      A categorical column.

    Raises:
      FeatureError: `hash_bucket_size` is below 1, or `dtype` is of another kind.

    Example:
      >>> from estimax import feature_columns as fc
      >>> city = fc.categorical_column_with_hash_bucket("city", 1000)
      >>> city.ids({"city": ["Oslo", "Rome"]}, "error").ids.tolist()
      [[578], [349]]
    """
    function = "categorical_column_with_hash_bucket"
    check_key(key, function)
    check_hash_size(hash_bucket_size, f"{function} {key!r}")
    name = _validate_dtype(dtype, f"{function} {key!r}")
    _check_strip(name, f"{function} {key!r}", strip=strip)
    return HashedCategoricalColumn(key, int(hash_bucket_size), name, strip)


@dataclass(frozen=True)
class VocabularyListCategoricalColumn(CategoricalColumn):
    """Positions in a list as ids; made by `categorical_column_with_vocabulary_list`.

    Args:
      key: The feature.
      words: The vocabulary.
      dtype: The type of the feature, by name.
      default_value: The id of a value that is not in the list; -1 for none.
      num_oov_buckets: The number of ids for such values instead.
      strip: Whether white space around a value is removed.
    """

    key: str
    words: transforms.WordList
    dtype: str
    default_value: int
    num_oov_buckets: int
    strip: bool = False

    @property
    def vocabulary_list(self) -> tuple[bytes | int, ...]:
        """The words; text as bytes."""
        return tuple(self.words.words.tolist())

    @property
    def num_buckets(self) -> int:
        """The number of ids: words and out-of-vocabulary buckets."""
        return len(self.words) + self.num_oov_buckets

    @property
    def id_source(self) -> transforms.Vocabulary:
        rest = (self.num_oov_buckets, self.default_value, self.strip)
        return transforms.Vocabulary(self.key, self.words, *rest)


def categorical_column_with_vocabulary_list(
    key: str,
    vocabulary_list: Iterable[str | bytes | int],
    dtype: Any = None,
    default_value: int = -1,
    num_oov_buckets: int = 0,
    *,
    strip: bool = False,
) -> VocabularyListCategoricalColumn:
    """Take the position of each value in a list as its id.

    Use it when all values are known and few; for many, keep them in a file and use
    `categorical_column_with_vocabulary_file`.

    Args:
      key: The feature, of strings or integers.
      vocabulary_list: The values, distinct, all strings or all integers.
      dtype: The type of the feature; by default the type of the list.
      default_value: The id of a value that is not in the list. With -1 it has no id.
      num_oov_buckets: The number of ids, behind the ids of the list, that such values
        get by hash instead.
      strip: Whether white space around a value is removed before it is looked up.

    Returns:
      A categorical column.

    Raises:
      FeatureError: The list is empty, mixed, repeats a value or does not fit `dtype`;
        or both `default_value` and `num_oov_buckets` are given.

    Example:
      >>> from estimax import feature_columns as fc
      >>> size = fc.categorical_column_with_vocabulary_list("size", ["S", "M", "L"])
      >>> size.ids({"size": ["L", "XL"]}, "error").ids.tolist()
      [[2], [-1]]
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
    name = _validate_dtype(name, where)
    if (name != STRING) is not is_integer:
        kind = "integers" if is_integer else "strings"
        raise FeatureError(f"{where}: dtype is {name}, but the words are {kind}.")
    listed = transforms.WordList.of(words)
    _check_strip(name, where, strip=strip)
    rest = (int(default_value), int(num_oov_buckets), strip)
    return VocabularyListCategoricalColumn(key, listed, name, *rest)


@dataclass(frozen=True)
class VocabularyFileCategoricalColumn(CategoricalColumn):
    """Lines of a file as ids; made by `categorical_column_with_vocabulary_file`.

    Args:
      key: The feature.
      vocabulary_file: The path of the file.
      vocabulary_size: The number of words to use.
      num_oov_buckets: The number of ids for values that are not in the file.
      dtype: The type of the feature, by name.
      default_value: The id of such values if there are no such buckets; -1 for none.
      file_format: None for text, or "tfrecord_gzip".
      strip: Whether white space around a value is removed.
    """

    key: str
    vocabulary_file: str
    vocabulary_size: int
    num_oov_buckets: int
    dtype: str
    default_value: int
    file_format: str | None
    strip: bool = False

    @property
    def num_buckets(self) -> int:
        """The number of ids: words and out-of-vocabulary buckets."""
        return self.vocabulary_size + self.num_oov_buckets

    @property
    def id_source(self) -> transforms.Vocabulary:
        # Reads the file; `load_words` caches it.
        words = transforms.load_words(
            self.vocabulary_file,
            size=self.vocabulary_size,
            is_integer=self.dtype != STRING,
            is_tfrecord=_is_tfrecord(self.vocabulary_file, self.file_format),
        )
        rest = (self.num_oov_buckets, self.default_value, self.strip)
        return transforms.Vocabulary(self.key, words, *rest)


def categorical_column_with_vocabulary_file(
    key: str,
    vocabulary_file: str | os.PathLike[str],
    vocabulary_size: int | None = None,
    dtype: Any = STRING,
    default_value: int | None = None,
    num_oov_buckets: int = 0,
    file_format: str | None = None,
    *,
    strip: bool = False,
) -> VocabularyFileCategoricalColumn:
    r"""Take the line number of each value in a file, from 0, as its id.

    Use it for large vocabularies. The file is read when the first batch is transformed
    (and now, to count its lines, if `vocabulary_size` is not given). Exported bundles
    contain a copy. The arguments are in the order of TensorFlow 2; for version 1, see
    `feature_columns.v1`.

    Args:
      key: The feature, of strings or integers.
      vocabulary_file: The path of a file with one word per line, the most frequent
        first by convention.
      vocabulary_size: How many words of the file to use; by default all.
      dtype: The type of the feature: string, or an integer type.
      default_value: The id of a value that is not in the file. By default it has none.
      num_oov_buckets: The number of ids, behind the ids of the file, that such values
        get by hash instead.
      file_format: None for text, "tfrecord_gzip" for gzipped TFRecords of words.
      strip: Whether white space around a value is removed before it is looked up.

    Returns:
      A categorical column.

    Raises:
      FeatureError: The file is missing, empty or too short; an argument is out of
        range; or both `default_value` and `num_oov_buckets` are given.

    Example:
      >>> import pathlib, tempfile
      >>> from estimax import feature_columns as fc
      >>> path = pathlib.Path(tempfile.mkdtemp(), "cities.txt")
      >>> _ = path.write_text("Oslo\nRome\n")
      >>> city = fc.categorical_column_with_vocabulary_file("city", path)
      >>> city.num_buckets, city.ids({"city": ["Rome"]}, "error").ids.tolist()
      (2, [[1]])
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
    name = _validate_dtype(dtype, where)
    _check_strip(name, where, strip=strip)
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
        *(name, default, file_format, strip),
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


def _validate_dtype(dtype: Any, where: str) -> str:
    name = dtype_name(dtype)
    if name != STRING and np.dtype(name).kind not in "iu":
        raise FeatureError(f"{where}: dtype must be string or an integer, got {name}.")
    return name


def _check_strip(dtype: str, where: str, *, strip: bool) -> None:
    if strip and dtype != STRING:
        raise FeatureError(f"{where}: strip is for text, but the dtype is {dtype}.")


def _check_words(words: list[Any], where: str) -> bool:
    """Check a vocabulary; return whether it has integers."""
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


@dataclass(frozen=True)
class WeightedCategoricalColumn(CategoricalColumn):
    """Ids with weights; made by `weighted_categorical_column`.

    Args:
      categorical_column: The column of the ids.
      weight_feature_key: The feature of the weights.
      dtype: The type of the weights, by name.
    """

    categorical_column: CategoricalColumn
    weight_feature_key: str
    dtype: str

    @property
    def name(self) -> str:
        """The names of the ids and of the weights, joined."""
        return f"{self.categorical_column.name}_weighted_by_{self.weight_feature_key}"

    @property
    def num_buckets(self) -> int:
        """The number of ids."""
        return self.categorical_column.num_buckets

    @property
    def parse_example_spec(self) -> ParseSpec:
        spec = self.categorical_column.parse_example_spec
        if self.weight_feature_key in spec:
            raise FeatureError(
                f"column {self.name!r}: {self.weight_feature_key!r} cannot be both its "
                "ids and its weights."
            )
        return {**spec, self.weight_feature_key: VarLenFeature(self.dtype)}

    @property
    def id_source(self) -> transforms.Weighted:
        source = self.categorical_column.id_source
        return transforms.Weighted(source, self.weight_feature_key, self.dtype)


def weighted_categorical_column(
    categorical_column: CategoricalColumn,
    weight_feature_key: str,
    dtype: Any = "float32",
) -> WeightedCategoricalColumn:
    """Give each id of a categorical column a weight from another feature.

    Use it for ids with counts or scores, such as the terms of a text with their
    frequencies. Ids and weights are paired by their order, so both features must have
    the same number of entries. A dense weight of 0 counts as missing, as in TensorFlow.

    Args:
      categorical_column: The column of the ids.
      weight_feature_key: The feature with the weights.
      dtype: The type of the weights: a float or an integer type.

    Returns:
      A categorical column.

    Raises:
      FeatureError: The column is not categorical or is a sequence column, or `dtype`
        is not a number.

    Example:
      >>> from estimax import feature_columns as fc
      >>> terms = fc.categorical_column_with_identity("terms", 3)
      >>> weighted = fc.weighted_categorical_column(terms, "counts")
      >>> layer = fc.DenseFeatures([fc.indicator_column(weighted)])
      >>> layer.apply({}, {"terms": [[0, 2]], "counts": [[0.5, 2.0]]}).tolist()
      [[0.5, 0.0, 2.0]]
    """
    function = "weighted_categorical_column"
    check_categorical(categorical_column, function)
    check_no_sequence(categorical_column, function)
    check_key(weight_feature_key, function)
    name = dtype_name(dtype)
    if name == STRING or np.dtype(name).kind not in "iuf":
        raise FeatureError(f"{function}: dtype must be a number, got {name}.")
    return WeightedCategoricalColumn(categorical_column, weight_feature_key, name)


@dataclass(frozen=True)
class CrossedColumn(CategoricalColumn):
    """Combinations of values as ids; made by `crossed_column`.

    Args:
      keys: Names of features, and categorical columns.
      hash_bucket_size: The number of ids.
      hash_key: The seed of the hash, or None.
    """

    keys: tuple[str | CategoricalColumn, ...]
    hash_bucket_size: int
    hash_key: int | None

    @property
    def name(self) -> str:
        """The names of the crossed features, sorted and joined."""
        leaves = self._leaves()
        names = (leaf if isinstance(leaf, str) else leaf.name for leaf in leaves)
        return "_X_".join(sorted(names))

    @property
    def num_buckets(self) -> int:
        """The number of ids."""
        return self.hash_bucket_size

    @property
    def parse_example_spec(self) -> ParseSpec:
        spec: ParseSpec = {}
        for leaf in self._leaves():
            if isinstance(leaf, str):
                spec[leaf] = VarLenFeature(STRING)
            else:
                spec.update(leaf.parse_example_spec)
        return spec

    @property
    def id_source(self) -> transforms.Cross:
        parts: list[str | transforms.IdSource] = []
        for leaf in self._leaves():
            if isinstance(leaf, WeightedCategoricalColumn):
                raise FeatureError(
                    f"crossed_column {self.name!r}: a weighted column ({leaf.name!r}) "
                    "cannot be crossed; cross its categorical column."
                )
            parts.append(leaf if isinstance(leaf, str) else leaf.id_source)
        return transforms.Cross(tuple(parts), self.hash_bucket_size, self.hash_key)

    def _leaves(self) -> list[str | CategoricalColumn]:
        """Return the keys, with the keys of a cross in place of the cross."""
        leaves: list[str | CategoricalColumn] = []
        for key in self.keys:
            leaves.extend(key._leaves() if isinstance(key, CrossedColumn) else [key])
        return leaves


def crossed_column(
    keys: Iterable[str | CategoricalColumn],
    hash_bucket_size: int,
    hash_key: int | None = None,
) -> CrossedColumn:
    """Take the hash of each combination of several features' values as an id.

    Use it in a linear model, which cannot learn that features interact. An example
    with several values of a feature gets all combinations. The ids depend on the order
    of the keys, and on whether a raw feature is fed dense or sparse; the name of the
    column does not.

    Args:
      keys: Two or more names of features (of strings or integers) and categorical
        columns. A number goes through `bucketized_column` first.
      hash_bucket_size: The number of ids; different combinations may share one.
      hash_key: The seed of the hash; by default TensorFlow's seed.

    Returns:
      A categorical column.

    Raises:
      FeatureError: There are fewer than two keys, `hash_bucket_size` is below 1, or a
        key is a dense, sequence or hashed column.

    Example:
      >>> from estimax import feature_columns as fc
      >>> cross = fc.crossed_column(["language", "city"], 1000)
      >>> features = {"language": [["no", "en"]], "city": [["Oslo"]]}
      >>> cross.name, cross.ids(features, "error").ids.shape
      ('city_X_language', (1, 2))
    """
    check_hash_size(hash_bucket_size, "crossed_column")
    listed = tuple(keys) if keys else ()
    if len(listed) < 2:
        raise FeatureError(f"crossed_column: needs two keys or more, got {listed!r}.")
    for key in listed:
        if isinstance(key, str):
            continue
        if not is_categorical(key):
            raise FeatureError(
                f"crossed_column: a key must be a feature's name or a categorical "
                f"column, got {key!r}. Bucketize a numeric column first."
            )
        check_no_sequence(key, "crossed_column")
        if isinstance(key, HashedCategoricalColumn):
            raise FeatureError(
                f"crossed_column: the key {key.name!r} is hashed already, and hashing "
                "twice collides more. Use the feature's name as the key."
            )
    return CrossedColumn(listed, int(hash_bucket_size), hash_key)
