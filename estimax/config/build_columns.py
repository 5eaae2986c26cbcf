"""From the features of a run to feature columns.

columns = Columns(run, statistics)
columns.linear(run.model.linear)         # what the wide part takes
columns.deep(run.model.dnn.features)     # what the deep part takes
"""

from __future__ import annotations

from typing import Any

from estimax import feature_columns as fc
from estimax.config.schema.features import (
    Bucketized,
    Crossed,
    GivenZScore,
    Hashed,
    Identity,
    Numeric,
    Vocabulary,
)
from estimax.config.schema.model import DeepFeatures, LinearPart
from estimax.config.schema.run import Run
from estimax.config.statistics import Statistics
from estimax.transforms import Scaling

Column = Any  # one of feature_columns' dense or categorical columns


class Columns:
    """The columns of a run, each made when it is asked for."""

    def __init__(self, run: Run, statistics: Statistics) -> None:
        self._features = run.features
        self._statistics = statistics

    def column(self, name: str) -> Column:
        """The column of one feature, not yet embedded or made an indicator."""
        feature = self._features[name]
        if isinstance(feature, Numeric):
            return self._numeric(name, feature)
        if isinstance(feature, Bucketized):
            return self._bucketized(feature)
        if isinstance(feature, Vocabulary):
            return self._vocabulary(name, feature)
        if isinstance(feature, Hashed):
            key = feature.column or name
            return fc.categorical_column_with_hash_bucket(key, feature.buckets)
        if isinstance(feature, Identity):
            return fc.categorical_column_with_identity(
                feature.column or name, feature.buckets, feature.default
            )
        return self._crossed(feature)

    def linear(self, part: LinearPart) -> list[Column]:
        """The columns of the wide part."""
        return [self.column(name) for name in part.features]

    def deep(self, features: DeepFeatures) -> list[Column]:
        """The dense columns of the deep part."""
        columns = [self.column(name) for name in features.numeric]
        for group in features.embedding:
            columns += [
                fc.embedding_column(self.column(name), group.dim, group.combiner)
                for name in group.of
            ]
        columns += [fc.indicator_column(self.column(n)) for n in features.indicator]
        return columns

    def all(self) -> dict[str, Column]:
        """Every feature's column by the feature's name."""
        return {name: self.column(name) for name in self._features}

    def fill(self, name: str, feature: Numeric) -> float | None:
        """What stands in for a missing value."""
        if feature.default == "mean":
            return self._statistics.raw[name].mean
        return feature.default

    def _numeric(self, name: str, feature: Numeric) -> Column:
        mean, std = 0.0, 1.0
        if feature.normalize == "zscore":
            moments = self._statistics.moments[name]
            mean, std = moments.mean, moments.std
        elif isinstance(feature.normalize, GivenZScore):
            mean, std = feature.normalize.mean, feature.normalize.std
        fill = self.fill(name, feature)
        scaling = Scaling(fill, feature.transform == "log1p", mean, std)
        return fc.numeric_column(
            feature.column or name,
            default_value=fill,
            normalizer_fn=None if scaling == Scaling() else scaling,
        )

    def _bucketized(self, feature: Bucketized) -> Column:
        source = self._features[feature.source]
        assert isinstance(source, Numeric)
        # Boundaries are in the data's own units, so the source is not scaled here.
        fill = self.fill(feature.source, source)
        raw = fc.numeric_column(
            source.column or feature.source,
            default_value=fill,
            normalizer_fn=None if fill is None else Scaling(fill),
        )
        return fc.bucketized_column(raw, feature.boundaries)

    def _vocabulary(self, name: str, feature: Vocabulary) -> Column:
        key = feature.column or name
        if feature.file is not None:
            return fc.categorical_column_with_vocabulary_file(
                key, feature.file, num_oov_buckets=feature.oov_buckets
            )
        words = feature.list_ or self._statistics.vocabularies[name]
        return fc.categorical_column_with_vocabulary_list(
            key, list(words), num_oov_buckets=feature.oov_buckets
        )

    def _crossed(self, feature: Crossed) -> Column:
        keys: list[Column] = []
        for name in feature.keys:
            part = self._features[name]
            # A cross hashes words itself and takes no column that already does.
            if isinstance(part, Hashed):
                keys.append(part.column or name)
            else:
                keys.append(self.column(name))
        return fc.crossed_column(keys, feature.buckets)
