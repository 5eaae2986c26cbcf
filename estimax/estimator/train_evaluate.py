"""Train, evaluating and exporting along the way."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import Any

from estimax import checkpoints
from estimax import hooks as stock
from estimax.core.errors import ConfigError
from estimax.estimator.estimator import Estimator
from estimax.estimator.specs import EvalSpec, TrainSpec

_log = logging.getLogger("estimax")


def train_and_evaluate(
    estimator: Estimator, train_spec: TrainSpec, eval_spec: EvalSpec
) -> tuple[dict[str, Any], list[str | None]]:
    """Train to `max_steps`, evaluating after checkpoints; returns the last results.

    Training is one call, so the data is never restarted by an evaluation. The result
    is (metrics, exports) of the last evaluation; a run that was already finished is
    evaluated and exported all the same.
    """
    _check_types(estimator, train_spec, eval_spec)
    if not estimator.config.saves_checkpoints:
        raise ConfigError(
            "train_and_evaluate evaluates checkpoints, which the RunConfig switches "
            "off. Set save_checkpoints_steps or save_checkpoints_secs."
        )
    evaluator = Evaluator(estimator, eval_spec, train_spec.max_steps)
    estimator.train(
        train_spec.input_fn,
        hooks=train_spec.hooks,
        max_steps=train_spec.max_steps,
        saving_listeners=(*train_spec.saving_listeners, evaluator),
    )
    return evaluator.finish()


class Evaluator(stock.CheckpointSaverListener):
    """Evaluates a checkpoint when it has been saved, as often as the spec allows."""

    def __init__(
        self,
        estimator: Estimator,
        spec: EvalSpec,
        max_steps: int | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._estimator = estimator
        self._spec = spec
        self._max_steps = max_steps
        self._clock = clock
        self._first_save = True
        self._began: float | None = None
        self._step: int | None = None
        self._results: tuple[dict[str, Any], list[str | None]] = ({}, [])

    def after_save(self, step: int, path: str) -> None:
        """Evaluate, unless this is the starting checkpoint or it is too soon."""
        if self._first_save:
            self._first_save = False
            return
        now = self._clock()
        if self._began is None or now - self._began >= self._spec.throttle_secs:
            self._began = now
            self._evaluate(path, is_final=self._is_last(step))

    def finish(self) -> tuple[dict[str, Any], list[str | None]]:
        """Evaluate the last checkpoint, unless that is done; return the results."""
        path = self._estimator.latest_checkpoint()
        if path is not None and self._step != checkpoints.step_of(path):
            self._evaluate(path, is_final=True)
        return self._results

    def _is_last(self, step: int) -> bool:
        return self._max_steps is not None and step >= self._max_steps

    def _evaluate(self, path: str, *, is_final: bool) -> None:
        spec = self._spec
        metrics = self._estimator.evaluate(
            spec.input_fn,
            steps=spec.steps,
            hooks=spec.hooks,
            checkpoint_path=path,
            name=spec.name,
        )
        self._step = int(metrics["global_step"])
        exports = []
        for exporter in spec.every_exporter:
            folder = os.path.join(self._estimator.model_dir, "export", exporter.name)
            exports.append(
                exporter.export(self._estimator, folder, path, metrics, is_final)
            )
        self._results = (metrics, exports)


def _check_types(estimator: Any, train_spec: Any, eval_spec: Any) -> None:
    expected = (
        ("estimator", estimator, Estimator),
        ("train_spec", train_spec, TrainSpec),
        ("eval_spec", eval_spec, EvalSpec),
    )
    for name, value, kind in expected:
        if not isinstance(value, kind):
            raise TypeError(
                f"train_and_evaluate: {name} must be {kind.__name__}, got "
                f"{type(value).__name__}."
            )
