"""The model of a run, as an expression: heads, optimizers and the estimator."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable, Mapping
from typing import Any

from estimax.config.build_columns import ColumnBuilder
from estimax.config.columns import words_of_label
from estimax.config.expressions import (
    CallExpression,
    Function,
    Reference,
    call_of,
    changed_values,
    expression_of,
)
from estimax.config.schema.heads import MultiHeadConfig, RegressionHeadConfig
from estimax.config.schema.model import (
    TREES,
    AverageModelConfig,
    BaselineModelConfig,
    BoostedTreesModelConfig,
    CombinedModelConfig,
    DcnModelConfig,
    DeepFmModelConfig,
    DinModelConfig,
    DnnModelConfig,
    DnnPart,
    EsmmModelConfig,
    KMeansModelConfig,
    LinearModelConfig,
    MmoeModelConfig,
    ModelFnConfig,
    PerHeadModelConfig,
    RandomForestModelConfig,
    RnnModelConfig,
    RnnPart,
    SeveralModelsConfig,
    TabularModelConfig,
)
from estimax.config.schema.optimizers import (
    AdamConfig,
    CosineConfig,
    CustomOptimizerConfig,
    OptaxConfig,
    OptimizersSection,
    PartOptimizers,
    WarmupConfig,
)
from estimax.config.schema.run import Run
from estimax.config.schema.section import fields_of
from estimax.config.statistics import Statistics, is_balanced, is_scaled


def model_call(
    run: Run,
    columns: ColumnBuilder,
    statistics: Statistics,
    config: CallExpression,
    warm_start: CallExpression | None,
    inputs: Callable[[str], Function],
) -> CallExpression:
    """Return the estimator of a run whose model is not a class of the user's.

    `inputs` returns the input function of a source.
    """
    model: Any = run.model
    shared: dict[str, Any] = {"config": config}
    if warm_start is not None:
        shared["warm_start_from"] = warm_start
    if isinstance(model, ModelFnConfig):
        params = {"columns": columns.all(), **expression_of(model.params)}
        given = {"model_fn": Reference(model.model_fn), "params": params, **shared}
        return CallExpression("estimax.estimator.Estimator", given, name="model")
    if isinstance(model, PerHeadModelConfig):
        return _per_head(run, columns, statistics, shared, inputs)
    if isinstance(model, AverageModelConfig):
        return _average(run, columns, statistics, config, inputs)
    if isinstance(model, KMeansModelConfig):
        features = {}
        if model.features is not None:
            features["feature_columns"] = columns.deep(model.features)
        return call_of(model, variable="model", **features, config=config)
    if not isinstance(model, EsmmModelConfig):
        shared["head"] = head_call(run, model.head, statistics)
    elif run.data.weight is not None:
        shared["weight_column"] = run.data.weight
    arguments = _ARGUMENTS[type(model)](run, columns, model)
    path = type(model).CALLS.path
    if isinstance(model, RnnModelConfig) and model.rnn.return_sequences:
        mask = {"sequence_length_mask": model.rnn.sequence_mask}
        wrapper = "estimax.heads.SequentialHeadWrapper"
        shared["head"] = CallExpression(wrapper, mask, (shared["head"],))
    return CallExpression(path, {**arguments, **shared}, name="model")


def _per_head(
    run: Run,
    columns: ColumnBuilder,
    statistics: Statistics,
    shared: dict[str, Any],
    inputs: Callable[[str], Function],
) -> CallExpression:
    """Return a `PerHeadEstimator`, with the model of each head as it is built alone."""
    model = run.model
    assert isinstance(model, PerHeadModelConfig)
    models = {}
    for name in model.models:
        alone = model_call(
            run_of_model(run, name), columns, statistics, shared["config"], None, inputs
        )
        models[name] = dataclasses.replace(alone, name=f"{name}_model")
    given = dict(shared)
    if model.weights:
        given["head_weights"] = dict(model.weights)
    path = "estimax.canned.PerHeadEstimator"
    return CallExpression(path, given, (models,), name="model")


def _average(
    run: Run,
    columns: ColumnBuilder,
    statistics: Statistics,
    config: CallExpression,
    inputs: Callable[[str], Function],
) -> CallExpression:
    """Return an `AverageEstimator`, whose members have a model_dir of their own."""
    model = run.model
    assert isinstance(model, AverageModelConfig)
    members = {}
    for name, seed in itertools.product(model.models, range(model.seeds)):
        member = model.member(name, seed)
        section = model.models[name]
        given = {
            **config.named,
            "model_dir": f"{run.run.model_dir}/members/{member}",
        }
        if seed:
            given["tf_random_seed"] = (run.seed + seed) % 2**32
        if isinstance(section, TREES) and "save_checkpoints_steps" in given:
            # Each number of trees is another program, so evaluate the last one alone.
            # LightGBM stops early by itself.
            given["save_checkpoints_steps"] = section.n_trees
        own = dataclasses.replace(config, named=given)
        own = dataclasses.replace(own, name=f"{member}_config")
        one = model_call(
            run_of_model(run, name), columns, statistics, own, None, inputs
        )
        members[member] = dataclasses.replace(one, name=name_of_member(member))
    head = head_call(run, model.head, statistics)
    options: dict[str, Any] = changed_values(model, "patience_steps")
    source = held_out_source(run)
    if source is not None:
        options["held_out_fn"] = inputs(source)
    path = "estimax.canned.AverageEstimator"
    return CallExpression(
        path, {**options, "config": config}, (head, members), name="model"
    )


def name_of_member(name: str) -> str:
    """Return a variable of Python for a member.

    >>> name_of_member("trees.v2")
    'trees_v2_model'
    """
    return re.sub(r"\W", "_", f"{name}_model")


def held_out_source(run: Run) -> str | None:
    """Return the source on which an average chooses checkpoints and weights."""
    model = run.model
    assert isinstance(model, AverageModelConfig)
    if model.held_out is not None or run.eval is None:
        return model.held_out
    return run.eval.source


def run_of_model(run: Run, name: str) -> Run:
    """Return the run of one model of `per_head` or `average` alone.

    It has the label and the optimizers of the model.

    The variables of the model are named `<name>/…`, and its optimizers see what follows
    the slash. So a pattern in `freeze` that begins with the name is for this model.
    """
    model = run.model
    assert isinstance(model, SeveralModelsConfig)
    others = [f"{other}/" for other in model.models if other != name]
    freeze = tuple(
        pattern.removeprefix(f"{name}/")
        for pattern in run.optimizers.freeze
        if not pattern.startswith(tuple(others))
    )
    own = run.optimizers.models.get(name, PartOptimizers())
    optimizers = OptimizersSection(
        linear=own.linear,
        dnn=own.dnn,
        rnn=own.rnn,
        baseline=own.baseline,
        freeze=freeze,
    )
    data = run.data
    one: Any = model.models[name]
    if isinstance(model, AverageModelConfig):
        one = dataclasses.replace(one, head=model.head)
    else:
        label = run.data.labels.get(name)
        data = dataclasses.replace(run.data, label=label, labels={})
    return dataclasses.replace(run, data=data, model=one, optimizers=optimizers)


def _combined_arguments(run: Run, columns: ColumnBuilder, model: Any) -> dict[str, Any]:
    linear = _linear_arguments(run, columns, model)
    dnn = _dnn_arguments(run, columns, model)
    batch_norm = {k: dnn.pop(k) for k in ("batch_norm",) if k in dnn}
    return {
        **{f"linear_{key}": value for key, value in linear.items()},
        **{f"dnn_{key}": value for key, value in dnn.items()},
        **batch_norm,
    }


def _linear_arguments(run: Run, columns: ColumnBuilder, model: Any) -> dict[str, Any]:
    part = model.linear
    arguments: dict[str, Any] = {"feature_columns": columns.columns(part.features)}
    arguments |= changed_values(part, combiner="sparse_combiner")
    return arguments | _optimizer(run, "linear")


def _dnn_arguments(run: Run, columns: ColumnBuilder, model: Any) -> dict[str, Any]:
    part = model.dnn
    arguments: dict[str, Any] = {
        "hidden_units": list(part.hidden_units),
        "feature_columns": columns.deep(part.features),
    }
    if getattr(part, "dropout", None) is not None:
        arguments["dropout"] = part.dropout
    if isinstance(part, DnnPart):
        if part.activation_fn is not None:
            arguments["activation_fn"] = Reference(part.activation_fn)
        elif part.activation != "relu":
            arguments["activation_fn"] = Reference(f"flax.linen.{part.activation}")
        arguments |= changed_values(part, "batch_norm")
    return arguments | _optimizer(run, "dnn")


def _deepfm_arguments(run: Run, columns: ColumnBuilder, model: Any) -> dict[str, Any]:
    arguments = _dnn_arguments(run, columns, model)
    if model.linear_features is not None:
        linear = columns.columns(model.linear_features)
        arguments["linear_feature_columns"] = linear
    return arguments


def _dcn_arguments(run: Run, columns: ColumnBuilder, model: Any) -> dict[str, Any]:
    return {
        **_dnn_arguments(run, columns, model),
        "cross_layers": model.cross_layers,
        "structure": model.structure,
        **changed_values(model, "projection"),
    }


def _din_arguments(run: Run, columns: ColumnBuilder, model: Any) -> dict[str, Any]:
    pairs = []
    for pair in model.attend:
        both = columns.columns([pair.candidate, pair.history])
        path = "estimax.feature_columns.shared_embeddings"
        shared = CallExpression(
            path, {}, (both, pair.dim), name=f"{pair.candidate}_pair"
        )
        pairs.append(CallExpression("builtins.tuple", {}, (shared,)))
    return {
        **_dnn_arguments(run, columns, model),
        "attend": pairs,
        "attention_units": list(model.attention_units),
    }


def _mmoe_arguments(run: Run, columns: ColumnBuilder, model: Any) -> dict[str, Any]:
    part = model.dnn
    return {
        "feature_columns": columns.deep(part.features),
        "expert_units": list(part.expert_units),
        "tower_units": list(part.tower_units),
        "experts": part.experts,
        **_optimizer(run, "dnn"),
    }


def _rnn_arguments(run: Run, columns: ColumnBuilder, model: Any) -> dict[str, Any]:
    part: RnnPart = model.rnn
    arguments: dict[str, Any] = {
        "sequence_feature_columns": columns.deep(part.sequence),
    }
    if part.context is not None:
        arguments["context_feature_columns"] = columns.deep(part.context)
    if part.units is not None:
        arguments["units"] = list(part.units)
    arguments |= changed_values(part, cell="cell_type", cell_fn="rnn_cell_fn")
    arguments |= changed_values(part, "return_sequences", "bidirectional")
    return arguments | _optimizer(run, "rnn")


def _tabular_arguments(run: Run, columns: ColumnBuilder, model: Any) -> dict[str, Any]:
    part = model.dnn
    arguments: dict[str, Any] = {
        "feature_columns": columns.tabular(part.features or run.features),
    }
    if part.hidden_units is not None:
        arguments["hidden_units"] = list(part.hidden_units)
    arguments |= changed_values(part, "members", "dropout")
    rows = part.train_rows or columns.rows
    if rows is not None:
        arguments["train_rows"] = rows
    if run.train.max_steps is not None:
        arguments["train_steps"] = run.train.max_steps
    return arguments | _optimizer(run, "dnn")


def _trees_arguments(run: Run, columns: ColumnBuilder, model: Any) -> dict[str, Any]:
    names = list(run.features) if model.features is None else model.features
    options = [f.name for f in dataclasses.fields(model)]
    options = [name for name in options if name not in ("type", "features", "head")]
    return {
        "feature_columns": columns.columns(names),
        **changed_values(model, *options),
    }


def _baseline_arguments(run: Run, columns: ColumnBuilder, model: Any) -> dict[str, Any]:
    return _optimizer(run, "baseline")


_ARGUMENTS = {
    CombinedModelConfig: _combined_arguments,
    DnnModelConfig: _dnn_arguments,
    LinearModelConfig: _linear_arguments,
    BaselineModelConfig: _baseline_arguments,
    DeepFmModelConfig: _deepfm_arguments,
    DcnModelConfig: _dcn_arguments,
    DinModelConfig: _din_arguments,
    MmoeModelConfig: _mmoe_arguments,
    EsmmModelConfig: _dnn_arguments,
    RnnModelConfig: _rnn_arguments,
    TabularModelConfig: _tabular_arguments,
    BoostedTreesModelConfig: _trees_arguments,
    RandomForestModelConfig: _trees_arguments,
}


# ------------------------------------------------------------------------------ heads
def head_call(run: Run, head: Any, statistics: Statistics) -> CallExpression:
    """Return the head of a section, with the label's words and the weight column."""
    if not isinstance(head, MultiHeadConfig):
        return _single_head(run, head, statistics, run.data.label, {})
    heads = [
        _single_head(run, one, statistics, run.data.labels.get(name), {"name": name})
        for name, one in head.heads.items()
    ]
    weights = {}
    if head.weights:
        found = [head.weights.get(name, 1.0) for name in head.heads]
        weights["head_weights"] = found
    return CallExpression("estimax.heads.MultiHead", weights, (heads,))


