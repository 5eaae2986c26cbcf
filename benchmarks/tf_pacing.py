"""Pauses a tf.estimator training for a race. Only for TensorFlow's own environment."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from pacing import Pacer


class PacingHook(tf.estimator.SessionRunHook):
    """Calls the pacer at its steps; a session's run has ended when `after_run` runs."""

    def __init__(self, pacer: Pacer) -> None:
        self._pacer = pacer
        self._step = 0

    def before_run(self, run_context: Any) -> Any:
        """Ask for the loss at the end of a lap only."""
        if self._step + 1 < self._pacer.stop_at:
            return None
        losses = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.LOSSES)
        return tf.estimator.SessionRunArgs(losses[-1:])

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Report the lap and wait for the next."""
        self._step += 1
        if self._step < self._pacer.stop_at:
            return
        loss = float(run_values.results[0]) if run_values.results else None
        if not self._pacer.visit(self._step, loss):
            run_context.request_stop()


def versions() -> dict[str, str]:
    """The libraries whose speed is measured."""
    return {"tensorflow": tf.__version__, "numpy": np.__version__}
