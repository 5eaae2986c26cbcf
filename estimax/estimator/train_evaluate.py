"""Train, evaluating and exporting along the way."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from estimax import checkpoints
from estimax import hooks as stock
from estimax.core.errors import ConfigError, SpecError
from estimax.estimator import cluster
from estimax.estimator.estimator import Estimator
from estimax.estimator.evaluating import (
    Evaluator,
    EveryFewSteps,
    evaluate_continuously,
)
from estimax.estimator.model_dir import training_in
from estimax.estimator.specs import EvalSpec, TrainSpec

EvalSpecs = EvalSpec | Sequence[EvalSpec] | Mapping[str, EvalSpec]


def train_and_evaluate(
    estimator: Estimator, train_spec: TrainSpec, eval_spec: EvalSpecs
) -> tuple[Any, Any]:
    """Train to `max_steps`, evaluating along the way; returns the last results.

    Training is one call, so the data is never restarted by an evaluation. The result
    is (metrics, exports) of the last evaluation; a run that was already finished is
    evaluated and exported all the same. Several EvalSpecs, in a list or by name in a
    dict, are evaluated in turn, and both results are then dicts by name.

    In a cluster (TF_CONFIG) the chief trains only, an evaluator evaluates what the
    chief saves until it has ended, and the result is (None, None).

    Raises:
      InUseError: Another process or thread is training in the same `model_dir`.
    """
    _check_types(estimator, train_spec, eval_spec)
    config = estimator.config
    if not config.saves_checkpoints:
        raise ConfigError(
            "train_and_evaluate evaluates checkpoints, which the RunConfig switches "
            "off. Set save_checkpoints_steps or save_checkpoints_secs."
        )
    specs = _named(eval_spec)
    evaluators = [Evaluator(estimator, s, train_spec.max_steps) for s in specs]
    if config.task_type == cluster.EVALUATOR:
        _check_evaluator(config.task_id)
        evaluate_continuously(estimator, evaluators)
        return None, None
    with training_in(config, "train_and_evaluate"):
        if config.cluster_spec and config.task_type != cluster.MASTER:
            _train(estimator, train_spec, [])
            return None, None
        _train(estimator, train_spec, evaluators)
        results = [evaluator.finish() for evaluator in evaluators]
    if isinstance(eval_spec, EvalSpec):
        return results[0]
    names = [str(spec.name) for spec in specs]
    metrics, exports = zip(*results, strict=True)
    return (
        dict(zip(names, metrics, strict=True)),
        dict(zip(names, exports, strict=True)),
    )


def _train(
    estimator: Estimator, spec: TrainSpec, evaluators: Sequence[Evaluator]
) -> None:
    often = [
        EveryFewSteps(evaluator, estimator.config)
        for evaluator in evaluators
        if evaluator.spec.every_steps
    ]
    estimator.train(
        spec.input_fn,
        # First: an early stopping hook sees an evaluation in the step it is made at.
        hooks=[*often, *spec.hooks],
        max_steps=spec.max_steps,
        saving_listeners=[*spec.saving_listeners, *evaluators],
    )
    path = estimator.latest_checkpoint()
    if path is not None and stock.finished(estimator.model_dir) is None:
        step = checkpoints.step_of(path)
        stock.mark_finished(estimator.model_dir, step, "train_and_evaluate has ended")


def _named(given: EvalSpecs) -> list[EvalSpec]:
    """The specs; several have different names, each with a folder of its own."""
    if isinstance(given, EvalSpec):
        return [given]
    if isinstance(given, Mapping):
        given = [dataclasses.replace(s, name=s.name or n) for n, s in given.items()]
    names = [spec.name for spec in given]
    if not names or None in names or len(set(names)) < len(names):
        raise SpecError(
            "train_and_evaluate: several EvalSpecs need different names, got "
            f"{names}. Give EvalSpec(name=…), or a dict by name."
        )
    exporters = [e.name for spec in given for e in spec.every_exporter]
    if len(set(exporters)) < len(exporters):
        raise SpecError(
            "train_and_evaluate: exporters of several EvalSpecs need different names, "
            f"because each has a folder of its name; got {exporters}."
        )
    return list(given)


def _check_evaluator(task_id: int) -> None:
    if task_id > 0:
        raise ConfigError(
            "train_and_evaluate: there is one evaluator, of index 0; this is "
            f"{task_id}."
        )


def _check_types(estimator: Any, train_spec: Any, eval_spec: Any) -> None:
    evals = eval_spec
    if isinstance(eval_spec, Mapping):
        evals = list(eval_spec.values())
    evals = evals if isinstance(evals, list | tuple) else [evals]
    expected: list[tuple[str, Any, type]] = [
        ("estimator", estimator, Estimator),
        ("train_spec", train_spec, TrainSpec),
        *(("eval_spec", spec, EvalSpec) for spec in evals),
    ]
    for name, value, kind in expected:
        if not isinstance(value, kind):
            raise TypeError(
                f"train_and_evaluate: {name} must be {kind.__name__}, got "
                f"{type(value).__name__}."
            )
