"""Stopping at a step."""

from __future__ import annotations

from collections.abc import Sequence

from estimax.core.errors import ConfigError
from estimax.hooks.hook import Hook, RunContext, Values


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
