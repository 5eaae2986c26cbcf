"""Stopping at a step."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from estimax import checkpoints
from estimax.core.errors import ConfigError
from estimax.hooks.hook import NEVER, Hook, RunContext, Values


class StopAtStepHook(Hook):
    """Stops after `num_steps` more steps, or at the step count `last_step`.

    One object may serve several `train` calls: `num_steps` counts from each anew.
    """

    def __init__(
        self, num_steps: int | None = None, last_step: int | None = None
    ) -> None:
        if (num_steps is None) == (last_step is None):
            raise ConfigError(
                "StopAtStepHook: give num_steps (that many more) or last_step (up to "
                f"that many in all); got {num_steps} and {last_step}."
            )
        self._num_steps = num_steps
        self._last_step = last_step
        self._target = 0

    def begin(self, context: RunContext) -> None:
        """Set the target; a run that has reached it stops before its first step."""
        self._target = (
            self._last_step
            if self._last_step is not None
            else context.step + (self._num_steps or 0)
        )
        self._stop_if_reached(context)

    def before_run(self, context: RunContext) -> Sequence[str] | None:
        """Ask for nothing."""
        return None

    def after_run(self, context: RunContext, values: Values) -> None:
        """Stop at the target."""
        self._stop_if_reached(context)

    def next_step(self, step: int) -> int:
        """The target."""
        return max(step + 1, self._target)

    def _stop_if_reached(self, context: RunContext) -> None:
        if context.step >= self._target:
            context.request_stop()


_log = logging.getLogger("estimax")
Pathish = str | os.PathLike[str]


class GlobalStepWaiterHook(Hook):
    """Holds the first step back until a run has reached a step.

    Which run: the one that saves checkpoints in `checkpoint_dir`. Without it there is
    nobody to wait for, because here all processes of one run step together; the hook
    then says so and holds nothing back.

    >>> hook = GlobalStepWaiterHook(1000, checkpoint_dir="/tmp/estimax-doc-teacher")
    """

    def __init__(
        self,
        wait_until_step: int,
        checkpoint_dir: Pathish | None = None,
        *,
        poll_secs: float = 0.5,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._wait_until_step = wait_until_step
        self._directory = checkpoint_dir
        self._poll_secs = poll_secs
        self._sleep = sleep

    def after_create_session(self, context: RunContext) -> None:
        """Wait."""
        if self._wait_until_step <= 0 or context.step >= self._wait_until_step:
            return
        if self._directory is None:
            _log.warning(
                "GlobalStepWaiterHook: processes of one run step together, so there is "
                "nothing to wait for; give checkpoint_dir to wait for another run"
            )
            return
        _log.info("waiting for step %d of %s", self._wait_until_step, self._directory)
        while _latest_step(self._directory) < self._wait_until_step:
            if context.stop_requested:  # by a signal
                return
            self._sleep(self._poll_secs)

    def next_step(self, step: int) -> int:
        """Never again."""
        return NEVER


class StopAtCheckpointStepHook(Hook):
    """Stops when a checkpoint of `last_step` or later is on disk.

    Made by `make_stop_at_checkpoint_step_hook` for processes that do not save.
    """

    def __init__(
        self,
        model_dir: Pathish,
        last_step: int,
        wait_after_file_check_secs: float = 30,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._model_dir = model_dir
        self._last_step = last_step
        self._wait = wait_after_file_check_secs
        self._sleep = sleep

    def before_run(self, context: RunContext) -> Sequence[str] | None:
        """Ask for nothing."""
        return None

    def after_run(self, context: RunContext, values: Values) -> None:
        """From the step on, look for the checkpoint; wait a little if it is late."""
        if context.step < self._last_step:
            return
        if _latest_step(self._model_dir) >= self._last_step:
            context.request_stop()
        else:
            self._sleep(self._wait)

    def next_step(self, step: int) -> int:
        """The last step, then every one until the checkpoint is there."""
        return max(step + 1, self._last_step)


@runtime_checkable
class HasFolder(Protocol):
    """What is needed of an Estimator: its folder and its settings."""

    @property
    def model_dir(self) -> str:
        """The folder of checkpoints."""

    @property
    def config(self) -> Any:
        """The settings of the run."""


def make_stop_at_checkpoint_step_hook(
    estimator: HasFolder, last_step: int, wait_after_file_check_secs: float = 30
) -> Hook:
    """Stop at a step: the chief there, others once its checkpoint is on disk.

    >>> import estimax as ex
    >>> model = ex.BaselineRegressor(model_dir="/tmp/estimax-doc-stopping")
    >>> hook = make_stop_at_checkpoint_step_hook(model, last_step=1000)
    """
    if not isinstance(estimator, HasFolder):
        raise TypeError(
            "make_stop_at_checkpoint_step_hook: estimator must be an Estimator, got "
            f"{type(estimator).__name__}."
        )
    if getattr(estimator.config, "is_chief", True):
        return StopAtStepHook(last_step=last_step)
    return StopAtCheckpointStepHook(
        estimator.model_dir, last_step, wait_after_file_check_secs
    )


def _latest_step(model_dir: Pathish) -> int:
    path = checkpoints.latest(model_dir)
    return -1 if path is None else checkpoints.step_of(path)
