"""From a checked run to the objects that train it.

    built = build(load("run.yaml"))
    ex.train_and_evaluate(built.estimator, built.train_spec(), built.eval_spec())

Here jax is imported, and not before.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flax import linen as nn

from estimax import canned, checkpoints, export, heads, hooks, optimizers
from estimax import feature_columns as fc
from estimax.config.build_custom import build_custom
from estimax.config.build_input import InputFn, make_input_fn
from estimax.config.checks import better
from estimax.config.load import LoadedRun
from estimax.config.saved import config_dir
from estimax.config.schema.features import (
    BucketizedConfig,
    CrossedConfig,
    GivenZScore,
    HashedConfig,
    IdentityConfig,
    NumericConfig,
    VocabularyConfig,
)
from estimax.config.schema.model import (
    BinaryHeadConfig,
    CombinedModelConfig,
    CustomModelConfig,
    DcnModelConfig,
    DeepFeatures,
    DeepFmModelConfig,
    DnnModelConfig,
    HeadConfig,
    LinearPart,
    MultiClassHeadConfig,
)
from estimax.config.schema.optimizers import (
    AdagradConfig,
    AdamConfig,
    CosineConfig,
    ExponentialConfig,
    FtrlConfig,
    InverseTimeConfig,
    OptimizerConfig,
    PiecewiseConfig,
    PolynomialConfig,
    RmsPropConfig,
    ScheduleConfig,
    SgdConfig,
)
from estimax.config.schema.run import (
    BestExport,
    Export,
    LatestExport,
    Run,
    WarmStartSection,
)
from estimax.config.statistics import Statistics, statistics_for
from estimax.estimator import Estimator, EvalSpec, RunConfig, TrainSpec
from estimax.transforms import Scaling

_ACTIVATIONS = {
    "relu": nn.relu,
    "elu": nn.elu,
    "gelu": nn.gelu,
    "leaky_relu": nn.leaky_relu,
    "selu": nn.selu,
    "silu": nn.silu,
    "sigmoid": nn.sigmoid,
    "tanh": nn.tanh,
}


@dataclass(frozen=True)
class Built:
    """The estimator of a run, and what to train and evaluate it on."""

    run: Run
    estimator: Estimator

    def input_fn(self, source: str) -> InputFn:
        """The examples of a named source."""
        return make_input_fn(self.run, source)

    def train_spec(self, extra_hooks: Sequence[hooks.Hook] = ()) -> TrainSpec:
        """Training's part of `train_and_evaluate`."""
        train = self.run.train
        return TrainSpec(
            self.input_fn(train.source), max_steps=train.max_steps, hooks=extra_hooks
        )

    def eval_spec(self) -> EvalSpec | None:
        """Evaluation's part, with the exporters; None when the run has none."""
        section = self.run.eval
        if section is None:
            return None
        return EvalSpec(
            self.input_fn(section.source),
            steps=section.steps,
            name=section.name,
            exporters=[build_exporter(given) for given in self.run.export],
            throttle_secs=section.throttle_secs,
        )


def build(loaded: LoadedRun) -> Built:
    """Make the estimator; reads the train source once when the features ask for it."""
    run = loaded.run
    has_weights = checkpoints.latest(run.run.model_dir) is not None
    cache = config_dir(run) / "statistics.json"
    statistics = statistics_for(run, cache, keep=has_weights)
    columns = ColumnBuilder(run, statistics)
    config = build_run_config(run)
    if isinstance(run.model, CustomModelConfig):
        estimator = build_custom(
            loaded, columns.all(), config, build_warm_start(run.warm_start)
        )
    else:
        estimator = _build_stock(run, columns, config)
    return Built(run, estimator)


def build_run_config(run: Run) -> RunConfig:
    """The settings of the run."""
    section = run.run
    save = section.save_checkpoints
    interval: dict[str, Any] = {}
    if save.every_steps is not None:
        interval["save_checkpoints_steps"] = save.every_steps
    elif save.every_secs is not None:
        interval["save_checkpoints_secs"] = save.every_secs
    return RunConfig(
        model_dir=section.model_dir,
        tf_random_seed=run.seed,
        save_summary_steps=section.save_summary_steps,
        keep_checkpoint_max=save.keep_last,
        log_step_count_steps=section.log_step_count_steps,
        iterations_per_loop=section.iterations_per_loop,
        prefetch_batches=run.data.prefetch,
        compilation_cache_dir=_cache_dir(section.compilation_cache),
        resume_input=section.resume_input,
        precision=section.precision,
        accumulate_steps=section.accumulate_steps,
        **interval,
    )


def build_warm_start(
    given: WarmStartSection | None,
) -> checkpoints.WarmStartSettings | None:
    """Where a new model starts from."""
    if given is None:
        return None
    return checkpoints.WarmStartSettings(
        given.from_,
        given.variables,
        var_name_to_prev_var_name=given.renamed,
        slots=given.slots,
        partial=given.partial,
    )


def _cache_dir(given: str) -> str | None:
    if given == "off":
        return None
    if given != "auto":
        return given
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return str(Path(base) / "estimax" / "compiled")


