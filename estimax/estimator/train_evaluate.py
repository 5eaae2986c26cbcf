"""`train_and_evaluate`: train, and evaluate and export along the way.

    train_spec = ex.TrainSpec(train_input_fn, max_steps=10_000)
    eval_spec = ex.EvalSpec(eval_input_fn, throttle_secs=60)
    metrics, exports = ex.train_and_evaluate(model, train_spec, eval_spec)

In order: the two specs; the function; `Evaluator`, which evaluates checkpoints as they
are saved; `EvaluateEveryFewSteps`, the hook behind `EvalSpec(every_steps=n)`; and the
loop of an evaluator in a process of its own.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from estimax import checkpoints
from estimax import hooks as stock
from estimax.core import display
from estimax.core.errors import (
    CheckpointError,
    ConfigError,
    MissingFileError,
    SpecError,
)
from estimax.core.tracebacks import short_traceback
from estimax.estimator.arguments import check_count, check_input_fn, hooks_of
from estimax.estimator.default_log import shown_by_default
from estimax.estimator.estimator import Estimator
from estimax.estimator.model_dir import training_in
from estimax.estimator.run_config import RunConfig
from estimax.estimator.training_hooks import saver_hook
from estimax.export import Exporter
from estimax.hooks import NEVER, Hook, RunContext, summary
from estimax.parallel import cluster
from estimax.training.signals import unless_interrupted

_log = logging.getLogger("estimax")
_WARN_EVERY_SECONDS = 600.0

Results = tuple[dict[str, Any], list[str | None]]


@dataclass(frozen=True)
class TrainSpec:
    """What `train_and_evaluate` trains on, and up to which step.

    Args:
      input_fn: Function that returns the training data. It may take `mode`, `params`,
        `config` and `input_context`, by name.
      max_steps: Step at which training ends, counted from the start of the model. None
        trains until the data ends or a hook stops training.
      hooks: Hooks for training.
      saving_listeners: `CheckpointSaverListener`s, called around every save.

    Raises:
      TypeError: `input_fn` is not a function, or a hook is not a `Hook`.
      SpecError: `max_steps` is not a whole number above 0.

    Example:
      >>> TrainSpec(input_fn=lambda: None, max_steps=100)
      TrainSpec(<lambda>, max_steps=100)
    """

    input_fn: Callable[..., Any]
    max_steps: int | None = None
    hooks: Sequence[Hook] = ()
    saving_listeners: Sequence[Any] = ()

    def __post_init__(self) -> None:
        check_input_fn(self.input_fn, "TrainSpec: ")
        object.__setattr__(self, "hooks", hooks_of(self.hooks, "TrainSpec: "))
        object.__setattr__(self, "saving_listeners", tuple(self.saving_listeners or ()))
        check_count("TrainSpec: max_steps", self.max_steps)

    def __repr__(self) -> str:
        return _short_repr(self)


@dataclass(frozen=True)
class EvalSpec:
    """What `train_and_evaluate` evaluates on, how often, and what it exports.

    Args:
      input_fn: Function that returns the evaluation data. It may take `mode`, `params`,
        `config` and `input_context`, by name.
      steps: Number of batches to evaluate. None, the default, evaluates all;
        tf.estimator's default is 100.
      name: Name of the evaluation; its results go to `eval_<name>` in the model_dir.
        Several EvalSpecs need different names.
      hooks: Hooks for the evaluation.
      exporters: One exporter or several, called after every evaluation.
      start_delay_secs: Seconds before the first evaluation of an evaluator in a process
        of its own. Has no effect otherwise.
      throttle_secs: A new checkpoint is evaluated if this many seconds have passed
        since the last evaluation began.
      every_steps: Evaluate at multiples of this many steps, independent of checkpoints
        and of `throttle_secs`. The state is evaluated in memory; the processes of a
        cluster save a checkpoint for it. An evaluator in a process of its own evaluates
        every checkpoint instead.

    Raises:
      TypeError: `input_fn` is not a function, `name` is not text, a hook is not a
        `Hook`, or an exporter is not an `Exporter`.
      SpecError: `steps` or `every_steps` is not a whole number above 0, a number of
        seconds is below 0, or two exporters have the same name.

    Example:
      >>> EvalSpec(input_fn=lambda: None, name="holdout", throttle_secs=60)
      EvalSpec(<lambda>, name='holdout', throttle_secs=60)
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
        object.__setattr__(self, "hooks", hooks_of(self.hooks, "EvalSpec: "))
        if self.name is not None and not isinstance(self.name, str):
            raise TypeError(
                f"EvalSpec: name must be text, got {self.name!r}. Results go to "
                "the folder eval_<name>."
            )
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
        """The exporters as a tuple: one, several or none may have been given."""
        given = self.exporters
        if given is None:
            return ()
        return (given,) if isinstance(given, Exporter) else tuple(given)

    def __repr__(self) -> str:
        return _short_repr(self)


def _short_repr(spec: TrainSpec | EvalSpec) -> str:
    """Return a repr of the input_fn's name and the fields that are not the default."""
    shown = [display.format_value(spec.input_fn)]
    for one in dataclasses.fields(spec)[1:]:
        value = getattr(spec, one.name)
        if value != one.default and value != ():
            shown.append(f"{one.name}={display.without_addresses(repr(value))}")
    return f"{type(spec).__name__}({', '.join(shown)})"


EvalSpecs = EvalSpec | Sequence[EvalSpec] | Mapping[str, EvalSpec]


def train_and_evaluate(
    estimator: Estimator, train_spec: TrainSpec, eval_spec: EvalSpecs
) -> tuple[Any, Any]:
    """Train up to `max_steps`, and evaluate and export along the way.

    Checkpoints are evaluated as they are saved, and the last one always is. Training is
    one `train` call: an evaluation does not restart the training data. If the model has
    already reached `max_steps`, it is evaluated and exported without training. After
    Ctrl-C or SIGTERM, the model is saved, but neither evaluated nor exported.

    In a cluster that TF_CONFIG describes, chief and workers only train. An evaluator
    evaluates the checkpoints that they save, until they have ended. In one that
    `RunConfig(cluster=…)` describes by its coordinator, or that JAX detects, process 0
    evaluates while the others wait.

    Args:
      estimator: The Estimator to train.
      train_spec: Training data, last step and hooks.
      eval_spec: Evaluation data, frequency and exporters. For several evaluations a
        list of named EvalSpecs, or a dict of EvalSpecs by name.

    Returns:
      The metrics and the exported paths of the last evaluation, `(metrics, exports)`.
      With several EvalSpecs, both are dicts by the name of the EvalSpec. In a process
      of a cluster that does not evaluate while it trains, `(None, None)`.

    Raises:
      TypeError: An argument has the wrong type.
      ConfigError: The RunConfig saves no checkpoints, or TF_CONFIG makes this process a
        second evaluator.
      SpecError: Several EvalSpecs or their exporters do not have different names.
      InUseError: Another process or thread is training in the same `model_dir`.

    Example:
      >>> import numpy as np
      >>> import estimax as ex
      >>> def input_fn():
      ...     return iter([({"x": np.ones((4, 1))}, np.ones(4))] * 20)
      >>> metrics, _ = ex.train_and_evaluate(
      ...     ex.BaselineRegressor(),
      ...     ex.TrainSpec(input_fn, max_steps=20),
      ...     ex.EvalSpec(input_fn, steps=1),
      ... )
      >>> int(metrics["global_step"]), bool(metrics["loss"] < 0.1)
      (20, True)
    """
    _check_types(estimator, train_spec, eval_spec)
    config = estimator.config
    if not config.saves_checkpoints:
        raise ConfigError(
            "train_and_evaluate evaluates checkpoints, but the RunConfig saves none. "
            "Set save_checkpoints_steps or save_checkpoints_secs."
        )
    specs = _named(eval_spec)
    evaluators = [Evaluator(estimator, s, train_spec.max_steps) for s in specs]
    if config.task_type == cluster.EVALUATOR:
        _check_evaluator(config.task_id)
        with short_traceback(), shown_by_default():
            evaluate_continuously(estimator, evaluators)
        return None, None
    peers = config.connect()
    # Joined before the lock is taken: the others end if it cannot be.
    joined = peers.together() if peers is not None else nullcontext()
    with (
        short_traceback(),
        shown_by_default(),
        joined,
        training_in(config, "train_and_evaluate"),
    ):
        if not _evaluates_here(config):
            _train(estimator, train_spec, specs, [])
            return None, None
        _train(estimator, train_spec, specs, evaluators)
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
    estimator: Estimator,
    spec: TrainSpec,
    eval_specs: Sequence[EvalSpec],
    evaluators: Sequence[Evaluator],
) -> None:
    often: list[Hook]
    if estimator.config.num_worker_replicas > 1:
        often = _saving_to_evaluate(estimator.config, spec, eval_specs)
    else:
        often = [
            EvaluateEveryFewSteps(evaluator, estimator.config)
            for evaluator in evaluators
            if evaluator.spec.every_steps
        ]
    estimator.train(
        spec.input_fn,
        # Before the hooks of the spec: an early stopping hook among them then sees an
        # evaluation at the step of that evaluation.
        hooks=[_Introduction(evaluators), *often, *spec.hooks],
        max_steps=spec.max_steps,
        saving_listeners=[*spec.saving_listeners, *evaluators],
    )
    path = estimator.latest_checkpoint() if estimator.config.is_chief else None
    if path is not None and checkpoints.read_finished(estimator.model_dir) is None:
        step = checkpoints.step_of(path)
        checkpoints.mark_finished(
            estimator.model_dir, step, "train_and_evaluate has ended"
        )


