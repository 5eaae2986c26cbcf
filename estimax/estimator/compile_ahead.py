"""Compile the program of an evaluation while the first steps are trained.

    hooks = [CompileEvaluation(estimator, eval_input_fn)]
    estimator.train(input_fn, hooks)
    estimator.evaluate(eval_input_fn)         # records and compiles nothing

XLA compiles without Python's lock, so the first evaluation begins sooner if there is a
second processor. The `input_fn` is called once more, and it and the `model_fn` are
called in a thread: use it only for functions that allow both, as those of run files do.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

from estimax.core.spec import ModeKeys
from estimax.estimator.estimator import Estimator
from estimax.hooks import NEVER, Hook, RunContext
from estimax.staging.packing import pack, put


class CompileEvaluation(Hook):
    """Start a thread after the first step, which records and compiles an evaluation.

    Nothing happens in a cluster, on several devices, and in a model that is debugged.
    """

    def __init__(self, estimator: Estimator, input_fn: Callable[..., Any]) -> None:
        self._estimator = estimator
        self._input_fn = input_fn
        self._has_started = False

    def after_run(self, context: RunContext, values: Any) -> None:
        """Start the thread."""
        config = self._estimator.config
        self._has_started = True
        if config.debug or config.num_worker_replicas > 1:
            return
        # No daemon: Python cannot end while XLA compiles. A run that ends early waits
        # for this one program.
        threading.Thread(target=self._compile, name="estimax-compile").start()

    def next_step(self, step: int) -> int:
        """Return the first step, once."""
        return NEVER if self._has_started else step + 1

    def _compile(self) -> None:
        # Whatever is wrong with data or model is reported by the evaluation itself.
        with contextlib.suppress(Exception):
            compile_evaluation(self._estimator, self._input_fn)


def compile_evaluation(estimator: Estimator, input_fn: Callable[..., Any]) -> None:
    """Record and compile the program that evaluates a model on some data."""
    with estimator._open(ModeKeys.EVAL, input_fn) as session:
        if session.feed.first is None or not session.placement.is_one_device:
            return
        program = estimator._program(session)
        batch = put(pack(program.plan.prepare(session.first_batch())))
        program.step.lower(program.shapes, batch).compile()