def _single_head(
    run: Run, head: Any, statistics: Statistics, label: str | None, more: dict[str, Any]
) -> CallExpression:
    given = dict(more)
    kind: Any = type(head)
    fields = {field.name for field in fields_of(kind).values()}
    if head.weight is None and run.data.weight is not None:
        given["weight_column"] = run.data.weight
    words = words_of_label(run, head)
    if "label_vocabulary" in fields and words is not None:
        given["label_vocabulary"] = list(words)
    if isinstance(head, RegressionHeadConfig) and is_scaled(head):
        found = statistics.labels.get(label or "")
        if found is not None:
            given |= {"label_mean": found.mean, "label_std": found.std}
    if is_balanced(head):
        given["class_weights"] = _balanced(statistics.classes[label or ""])
    return call_of(head, **given)


def _balanced(counts: Mapping[str, int]) -> dict[Any, float]:
    """Return the weight of each class: the mean of all counts divided by its own."""
    mean = sum(counts.values()) / len(counts)
    return {name: mean / count for name, count in counts.items()}


# ------------------------------------------------------------------------- optimizers
def _optimizer(run: Run, part: str) -> dict[str, Any]:
    """Return the optimizer as an argument; nothing keeps the estimator's default."""
    given = getattr(run.optimizers, part)
    if given is None:
        return {}
    return {"optimizer": _freeze_variables(run, part, optimizer_call(given))}