def _build_stock(run: Run, columns: ColumnBuilder, config: RunConfig) -> Estimator:
    model = run.model
    assert not isinstance(model, CustomModelConfig)
    head = build_head(run, model.head)
    linear, dnn = run.optimizers.linear, run.optimizers.dnn
    warm_start = build_warm_start(run.warm_start)
    if isinstance(model, CombinedModelConfig):
        return canned.DNNLinearCombinedEstimator(
            head,
            linear_feature_columns=columns.linear(model.linear),
            linear_optimizer=_optimizer(linear, "Ftrl"),
            dnn_feature_columns=columns.deep(model.dnn.features),
            dnn_optimizer=_optimizer(dnn, "Adagrad"),
            dnn_hidden_units=model.dnn.hidden_units,
            dnn_activation_fn=_ACTIVATIONS[model.dnn.activation],
            dnn_dropout=model.dnn.dropout,
            config=config,
            batch_norm=model.dnn.batch_norm,
            linear_sparse_combiner=model.linear.combiner,
            warm_start_from=warm_start,
        )
    if isinstance(model, DnnModelConfig):
        return canned.DNNEstimator(
            head,
            hidden_units=model.dnn.hidden_units,
            feature_columns=columns.deep(model.dnn.features),
            optimizer=_optimizer(dnn, "Adagrad"),
            activation_fn=_ACTIVATIONS[model.dnn.activation],
            dropout=model.dnn.dropout,
            config=config,
            warm_start_from=warm_start,
            batch_norm=model.dnn.batch_norm,
        )
    if isinstance(model, DeepFmModelConfig | DcnModelConfig):
        return _build_click_model(run, model, columns, config)
    return canned.LinearEstimator(
        head,
        feature_columns=columns.linear(model.linear),
        optimizer=_optimizer(linear, "Ftrl"),
        config=config,
        sparse_combiner=model.linear.combiner,
        warm_start_from=warm_start,
    )


def _build_click_model(
    run: Run,
    model: DeepFmModelConfig | DcnModelConfig,
    columns: ColumnBuilder,
    config: RunConfig,
) -> Estimator:
    given = run.optimizers.dnn
    shared: dict[str, Any] = {
        "hidden_units": model.dnn.hidden_units,
        "feature_columns": columns.deep(model.dnn.features),
        "optimizer": None if given is None else build_optimizer(given),
        "dropout": model.dnn.dropout,
        "config": config,
        "warm_start_from": build_warm_start(run.warm_start),
        "head": build_head(run, model.head),
    }
    if isinstance(model, DeepFmModelConfig):
        return canned.DeepFMClassifier(**shared)
    return canned.DCNClassifier(
        cross_layers=model.cross_layers,
        projection=model.projection,
        structure=model.structure,
        **shared,
    )


def _optimizer(given: OptimizerConfig | None, default: str) -> Any:
    """An optimizer, or the name whose learning rate tf.estimator chooses."""
    return default if given is None else build_optimizer(given)


def build_head(run: Run, given: HeadConfig) -> heads.Head:
    """What the logits mean."""
    weight, words = run.data.weight, run.data.label_vocabulary
    if isinstance(given, BinaryHeadConfig):
        return heads.BinaryClassHead(
            weight_column=weight,
            thresholds=given.thresholds or None,
            label_vocabulary=words,
            loss_reduction=given.loss_reduction,
        )
    if isinstance(given, MultiClassHeadConfig):
        return heads.MultiClassHead(
            given.classes,
            weight_column=weight,
            label_vocabulary=words,
            loss_reduction=given.loss_reduction,
        )
    return heads.RegressionHead(
        weight_column=weight, loss_reduction=given.loss_reduction
    )


def build_exporter(given: Export) -> Any:  # one of export's exporters
    """The exporter of one section."""
    if isinstance(given, BestExport):
        metric = given.metric.removeprefix("eval/")
        mode = given.mode or better(metric) or "min"
        return export.BestExporter(
            given.name,
            compare_fn=export.metric_compare(metric, mode),
            exports_to_keep=given.keep,
        )
    if isinstance(given, LatestExport):
        return export.LatestExporter(given.name, exports_to_keep=given.keep)
    return export.FinalExporter(given.name)


def build_optimizer(given: OptimizerConfig) -> optimizers.Optimizer:
    """The optimizer of one section.

    >>> build_optimizer(AdagradConfig(learning_rate=0.1)).name
    'Adagrad'
    """
    rate = build_rate(given.learning_rate)
    clip = {"global_clipnorm": given.clip_global_norm}
    if isinstance(given, SgdConfig):
        return optimizers.SGD(rate, given.momentum, given.nesterov, **_only_set(clip))
    if isinstance(given, AdagradConfig):
        return optimizers.Adagrad(rate, given.initial_accumulator, **_only_set(clip))
    if isinstance(given, AdamConfig):
        make = optimizers.LazyAdam if given.lazy else optimizers.Adam
        return make(rate, given.beta_1, given.beta_2, given.epsilon, **_only_set(clip))
    if isinstance(given, RmsPropConfig):
        return optimizers.RMSProp(
            rate,
            given.rho,
            given.momentum,
            given.epsilon,
            given.centered,
            **_only_set(clip),
        )
    assert isinstance(given, FtrlConfig)
    return optimizers.Ftrl(
        rate,
        given.learning_rate_power,
        given.initial_accumulator,
        given.l1,
        given.l2,
        given.l2_shrinkage,
        given.beta,
        **_only_set(clip),
    )