def _saving_to_evaluate(
    config: RunConfig, spec: TrainSpec, eval_specs: Sequence[EvalSpec]
) -> list[Hook]:
    """Return a hook that saves at the multiples of `every_steps` as well, if there are.

    No process of a cluster has the whole state in memory, so checkpoints are evaluated.
    One hook saves them all: the processes write a checkpoint together, and only one at
    a time. A hook of the user that saves is left alone; what it saves is evaluated.
    """
    every = {one.every_steps for one in eval_specs if one.every_steps}
    has_saver = any(isinstance(hook, stock.CheckpointSaverHook) for hook in spec.hooks)
    if not every or has_saver:
        return []
    return [saver_hook(config, also_every_steps=sorted(every))]


def _evaluates_here(config: RunConfig) -> bool:
    """Return whether this process evaluates what it trains.

    TF_CONFIG may name an evaluator, so its chief only trains. Other descriptions of a
    cluster have no such role, and process 0 evaluates.
    """
    if config.cluster_spec:
        return config.task_type == cluster.MASTER
    return config.is_chief


def _named(given: EvalSpecs) -> list[EvalSpec]:
    """Return the specs as a list; raise SpecError if several share a name."""
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
            f"because each writes to a folder of its name; got {exporters}."
        )
    return list(given)


