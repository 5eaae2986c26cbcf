"""`PerHeadEstimator`: a model of its own for each head, trained together.

    model = ex.PerHeadEstimator({
        "click": ex.LinearEstimator(ex.heads.BinaryClassHead(), wide, config=config),
        "dwell": ex.DNNEstimator(ex.heads.RegressionHead(), [16], deep, config=config),
    })

The `model_fn` of each Estimator is called in a variable scope of its name. What they
return is joined: one loss, one train op, and predictions, metrics and signatures as
those of a `MultiHead`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

from estimax import metrics, optimizers, staging
from estimax.canned.defaults import ModelPath, check_features
from estimax.checkpoints.warm_start import WarmStart
from estimax.core.errors import LabelError, SpecError, did_you_mean
from estimax.core.spec import EstimatorSpec, ModeKeys
from estimax.estimator import Estimator, RunConfig
from estimax.heads.multi_head import join_signatures
from estimax.hooks import summary
from estimax.staging import variables

_HOOKS = tuple(f.name for f in fields(EstimatorSpec) if f.name.endswith("_hooks"))


class PerHeadEstimator(Estimator):
    """Several models over the same features, one for each label, trained together.

    Use it when tasks have nothing in common but their data: a linear model for one
    label and a deep one for another, with one input, one checkpoint and one bundle. For
    tasks that should help each other, share layers: `DNNEstimator` with a
    `MultiHead`, or `MMoEEstimator`.

    Labels are a dict by the name of the model. The loss is the weighted sum of the
    losses. Each model trains its own variables, which are named `<name>/…`, with its
    own optimizer. Prediction keys are pairs (name, key). Metrics are those of the
    models with `/<name>` after them, and `loss/<name>` for each. Signatures of an
    export are `<name>/<signature>`; `<name>` is the default one of a model,
    "serving_default" that of the first.

    Args:
      models: Estimators by name, in any number. Their `model_fn` and optimizers are
        used; their own checkpoints and `warm_start_from` are not.
      head_weights: Factors of the models' losses by name. By default 1. They do not
        change metrics.
      model_dir: Folder for checkpoints and summaries. None: that of `config`.
      config: How to run: seed, checkpoints, summaries, devices. None: the `RunConfig`
        of the first model.
      warm_start_from: A checkpoint, a model directory or `WarmStartSettings` to start
        from. None: variables start from their initializers.

    Raises:
      SpecError: There is no model, a model is no `Estimator`, a name is empty or has
        other characters than letters, digits and `_.-`, or `head_weights` names a model
        that does not exist.
      LabelError: At the first call: labels are not a dict with the names of the models.

    Example:
      >>> import numpy as np
      >>> import estimax as ex
      >>> x = np.linspace(-1, 1, 16, dtype=np.float32)
      >>> labels = {"click": (x > 0).astype(int), "dwell": 2 * x}
      >>> rows = ex.input.Dataset.from_tensor_slices(({"x": x}, labels))
      >>> column = ex.feature_columns.numeric_column("x")
      >>> config = ex.RunConfig()
      >>> models = {
      ...     "click": ex.LinearEstimator(ex.heads.BinaryClassHead(), [column]),
      ...     "dwell": ex.DNNEstimator(
      ...         ex.heads.RegressionHead(),
      ...         [8],
      ...         [column],
      ...         optimizer=ex.optimizers.Adagrad(0.2),
      ...     ),
      ... }
      >>> model = ex.PerHeadEstimator(models, head_weights={"dwell": 0.5})
      >>> model = model.train(lambda: rows.repeat().batch(16), steps=60)
      >>> found = model.evaluate(lambda: rows.batch(16))
      >>> bool(found["accuracy/click"] > 0.9), bool(found["loss/dwell"] < 0.2)
      (True, True)
    """

    def __init__(
        self,
        models: Mapping[str, Estimator],
        head_weights: Mapping[str, float] | None = None,
        model_dir: ModelPath | None = None,
        config: RunConfig | None = None,
        warm_start_from: WarmStart = None,
    ) -> None:
        _check_models(models)
        models = dict(models)
        weights = _validate_weights(head_weights or {}, models)
        if config is None:
            config = next(iter(models.values())).config
            config = config.replace(model_dir=model_dir or config.model_dir)

        def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
            check_features(features, "PerHeadEstimator")
            if mode != ModeKeys.PREDICT:
                _check_labels(labels, models)
            specs = {}
            for name, model in models.items():
                own = None if mode == ModeKeys.PREDICT else labels[name]
                with variables.model_scope(name), separate_trace(name):
                    specs[name] = model.model_fn(
                        dict(features), own, mode, model.config
                    )
            return _join_specs(specs, mode, weights)

        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)


def _check_models(models: Any) -> None:
    if not isinstance(models, Mapping) or not models:
        raise SpecError(
            "PerHeadEstimator: models must be a dict from name to Estimator, with at "
            f"least one, got {models!r}."
        )
    for name, model in models.items():
        if not isinstance(model, Estimator):
            raise SpecError(
                f"PerHeadEstimator: models[{name!r}] must be an Estimator, got "
                f"{type(model).__name__}."
            )
        if not isinstance(name, str) or not re.fullmatch(r"[\w.\-]+", name):
            raise SpecError(
                f"PerHeadEstimator: {name!r} is no name for a model; use letters, "
                "digits and _ . - only. It is part of the names of its variables."
            )


def _validate_weights(
    given: Mapping[str, float], models: Mapping[str, Estimator]
) -> dict[str, float]:
    for name in given:
        if name not in models:
            near = did_you_mean(str(name), models)
            raise SpecError(
                f"PerHeadEstimator: head_weights has no model {name!r}{near}"
            )
    return {name: float(given.get(name, 1.0)) for name in models}


def _check_labels(labels: Any, models: Mapping[str, Estimator]) -> None:
    if not isinstance(labels, Mapping):
        found = "none" if labels is None else type(labels).__name__
        raise LabelError(
            "PerHeadEstimator: labels must be a dict with the keys "
            f"{list(models)}, got {found}."
        )
    for name in models:
        if name not in labels:
            near = did_you_mean(name, [str(key) for key in labels])
            raise LabelError(
                f"PerHeadEstimator: labels of model {name!r} missing{near}"
            )


def _join_specs(
    specs: Mapping[str, EstimatorSpec], mode: str, weights: Mapping[str, float]
) -> EstimatorSpec:
    """Return one spec for all models."""
    predictions = {
        (name, key): value
        for name, spec in specs.items()
        for key, value in _named_arrays(spec.predictions).items()
    }
    hooks: dict[str, Any] = {
        hook: tuple(one for spec in specs.values() for one in getattr(spec, hook))
        for hook in _HOOKS
    }
    if mode == ModeKeys.PREDICT:
        signatures = {name: spec.export_outputs or {} for name, spec in specs.items()}
        exports = join_signatures(signatures, predictions)
        return EstimatorSpec(
            mode, predictions=predictions, export_outputs=exports, **hooks
        )
    losses = [weights[name] * spec.loss for name, spec in specs.items()]
    measured: dict[str, Any] = {}
    ops = []
    for name, spec in specs.items():
        measured[_add_suffix("loss", name)] = metrics.mean(spec.loss)
        for key, value in (spec.eval_metric_ops or {}).items():
            measured[_add_suffix(key, name)] = value
        if mode == ModeKeys.TRAIN:
            ops.append(_train_op_of(name, spec.train_op))
            summary.scalar(_add_suffix("loss", name), spec.loss)
    return EstimatorSpec(
        mode,
        predictions=predictions,
        loss=sum(losses[1:], losses[0]),
        eval_metric_ops=measured if mode == ModeKeys.EVAL else None,
        train_op=optimizers.group(*ops) if ops else None,
        **hooks,
    )


def _named_arrays(predictions: Any) -> Mapping[Any, Any]:
    if predictions is None:
        return {}
    is_dict = isinstance(predictions, Mapping)
    return predictions if is_dict else {"output": predictions}


def _add_suffix(key: str, name: str) -> str:
    """Return a metric with the name of its model, unless a named head has added it."""
    return key if key.endswith(f"/{name}") else f"{key}/{name}"


def _train_op_of(name: str, given: Any) -> optimizers.TrainOp:
    """Return the train op of a model for its variables inside the whole model.

    Its loss is not that of the whole model, and need not be.
    """
    return optimizers.TrainOp(
        tuple(
            optimizers.Group(
                tuple(_inside(name, one) for one in group.patterns),
                group.optimizer,
                group.clip,
            )
            for group in optimizers.as_train_op(given).groups
        )
    )


def _inside(name: str, pattern: str) -> str:
    """Return a pattern for the variables of a model inside the whole model.

    The pattern of an array has its full name already.
    """
    prefix = f"{re.escape(name)}/"
    is_array = pattern.startswith(prefix) and pattern.endswith(r"\Z")
    return pattern if is_array else f"{prefix}(?:{pattern})"


@contextmanager
def separate_trace(name: str) -> Iterator[None]:
    """Keep apart what the models record in the trace.

    Summaries get the name of the model. Penalties and losses that a model collects are
    hidden from the next one, which would add them to its own loss.
    """
    trace = staging.current()
    if trace is None:
        yield
        return
    logged, penalties, losses = trace.logged, trace.penalties, trace.losses
    trace.logged, trace.penalties, trace.losses = {}, {}, {}
    try:
        yield
    finally:
        for tag, value in trace.logged.items():
            is_named = tag.endswith(f"/{name}")  # as a named head does
            logged[tag if is_named else f"{name}/{tag}"] = value
        penalties |= trace.penalties
        trace.logged, trace.penalties, trace.losses = logged, penalties, losses
