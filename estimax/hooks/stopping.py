"""Hooks that stop training at a step, and one that waits for a step of another run."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from estimax import checkpoints
from estimax.core.errors import ConfigError
from estimax.hooks.hook import NEVER, Hook, RunContext, Values, describe_hook
from estimax.storage.files import Pathish

_log = logging.getLogger("estimax")


class StopAtStepHook(Hook):
    """Stop training after a number of steps, or at a step.

    `train(steps=…)` and `train(max_steps=…)` do the same and are shorter. One hook may
    be used for several `train` calls.

    Args:
      num_steps: Steps to train in each `train` call.
      last_step: Step at which to stop, counted from the start of the model. A call
        that begins at or above it trains no step. Give exactly one of the two.

    Raises:
      ConfigError: Neither or both of `num_steps` and `last_step` are given.

    Example:
      >>> import numpy as np
      >>> import estimax as ex
      >>> data = {"x": np.ones((4, 1))}, np.ones(4)
      >>> hook = ex.hooks.StopAtStepHook(last_step=3)
      >>> model = ex.BaselineRegressor().train(lambda: data, hooks=[hook])
      >>> int(model.get_variable_value("global_step"))
      3
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

    def __repr__(self) -> str:
        return describe_hook(self, num_steps=self._num_steps, last_step=self._last_step)

    def begin(self, context: RunContext) -> None:
        self._target = (
            self._last_step
            if self._last_step is not None
            else context.step + (self._num_steps or 0)
        )
        self._stop_if_reached(context)

    def after_run(self, context: RunContext, values: Values) -> None:
        self._stop_if_reached(context)

    def next_step(self, step: int) -> int:
        return max(step + 1, self._target)

    def _stop_if_reached(self, context: RunContext) -> None:
        if context.step >= self._target:
            context.request_stop()


class GlobalStepWaiterHook(Hook):
    """Delay the first step until another run has saved a checkpoint of a step.

    Use it to start a run from a model that another process is still training. The hook
    polls the folder of that run. Without `checkpoint_dir` it logs a warning and does
    not wait: one process trains a model, so it would wait for itself.

    Args:
      wait_until_step: Step that the other run must have saved; 0 does not wait.
      checkpoint_dir: Folder in which the other run saves checkpoints.
      poll_secs: Seconds between two checks of the folder.
      sleep: Function that waits for a number of seconds; tests pass their own.

    Example:
      >>> import numpy as np
      >>> import estimax as ex
      >>> data = {"x": np.ones((4, 1))}, np.ones(4)
      >>> teacher = ex.BaselineRegressor().train(lambda: data, steps=3)
      >>> hook = ex.hooks.GlobalStepWaiterHook(3, checkpoint_dir=teacher.model_dir)
      >>> model = ex.BaselineRegressor().train(lambda: data, steps=1, hooks=[hook])
      >>> int(model.get_variable_value("global_step"))
      1
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

    def __repr__(self) -> str:
        directory = None if self._directory is None else os.fspath(self._directory)
        return describe_hook(self, self._wait_until_step, checkpoint_dir=directory)

    def after_create_session(self, context: RunContext) -> None:
        if self._wait_until_step <= 0 or context.step >= self._wait_until_step:
            return
        if self._directory is None:
            _log.warning(
                "GlobalStepWaiterHook: there is nothing to wait for within one run; "
                "give checkpoint_dir to wait for another run"
            )
            return
        _log.info("waiting for step %d of %s", self._wait_until_step, self._directory)
        while _latest_step(self._directory) < self._wait_until_step:
            if context.stop_requested:  # by a signal
                return
            self._sleep(self._poll_secs)

    def next_step(self, step: int) -> int:
        return NEVER


def make_stop_at_checkpoint_step_hook(
    estimator: HasModelDir, last_step: int, wait_after_file_check_secs: float = 30
) -> Hook:
    """Make a hook that stops at a step, for the chief and for processes beside it.

    The chief stops at `last_step` and saves a checkpoint. The other processes continue
    until that checkpoint is on disk.

    Args:
      estimator: The Estimator to train; its config says whether this is the chief.
      last_step: Step at which to stop, counted from the start of the model.
      wait_after_file_check_secs: Seconds that other processes wait when the checkpoint
        is not there yet.

    Returns:
      The hook.

    Raises:
      TypeError: `estimator` is not an Estimator.

    Example:
      >>> import numpy as np
      >>> import estimax as ex
      >>> data = {"x": np.ones((4, 1))}, np.ones(4)
      >>> model = ex.BaselineRegressor()
      >>> hook = ex.hooks.make_stop_at_checkpoint_step_hook(model, last_step=3)
      >>> model.train(lambda: data, hooks=[hook]).latest_checkpoint()[-12:]
      'model.ckpt-3'
    """
    if not isinstance(estimator, HasModelDir):
        raise TypeError(
            "make_stop_at_checkpoint_step_hook: estimator must be an Estimator, got "
            f"{type(estimator).__name__}."
        )
    if getattr(estimator.config, "is_chief", True):
        return StopAtStepHook(last_step=last_step)
    return StopAtCheckpointStepHook(
        estimator.model_dir, last_step, wait_after_file_check_secs
    )


@runtime_checkable
class HasModelDir(Protocol):
    """The properties of an Estimator that `make_stop_at_checkpoint_step_hook` reads."""

    @property
    def model_dir(self) -> str:
        """The folder of checkpoints."""

    @property
    def config(self) -> Any:
        """The settings of the run."""


class StopAtCheckpointStepHook(Hook):
    """Stop when a checkpoint of `last_step` or later is on disk.

    `make_stop_at_checkpoint_step_hook` makes it for processes that do not save.
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

    def __repr__(self) -> str:
        return describe_hook(
            self, os.fspath(self._model_dir), last_step=self._last_step
        )

    def after_run(self, context: RunContext, values: Values) -> None:
        if context.step < self._last_step:
            return
        if _latest_step(self._model_dir) >= self._last_step:
            context.request_stop()
        else:
            self._sleep(self._wait)

    def next_step(self, step: int) -> int:
        return max(step + 1, self._last_step)


def _latest_step(model_dir: Pathish) -> int:
    path = checkpoints.latest(model_dir)
    return -1 if path is None else checkpoints.step_of(path)