def _freeze_variables(run: Run, part: str, optimizer: CallExpression) -> CallExpression:
    """Return an optimizer that leaves the variables of `optimizers.freeze` alone."""
    if not run.optimizers.freeze:
        return optimizer
    frozen = "|".join(f"(?:{pattern})" for pattern in run.optimizers.freeze)
    mine = ""
    if isinstance(run.model, CombinedModelConfig):
        # As the estimator itself divides its variables.
        mine = "linear/" if part == "linear" else "(?!linear/)"
    pattern = f"(?!{frozen}){mine}"
    return CallExpression(
        "estimax.optimizers.minimize", {"var_list": pattern}, (optimizer,)
    )


def optimizer_call(given: Any) -> CallExpression:
    """Return the optimizer of a section."""
    if isinstance(given, CustomOptimizerConfig):
        return CallExpression(str(given.class_), expression_of(given.params))
    if isinstance(given, OptaxConfig):
        arguments = dict(given.args)
        if given.learning_rate is not None:
            arguments["learning_rate"] = rate_of(given.learning_rate)
        return CallExpression(f"optax.{given.name}", arguments)
    call = call_of(given, learning_rate=rate_of(given.learning_rate))
    if isinstance(given, AdamConfig) and given.lazy:
        return CallExpression("estimax.optimizers.LazyAdam", call.named)
    return call


def rate_of(given: Any) -> Any:
    """Return a learning rate: a number, or the call of a schedule."""
    if isinstance(given, float):
        return given
    if isinstance(given, WarmupConfig):
        path = "estimax.optimizers.linear_warmup"
        return CallExpression(path, {}, (rate_of(given.then), given.warmup_steps))
    if isinstance(given, CosineConfig) and given.warmup_steps:
        return call_of(given, learning_rate=0.0, warmup_target=given.initial)
    return call_of(given)
