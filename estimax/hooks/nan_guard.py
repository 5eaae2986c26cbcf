"""Stopping when the loss becomes NaN.

Looking at the loss waits for the device, so it is looked at only now and then. What
must not happen in between cannot: `CheckpointSaverHook` never saves a NaN by itself.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

import jax
import numpy as np

from estimax import checkpoints
from estimax.core.errors import NanLossError
from estimax.hooks.hook import Hook, RunContext, SecondOrStepTimer, Values

_log = logging.getLogger("estimax")


class NanTensorHook(Hook):
    """Raises NanLossError, or warns and stops, when the loss is NaN.

    `loss_tensor` may name another value that the model logs. It is looked at after the
    first step, then every `every_n_steps`. After the last step the variables are
    looked at, so that no run ends well with a NaN in them.

    >>> hook = NanTensorHook(fail_on_nan_loss=False)
    """

    def __init__(
        self,
        loss_tensor: str = "loss",
        fail_on_nan_loss: bool = True,
        *,
        every_n_steps: int = 100,
    ) -> None:
        self._name = loss_tensor
        self._fail = fail_on_nan_loss
        self._timer = SecondOrStepTimer(every_steps=every_n_steps)
        self._last_finite: int | None = None

    def begin(self, context: RunContext) -> None:
        """Start looking from the first step on."""
        self._timer.reset()
        self._last_finite = None

    def before_run(self, context: RunContext) -> Sequence[str] | None:
        """Ask for the loss."""
        return [self._name]

    def after_run(self, context: RunContext, values: Values) -> None:
        """Look at the loss."""
        self._timer.update_last_triggered_step(context.step)
        if math.isnan(float(values[self._name])):
            self._complain(context, f"the {self._name} is NaN")
        else:
            self._last_finite = context.step

    def end(self, context: RunContext) -> None:
        """Look at the variables, if the last step's loss was not seen."""
        if context.state is None or self._timer.last_triggered_step() == context.step:
            return
        variables = {**_named(context.state.params), **_named(context.state.tables)}
        bad = checkpoints.first_nan(variables)
        if bad is not None:
            self._complain(context, f"{bad} holds NaN")

    def next_step(self, step: int) -> int:
        """The step count at which to look next."""
        return self._timer.next_step(step)

    def _complain(self, context: RunContext, what: str) -> None:
        message = f"{what} at step {context.step}{self._since(context)}."
        if self._fail:
            raise NanLossError(
                f"{message} No checkpoint holds it; training again goes on from the "
                "latest one. Try a lower learning rate or gradient clipping, check the "
                'features for NaN, or run with RunConfig(debug="nan").'
            )
        _log.warning("%s Stopping.", message)
        context.request_stop()

    def _since(self, context: RunContext) -> str:
        first = _first_nan_step(context)
        if first is not None and first != context.step:
            return f" (the loss is NaN since step {first})"
        if first is None and self._last_finite is not None:
            return f" (the loss was a number at step {self._last_finite})"
        return ""


def _first_nan_step(context: RunContext) -> int | None:
    """The first of the remembered steps whose loss was NaN."""
    steps = (step for step, loss in context.losses if math.isnan(float(loss)))
    return next(steps, None)


def _named(tree: object) -> dict[str, np.ndarray]:
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): np.asarray(leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }
