"""Train, evaluating and exporting along the way."""

from __future__ import annotations

import dataclasses
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from estimax import checkpoints, summary
from estimax import hooks as stock
from estimax.core.errors import (
    CheckpointError,
    ConfigError,
    MissingFileError,
    SpecError,
)
from estimax.estimator import cluster
from estimax.estimator.calling import check_count, check_input_fn, checked_hooks
from estimax.estimator.estimator import Estimator
from estimax.estimator.model_dir import training_in
from estimax.export import Exporter
from estimax.hooks import Hook, RunContext

_log = logging.getLogger("estimax")
_WARN_EVERY_SECONDS = 600.0

Results = tuple[dict[str, Any], list[str | None]]


@dataclass(frozen=True)
class TrainSpec:
    """Training's part: the input, the step to reach, and hooks.

    >>> TrainSpec(input_fn=lambda: None, max_steps=100).max_steps
    100
    """

    input_fn: Callable[..., Any]
    max_steps: int | None = None
    hooks: Sequence[Hook] = ()
    saving_listeners: Sequence[Any] = ()

    def __post_init__(self) -> None:
        check_input_fn(self.input_fn, "TrainSpec: ")
        object.__setattr__(self, "hooks", checked_hooks(self.hooks, "TrainSpec: "))
        object.__setattr__(self, "saving_listeners", tuple(self.saving_listeners or ()))
        check_count("TrainSpec: max_steps", self.max_steps)


@dataclass(frozen=True)
class EvalSpec:
    """Evaluation's part: the input, how much of it, how often, and exporters.

    `steps` None evaluates the whole input (tf.estimator's default of 100 batches
    evaluated a part of it in silence). An evaluation follows a checkpoint if
    `throttle_secs` have passed since the last one began. With `every_steps` n it takes
    place at every multiple of n instead, whenever checkpoints are saved.
    `start_delay_secs` is how long an evaluator in a process of its own waits at first.

    >>> EvalSpec(input_fn=lambda: None, name="holdout").steps is None
    True
    """

    input_fn: Callable[..., Any]
    steps: int | None = None
    name: str | None = None
    hooks: Sequence[Hook] = ()
    exporters: Exporter | Iterable[Exporter] | None = None
    start_delay_secs: float = 120
    throttle_secs: float = 600
    every_steps: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_input_fn(self.input_fn, "EvalSpec: ")
        object.__setattr__(self, "hooks", checked_hooks(self.hooks, "EvalSpec: "))
        check_count("EvalSpec: steps", self.steps)
        check_count("EvalSpec: every_steps", self.every_steps)
        if self.throttle_secs < 0 or self.start_delay_secs < 0:
            raise SpecError(
                "EvalSpec: throttle_secs and start_delay_secs must be >= 0."
            )
        object.__setattr__(self, "exporters", self.every_exporter)
        for exporter in self.every_exporter:
            if not isinstance(exporter, Exporter):
                raise TypeError(
                    "EvalSpec: exporters must be Exporters, got "
                    f"{type(exporter).__name__}."
                )
        names = [exporter.name for exporter in self.every_exporter]
        if len(set(names)) < len(names) or not all(names):
            raise SpecError(f"EvalSpec: exporters need distinct names, got {names}.")

    @property
    def every_exporter(self) -> tuple[Exporter, ...]:
        """The exporters as a tuple, however they were given."""
        given = self.exporters
        if given is None:
            return ()
        return (given,) if isinstance(given, Exporter) else tuple(given)


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
    if path is not None and checkpoints.finished(estimator.model_dir) is None:
        step = checkpoints.step_of(path)
        checkpoints.mark_finished(
            estimator.model_dir, step, "train_and_evaluate has ended"
        )


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
        self.spec = spec
        self._max_steps = max_steps
        self._clock = clock
        self._first_save = True
        self._began: float | None = None
        self._step: int | None = None
        self._was_final = False
        self.results: Results = ({}, [])

    def after_save(self, step: int, path: str) -> None:
        """Evaluate, unless this is the starting checkpoint or it is too soon."""
        if self.spec.every_steps:
            return
        if self._first_save:
            self._first_save = False
            if not self.is_owed(step):
                return
        now = self._clock()
        if self._began is None or now - self._began >= self.spec.throttle_secs:
            self._began = now
            self.evaluate(path, is_final=self.is_last(step))

    def finish(self) -> Results:
        """Evaluate the last checkpoint, unless that is done; return the results.

        If it was done before anybody knew that it was the last, only exporters are
        told now.
        """
        path = self._estimator.latest_checkpoint()
        if path is not None and self._step != checkpoints.step_of(path):
            self.evaluate(path, is_final=True)
        elif path is not None and not self._was_final:
            metrics, before = self.results
            self._take(metrics, is_final=True)
            now = self.results[1]
            exports = [b if a is None else a for a, b in zip(now, before, strict=True)]
            self.results = (metrics, exports)
        return self.results

    def is_owed(self, step: int) -> bool:
        """Whether a run was killed between a save and its evaluation."""
        if step == 0:
            return False
        written = summary.read_scalars(self._estimator.eval_dir(self.spec.name))
        return step not in dict(written.get("loss", ()))

    def is_last(self, step: int) -> bool:
        """Whether training has come to its end with this step."""
        return self._max_steps is not None and step >= self._max_steps

    def evaluate(self, path: str, *, is_final: bool) -> None:
        """Evaluate a checkpoint and hand the results to the exporters.

        One that is damaged or already gone is passed over for the newest sound one.
        """
        spec = self.spec
        run: dict[str, Any] = {"steps": spec.steps, "name": spec.name}
        run |= {"input_fn": spec.input_fn, "hooks": spec.hooks}
        try:
            metrics = self._estimator.evaluate(**run, checkpoint_path=path)
        except (CheckpointError, MissingFileError) as error:
            _log.warning("cannot evaluate %s: %s", path, error)
            metrics = self._estimator.evaluate(**run)
        self._take(metrics, is_final=is_final)

    def evaluate_live(self, context: RunContext, saver: checkpoints.Saver) -> None:
        """Evaluate the training under way; exporters get a checkpoint of it."""
        spec, state, step = self.spec, context.state, context.step
        assert state is not None, "a training has a state"
        if spec.every_exporter:
            arrays = checkpoints.snapshot(checkpoints.flatten_state(state))
            bad = checkpoints.first_nan(arrays)
            if bad is not None:
                _log.warning("no evaluation at step %d: %s holds NaN", step, bad)
                return
            saver.save(step, arrays, {"input": context.input_state})
            saver.wait()
        metrics = self._estimator.evaluate_state(
            state, spec.input_fn, spec.steps, spec.hooks, spec.name
        )
        self._take(metrics, is_final=self.is_last(step))

    def _take(self, metrics: dict[str, Any], *, is_final: bool) -> None:
        self._step = int(metrics["global_step"])
        self._was_final = is_final
        model_dir = self._estimator.model_dir
        path = str(checkpoints.path_of(model_dir, self._step))
        exports = []
        for exporter in self.spec.every_exporter:
            folder = os.path.join(model_dir, "export", exporter.name)
            try:
                export = exporter.export(
                    self._estimator, folder, path, metrics, is_final
                )
            except MissingFileError:
                if os.path.exists(path):
                    raise
                # The training elsewhere is ahead of us; its next checkpoint will do.
                _log.warning(
                    "%r exports nothing of step %d: its checkpoint is gone. Save less "
                    "often, or raise keep_checkpoint_max",
                    exporter.name,
                    self._step,
                )
                export = None
            exports.append(export)
        self.results = (metrics, exports)


