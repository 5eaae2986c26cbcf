"""Build the estimator of a checked run: columns, model, head, optimizers, exporters.

    built = build(load("run.yaml"))
    ex.train_and_evaluate(built.estimator, built.train_spec(), built.eval_spec())

Each section of the run file is a dataclass. Tables below map its class to the class or
function that it describes, and `_arguments` turns its fields into keyword arguments.

This module imports jax; reading and checking a run file does not.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flax import linen as nn

from estimax import canned, checkpoints, export, heads, hooks, optimizers
from estimax import feature_columns as fc
from estimax import input as inputs
from estimax.config.build_custom import build_custom
from estimax.config.build_input import make_input_fn
from estimax.config.checks import better, parts
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
    ClickPart,
    CombinedModelConfig,
    CustomModelConfig,
    DcnModelConfig,
    DeepFeatures,
    DeepFmModelConfig,
    DnnModelConfig,
    DnnPart,
    HeadConfig,
    LinearModelConfig,
    LinearPart,
    MultiClassHeadConfig,
    RegressionHeadConfig,
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
    Export,
    FinalExport,
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
    """An estimator, with the specs to train and evaluate it as the run file says."""

    run: Run
    estimator: Estimator

    def input_fn(self, source: str) -> Callable[[], inputs.Dataset]:
        """Return the input function of a source in `data.sources`."""
        return make_input_fn(self.run, source)

    def train_spec(self, extra_hooks: Sequence[hooks.Hook] = ()) -> TrainSpec:
        """Return the `TrainSpec` of the run, with more hooks."""
        train = self.run.train
        return TrainSpec(
            self.input_fn(train.source), max_steps=train.max_steps, hooks=extra_hooks
        )

    def eval_spec(self) -> EvalSpec | None:
        """Return the `EvalSpec` with its exporters; None without an eval section."""
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
    """Build the estimator of a run.

    Reads the train source once if features need its statistics (`normalize: zscore`,
    `default: mean`, `from_data`) and they are not in the model directory yet.
    """
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
        estimator = _build_canned(run, columns, config)
    return Built(run, estimator)


def build_run_config(run: Run) -> RunConfig:
    """Return the `RunConfig` of a run."""
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
    """Return the settings of the warm_start section; None if there is none."""
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


def _build_canned(run: Run, columns: ColumnBuilder, config: RunConfig) -> Estimator:
    model = run.model
    assert not isinstance(model, CustomModelConfig)
    arguments = {
        "head": build_head(run, model.head),
        "config": config,
        "warm_start_from": build_warm_start(run.warm_start),
    }
    linear, dnn = parts(run)
    given: dict[str, dict[str, Any]] = {}
    if linear is not None:
        given["linear"] = _linear_arguments(run, columns, linear)
    if dnn is not None:
        given["dnn"] = _dnn_arguments(run, columns, dnn)
    for name, part in given.items():
        # A model of two parts has an argument for each: `dnn_optimizer` and so on.
        prefix = f"{name}_" if len(given) == 2 else ""
        arguments |= {f"{prefix}{key}": value for key, value in part.items()}
    if isinstance(dnn, DnnPart):
        arguments["batch_norm"] = dnn.batch_norm
    if isinstance(model, DcnModelConfig):
        arguments |= {
            "cross_layers": model.cross_layers,
            "projection": model.projection,
            "structure": model.structure,
        }
    estimator: Estimator = _ESTIMATORS[type(model)](**arguments)
    return estimator


_ESTIMATORS: dict[type, Callable[..., Any]] = {
    CombinedModelConfig: canned.DNNLinearCombinedEstimator,
    DnnModelConfig: canned.DNNEstimator,
    LinearModelConfig: canned.LinearEstimator,
    DeepFmModelConfig: canned.DeepFMClassifier,
    DcnModelConfig: canned.DCNClassifier,
}


def _linear_arguments(
    run: Run, columns: ColumnBuilder, part: LinearPart
) -> dict[str, Any]:
    return {
        "feature_columns": columns.linear(part),
        "sparse_combiner": part.combiner,
        **_optimizer_argument(run.optimizers.linear),
    }


def _dnn_arguments(
    run: Run, columns: ColumnBuilder, part: DnnPart | ClickPart
) -> dict[str, Any]:
    arguments = {
        "feature_columns": columns.deep(part.features),
        "hidden_units": part.hidden_units,
        "dropout": part.dropout,
        **_optimizer_argument(run.optimizers.dnn),
    }
    if isinstance(part, DnnPart):
        arguments["activation_fn"] = _ACTIVATIONS[part.activation]
    return arguments


def _optimizer_argument(given: OptimizerConfig | None) -> dict[str, Any]:
    """Return the optimizer as an argument; nothing keeps the estimator's default."""
    return {} if given is None else {"optimizer": build_optimizer(given)}


