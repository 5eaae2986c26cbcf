"""The section `features`: the inputs of the model by name.

features:
  age:         {type: numeric, default: mean, normalize: zscore}
  age_buckets: {type: bucketized, source: age, boundaries: {quantiles: 10}}
  city:        {type: vocabulary, from_data: {min_count: 5}, oov_buckets: 1}
  age_x_city:  {type: crossed, keys: [age_buckets, city], buckets: 10000}
  tags:        {type: hashed, buckets: 1000, delimiter: "|"}
  clicked:     {type: identity, buckets: 500, sequence: true}

`described` notes which arguments of the functions in `estimax.feature_columns` each key
stands for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from estimax.config.decode import About
from estimax.config.schema.derive import CodeName, described

_COLUMN = About("The column in the data; by default the feature's own name.")
_SEQUENCE = About(
    "Whether the values of a row are steps of a sequence, for rnn and din models."
)
_DELIMITER = About(
    "What separates several values in one text, such as `|`; null if the column has "
    "one value, or lists (Parquet, JSON lines, TFRecord)."
)
_MANY = About("Whether a row may have several values, as lists.")
_FILE = "feature_columns/categorical.py"
_SEQUENCES = "feature_columns/sequence.py"
_KEY = {"key": "column"}


@dataclass(frozen=True, kw_only=True)
class GivenZScore:
    """Normalisation with a given mean and standard deviation: (x - mean) / std."""

    mean: Annotated[float, About("The mean, which is subtracted.")]
    std: Annotated[
        float, About("The standard deviation, by which the rest is divided.", above=0)
    ]


@dataclass(frozen=True, kw_only=True)
class GivenRange:
    """Normalisation with a given range: (x - min) / (max - min)."""

    min: Annotated[float, About("The number that becomes 0.")]
    max: Annotated[float, About("The number that becomes 1.")]


@described(
    "estimax.feature_columns.numeric_column",
    "feature_columns/numeric.py",
    "numeric_column",
    keys={**_KEY, "default_value": "default", "normalizer_fn": "normalize"},
)
@described(
    "estimax.feature_columns.sequence_numeric_column",
    _SEQUENCES,
    "sequence_numeric_column",
    keys={**_KEY, "default_value": "default", "normalizer_fn": "normalize"},
)
@dataclass(frozen=True, kw_only=True)
class NumericConfig:
    """Numbers: missing values are filled, then `transform`, then `normalize`."""

    type: Annotated[Literal["numeric"], About("A number.")] = "numeric"
    column: Annotated[str | None, _COLUMN] = None
    default: Annotated[
        float | Literal["mean"] | None,
        About("Replaces missing values; `mean` is the mean of the train source."),
    ] = None
    transform: Annotated[
        Literal["log1p"] | None, About("log1p: log(1 + x), for long-tailed counts.")
    ] = None
    normalize: Annotated[
        Literal["zscore", "minmax"] | GivenZScore | GivenRange | None,
        About(
            "zscore: (x - mean) / std. minmax: (x - min) / (max - min). Both of the "
            "train source, or as given."
        ),
    ] = None
    normalizer_fn: Annotated[
        CodeName | None,
        About("A function of your own instead of transform and normalize."),
    ] = None
    shape: Annotated[
        tuple[int, ...],
        About(
            "The shape of a vector; the column has lists or delimited text.", at_least=1
        ),
    ] = (1,)
    delimiter: Annotated[str | None, _DELIMITER] = None
    sequence: Annotated[bool, _SEQUENCE] = False
    dtype: Annotated[Literal["float32", "int64"], About("How the column is read.")] = (
        "float32"
    )


@dataclass(frozen=True, kw_only=True)
class Quantiles:
    """Boundaries at the quantiles of the train source."""

    quantiles: Annotated[
        int, About("Number of buckets with about as many rows each.", at_least=2)
    ]


@described(
    "estimax.feature_columns.bucketized_column",
    "feature_columns/numeric.py",
    "bucketized_column",
    keys={"source_column": "source"},
)
@dataclass(frozen=True, kw_only=True)
class BucketizedConfig:
    """A numeric feature split into ranges, each with its lower boundary included."""

    type: Annotated[Literal["bucketized"], About("A number split into ranges.")] = (
        "bucketized"
    )
    source: Annotated[str, About("The numeric feature; its raw values are split.")]
    boundaries: Annotated[
        tuple[float, ...] | Quantiles,
        About(
            "Increasing boundaries, in the units of the data, or {quantiles: n}.",
            min_items=1,
        ),
    ]


@dataclass(frozen=True, kw_only=True)
class FromData:
    """A vocabulary of the words in the train source, most frequent first."""

    min_count: Annotated[
        int, About("Leave out words that occur less often.", at_least=1)
    ] = 1
    max_size: Annotated[
        int | None, About("Keep at most this many words.", at_least=1)
    ] = None


_VOCABULARY_KEYS = {
    **_KEY,
    "vocabulary_list": "list",
    "vocabulary_file": "file",
    "vocabulary_size": "size",
    "num_oov_buckets": "oov_buckets",
    "default_value": "default",
}
_BY_WORDS = {"dtype": "the words of `list`; text otherwise"}


@described(
    "estimax.feature_columns.categorical_column_with_vocabulary_list",
    _FILE,
    "categorical_column_with_vocabulary_list",
    keys=_VOCABULARY_KEYS,
    elsewhere=_BY_WORDS,
)
@described(
    "estimax.feature_columns.categorical_column_with_vocabulary_file",
    _FILE,
    "categorical_column_with_vocabulary_file",
    keys=_VOCABULARY_KEYS,
)
@described(
    "estimax.feature_columns.sequence_categorical_column_with_vocabulary_list",
    _SEQUENCES,
    "sequence_categorical_column_with_vocabulary_list",
    keys=_VOCABULARY_KEYS,
    elsewhere=_BY_WORDS,
)
@described(
    "estimax.feature_columns.sequence_categorical_column_with_vocabulary_file",
    _SEQUENCES,
    "sequence_categorical_column_with_vocabulary_file",
    keys=_VOCABULARY_KEYS,
)
@dataclass(frozen=True, kw_only=True)
class VocabularyConfig:
    """Words with an id each. Give exactly one of list, file and from_data."""

    type: Annotated[Literal["vocabulary"], About("Words of a vocabulary.")] = (
        "vocabulary"
    )
    column: Annotated[str | None, _COLUMN] = None
    list_: Annotated[
        tuple[str | int, ...] | None,
        About("The words: all strings, or all integers.", min_items=1),
    ] = None
    file: Annotated[str | None, About("A file with one word per line.")] = None
    size: Annotated[
        int | None, About("Words of the file to use; null uses all.", at_least=1)
    ] = None
    file_format: Annotated[
        Literal["text", "tfrecord_gzip"] | None,
        About("The format of the file; null means text."),
    ] = None
    from_data: Annotated[
        FromData | None, About("Use the words of the train source.")
    ] = None
    oov_buckets: Annotated[
        int,
        About("Ids for unknown words, by hash; 0 ignores unknown words.", at_least=0),
    ] = 0
    default: Annotated[
        int | None, About("The id of unknown words, without oov_buckets.", at_least=0)
    ] = None
    dtype: Annotated[Literal["string", "int64"], About("The words of a file.")] = (
        "string"
    )
    delimiter: Annotated[str | None, _DELIMITER] = None
    many: Annotated[bool, _MANY] = False
    sequence: Annotated[bool, _SEQUENCE] = False


@described(
    "estimax.feature_columns.categorical_column_with_hash_bucket",
    _FILE,
    "categorical_column_with_hash_bucket",
    keys={**_KEY, "hash_bucket_size": "buckets"},
)
@described(
    "estimax.feature_columns.sequence_categorical_column_with_hash_bucket",
    _SEQUENCES,
    "sequence_categorical_column_with_hash_bucket",
    keys={**_KEY, "hash_bucket_size": "buckets"},
)
@dataclass(frozen=True, kw_only=True)
class HashedConfig:
    """Words hashed to ids; needs no vocabulary, but words may share an id."""

    type: Annotated[Literal["hashed"], About("Words hashed to ids.")] = "hashed"
    column: Annotated[str | None, _COLUMN] = None
    buckets: Annotated[int, About("Number of ids.", at_least=1)]
    dtype: Annotated[Literal["string", "int64"], About("How the column is read.")] = (
        "string"
    )
    delimiter: Annotated[str | None, _DELIMITER] = None
    many: Annotated[bool, _MANY] = False
    sequence: Annotated[bool, _SEQUENCE] = False


@described(
    "estimax.feature_columns.categorical_column_with_identity",
    _FILE,
    "categorical_column_with_identity",
    keys={**_KEY, "num_buckets": "buckets", "default_value": "default"},
)
@described(
    "estimax.feature_columns.sequence_categorical_column_with_identity",
    _SEQUENCES,
    "sequence_categorical_column_with_identity",
    keys={**_KEY, "num_buckets": "buckets", "default_value": "default"},
)
@dataclass(frozen=True, kw_only=True)
class IdentityConfig:
    """Integers that are ids already, from 0 to buckets - 1."""

    type: Annotated[Literal["identity"], About("Integers as ids.")] = "identity"
    column: Annotated[str | None, _COLUMN] = None
    buckets: Annotated[int, About("Number of ids.", at_least=1)]
    default: Annotated[
        int | None,
        About("Replaces ids out of range; null makes them an error.", at_least=0),
    ] = None
    delimiter: Annotated[str | None, _DELIMITER] = None
    many: Annotated[bool, _MANY] = False
    sequence: Annotated[bool, _SEQUENCE] = False


@described(
    "estimax.feature_columns.crossed_column",
    "feature_columns/categorical.py",
    "crossed_column",
    keys={"hash_bucket_size": "buckets"},
)
@dataclass(frozen=True, kw_only=True)
class CrossedConfig:
    """Combinations of two or more categorical features, hashed to ids."""

    type: Annotated[Literal["crossed"], About("Combinations of features.")] = "crossed"
    keys: Annotated[tuple[str, ...], About("The features to combine.", min_items=2)]
    buckets: Annotated[int, About("Number of ids.", at_least=1)]
    hash_key: Annotated[
        int | None, About("Seed of the hash; null is that of TensorFlow.")
    ] = None


@described(
    "estimax.feature_columns.weighted_categorical_column",
    "feature_columns/categorical.py",
    "weighted_categorical_column",
    keys={"categorical_column": "source", "weight_feature_key": "weights"},
    python_only={"dtype": "weights are read as float32"},
)
@dataclass(frozen=True, kw_only=True)
class WeightedConfig:
    """A categorical feature whose values have weights, from another column."""

    type: Annotated[Literal["weighted"], About("Values with weights.")] = "weighted"
    source: Annotated[str, About("The categorical feature.")]
    weights: Annotated[
        str, About("The column of the weights, as many in a row as values.")
    ]
    delimiter: Annotated[str | None, _DELIMITER] = None


FeatureConfig = (
    NumericConfig
    | BucketizedConfig
    | VocabularyConfig
    | HashedConfig
    | IdentityConfig
    | CrossedConfig
    | WeightedConfig
)
