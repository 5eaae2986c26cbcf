"""Compile evaluation and export of a run while its first steps are trained.

    hooks = [CompileAhead(estimator, eval_spec)]
    estimator.train(input_fn, hooks)
    estimator.evaluate(eval_spec.input_fn)      # records and compiles nothing

XLA compiles without Python's lock, so the first evaluation begins sooner if there is a
second processor. The functions of the spec are called once more, and they and the
`model_fn` are called in a thread: use it only for functions that allow both, as those
of run files do.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from estimax import export
from estimax.core.spec import ModeKeys
from estimax.estimator import exporting
from estimax.estimator.estimator import Estimator
from estimax.estimator.train_evaluate import EvalSpec
from estimax.hooks import NEVER, Hook, RunContext
from estimax.staging.packing import pack, put

# Larger models are not exported ahead: it takes a copy of the weights, and the disk.
_MOST_BYTES = 64 << 20


class CompileAhead(Hook):
    """Start a thread after the first step, which compiles an evaluation and its export.

    Nothing happens in a cluster, on several devices, in a model that is debugged, and
    for trees and averages, whose programs depend on a checkpoint. The first evaluation
    waits for the thread.
    """

    def __init__(self, estimator: Estimator, spec: EvalSpec) -> None:
        self._estimator = estimator
        self._spec = spec
        self._has_started = False
        self._has_ended = False

    def after_run(self, context: RunContext, values: Any) -> None:
        """Start the thread."""
        config = self._estimator.config
        self._has_started = True
        if config.debug or config.num_worker_replicas > 1:
            return
        if not self._estimator._can_compile_ahead:
            return
        # No daemon: Python cannot end while XLA compiles. A run that ends early waits
        # for the program that is being compiled.
        thread = threading.Thread(target=self._compile, name="estimax-compile")
        thread.start()
        self._estimator._compiling = thread

    def next_step(self, step: int) -> int:
        """Return the first step, once."""
        return NEVER if self._has_started else step + 1

    def end(self, context: RunContext) -> None:
        """Compile no further program."""
        self._has_ended = True

    def _compile(self) -> None:
        # Whatever is wrong with data or model is reported by the evaluation itself.
        with contextlib.suppress(Exception):
            compile_evaluation(self._estimator, self._spec.input_fn)
        exporters: list[Any] = [
            exporter
            for exporter in self._spec.every_exporter
            if hasattr(exporter, "serving_input_receiver_fn")
        ]
        # Exporters of a run file write the same bundle at other times.
        for exporter in exporters[:1]:
            with contextlib.suppress(Exception):
                if not self._has_ended:
                    compile_export(
                        self._estimator,
                        exporter.serving_input_receiver_fn,
                        explain=getattr(exporter, "explain", False),
                    )


def compile_evaluation(estimator: Estimator, input_fn: Callable[..., Any]) -> None:
    """Record and compile the program that evaluates a model on some data."""
    with estimator._open(ModeKeys.EVAL, input_fn) as session:
        if session.feed.first is None or not session.placement.is_one_device:
            return
        program = estimator._program(session)
        batch = put(pack(program.plan.prepare(session.first_batch())))
        step: Any = program.step  # a jitted function, which `Program` does not say
        step.lower(program.shapes, batch).compile()


def compile_export(
    estimator: Estimator,
    receiver_fn: Callable[[], Any] | None,
    *,
    explain: bool = False,
) -> None:
    """Write a bundle of zeros, so that the next export only writes other weights."""
    program, example, parse = estimator._serving_program(receiver_fn)
    forms = program.shapes
    if sum(form.size * form.dtype.itemsize for form in jax.tree.leaves(forms)) > (
        _MOST_BYTES
    ):
        return
    # Made by NumPy: `jnp.zeros` is a program of its own for each shape.
    zeros = jax.tree.map(lambda f: jax.device_put(np.zeros(f.shape, f.dtype)), forms)
    servable = exporting.servable(program, zeros, example, parse, explain=explain)
    with tempfile.TemporaryDirectory(prefix="estimax-export-") as folder:
        export.write_bundle(servable, folder)
