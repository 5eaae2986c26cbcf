"""Pauses an estimax training for a race, and what JAX racers tell about themselves."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version

import jax
from pacing import Pacer

import estimax as ex


class PacingHook(ex.hooks.Hook):
    """Calls the pacer at its steps, after waiting for all that was sent to the device.

    The loop dispatches ahead; without waiting, a lap would end before its work did.
    """

    def __init__(self, pacer: Pacer) -> None:
        self._pacer = pacer

    def before_run(self, context: ex.hooks.RunContext) -> Sequence[str]:
        """Ask for the loss, to show that training trains."""
        return ["loss"]

    def after_run(
        self, context: ex.hooks.RunContext, values: ex.hooks.hook.Values
    ) -> None:
        """Report the lap and wait for the next."""
        jax.block_until_ready(context.state)
        if not self._pacer.visit(context.step, float(values["loss"])):
            context.request_stop()

    def next_step(self, step: int) -> int:
        """The end of the lap."""
        return self._pacer.stop_at


def versions() -> dict[str, str]:
    """The libraries whose speed is measured."""
    names = ("estimax", "jax", "jaxlib", "flax", "optax", "numpy")
    return {name: version(name) for name in names}
