"""The feature columns of a run, as expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from estimax.config.expressions import Call, Reference, expression_of
from estimax.config.schema.features import (
    BucketizedConfig,
    CrossedConfig,
    GivenRange,
    GivenZScore,
    HashedConfig,
    IdentityConfig,
    NumericConfig,
    VocabularyConfig,
    WeightedConfig,
)
from estimax.config.schema.model import (
    DeepFeatures,
    EmbeddingGroup,
    InitializerConfig,
)
from estimax.config.schema.run import Run
from estimax.config.statistics import Moments, Statistics

_FC = "estimax.feature_columns."


class ColumnBuilder:
    """Makes the feature columns of a run.

    Args:
      run: The run, whose `features` section describes the columns.
      statistics: Means, deviations and vocabularies that features take from the data.
    """

    def __init__(self, run: Run, statistics: Statistics) -> None:
        self._features = run.features
        self._statistics = statistics
        self._made: dict[str, Call] = {}

    def column(self, name: str) -> Call:
        """Return the column of a feature, not yet embedded or made an indicator."""
        if name not in self._made:
            feature = self._features[name]
            self._made[name] = _COLUMNS[type(feature)](self, name, feature)
        return self._made[name]

    def columns(self, names: Iterable[str]) -> list[Call]:
        """Return the columns of features, as the linear part takes them."""
        return [self.column(name) for name in names]

    def deep(self, features: DeepFeatures) -> list[Call]:
        """Return the dense columns of a part."""
        found = self.columns(features.numeric)
        for group in features.embedding:
            found += self.embeddings(group)
        found += [
            Call(f"{_FC}indicator_column", {}, (self.column(name),))
            for name in features.indicator
        ]
        return found

    def embeddings(self, group: EmbeddingGroup) -> list[Any]:
        """Return the embeddings of a group."""
        options = _embedding_options(group)
        if not group.shared:
            return [
                Call(f"{_FC}embedding_column", options, (self.column(name), group.dim))
                for name in group.of
            ]
        if group.shared_name is not None:
            options["shared_embedding_collection_name"] = group.shared_name
        shared = Call(
            f"{_FC}shared_embeddings",
            options,
            (self.columns(group.of), group.dim),
            name="_and_".join(group.of[:2]) + "_embeddings",
        )
        return [Call("__getitem__", {}, (i,), of=shared) for i in range(len(group.of))]

    def all(self) -> dict[str, Call]:
        """Return the columns of all features by feature name."""
        return {name: self.column(name) for name in self._features}

    def fill(self, name: str, feature: NumericConfig) -> float | None:
        """Return the number that replaces a missing value, or None."""
        if feature.default == "mean":
            return self._statistics.raw[name].mean
        return feature.default

    def _numeric(self, name: str, feature: NumericConfig) -> Call:
        fill = self.fill(name, feature)
        options: dict[str, Any] = {}
        if tuple(feature.shape) != (1,):
            options["shape"] = tuple(feature.shape)
        if fill is not None:
            options["default_value"] = fill
        if feature.dtype != "float32":
            options["dtype"] = feature.dtype
        if feature.normalizer_fn is not None:
            options["normalizer_fn"] = expression_of(feature.normalizer_fn)
        elif (scaling := self._scaling(name, feature, fill)) is not None:
            options["normalizer_fn"] = scaling
        make = "sequence_numeric_column" if feature.sequence else "numeric_column"
        return Call(f"{_FC}{make}", options, (feature.column or name,), name=name)

    def _scaling(
        self, name: str, feature: NumericConfig, fill: float | None
    ) -> Call | None:
        mean, std = _scale(feature, self._statistics.moments.get(name))
        given = {
            "fill": fill,
            "log1p": feature.transform == "log1p",
            "mean": mean,
            "std": std,
        }
        plain = {"fill": None, "log1p": False, "mean": 0.0, "std": 1.0}
        changed = {key: value for key, value in given.items() if value != plain[key]}
        return Call("estimax.transforms.Scaling", changed) if changed else None

    def _bucketized(self, name: str, feature: BucketizedConfig) -> Call:
        source = self._features[feature.source]
        assert isinstance(source, NumericConfig)
        # Boundaries are in the units of the data, so the source is filled, not scaled.
        fill = self.fill(feature.source, source)
        options: dict[str, Any] = {}
        if tuple(source.shape) != (1,):
            options["shape"] = tuple(source.shape)
        if fill is not None:
            options["default_value"] = fill
            options["normalizer_fn"] = Call(
                "estimax.transforms.Scaling", {"fill": fill}
            )
        if source.dtype != "float32":
            options["dtype"] = source.dtype
        raw = Call(f"{_FC}numeric_column", options, (source.column or feature.source,))
        boundaries = self._statistics.boundaries.get(name)
        if isinstance(feature.boundaries, tuple):
            boundaries = feature.boundaries
        assert boundaries is not None
        return Call(f"{_FC}bucketized_column", {}, (raw, list(boundaries)), name=name)

    def _vocabulary(self, name: str, feature: VocabularyConfig) -> Call:
        options: dict[str, Any] = {}
        if feature.oov_buckets:
            options["num_oov_buckets"] = feature.oov_buckets
        if feature.default is not None:
            options["default_value"] = feature.default
        kind = "list"
        words: Any = feature.list_ or self._statistics.vocabularies.get(name)
        if feature.file is not None:
            kind, words = "file", feature.file
            if feature.size is not None:
                options["vocabulary_size"] = feature.size
            if feature.dtype != "string":
                options["dtype"] = feature.dtype
            if feature.file_format not in (None, "text"):
                options["file_format"] = feature.file_format
        words = list(words) if isinstance(words, tuple) else words
        key = feature.column or name
        return self._categorical(
            f"vocabulary_{kind}", (key, words), options, name, feature.sequence
        )

    def _hashed(self, name: str, feature: HashedConfig) -> Call:
        options = {} if feature.dtype == "string" else {"dtype": feature.dtype}
        given = (feature.column or name, feature.buckets)
        return self._categorical("hash_bucket", given, options, name, feature.sequence)

    def _identity(self, name: str, feature: IdentityConfig) -> Call:
        given: tuple[Any, ...] = (feature.column or name, feature.buckets)
        if feature.default is not None:
            given = (*given, feature.default)
        return self._categorical("identity", given, {}, name, feature.sequence)

    def _categorical(
        self,
        kind: str,
        given: tuple[Any, ...],
        options: dict[str, Any],
        name: str,
        is_sequence: bool,
    ) -> Call:
        prefix = "sequence_" if is_sequence else ""
        path = f"{_FC}{prefix}categorical_column_with_{kind}"
        return Call(path, options, given, name=name)

    def _crossed(self, name: str, feature: CrossedConfig) -> Call:
        keys: list[Any] = []
        for key in feature.keys:
            part = self._features[key]
            # A cross hashes text itself, so it takes the name of the data column and
            # not a hashed column.
            if isinstance(part, HashedConfig):
                keys.append(part.column or key)
            else:
                keys.append(self.column(key))
        options = {} if feature.hash_key is None else {"hash_key": feature.hash_key}
        given = (keys, feature.buckets)
        return Call(f"{_FC}crossed_column", options, given, name=name)

    def _weighted(self, name: str, feature: WeightedConfig) -> Call:
        given = (self.column(feature.source), feature.weights)
        return Call(f"{_FC}weighted_categorical_column", {}, given, name=name)


def _scale(feature: NumericConfig, found: Moments | None) -> tuple[float, float]:
    """Return what is subtracted from a number, and what it is divided by."""
    given = feature.normalize
    if given == "zscore" and found is not None:
        return found.mean, found.std
    if given == "minmax" and found is not None:
        return found.low, (found.high - found.low) or 1.0
    if isinstance(given, GivenZScore):
        return given.mean, given.std
    if isinstance(given, GivenRange):
        return given.min, given.max - given.min
    return 0.0, 1.0


def _embedding_options(group: EmbeddingGroup) -> dict[str, Any]:
    given: dict[str, Any] = {}
    if group.combiner != "mean":
        given["combiner"] = group.combiner
    if isinstance(group.initializer, InitializerConfig):
        chosen = group.initializer
        path = f"jax.nn.initializers.{chosen.name}"
        given["initializer"] = Call(path, dict(chosen.args))
    elif group.initializer is not None:
        given["initializer"] = Reference(group.initializer)
    if group.pretrained is not None:
        given["ckpt_to_load_from"] = group.pretrained.checkpoint
        given["tensor_name_in_ckpt"] = group.pretrained.variable
    if group.max_norm is not None:
        given["max_norm"] = group.max_norm
    for argument, value in (
        ("trainable", group.trainable),
        ("use_safe_embedding_lookup", group.safe_lookup),
        ("row_updates", group.row_updates),
    ):
        if not value:
            given[argument] = False
    return given


_COLUMNS: dict[type, Callable[[ColumnBuilder, str, Any], Call]] = {
    NumericConfig: ColumnBuilder._numeric,
    BucketizedConfig: ColumnBuilder._bucketized,
    VocabularyConfig: ColumnBuilder._vocabulary,
    HashedConfig: ColumnBuilder._hashed,
    IdentityConfig: ColumnBuilder._identity,
    CrossedConfig: ColumnBuilder._crossed,
    WeightedConfig: ColumnBuilder._weighted,
}