def _check_evaluator(task_id: int) -> None:
    if task_id > 0:
        raise ConfigError(
            "train_and_evaluate: there can be one evaluator only, with index 0; "
            f"TF_CONFIG gives this one index {task_id}."
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
    """Evaluate checkpoints when they have been saved, as often as the spec allows.

    The hook that saves calls `after_save` in the training thread, so training waits
    for the evaluation.
    """

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
        self.training = RunContext(step=0)  # replaced when the training begins
        self.results: Results = ({}, [])

    def after_save(self, step: int, path: str) -> None:
        """Evaluate, unless it is the first checkpoint or within `throttle_secs`.

        With `every_steps`, only processes of a cluster evaluate checkpoints, of those
        steps.
        """
        every = self.spec.every_steps
        if every and (step % every or self._estimator.config.num_worker_replicas == 1):
            return
        if self._first_save:
            self._first_save = False
            if not self.is_missing(step):
                return
        now = self._clock()
        since = None if self._began is None else now - self._began
        if every or since is None or since >= self.spec.throttle_secs:
            self._began = now
            self.during_training(
                lambda: self.evaluate(path, is_final=self.is_last(step))
            )

    def during_training(self, evaluate: Callable[[], None]) -> None:
        """Call a function, unless a signal has arrived or arrives meanwhile.

        Training then ends without an evaluation. When it resumes, the checkpoint is
        evaluated.
        """
        if not self.training.interrupted_by:
            unless_interrupted(self.training, evaluate)

    def finish(self) -> Results:
        """Evaluate the last checkpoint, unless that is done; return the results.

        If it was evaluated before training ended for another reason than `max_steps`,
        the exporters were not told that it is the final one. Then only they are called.
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

    def is_missing(self, step: int) -> bool:
        """Return whether a run was killed between saving `step` and evaluating it."""
        if step == 0:
            return False
        written = summary.read_scalars(self._estimator.eval_dir(self.spec.name))
        return step not in dict(written.get("loss", ()))

    def is_last(self, step: int) -> bool:
        """Return whether training ends at this step."""
        return self._max_steps is not None and step >= self._max_steps

    def evaluate(self, path: str, *, is_final: bool) -> None:
        """Evaluate a checkpoint and call the exporters with the results.

        If the checkpoint is damaged or already removed, evaluate the newest intact one.
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
        """Evaluate the state in memory; save a checkpoint if there are exporters."""
        spec, state, step = self.spec, context.state, context.step
        assert state is not None, "train always has a state"
        if spec.every_exporter:
            arrays = checkpoints.snapshot(
                checkpoints.flatten_state(state), checkpoints.row_counts(state)
            )
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
                # The process that trains has removed the checkpoint since. Continue
                # with its next one.
                _log.warning(
                    "%r exports nothing for step %d: its checkpoint has been removed. "
                    "Save less often, or raise keep_checkpoint_max",
                    exporter.name,
                    self._step,
                )
                export = None
            exports.append(export)
        self.results = (metrics, exports)


class _Introduction(Hook):
    """Tell evaluators the context of the training, in which signals are noted.

    Evaluators are listeners of the hook that saves, and listeners get no context.
    `eval_specs` tells an Estimator that stops early by itself what is evaluated.
    """

    def __init__(self, evaluators: Sequence[Evaluator]) -> None:
        self._evaluators = evaluators
        self.eval_specs = [evaluator.spec for evaluator in evaluators]

    def begin(self, context: RunContext) -> None:
        for evaluator in self._evaluators:
            evaluator.training = context

    def next_step(self, step: int) -> int:
        return NEVER


class EvaluateEveryFewSteps(Hook):
    """Evaluate at multiples of `spec.every_steps`, independent of checkpoints."""

    def __init__(self, evaluator: Evaluator, config: Any) -> None:
        self._evaluator = evaluator
        self._every = int(evaluator.spec.every_steps or 1)
        self._config = config
        self._saver: checkpoints.Saver | None = None

    def begin(self, context: RunContext) -> None:
        self._saver = checkpoints.Saver(
            self._config.model_dir,
            keep_max=self._config.keep_checkpoint_max,
            keep_every_n_hours=self._config.keep_checkpoint_every_n_hours,
        )

    def after_create_session(self, context: RunContext) -> None:
        """Evaluate the restored step, if the last run was killed before it did."""
        step = context.step
        if step % self._every == 0 and self._evaluator.is_missing(step):
            self._evaluate(context)

    def after_run(self, context: RunContext, values: Any) -> None:
        if context.step % self._every == 0:
            self._evaluate(context)

    def _evaluate(self, context: RunContext) -> None:
        saver = self._saver
        assert saver is not None, "a hook must begin before it runs"
        self._evaluator.during_training(
            lambda: self._evaluator.evaluate_live(context, saver)
        )

    def end(self, context: RunContext) -> None:
        assert self._saver is not None, "end without begin"
        self._saver.close()

    def next_step(self, step: int) -> int:
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
        # Read the mark before listing the folder. In the other order, a checkpoint
        # saved between the two would be missed.
        end = checkpoints.read_finished(estimator.model_dir)
        path = estimator.latest_checkpoint()
        if path is None and (warned is None or began - warned >= _WARN_EVERY_SECONDS):
            _log.warning("no checkpoint in %s yet", estimator.model_dir)
            warned = began
        if path is not None:
            step = checkpoints.step_of(path)
            if evaluators[0].is_last(step) or end is not None:
                # The chief marks the end after it has saved, so the last checkpoint
                # may have been evaluated already, but not as the final one.
                for evaluator in evaluators:
                    evaluator.finish()
                return
            if path != seen:
                for evaluator in evaluators:
                    evaluator.evaluate(path, is_final=False)
                seen = path
        sleep(max(0.0, throttle - (clock() - began)))
