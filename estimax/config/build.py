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

from estimax import canned, checkpoints, export, heads, hooks
from estimax.config.build_columns import Columns
from estimax.config.build_custom import build_custom
from estimax.config.build_input import InputFn, make_input_fn
from estimax.config.build_optimizers import build_optimizer
from estimax.config.checks import better
from estimax.config.load import LoadedRun
from estimax.config.saved import config_dir
from estimax.config.schema.model import (
    BinaryHead,
    CombinedModel,
    CustomModel,
    DcnModel,
    DeepFmModel,
    DnnModel,
    Head,
    MultiClassHead,
)
from estimax.config.schema.optimizers import Optimizer
from estimax.config.schema.run import (
    BestExport,
    Export,
    LatestExport,
    Run,
    WarmStartSection,
)
from estimax.config.statistics import statistics_for
from estimax.estimator import Estimator, EvalSpec, RunConfig, TrainSpec

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
    columns = Columns(run, statistics)
    config = build_run_config(run)
    if isinstance(run.model, CustomModel):
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


def _build_stock(run: Run, columns: Columns, config: RunConfig) -> Estimator:
    model = run.model
    assert not isinstance(model, CustomModel)
    head = build_head(run, model.head)
    linear, dnn = run.optimizers.linear, run.optimizers.dnn
    warm_start = build_warm_start(run.warm_start)
    if isinstance(model, CombinedModel):
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
    if isinstance(model, DnnModel):
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
    if isinstance(model, DeepFmModel | DcnModel):
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
    run: Run, model: DeepFmModel | DcnModel, columns: Columns, config: RunConfig
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
    if isinstance(model, DeepFmModel):
        return canned.DeepFMClassifier(**shared)
    return canned.DCNClassifier(
        cross_layers=model.cross_layers,
        projection=model.projection,
        structure=model.structure,
        **shared,
    )


def _optimizer(given: Optimizer | None, default: str) -> Any:
    """An optimizer, or the name whose learning rate tf.estimator chooses."""
    return default if given is None else build_optimizer(given)


def build_head(run: Run, given: Head) -> heads.Head:
    """What the logits mean."""
    weight, words = run.data.weight, run.data.label_vocabulary
    if isinstance(given, BinaryHead):
        return heads.BinaryClassHead(
            weight_column=weight,
            thresholds=given.thresholds or None,
            label_vocabulary=words,
            loss_reduction=given.loss_reduction,
        )
    if isinstance(given, MultiClassHead):
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
