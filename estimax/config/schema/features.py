"""The section `features`: the inputs of the model by name.

features:
  age:         {type: numeric, default: mean, normalize: zscore}
  age_buckets: {type: bucketized, source: age, boundaries: [18, 30, 50, 65]}
  city:        {type: vocabulary, from_data: {min_count: 5}, oov_buckets: 1}
  age_x_city:  {type: crossed, keys: [age_buckets, city], buckets: 10000}
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from estimax.config.decode import About

_COLUMN = About("The column in the data; by default the feature's own name.")


@dataclass(frozen=True, kw_only=True)
class GivenZScore:
    """Normalisation with a given mean and standard deviation: (x - mean) / std."""

    mean: Annotated[float, About("The mean, which is subtracted.")]
    std: Annotated[
        float, About("The standard deviation, by which the rest is divided.", above=0)
    ]


@dataclass(frozen=True, kw_only=True)
class NumericConfig:
    """A number: missing values are filled, then `transform`, then `normalize`."""

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
        Literal["zscore"] | GivenZScore | None,
        About("zscore: (x - mean) / std, of the train source or as given."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class BucketizedConfig:
    """A numeric feature split into ranges, each with its lower boundary included."""

    type: Annotated[Literal["bucketized"], About("A number split into ranges.")] = (
        "bucketized"
    )
    source: Annotated[str, About("The numeric feature; its raw values are split.")]
    boundaries: Annotated[
        tuple[float, ...],
        About("Increasing boundaries, in the units of the data.", min_items=1),
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
    from_data: Annotated[
        FromData | None, About("Use the words of the train source.")
    ] = None
    oov_buckets: Annotated[
        int,
        About("Ids for unknown words, by hash; 0 ignores unknown words.", at_least=0),
    ] = 0


@dataclass(frozen=True, kw_only=True)
class HashedConfig:
    """Words hashed to ids; needs no vocabulary, but words may share an id."""

    type: Annotated[Literal["hashed"], About("Words hashed to ids.")] = "hashed"
    column: Annotated[str | None, _COLUMN] = None
    buckets: Annotated[int, About("Number of ids.", at_least=1)]


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


@dataclass(frozen=True, kw_only=True)
class CrossedConfig:
    """Combinations of two or more categorical features, hashed to ids."""

    type: Annotated[Literal["crossed"], About("Combinations of features.")] = "crossed"
    keys: Annotated[tuple[str, ...], About("The features to combine.", min_items=2)]
    buckets: Annotated[int, About("Number of ids.", at_least=1)]


FeatureConfig = (
    NumericConfig
    | BucketizedConfig
    | VocabularyConfig
    | HashedConfig
    | IdentityConfig
    | CrossedConfig
)