def build_rate(given: float | ScheduleConfig) -> Any:  # a number, or step -> number
    """A learning rate that may follow a schedule.

    >>> build_rate(PiecewiseConfig(boundaries=(5,), values=(1.0, 0.5)))(6).item()
    0.5
    """
    if isinstance(given, float):
        return given
    if isinstance(given, ExponentialConfig):
        return optimizers.exponential_decay(
            given.initial, given.decay_steps, given.decay_rate, given.staircase
        )
    if isinstance(given, InverseTimeConfig):
        return optimizers.inverse_time_decay(
            given.initial, given.decay_steps, given.decay_rate, given.staircase
        )
    if isinstance(given, PolynomialConfig):
        return optimizers.polynomial_decay(
            given.initial, given.decay_steps, given.end, given.power
        )
    if isinstance(given, CosineConfig) and given.warmup_steps:
        return optimizers.cosine_decay(
            0.0, given.decay_steps, given.alpha, given.initial, given.warmup_steps
        )
    if isinstance(given, CosineConfig):
        return optimizers.cosine_decay(given.initial, given.decay_steps, given.alpha)
    assert isinstance(given, PiecewiseConfig)
    return optimizers.piecewise_constant(given.boundaries, given.values)


def _only_set(options: dict[str, float | None]) -> Any:  # keyword arguments
    return {name: value for name, value in options.items() if value is not None}


AnyColumn = Any  # one of feature_columns' dense or categorical columns


class ColumnBuilder:
    """The columns of a run, each made when it is asked for."""

    def __init__(self, run: Run, statistics: Statistics) -> None:
        self._features = run.features
        self._statistics = statistics

    def column(self, name: str) -> AnyColumn:
        """The column of one feature, not yet embedded or made an indicator."""
        feature = self._features[name]
        if isinstance(feature, NumericConfig):
            return self._numeric(name, feature)
        if isinstance(feature, BucketizedConfig):
            return self._bucketized(feature)
        if isinstance(feature, VocabularyConfig):
            return self._vocabulary(name, feature)
        if isinstance(feature, HashedConfig):
            key = feature.column or name
            return fc.categorical_column_with_hash_bucket(key, feature.buckets)
        if isinstance(feature, IdentityConfig):
            return fc.categorical_column_with_identity(
                feature.column or name, feature.buckets, feature.default
            )
        return self._crossed(feature)

    def linear(self, part: LinearPart) -> list[AnyColumn]:
        """The columns of the wide part."""
        return [self.column(name) for name in part.features]

    def deep(self, features: DeepFeatures) -> list[AnyColumn]:
        """The dense columns of the deep part."""
        columns = [self.column(name) for name in features.numeric]
        for group in features.embedding:
            columns += [
                fc.embedding_column(self.column(name), group.dim, group.combiner)
                for name in group.of
            ]
        columns += [fc.indicator_column(self.column(n)) for n in features.indicator]
        return columns

    def all(self) -> dict[str, AnyColumn]:
        """Every feature's column by the feature's name."""
        return {name: self.column(name) for name in self._features}

    def fill(self, name: str, feature: NumericConfig) -> float | None:
        """What stands in for a missing value."""
        if feature.default == "mean":
            return self._statistics.raw[name].mean
        return feature.default

    def _numeric(self, name: str, feature: NumericConfig) -> AnyColumn:
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

    def _bucketized(self, feature: BucketizedConfig) -> AnyColumn:
        source = self._features[feature.source]
        assert isinstance(source, NumericConfig)
        # Boundaries are in the data's own units, so the source is not scaled here.
        fill = self.fill(feature.source, source)
        raw = fc.numeric_column(
            source.column or feature.source,
            default_value=fill,
            normalizer_fn=None if fill is None else Scaling(fill),
        )
        return fc.bucketized_column(raw, feature.boundaries)

    def _vocabulary(self, name: str, feature: VocabularyConfig) -> AnyColumn:
        key = feature.column or name
        if feature.file is not None:
            return fc.categorical_column_with_vocabulary_file(
                key, feature.file, num_oov_buckets=feature.oov_buckets
            )
        words = feature.list_ or self._statistics.vocabularies[name]
        return fc.categorical_column_with_vocabulary_list(
            key, list(words), num_oov_buckets=feature.oov_buckets
        )

    def _crossed(self, feature: CrossedConfig) -> AnyColumn:
        keys: list[AnyColumn] = []
        for name in feature.keys:
            part = self._features[name]
            # A cross hashes words itself and takes no column that already does.
            if isinstance(part, HashedConfig):
                keys.append(part.column or name)
            else:
                keys.append(self.column(name))
        return fc.crossed_column(keys, feature.buckets)
