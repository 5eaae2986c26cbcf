"""The feature columns of a run, as expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from estimax.config.expressions import (
    CallExpression,
    Reference,
    changed_values,
    expression_of,
)
from estimax.config.schema.features import (
    COMPUTED,
    BucketizedConfig,
    ComputedConfig,
    CrossedConfig,
    DateConfig,
    DateDifferenceConfig,
    ExpressionConfig,
    GivenRange,
    GivenZScore,
    HashedConfig,
    IdentityConfig,
    NumericConfig,
    PeriodicConfig,
    PiecewiseLinearConfig,
    TextConfig,
    VocabularyConfig,
    WeightedConfig,
)
from estimax.config.schema.model import (
    DeepFeatures,
    EmbeddingGroup,
    InitializerConfig,
)
from estimax.config.schema.run import Run
from estimax.config.statistics import Moments, Statistics, is_coded

_FC = "estimax.feature_columns."
_SCALINGS = ("transform", "normalize", "normalizer_fn")  # keys of a number


class ColumnBuilder:
    """Makes the feature columns of a run.

    Args:
      run: The run, whose `features` section describes the columns.
      statistics: Means, deviations and vocabularies that features take from the data.
    """

    def __init__(self, run: Run, statistics: Statistics) -> None:
        self._features = run.features
        self._statistics = statistics
        self._made: dict[str, CallExpression] = {}

    def column(self, name: str) -> CallExpression:
        """Return the column of a feature, not yet embedded or made an indicator."""
        if name not in self._made:
            feature = self._features[name]
            self._made[name] = _COLUMNS[type(feature)](self, name, feature)
        return self._made[name]

    def columns(self, names: Iterable[str]) -> list[CallExpression]:
        """Return the columns of features, as the linear part takes them."""
        return [self.column(name) for name in names]

    def deep(self, features: DeepFeatures) -> list[CallExpression]:
        """Return the dense columns of a part."""
        found = self.columns(features.numeric)
        for group in features.embedding:
            found += self.embeddings(group)
        found += [
            CallExpression(f"{_FC}indicator_column", {}, (self.column(name),))
            for name in features.indicator
        ]
        return found

    def tabular(self, names: Iterable[str]) -> list[CallExpression]:
        """Return the columns of a tabular model: two for each number."""
        names = list(names)
        features = [self._features[name] for name in names]
        coded = {f.source for f in features if isinstance(f, PiecewiseLinearConfig)}
        found = []
        for name, feature in zip(names, features, strict=True):
            if not is_coded(feature):
                found.append(self.column(name))
                continue
            if name not in coded:
                edges = list(self._statistics.boundaries[name])
                raw = self._raw_numbers(name)
                path = f"{_FC}piecewise_linear_column"
                found.append(
                    CallExpression(path, {}, (raw, edges), name=f"{name}_codes")
                )
            found.append(self._scaled_number(name, feature))
        return found

    def _scaled_number(self, name: str, feature: Any) -> CallExpression:
        """Return the column of a number, scaled robustly if nothing else is asked."""
        if any(getattr(feature, key, None) for key in _SCALINGS):
            return self.column(name)
        middle, spread = self._statistics.spreads[name]
        fill = self.fill(name, feature)
        given = {"fill": middle if fill is None else fill, "mean": middle}
        scaling = CallExpression(
            "estimax.transforms.Scaling", {**given, "std": spread, "smooth_clip": 3.0}
        )
        raw = self._raw_numbers(name)
        options = {**raw.named, "normalizer_fn": scaling}
        return CallExpression(raw.path, options, raw.positional, name=name)

    @property
    def rows(self) -> int | None:
        """The number of training rows, if it was counted."""
        return self._statistics.rows

    def embeddings(self, group: EmbeddingGroup) -> list[Any]:
        """Return the embeddings of a group."""
        options = _embedding_options(group)
        if not group.shared:
            return [
                CallExpression(
                    f"{_FC}embedding_column", options, (self.column(name), group.dim)
                )
                for name in group.of
            ]
        if group.shared_name is not None:
            options["shared_embedding_collection_name"] = group.shared_name
        shared = CallExpression(
            f"{_FC}shared_embeddings",
            options,
            (self.columns(group.of), group.dim),
            name="_and_".join(group.of[:2]) + "_embeddings",
        )
        return [
            CallExpression("__getitem__", {}, (i,), of=shared)
            for i in range(len(group.of))
        ]

    def all(self) -> dict[str, CallExpression]:
        """Return the columns of all features by feature name."""
        return {name: self.column(name) for name in self._features}

    def fill(self, name: str, feature: Any) -> float | None:
        """Return the number that replaces a missing value, or None."""
        if feature.default == "mean":
            return self._statistics.raw[name].mean
        given: float | None = feature.default
        return given

    def _make_numeric(self, name: str, feature: NumericConfig) -> CallExpression:
        fill = self.fill(name, feature)
        options = changed_values(feature, "shape")
        if fill is not None:
            options["default_value"] = fill
        options |= changed_values(feature, "dtype", "text")
        if feature.normalizer_fn is not None:
            options["normalizer_fn"] = expression_of(feature.normalizer_fn)
        elif (scaling := self._scaling(name, feature, fill)) is not None:
            options["normalizer_fn"] = scaling
        make = "sequence_numeric_column" if feature.sequence else "numeric_column"
        return CallExpression(
            f"{_FC}{make}", options, (feature.column or name,), name=name
        )

    def _scaling(
        self, name: str, feature: Any, fill: float | None
    ) -> CallExpression | None:
        mean, std = _scale(feature, self._statistics.moments.get(name))
        given = {
            "fill": fill,
            "log1p": getattr(feature, "transform", None) == "log1p",
            "mean": mean,
            "std": std,
        }
        plain = {"fill": None, "log1p": False, "mean": 0.0, "std": 1.0}
        changed = {key: value for key, value in given.items() if value != plain[key]}
        return (
            CallExpression("estimax.transforms.Scaling", changed) if changed else None
        )

    def _make_bucketized(self, name: str, feature: BucketizedConfig) -> CallExpression:
        # Boundaries are in the units of the data, so the source is filled, not scaled.
        raw = self._filled_numbers(feature.source)
        boundaries = self._statistics.boundaries.get(name)
        if isinstance(feature.boundaries, tuple):
            boundaries = feature.boundaries
        assert boundaries is not None
        return CallExpression(
            f"{_FC}bucketized_column", {}, (raw, list(boundaries)), name=name
        )

    def _filled_numbers(self, name: str) -> CallExpression:
        """Return the column of a number, filled and not scaled."""
        source = self._features[name]
        fill = self.fill(name, source)
        if isinstance(source, COMPUTED):
            given = {} if fill is None else {"default_value": fill}
            return self._computed(name, source, given)
        assert isinstance(source, NumericConfig)
        options = changed_values(source, "shape")
        if fill is not None:
            options["default_value"] = fill
            options["normalizer_fn"] = CallExpression(
                "estimax.transforms.Scaling", {"fill": fill}
            )
        options |= changed_values(source, "dtype", "text")
        return CallExpression(f"{_FC}numeric_column", options, (source.column or name,))

    def _raw_numbers(self, name: str) -> CallExpression:
        """Return the column of a number without fill and scaling."""
        source = self._features[name]
        if isinstance(source, COMPUTED):
            return self._computed(name, source, {})
        assert isinstance(source, NumericConfig)
        options = changed_values(source, "shape")
        fill = self.fill(name, source)
        if fill is not None:  # of Examples, which are parsed for all columns alike
            options["default_value"] = fill
        options |= changed_values(source, "dtype", "text")
        return CallExpression(f"{_FC}numeric_column", options, (source.column or name,))

    def _make_computed(self, name: str, feature: ComputedConfig) -> CallExpression:
        scaling = self._scaling(name, feature, self.fill(name, feature))
        options = {} if scaling is None else {"normalizer_fn": scaling}
        return self._computed(name, feature, options)

    def _computed(
        self, name: str, feature: ComputedConfig, options: dict[str, Any]
    ) -> CallExpression:
        """Return the column of a computed number, with more options."""
        options = {"name": name, **options}
        if isinstance(feature, ExpressionConfig):
            given: tuple[str, ...] = (feature.expression,)
            return CallExpression(f"{_FC}expression_column", options, given, name=name)
        options = changed_values(feature, "unit", "format", "time_zone") | options
        given = (feature.from_, feature.to)
        path = f"{_FC}date_difference_column"
        return CallExpression(path, options, given, name=name)

    def _make_date(self, name: str, feature: DateConfig) -> CallExpression:
        options = changed_values(feature, "cyclic", "since", "format", "time_zone")
        given = (feature.column or name, list(feature.parts))
        return CallExpression(f"{_FC}date_column", options, given, name=name)

    def _make_piecewise_linear(
        self, name: str, feature: PiecewiseLinearConfig
    ) -> CallExpression:
        boundaries = self._statistics.boundaries.get(name)
        if isinstance(feature.boundaries, tuple):
            boundaries = feature.boundaries
        assert boundaries is not None
        given = (self._raw_numbers(feature.source), list(boundaries))
        return CallExpression(f"{_FC}piecewise_linear_column", {}, given, name=name)

    def _make_periodic(self, name: str, feature: PeriodicConfig) -> CallExpression:
        given = (self._raw_numbers(feature.source), list(feature.periods))
        options = changed_values(feature, "trainable")
        return CallExpression(f"{_FC}periodic_column", options, given, name=name)

    def _make_vocabulary(self, name: str, feature: VocabularyConfig) -> CallExpression:
        options = changed_values(
            feature, "strip", oov_buckets="num_oov_buckets", default="default_value"
        )
        kind = "list"
        words: Any = feature.list_ or self._statistics.vocabularies.get(name)
        if feature.file is not None:
            kind, words = "file", feature.file
            options |= changed_values(feature, size="vocabulary_size")
            options |= changed_values(feature, "dtype")
            if feature.file_format not in (None, "text"):
                options["file_format"] = feature.file_format
        words = list(words) if isinstance(words, tuple) else words
        key = feature.column or name
        return self._make_categorical(
            f"vocabulary_{kind}", (key, words), options, name, feature.sequence
        )

    def _make_hashed(self, name: str, feature: HashedConfig) -> CallExpression:
        options = changed_values(feature, "dtype", "strip")
        given = (feature.column or name, feature.buckets)
        return self._make_categorical(
            "hash_bucket", given, options, name, feature.sequence
        )

    def _make_text(self, name: str, feature: TextConfig) -> CallExpression:
        given: tuple[Any, ...] = (feature.column or name,)
        if feature.hash_buckets is None:
            given = (*given, list(self._statistics.vocabularies[name]))
        options = changed_values(feature, "hash_buckets", oov_buckets="num_oov_buckets")
        if feature.ngrams != (1,):
            options["ngrams"] = list(feature.ngrams)
        options |= changed_values(feature, "lowercase")
        return CallExpression(f"{_FC}text_column", options, given, name=name)

    def _make_identity(self, name: str, feature: IdentityConfig) -> CallExpression:
        given: tuple[Any, ...] = (feature.column or name, feature.buckets)
        if feature.default is not None:
            given = (*given, feature.default)
        return self._make_categorical("identity", given, {}, name, feature.sequence)

    def _make_categorical(
        self,
        kind: str,
        given: tuple[Any, ...],
        options: dict[str, Any],
        name: str,
        is_sequence: bool,
    ) -> CallExpression:
        prefix = "sequence_" if is_sequence else ""
        path = f"{_FC}{prefix}categorical_column_with_{kind}"
        return CallExpression(path, options, given, name=name)

    def _make_crossed(self, name: str, feature: CrossedConfig) -> CallExpression:
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
        return CallExpression(f"{_FC}crossed_column", options, given, name=name)

    def _make_weighted(self, name: str, feature: WeightedConfig) -> CallExpression:
        given = (self.column(feature.source), feature.weights)
        return CallExpression(f"{_FC}weighted_categorical_column", {}, given, name=name)


def _scale(feature: Any, found: Moments | None) -> tuple[float, float]:
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
    given = changed_values(group, "combiner")
    if isinstance(group.initializer, InitializerConfig):
        chosen = group.initializer
        path = f"jax.nn.initializers.{chosen.name}"
        given["initializer"] = CallExpression(path, dict(chosen.args))
    elif group.initializer is not None:
        given["initializer"] = Reference(group.initializer)
    if group.pretrained is not None:
        given["ckpt_to_load_from"] = group.pretrained.checkpoint
        given["tensor_name_in_ckpt"] = group.pretrained.variable
    given |= changed_values(group, "max_norm", "trainable")
    given |= changed_values(group, safe_lookup="use_safe_embedding_lookup")
    return given | changed_values(group, "row_updates")


_COLUMNS: dict[type, Callable[[ColumnBuilder, str, Any], CallExpression]] = {
    NumericConfig: ColumnBuilder._make_numeric,
    ExpressionConfig: ColumnBuilder._make_computed,
    DateConfig: ColumnBuilder._make_date,
    DateDifferenceConfig: ColumnBuilder._make_computed,
    BucketizedConfig: ColumnBuilder._make_bucketized,
    PiecewiseLinearConfig: ColumnBuilder._make_piecewise_linear,
    PeriodicConfig: ColumnBuilder._make_periodic,
    VocabularyConfig: ColumnBuilder._make_vocabulary,
    HashedConfig: ColumnBuilder._make_hashed,
    TextConfig: ColumnBuilder._make_text,
    IdentityConfig: ColumnBuilder._make_identity,
    CrossedConfig: ColumnBuilder._make_crossed,
    WeightedConfig: ColumnBuilder._make_weighted,
}
