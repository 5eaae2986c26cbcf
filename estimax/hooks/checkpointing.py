"""Hooks that save checkpoints, and that evaluate the state in memory, during training.

    CheckpointSaverHook(model_dir, save_steps=1000)
    InMemoryEvaluatorHook(model, eval_input_fn, every_n_iter=500)

`CheckpointSaverHook` never saves a state that holds a NaN or whose loss is not finite,
so the latest checkpoint is always one to continue from. This does not depend on other
hooks and includes the last step.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from numpy.typing import NDArray

from estimax import checkpoints
from estimax.core.errors import ConfigError, SpecError
from estimax.core.state import TrainState
from estimax.hooks import tf_signatures
from estimax.hooks.hook import (
    Hook,
    RunContext,
    SecondOrStepTimer,
    Values,
    describe_hook,
)
from estimax.parallel.processes import Processes
from estimax.parallel.requests import SAVE

_log = logging.getLogger("estimax")


@runtime_checkable
class CheckpointSaverListener(Protocol):
    """Base class for code that runs before and after every checkpoint is saved.

    Use it to copy, register or evaluate checkpoints. Subclass it, override the methods
    you need, and pass it as `saving_listeners` of `train` or `TrainSpec`, or as
    `listeners` of `CheckpointSaverHook`. Listeners with the arguments of tf.estimator,
    such as `after_save(self, session, global_step_value)`, are called as well.

    Example:
      >>> import numpy as np
      >>> import estimax as ex
      >>> class PrintSaves(ex.hooks.CheckpointSaverListener):
      ...     def after_save(self, step, path):
      ...         print(f"saved {path.split('/')[-1]}")
      >>> data = {"x": np.ones((4, 1))}, np.ones(4)
      >>> model = ex.BaselineRegressor()
      >>> model = model.train(lambda: data, steps=3, saving_listeners=[PrintSaves()])
      saved model.ckpt-0
      saved model.ckpt-3
    """

    def begin(self) -> None:
        """Prepare for a run. Called once, before the first save."""
        return

    def before_save(self, step: int) -> None:
        """Act before a checkpoint is written.

        Args:
          step: Step of the checkpoint.
        """
        return

    def after_save(self, step: int, path: str) -> bool | None:
        """Act when a checkpoint is on disk.

        Args:
          step: Step of the checkpoint.
          path: Folder of the checkpoint.

        Returns:
          True to stop training; None or False to continue.
        """
        return None

    def end(self, step: int) -> None:
        """Finish. Called once, after the last save of a run that ended normally.

        Args:
          step: Step at which training ended.
        """
        return


class CheckpointSaverHook(Hook):
    """Save a checkpoint at the start, at an interval, and at the end of training.

    `train` adds this hook by itself, with the settings of `RunConfig`. Pass one of your
    own to save to another folder or at another interval; it then replaces the default.

    A background thread writes the files while training continues. With listeners,
    training waits for every save, because a listener is called when the checkpoint is
    on disk.

    Args:
      checkpoint_dir: Folder of the checkpoints.
      save_secs: Seconds between two saves.
      save_steps: Steps between two saves. Give exactly one of the two.
      saver: Must be None: what is saved is always the whole state.
      checkpoint_basename: Must be "model.ckpt", the name of every checkpoint.
      scaffold: Must be None: there is no graph to finish.
      listeners: Called before and after every save.
      save_graph_def: Ignored: a checkpoint has no graph.
      also_every_steps: Further intervals in steps. A checkpoint is saved at every
        multiple of each of them as well.
      keep_max: Number of newest checkpoints to keep; 0 or None keeps all.
      keep_every_n_hours: Keep one checkpoint of every so many hours for good, in
        addition to `keep_max`. None keeps no additional ones.
      clock: Function that returns the time in seconds; tests pass their own.

    Raises:
      ConfigError: Neither or both of `save_secs` and `save_steps` are given, an
        interval is not above 0, or `saver`, `checkpoint_basename` or `scaffold` is
        given.
      TypeError: A listener is not a `CheckpointSaverListener`.

    Example:
      >>> import numpy as np
      >>> import estimax as ex
      >>> data = {"x": np.ones((4, 1))}, np.ones(4)
      >>> model = ex.BaselineRegressor()
      >>> hook = ex.hooks.CheckpointSaverHook(model.model_dir, save_steps=2)
      >>> model.train(lambda: data, steps=4, hooks=[hook]).latest_checkpoint()[-12:]
      'model.ckpt-4'
    """

    def __init__(
        self,
        checkpoint_dir: str | os.PathLike[str],
        save_secs: float | None = None,
        save_steps: int | None = None,
        saver: None = None,
        checkpoint_basename: str = "model.ckpt",
        scaffold: None = None,
        listeners: Sequence[CheckpointSaverListener] | None = None,
        save_graph_def: bool = True,
        *,
        also_every_steps: Sequence[int] = (),
        keep_max: int | None = 5,
        keep_every_n_hours: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        _check_saver(saver, checkpoint_basename, scaffold)
        if any(steps < 1 for steps in also_every_steps):
            raise ConfigError(
                "CheckpointSaverHook: also_every_steps must be above 0, got "
                f"{list(also_every_steps)}."
            )
        self._also_every = tuple(also_every_steps)
        self._saved: int | None = None  # the step that was saved last
        self._timer = SecondOrStepTimer(save_secs, save_steps, clock=clock)
        self._directory = checkpoint_dir
        self._keep_max = keep_max
        self._keep_every_n_hours = keep_every_n_hours
        self._listeners: list[CheckpointSaverListener] = []
        self.add_listeners(listeners or ())
        self._saver: checkpoints.Saver | None = None

    def __repr__(self) -> str:
        return describe_hook(
            self,
            os.fspath(self._directory),
            save_secs=self._timer.every_secs,
            save_steps=self._timer.every_steps,
            also_every_steps=self._also_every or None,
            listeners=self._listeners or None,
        )

    @property
    def schedule(self) -> str:
        """When the hook saves; all processes of a cluster must have the same."""
        return describe_hook(
            self,
            save_secs=self._timer.every_secs,
            save_steps=self._timer.every_steps,
            also_every_steps=self._also_every or None,
        )

    def add_listeners(self, listeners: Sequence[CheckpointSaverListener]) -> None:
        """Add listeners; one that was added before is not added again.

        Args:
          listeners: Called before and after every save, after those already added.

        Raises:
          TypeError: A listener is not a `CheckpointSaverListener`.
        """
        for listener in listeners:
            _check_listener(listener)
            if listener not in self._listeners:
                self._listeners.append(listener)

    def begin(self, context: RunContext) -> None:
        self._saver = checkpoints.Saver(
            self._directory,
            keep_max=self._keep_max,
            keep_every_n_hours=self._keep_every_n_hours,
            peers=context.peers,
        )
        self._timer.reset()
        self._saved = None
        if context.peers is None or context.peers.is_chief:
            # An evaluator in another process must not take the mark of the last run
            # for the end of this one.
            checkpoints.forget_finished(self._directory)
        for listener in self._listeners:
            listener.begin()

    def after_create_session(self, context: RunContext) -> None:
        # Before the first step, as in tf.estimator: a run that is killed early resumes
        # with the same initial values. A resumed run finds this checkpoint written.
        self._save(context, loss=None)

    def before_run(self, context: RunContext) -> Sequence[str] | None:
        return ["loss"] if self._timer.is_due_for_all(context, SAVE) else None

    def after_run(self, context: RunContext, values: Values) -> None:
        # Without a loss, `before_run` saw that no save is due. A save needs the loss:
        # one that has become due during the step waits for the next call.
        if "loss" in values and (
            SAVE in context.agreed or self._timer.should_trigger_for_step(context.step)
        ):
            self._save(context, loss=float(values["loss"]))
        elif any(context.step % steps == 0 for steps in self._also_every):
            self._write(context, loss=_last_loss(context))

    def end(self, context: RunContext) -> None:
        # The order matters: the checkpoint is on disk (`close` waits) before listeners
        # hear of the end, because they may read or copy it.
        if self._saved != context.step:
            self._save(context, loss=_last_loss(context))
        self.close()
        for listener in self._listeners:
            tf_signatures.end(listener, context, context.step)

    def close(self) -> None:
        """Wait until the checkpoint being written is on disk, and stop the thread.

        `end` calls it. `train` calls it as well when a run ends with an error.
        """
        if self._saver is not None:
            self._saver.close()

    def next_step(self, step: int) -> int:
        multiples = [(step // steps + 1) * steps for steps in self._also_every]
        return min([self._timer.next_step(step), *multiples])

    def _save(self, context: RunContext, *, loss: float | None) -> None:
        """Save, and count the interval from this step on."""
        self._timer.update_last_triggered_step(context.step)
        self._write(context, loss=loss)

    def _write(self, context: RunContext, *, loss: float | None) -> None:
        assert self._saver is not None, "a hook must begin before it runs"
        state, step = _state_of(context), context.step
        self._saved = step
        # Wait for the last write before copying the state: two host copies of a large
        # state may not fit in memory.
        self._saver.wait()
        # Copy now: the next step is given the memory of these arrays.
        named, counts = checkpoints.flatten_state(state), checkpoints.row_counts(state)
        arrays: Mapping[str, Any]
        if context.peers is None:
            arrays = checkpoints.snapshot(named, counts)
            refusal = _refusal(state, arrays, loss)
        else:
            arrays = checkpoints.local_rows(named, counts)
            refusal = _agree_on_refusal(context.peers, state, arrays, loss)
        if refusal:
            _log.warning("not saving step %d: %s", step, refusal)
            return
        for listener in self._listeners:
            tf_signatures.before_save(listener, context, step)
        path = self._saver.save(step, arrays, {"input": context.input_state})
        # A listener is called when the checkpoint can be read. Without listeners, the
        # write overlaps with the next steps.
        if self._listeners:
            self._saver.wait()
            wants_stop = [
                tf_signatures.after_save(listener, context, step, str(path))
                for listener in self._listeners
            ]
            if any(wants_stop):
                context.request_stop()
        if context.peers is not None:
            # A listener may take long, and only the chief has any. The others wait
            # here and not on the device, where a wait cannot be interrupted.
            context.peers.wait("saved")


def _check_saver(saver: object, basename: str, scaffold: object) -> None:
    if saver is not None or scaffold is not None or basename != "model.ckpt":
        raise ConfigError(
            "CheckpointSaverHook: saver and scaffold must be None and "
            "checkpoint_basename 'model.ckpt': a checkpoint is always the whole state, "
            "in a folder model.ckpt-<step>. Use keep_max to keep more or fewer, and "
            "WarmStartSettings to load a part."
        )


def _check_listener(listener: object) -> None:
    if not isinstance(listener, CheckpointSaverListener):
        raise TypeError(
            "CheckpointSaverHook: listeners must be CheckpointSaverListeners, "
            f"got {type(listener).__name__}."
        )
    tf_signatures.check_listener(listener)


def _last_loss(context: RunContext) -> float | None:
    return float(context.losses[-1][1]) if context.losses else None


def _state_of(context: RunContext) -> TrainState:
    if context.state is None:
        raise SpecError(
            "CheckpointSaverHook: there is no training state to save. Use the hook in "
            "train, not in evaluate or predict."
        )
    return context.state


def _refusal(
    state: TrainState, arrays: Mapping[str, NDArray[Any]], loss: float | None
) -> str | None:
    """Return why a state must not be saved; None if it may."""
    if loss is not None and not math.isfinite(loss):
        return f"the loss is {loss}"
    # A gradient can be NaN although the loss is finite, so look at the variables too.
    # Model state (statistics of the model's own) may hold NaN on purpose: skip it.
    trained = checkpoints.flatten_state(replace(state, model_state={}))
    bad = checkpoints.first_nan({name: arrays[name] for name in trained})
    return None if bad is None else f"{bad} holds NaN"


def _agree_on_refusal(
    peers: Processes, state: TrainState, held: Mapping[str, Any], loss: float | None
) -> str | None:
    """Return why no process must save; each looks at the rows that it holds."""
    if loss is not None and not math.isfinite(loss):
        return f"the loss is {loss}"
    trained = checkpoints.flatten_state(replace(state, model_state={}))
    rows = checkpoints.arrays_in({name: held[name] for name in trained})
    found = peers.gather("nan", checkpoints.first_nan(rows))
    bad = next((name for name in found if name is not None), None)
    return None if bad is None else f"{bad} holds NaN"


class InMemoryEvaluatorHook(Hook):
    """Evaluate the state in memory during training, without writing a checkpoint.

    Use it when evaluation data is small and checkpoints are rare. The hook evaluates
    before the first step, every `every_n_iter` steps, and at the end, unless a signal
    ended training. Results go to
    `estimator.eval_dir(name)`, as those of `evaluate` do, and the latest are in
    `results`. Put an early stopping hook behind this one in the list of hooks; the
    stopping hook then sees each result at the step of its evaluation.

    Args:
      estimator: The Estimator that is being trained.
      input_fn: Function that returns the evaluation data.
      steps: Number of batches to evaluate; None evaluates all.
      hooks: Hooks for the evaluation.
      name: Name of the evaluation, for several of them side by side.
      every_n_iter: Training steps between two evaluations.

    Raises:
      TypeError: `estimator` is not an Estimator.
      ConfigError: `every_n_iter` is not above 0.

    Example:
      >>> import numpy as np
      >>> import estimax as ex
      >>> data = {"x": np.ones((4, 1))}, np.ones(4)
      >>> model = ex.BaselineRegressor()
      >>> input_fn = lambda: data  # the same batch again and again
      >>> hook = ex.hooks.InMemoryEvaluatorHook(model, input_fn, 1, every_n_iter=5)
      >>> model = model.train(input_fn, steps=10, hooks=[hook])
      >>> int(hook.results["global_step"]), bool(hook.results["loss"] < 0.1)
      (10, True)
    """

    def __init__(
        self,
        estimator: EvaluatesStates,
        input_fn: Callable[..., Any],
        steps: int | None = None,
        hooks: Sequence[Hook] | None = None,
        name: str | None = None,
        every_n_iter: int = 100,
    ) -> None:
        if not isinstance(estimator, EvaluatesStates):
            raise TypeError(
                "InMemoryEvaluatorHook: estimator must be an Estimator, got "
                f"{type(estimator).__name__}."
            )
        if every_n_iter <= 0:
            raise ConfigError(
                f"InMemoryEvaluatorHook: every_n_iter must be > 0, got {every_n_iter}."
            )

        def evaluate(state: TrainState) -> dict[str, Any]:
            return estimator.evaluate_state(state, input_fn, steps, hooks, name)

        self._evaluate_state = evaluate
        self._name = name
        self._every = every_n_iter
        self._start = 0
        self._evaluated: int | None = None
        self.results: dict[str, Any] = {}

    def __repr__(self) -> str:
        return describe_hook(self, name=self._name, every_n_iter=self._every)

    def after_create_session(self, context: RunContext) -> None:
        self._start = context.step
        self._evaluate(context)

    def after_run(self, context: RunContext, values: Values) -> None:
        self._evaluate(context)

    def end(self, context: RunContext) -> None:
        if self._evaluated != context.step and not context.interrupted_by:
            self._evaluate(context)

    def next_step(self, step: int) -> int:
        done = (step - self._start) // self._every
        return self._start + (done + 1) * self._every

    def _evaluate(self, context: RunContext) -> None:
        if context.state is None:
            raise SpecError(
                "InMemoryEvaluatorHook: there is no training state to evaluate. Use "
                "the hook in train."
            )
        self._evaluated = context.step
        self.results = self._evaluate_state(context.state)


@runtime_checkable
class EvaluatesStates(Protocol):
    """The method of an Estimator that `InMemoryEvaluatorHook` calls."""

    def evaluate_state(
        self,
        state: TrainState,
        input_fn: Callable[..., Any],
        steps: int | None = None,
        hooks: Sequence[Hook] | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        """Evaluate a training state in memory and return its metrics by name."""
