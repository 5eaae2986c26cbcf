"""`features:` what the model may look at, each with a name to refer to it by.

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
    """Normalisation by a mean and a standard deviation that you give."""

    mean: Annotated[float, About("Subtracted first.")]
    std: Annotated[float, About("Divided by after.", above=0)]


@dataclass(frozen=True, kw_only=True)
class NumericConfig:
    """A number: the missing value filled, then `transform`, then `normalize`."""

    type: Annotated[Literal["numeric"], About("A number.")] = "numeric"
    column: Annotated[str | None, _COLUMN] = None
    default: Annotated[
        float | Literal["mean"] | None,
        About("Stands in for a missing value; `mean` is that of the train source."),
    ] = None
    transform: Annotated[
        Literal["log1p"] | None, About("log1p: log(1 + x), for long-tailed counts.")
    ] = None
    normalize: Annotated[
        Literal["zscore"] | GivenZScore | None,
        About("zscore: (x - mean) / std of the train source, or as given."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class BucketizedConfig:
    """A numeric feature cut into ranges, each closed on the left."""

    type: Annotated[Literal["bucketized"], About("A number cut into ranges.")] = (
        "bucketized"
    )
    source: Annotated[str, About("The numeric feature to cut, before it is scaled.")]
    boundaries: Annotated[
        tuple[float, ...],
        About("Where to cut, in the data's own units, rising.", min_items=1),
    ]


@dataclass(frozen=True, kw_only=True)
class FromData:
    """A vocabulary counted in the train source, the most frequent words first."""

    min_count: Annotated[int, About("Leave out rarer words.", at_least=1)] = 1
    max_size: Annotated[int | None, About("Keep at most so many.", at_least=1)] = None


@dataclass(frozen=True, kw_only=True)
class VocabularyConfig:
    """Words with an id each. Exactly one of list, file and from_data says which."""

    type: Annotated[Literal["vocabulary"], About("Known words.")] = "vocabulary"
    column: Annotated[str | None, _COLUMN] = None
    list_: Annotated[
        tuple[str | int, ...] | None,
        About("The words, all texts or all whole numbers.", min_items=1),
    ] = None
    file: Annotated[str | None, About("A file with one word a line.")] = None
    from_data: Annotated[
        FromData | None, About("Count the words of the train source.")
    ] = None
    oov_buckets: Annotated[
        int, About("Ids shared by unknown words; 0 ignores them.", at_least=0)
    ] = 0


@dataclass(frozen=True, kw_only=True)
class HashedConfig:
    """Words hashed to an id; needs no vocabulary, collisions are possible."""

    type: Annotated[Literal["hashed"], About("Words by their hash.")] = "hashed"
    column: Annotated[str | None, _COLUMN] = None
    buckets: Annotated[int, About("How many ids.", at_least=1)]


@dataclass(frozen=True, kw_only=True)
class IdentityConfig:
    """Whole numbers from 0 that are ids already."""

    type: Annotated[Literal["identity"], About("Ids as they are.")] = "identity"
    column: Annotated[str | None, _COLUMN] = None
    buckets: Annotated[int, About("Ids run from 0 to one less.", at_least=1)]
    default: Annotated[
        int | None,
        About("Stands in for an id out of range; null makes it an error.", at_least=0),
    ] = None


@dataclass(frozen=True, kw_only=True)
class CrossedConfig:
    """Combinations of two or more categorical features, hashed to an id."""

    type: Annotated[Literal["crossed"], About("Combinations.")] = "crossed"
    keys: Annotated[tuple[str, ...], About("The features to combine.", min_items=2)]
    buckets: Annotated[int, About("How many ids.", at_least=1)]


FeatureConfig = (
    NumericConfig
    | BucketizedConfig
    | VocabularyConfig
    | HashedConfig
    | IdentityConfig
    | CrossedConfig
)