def build_head(run: Run, given: HeadConfig) -> heads.Head:
    """Return the head of a section, with the label's words and the weight column."""
    arguments = {"weight_column": run.data.weight, **_arguments(given)}
    if not isinstance(given, RegressionHeadConfig):
        arguments["label_vocabulary"] = run.data.label_vocabulary
    head: heads.Head = _HEADS[type(given)](**arguments)
    return head


_HEADS: dict[type, Callable[..., Any]] = {
    BinaryHeadConfig: heads.BinaryClassHead,
    MultiClassHeadConfig: heads.MultiClassHead,
    RegressionHeadConfig: heads.RegressionHead,
}


def build_exporter(given: Export) -> Any:  # one of export's exporters
    """Return the exporter of a section."""
    if isinstance(given, FinalExport):
        return export.FinalExporter(given.name)
    if isinstance(given, LatestExport):
        return export.LatestExporter(given.name, exports_to_keep=given.keep)
    metric = given.metric.removeprefix("eval/")
    mode = given.mode or better(metric) or "min"
    return export.BestExporter(
        given.name,
        compare_fn=export.metric_compare(metric, mode),
        exports_to_keep=given.keep,
    )


def build_optimizer(given: OptimizerConfig) -> optimizers.Optimizer:
    """Return the optimizer of a section.

    >>> build_optimizer(AdagradConfig(learning_rate=0.1)).name
    'Adagrad'
    """
    arguments = _arguments(given)
    arguments["learning_rate"] = build_rate(given.learning_rate)
    is_lazy = arguments.pop("lazy", False)
    make = optimizers.LazyAdam if is_lazy else _OPTIMIZERS[type(given)]
    optimizer: optimizers.Optimizer = make(**arguments)
    return optimizer


_OPTIMIZERS: dict[type, Callable[..., Any]] = {
    SgdConfig: optimizers.SGD,
    AdagradConfig: optimizers.Adagrad,
    AdamConfig: optimizers.Adam,
    RmsPropConfig: optimizers.RMSProp,
    FtrlConfig: optimizers.Ftrl,
}


def build_rate(given: float | ScheduleConfig) -> Any:  # a number, or step -> number
    """Return a learning rate: a number, or a schedule.

    >>> build_rate(PiecewiseConfig(boundaries=(5,), values=(1.0, 0.5)))(6).item()
    0.5
    """
    if isinstance(given, float):
        return given
    arguments = _arguments(given)
    if isinstance(given, CosineConfig) and given.warmup_steps:
        arguments |= {"learning_rate": 0.0, "warmup_target": given.initial}
    return _SCHEDULES[type(given)](**arguments)


_SCHEDULES: dict[type, Callable[..., Any]] = {
    ExponentialConfig: optimizers.exponential_decay,
    InverseTimeConfig: optimizers.inverse_time_decay,
    PolynomialConfig: optimizers.polynomial_decay,
    CosineConfig: optimizers.cosine_decay,
    PiecewiseConfig: optimizers.piecewise_constant,
}

# Keys of a run file whose argument in Python has another name.
_ARGUMENT_NAMES = {
    "classes": "n_classes",
    "clip_global_norm": "global_clipnorm",
    "end": "end_learning_rate",
    "initial": "learning_rate",
    "initial_accumulator": "initial_accumulator_value",
    "l1": "l1_regularization_strength",
    "l2": "l2_regularization_strength",
    "l2_shrinkage": "l2_shrinkage_regularization_strength",
}


def _arguments(section: Any) -> dict[str, Any]:
    """Return the fields of a section as keyword arguments.

    Left out are the first field, which is the section's tag (`type`, `schedule`), and
    fields that are null or empty, whose defaults are those of the function.
    """
    values = {f.name: getattr(section, f.name) for f in dataclasses.fields(section)[1:]}
    return {
        _ARGUMENT_NAMES.get(name, name): value
        for name, value in values.items()
        if value is not None and value != ()
    }


AnyColumn = Any  # one of feature_columns' dense or categorical columns


class ColumnBuilder:
    """Makes the feature columns of a run.

    Args:
      run: The run, whose `features` section describes the columns.
      statistics: Means, deviations and vocabularies that features take from the data.
    """

    def __init__(self, run: Run, statistics: Statistics) -> None:
        self._features = run.features
        self._statistics = statistics

    def column(self, name: str) -> AnyColumn:
        """Return the column of a feature, not yet embedded or made an indicator."""
        feature = self._features[name]
        return _COLUMNS[type(feature)](self, name, feature)

    def linear(self, part: LinearPart) -> list[AnyColumn]:
        """Return the columns of the wide part."""
        return [self.column(name) for name in part.features]

    def deep(self, features: DeepFeatures) -> list[AnyColumn]:
        """Return the dense columns of the deep part."""
        columns = [self.column(name) for name in features.numeric]
        for group in features.embedding:
            columns += [
                fc.embedding_column(self.column(name), group.dim, group.combiner)
                for name in group.of
            ]
        columns += [fc.indicator_column(self.column(n)) for n in features.indicator]
        return columns

    def all(self) -> dict[str, AnyColumn]:
        """Return the columns of all features by feature name."""
        return {name: self.column(name) for name in self._features}

    def fill(self, name: str, feature: NumericConfig) -> float | None:
        """Return the number that replaces a missing value, or None."""
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

    def _bucketized(self, name: str, feature: BucketizedConfig) -> AnyColumn:
        source = self._features[feature.source]
        assert isinstance(source, NumericConfig)
        # Boundaries are in the units of the data, so the source is filled, not scaled.
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

    def _hashed(self, name: str, feature: HashedConfig) -> AnyColumn:
        key = feature.column or name
        return fc.categorical_column_with_hash_bucket(key, feature.buckets)

    def _identity(self, name: str, feature: IdentityConfig) -> AnyColumn:
        key = feature.column or name
        return fc.categorical_column_with_identity(
            key, feature.buckets, feature.default
        )

    def _crossed(self, name: str, feature: CrossedConfig) -> AnyColumn:
        keys: list[AnyColumn] = []
        for key in feature.keys:
            part = self._features[key]
            # A cross hashes text itself, so it takes the name of the data column and
            # not a hashed column.
            if isinstance(part, HashedConfig):
                keys.append(part.column or key)
            else:
                keys.append(self.column(key))
        return fc.crossed_column(keys, feature.buckets)


_COLUMNS: dict[type, Callable[[ColumnBuilder, str, Any], AnyColumn]] = {
    NumericConfig: ColumnBuilder._numeric,
    BucketizedConfig: ColumnBuilder._bucketized,
    VocabularyConfig: ColumnBuilder._vocabulary,
    HashedConfig: ColumnBuilder._hashed,
    IdentityConfig: ColumnBuilder._identity,
    CrossedConfig: ColumnBuilder._crossed,
}