class EveryFewSteps(Hook):
    """Evaluates at every multiple of `spec.every_steps`, whatever is saved when."""

    def __init__(self, evaluator: Evaluator, config: Any) -> None:
        self._evaluator = evaluator
        self._every = int(evaluator.spec.every_steps or 1)
        self._config = config
        self._saver: checkpoints.Saver | None = None

    def begin(self, context: RunContext) -> None:
        """Be ready to save what is to be exported."""
        self._saver = checkpoints.Saver(
            self._config.model_dir,
            keep_max=self._config.keep_checkpoint_max,
            keep_every_n_hours=self._config.keep_checkpoint_every_n_hours,
        )

    def after_create_session(self, context: RunContext) -> None:
        """Evaluate what a killed run has not."""
        assert self._saver is not None, "a hook must begin first"
        if context.step % self._every == 0 and self._evaluator.is_owed(context.step):
            self._evaluator.evaluate_live(context, self._saver)

    def after_run(self, context: RunContext, values: Any) -> None:
        """Evaluate if it is time."""
        assert self._saver is not None, "a hook must begin before it runs"
        if context.step % self._every == 0:
            self._evaluator.evaluate_live(context, self._saver)

    def end(self, context: RunContext) -> None:
        """Let go of the saver's thread."""
        assert self._saver is not None, "end without begin"
        self._saver.close()

    def next_step(self, step: int) -> int:
        """The next multiple."""
        return (step // self._every + 1) * self._every


def evaluate_continuously(
    estimator: Estimator,
    evaluators: Sequence[Evaluator],
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Evaluate checkpoints that another process saves, until its training has ended."""
    specs = [evaluator.spec for evaluator in evaluators]
    throttle = min(spec.throttle_secs for spec in specs)
    sleep(min(spec.start_delay_secs for spec in specs))
    seen: str | None = None
    warned: float | None = None
    while True:
        began = clock()
        # Asked before the folder is listed: no checkpoint can follow the mark.
        end = checkpoints.finished(estimator.model_dir)
        path = estimator.latest_checkpoint()
        if path is None and (warned is None or began - warned >= _WARN_EVERY_SECONDS):
            _log.warning("no checkpoint in %s yet", estimator.model_dir)
            warned = began
        if path is not None:
            step = checkpoints.step_of(path)
            is_last = evaluators[0].is_last(step) or end is not None
            if path != seen:
                for evaluator in evaluators:
                    evaluator.evaluate(path, is_final=is_last)
                seen = path
            if is_last:
                return
        sleep(max(0.0, throttle - (clock() - began)))
