"""The section `features`: the inputs of the model by name.

features:
  age:         {type: numeric, default: mean, normalize: zscore}
  age_buckets: {type: bucketized, source: age, boundaries: {quantiles: 10}}
  day:         {type: date, parts: [month, weekday, days_since]}
  age_days:    {type: date_difference, from: born, to: day, unit: days}
  ratio:       {type: expression, expression: log1p(price / area), normalize: zscore}
  city:        {type: vocabulary, from_data: {min_count: 5}, oov_buckets: 1}
  age_codes:   {type: piecewise_linear, source: age, boundaries: {bins: 24}}
  hour_waves:  {type: periodic, source: hour, periods: [24]}
  age_x_city:  {type: crossed, keys: [age_buckets, city], buckets: 10000}
  tags:        {type: hashed, buckets: 1000, delimiter: "|"}
  title:       {type: text, ngrams: [1, 2], min_count: 5}
  clicked:     {type: identity, buckets: 500, sequence: true}

`build_columns` makes a column of `estimax.feature_columns` of each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from estimax.config.schema.section import (
    CodeName,
    Items,
    Limits,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
)

NGram = Annotated[int, Limits(at_least=1, at_most=5)]
DatePart = Literal["year", "month", "weekday", "day", "hour", "days_since", "missing"]


class FeatureSection:
    """The descriptions of keys that several features have.

    Args:
      column: The column in the data; by default the feature's own name.
      delimiter: What separates several values in one text, such as `|`; null if the
        column has one value, or lists (Parquet, JSON lines, TFRecord).
      sequence: Whether the values of a row are steps of a sequence, for rnn and din
        models.
      dtype: How the column is read.
      many: Whether a row may have several values, as lists.
      buckets: Number of ids.
      strip: Remove white space around each word, in training, bundle and server.
    """


@dataclass(frozen=True, kw_only=True)
class GivenZScore:
    """Normalisation with a given mean and standard deviation: (x - mean) / std.

    Args:
      mean: The mean, which is subtracted.
      std: The standard deviation, by which the rest is divided.
    """

    mean: float
    std: PositiveFloat


@dataclass(frozen=True, kw_only=True)
class GivenRange:
    """Normalisation with a given range: (x - min) / (max - min).

    Args:
      min: The number that becomes 0.
      max: The number that becomes 1.
    """

    min: float
    max: float


@dataclass(frozen=True, kw_only=True)
class NumericConfig(FeatureSection):
    """Numbers: missing values are filled, then `transform`, then `normalize`.

    Args:
      type: A number.
      default: Replaces missing values; `mean` is the mean of the train source.
      transform: log1p: log(1 + x), for long-tailed counts.
      normalize: zscore: (x - mean) / std. minmax: (x - min) / (max - min). Both of the
        train source, or as given.
      normalizer_fn: A function of your own instead of transform and normalize.
      text: The numbers are text with other characters. point: $1,302.10 and 65% (as
        65). comma: 1.302,10 and 3,25 €. null: the column is numbers.
      shape: The shape of a vector; the column has lists or delimited text.
    """

    type: Literal["numeric"] = "numeric"
    column: str | None = None
    default: float | Literal["mean"] | None = None
    transform: Literal["log1p"] | None = None
    normalize: Literal["zscore", "minmax"] | GivenZScore | GivenRange | None = None
    normalizer_fn: CodeName | None = None
    text: Literal["point", "comma"] | None = None
    shape: tuple[PositiveInt, ...] = (1,)
    delimiter: str | None = None
    sequence: bool = False
    dtype: Literal["float32", "int64"] = "float32"


@dataclass(frozen=True, kw_only=True)
class ExpressionConfig(FeatureSection):
    """A number computed from columns of the data; goes where numbers go.

    Args:
      type: A number computed from others.
      expression: The formula, such as log1p(price / area), over columns of the data.
        It has the operators and functions of `ex.feature_columns.expression_column`.
      default: Replaces missing results, those of a division by zero among them; `mean`
        is the mean of the train source.
      normalize: zscore: (x - mean) / std. minmax: (x - min) / (max - min). Both of the
        train source, or as given.
    """

    type: Literal["expression"] = "expression"
    expression: str
    default: float | Literal["mean"] | None = None
    normalize: Literal["zscore", "minmax"] | GivenZScore | GivenRange | None = None


@dataclass(frozen=True, kw_only=True)
class DateConfig(FeatureSection):
    """Parts of a date as numbers, scaled for networks; goes where numbers go.

    Args:
      type: A date.
      parts: The parts to take. missing is 1 if there is no date; the others are 0 then.
      cyclic: Whether month, weekday, day and hour are a sine and a cosine each.
      since: The date from which year and days_since count, as YYYY-MM-DD.
      format: How dates are written, as for Python's strptime; null: ISO 8601, such as
        2024-05-01, 2024-05-01 13:45 or 2024-05-01T13:45:10Z.
      time_zone: A zone such as Europe/Berlin, to whose clocks a date with an offset
        such as Z or +02:00 is converted. null ignores offsets.
    """

    type: Literal["date"] = "date"
    column: str | None = None
    parts: Annotated[tuple[DatePart, ...], Items(at_least=1)] = (
        *("year", "month", "weekday", "day", "hour", "days_since"),
    )
    cyclic: bool = False
    since: str = "1970-01-01"
    format: str | None = None
    time_zone: str | None = None


@dataclass(frozen=True, kw_only=True)
class DateDifferenceConfig(FeatureSection):
    """The time from one date to another as a number, such as an age or a delay.

    Args:
      type: The time between two dates.
      from_: The column with the date to count from.
      to: The column with the date to count to.
      unit: The unit of the number; a year has 365.25 days.
      format: How dates are written, as for Python's strptime; null: ISO 8601.
      time_zone: A zone such as Europe/Berlin, whose clocks are compared. null: the
        dates as they are written, or the time that passed if both have an offset.
      default: Replaces the number if a date is missing; `mean` is the mean of the train
        source.
      normalize: zscore: (x - mean) / std. minmax: (x - min) / (max - min). Both of the
        train source, or as given.
    """

    type: Literal["date_difference"] = "date_difference"
    from_: str
    to: str
    unit: Literal["seconds", "minutes", "hours", "days", "weeks", "years"] = "days"
    format: str | None = None
    time_zone: str | None = None
    default: float | Literal["mean"] | None = None
    normalize: Literal["zscore", "minmax"] | GivenZScore | GivenRange | None = None


@dataclass(frozen=True, kw_only=True)
class Quantiles:
    """Boundaries at the quantiles of the train source.

    Args:
      quantiles: Number of buckets with about as many rows each.
    """

    quantiles: Annotated[int, Limits(at_least=2)]


@dataclass(frozen=True, kw_only=True)
class KMeansBoundaries:
    """Boundaries between clusters of the train source, for values that lie in groups.

    Args:
      k_means: The largest number of buckets, each with values close to each other.
    """

    k_means: Annotated[int, Limits(at_least=2)]


@dataclass(frozen=True, kw_only=True)
class BucketizedConfig(FeatureSection):
    """A numeric feature split into ranges, each with its lower boundary included.

    Args:
      type: A number split into ranges.
      source: The numeric feature; its raw values are split.
      boundaries: Increasing boundaries, in the units of the data; or {quantiles: n} or
        {k_means: n}, which are found in the train source and kept with the run.
    """

    type: Literal["bucketized"] = "bucketized"
    source: str
    boundaries: (
        Annotated[tuple[float, ...], Items(at_least=1)] | Quantiles | KMeansBoundaries
    )


@dataclass(frozen=True, kw_only=True)
class Bins:
    """Edges of bins from the train source, as `ex.feature_columns.quantile_boundaries`.

    Args:
      bins: The largest number of bins.
    """

    bins: PositiveInt = 24


@dataclass(frozen=True, kw_only=True)
class PiecewiseLinearConfig(FeatureSection):
    """A numeric feature as its place in each of several bins, for networks.

    Args:
      type: A number encoded by bins.
      source: The numeric feature; its raw values are encoded. Missing values stay
        missing, and have a flag.
      boundaries: Increasing edges of the bins, in the units of the data, or {bins: n}.
    """

    type: Literal["piecewise_linear"] = "piecewise_linear"
    source: str
    boundaries: Annotated[tuple[float, ...], Items(at_least=2)] | Bins = Bins()


@dataclass(frozen=True, kw_only=True)
class PeriodicConfig(FeatureSection):
    """A numeric feature as sines and cosines, for numbers that repeat.

    Args:
      type: A number encoded by waves.
      source: The numeric feature; its raw values are encoded.
      periods: Lengths of the waves, in the units of the data, such as 24 for hours.
      trainable: Whether training changes the periods.
    """

    type: Literal["periodic"] = "periodic"
    source: str
    periods: Annotated[tuple[PositiveFloat, ...], Items(at_least=1, or_one=True)]
    trainable: bool = False


@dataclass(frozen=True, kw_only=True)
class FromData:
    """A vocabulary of the words in the train source, most frequent first.

    Args:
      min_count: Leave out words that occur less often.
      max_size: Keep at most this many words.
    """

    min_count: PositiveInt = 1
    max_size: PositiveInt | None = None


@dataclass(frozen=True, kw_only=True)
class VocabularyConfig(FeatureSection):
    """Words with an id each. Give exactly one of list, file and from_data.

    Args:
      type: Words of a vocabulary.
      list_: The words: all strings, or all integers.
      file: A file with one word per line.
      size: Words of the file to use; null uses all.
      file_format: The format of the file; null means text.
      from_data: Use the words of the train source.
      oov_buckets: Ids for unknown words, by hash; 0 ignores unknown words.
      default: The id of unknown words, without oov_buckets.
      dtype: The words of a file.
    """

    type: Literal["vocabulary"] = "vocabulary"
    column: str | None = None
    list_: Annotated[tuple[str | int, ...], Items(at_least=1)] | None = None
    file: str | None = None
    size: PositiveInt | None = None
    file_format: Literal["text", "tfrecord_gzip"] | None = None
    from_data: FromData | None = None
    oov_buckets: NonNegativeInt = 0
    default: NonNegativeInt | None = None
    dtype: Literal["string", "int64"] = "string"
    strip: bool = False
    delimiter: str | None = None
    many: bool = False
    sequence: bool = False


@dataclass(frozen=True, kw_only=True)
class HashedConfig(FeatureSection):
    """Words hashed to ids; needs no vocabulary, but words may share an id.

    Args:
      type: Words hashed to ids.
    """

    type: Literal["hashed"] = "hashed"
    column: str | None = None
    buckets: PositiveInt
    dtype: Literal["string", "int64"] = "string"
    strip: bool = False
    delimiter: str | None = None
    many: bool = False
    sequence: bool = False


@dataclass(frozen=True, kw_only=True)
class TextConfig(FeatureSection):
    """The words of free text, or pairs and longer runs of words, as ids.

    Its tokens are those of the train source, most frequent first, or hashed.

    Args:
      type: The words of a text.
      ngrams: How many words a token has; [1, 2] for words and pairs of neighbours.
      min_count: Leave out tokens that occur less often in the train source.
      max_size: Keep at most this many tokens.
      hash_buckets: Hash tokens to this many ids, without a look at the train source.
      oov_buckets: Ids for other tokens, by hash; 0 ignores them.
      lowercase: Lowercase the text first.
    """

    type: Literal["text"] = "text"
    column: str | None = None
    ngrams: Annotated[tuple[NGram, ...], Items(at_least=1)] = (1,)
    min_count: PositiveInt = 5
    max_size: PositiveInt | None = None
    hash_buckets: PositiveInt | None = None
    oov_buckets: NonNegativeInt = 0
    lowercase: bool = True


@dataclass(frozen=True, kw_only=True)
class IdentityConfig(FeatureSection):
    """Integers that are ids already, from 0 to buckets - 1.

    Args:
      type: Integers as ids.
      default: Replaces ids out of range; null makes them an error.
    """

    type: Literal["identity"] = "identity"
    column: str | None = None
    buckets: PositiveInt
    default: NonNegativeInt | None = None
    delimiter: str | None = None
    many: bool = False
    sequence: bool = False


@dataclass(frozen=True, kw_only=True)
class CrossedConfig(FeatureSection):
    """Combinations of two or more categorical features, hashed to ids.

    Args:
      type: Combinations of features.
      keys: The features to combine.
      hash_key: Seed of the hash; null is that of TensorFlow.
    """

    type: Literal["crossed"] = "crossed"
    keys: Annotated[tuple[str, ...], Items(at_least=2)]
    buckets: PositiveInt
    hash_key: int | None = None


@dataclass(frozen=True, kw_only=True)
class WeightedConfig(FeatureSection):
    """A categorical feature whose values have weights, from another column.

    Args:
      type: Values with weights.
      source: The categorical feature.
      weights: The column of the weights, as many in a row as values.
    """

    type: Literal["weighted"] = "weighted"
    source: str
    weights: str
    delimiter: str | None = None


FeatureConfig = (
    NumericConfig
    | ExpressionConfig
    | DateConfig
    | DateDifferenceConfig
    | BucketizedConfig
    | PiecewiseLinearConfig
    | PeriodicConfig
    | VocabularyConfig
    | HashedConfig
    | TextConfig
    | IdentityConfig
    | CrossedConfig
    | WeightedConfig
)

# Features that are one number, which a transform computes from columns of the data.
COMPUTED = (ExpressionConfig, DateDifferenceConfig)
ComputedConfig = ExpressionConfig | DateDifferenceConfig
