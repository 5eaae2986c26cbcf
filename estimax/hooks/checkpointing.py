"""Saving the state while training goes on.

    CheckpointSaverHook(model_dir, save_steps=1000)

A state that holds a NaN, or whose loss is not finite, is never saved: the last good
checkpoint stays the latest. That holds whatever other hooks do, and at the last step.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from numpy.typing import NDArray

from estimax import checkpoints
from estimax.checkpoints.finished import forget_finished
from estimax.core.errors import ConfigError, SpecError
from estimax.core.state import TrainState
from estimax.hooks.hook import Hook, RunContext, SecondOrStepTimer, Values

_log = logging.getLogger("estimax")


@runtime_checkable
class CheckpointSaverListener(Protocol):
    """Called around every save. Subclass it and override what you need.

    >>> class Copies(CheckpointSaverListener):
    ...     def after_save(self, step, path):
    ...         print(f"step {step} is in {path}")
    >>> Copies().after_save(100, "model.ckpt-100")
    step 100 is in model.ckpt-100
    """

    def begin(self) -> None:
        """Run once, before the first save."""
        return

    def before_save(self, step: int) -> None:
        """Run before a checkpoint is written."""
        return

    def after_save(self, step: int, path: str) -> bool | None:
        """Run when a checkpoint is on disk; return True to stop training."""
        return None

    def end(self, step: int) -> None:
        """Run once, after the last save."""
        return


class CheckpointSaverHook(Hook):
    """Saves the start, every `save_steps` steps or `save_secs` seconds, and the end.

    Writing happens in a thread while training goes on, unless there are listeners:
    they are promised a checkpoint that is on disk, so then every save is waited for.
    A listener that returns True from `after_save` stops training.

    >>> hook = CheckpointSaverHook("/tmp/estimax-doc-saver", save_steps=1000)
    """

    def __init__(
        self,
        checkpoint_dir: str | os.PathLike[str],
        save_secs: float | None = None,
        save_steps: int | None = None,
        listeners: Sequence[CheckpointSaverListener] | None = None,
        *,
        keep_max: int | None = 5,
        keep_every_n_hours: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._timer = SecondOrStepTimer(save_secs, save_steps, clock=clock)
        self._directory = checkpoint_dir
        self._keep = {"keep_max": keep_max, "keep_every_n_hours": keep_every_n_hours}
        self._listeners: list[CheckpointSaverListener] = []
        self.add_listeners(listeners or ())
        self._saver: checkpoints.Saver | None = None

    def add_listeners(self, listeners: Sequence[CheckpointSaverListener]) -> None:
        """Add listeners, each once."""
        for listener in listeners:
            _check_listener(listener)
            if listener not in self._listeners:
                self._listeners.append(listener)

    def begin(self, context: RunContext) -> None:
        """Make ready: what was said of an end of training no longer holds."""
        self._saver = checkpoints.Saver(self._directory, **self._keep)  # type: ignore[arg-type]
        self._timer.reset()
        forget_finished(self._directory)
        for listener in self._listeners:
            listener.begin()

    def after_create_session(self, context: RunContext) -> None:
        """Save the state that training starts from."""
        self._save(context, loss=None)

    def before_run(self, context: RunContext) -> Sequence[str] | None:
        """Ask for the loss when a save may be due."""
        return ["loss"] if self._timer.is_due_next() else None

    def after_run(self, context: RunContext, values: Values) -> None:
        """Save if it is time."""
        if "loss" in values and self._timer.should_trigger_for_step(context.step):
            self._save(context, loss=float(values["loss"]))

    def end(self, context: RunContext) -> None:
        """Save the last state, unless it just was, and wait until it is on disk."""
        if self._timer.last_triggered_step() != context.step:
            self._save(context, loss=_last_loss(context))
        self.close()
        for listener in self._listeners:
            listener.end(context.step)

    def close(self) -> None:
        """Wait until what is being written is on disk; for runs that do not end well.

        >>> CheckpointSaverHook("/tmp/estimax-doc-saver", save_steps=1000).close()
        """
        if self._saver is not None:
            self._saver.close()

    def next_step(self, step: int) -> int:
        """The step count of the next save."""
        return self._timer.next_step(step)

    def _save(self, context: RunContext, *, loss: float | None) -> None:
        assert self._saver is not None, "a hook must begin before it runs"
        state, step = _state_of(context), context.step
        self._timer.update_last_triggered_step(step)
        # First, for memory's sake: two copies of a large state may not fit.
        self._saver.wait()
        arrays = checkpoints.snapshot(checkpoints.flatten_state(state))
        refusal = _refusal(state, arrays, loss)
        if refusal:
            _log.warning("not saving step %d: %s", step, refusal)
            return
        for listener in self._listeners:
            listener.before_save(step)
        path = self._saver.save(step, arrays, {"input": context.input_state})
        if not self._listeners:
            return
        self._saver.wait()
        wants_stop = [one.after_save(step, str(path)) for one in self._listeners]
        if any(wants_stop):
            context.request_stop()


def _check_listener(listener: object) -> None:
    if not isinstance(listener, CheckpointSaverListener):
        raise TypeError(
            "CheckpointSaverHook: listeners must be CheckpointSaverListeners, "
            f"got {type(listener).__name__}."
        )


def _last_loss(context: RunContext) -> float | None:
    return float(context.losses[-1][1]) if context.losses else None


def _state_of(context: RunContext) -> TrainState:
    if context.state is None:
        raise SpecError(
            "CheckpointSaverHook: there is no training state to save here. Use it with "
            "train; evaluate and predict change nothing."
        )
    return context.state


def _refusal(
    state: TrainState, arrays: dict[str, NDArray[Any]], loss: float | None
) -> str | None:
    """Why a state must not become the latest checkpoint, if there is a reason."""
    if loss is not None and not math.isfinite(loss):
        return f"the loss is {loss}"
    # A gradient can be NaN while the loss it came from is finite. Statistics that a
    # model keeps for itself may hold NaN on purpose, so those are not looked at.
    trained = checkpoints.flatten_state(replace(state, model_state={}))
    bad = checkpoints.first_nan({name: arrays[name] for name in trained})
    return None if bad is None else f"{bad} holds NaN"


@runtime_checkable
class EvaluatesStates(Protocol):
    """What the hook needs of an Estimator."""

    def evaluate_state(
        self,
        state: TrainState,
        input_fn: Callable[..., Any],
        steps: int | None = None,
        hooks: Sequence[Hook] | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        """Evaluate variables that are in memory."""


class InMemoryEvaluatorHook(Hook):
    """Evaluates during training without going through the disk.

    Before the first step, every `every_n_iter` steps, and at the end. Results go to
    `estimator.eval_dir(name)` as those of `evaluate` do, and the latest are in
    `results`. An early stopping hook that is to see them goes behind it in the list.

    >>> import estimax as ex
    >>> model = ex.BaselineRegressor(model_dir="/tmp/estimax-doc-in-memory")
    >>> hook = InMemoryEvaluatorHook(model, lambda: None, every_n_iter=500)
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
        self._every = every_n_iter
        self._start = 0
        self._evaluated: int | None = None
        self.results: dict[str, Any] = {}

    def after_create_session(self, context: RunContext) -> None:
        """Evaluate what training starts from."""
        self._start = context.step
        self._evaluate(context)

    def after_run(self, context: RunContext, values: Values) -> None:
        """Evaluate: the loop calls only when it is time."""
        self._evaluate(context)

    def end(self, context: RunContext) -> None:
        """Evaluate the last state, unless it just was."""
        if self._evaluated != context.step:
            self._evaluate(context)

    def next_step(self, step: int) -> int:
        """Every so many steps from the start of this run."""
        done = (step - self._start) // self._every
        return self._start + (done + 1) * self._every

    def _evaluate(self, context: RunContext) -> None:
        if context.state is None:
            raise SpecError("InMemoryEvaluatorHook works in train; here is no state.")
        self._evaluated = context.step
        self.results = self._evaluate_state(context.state)
