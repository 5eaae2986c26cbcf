"""Metrics folded over a dataset.

    results = evaluate(program, variables, batches, hooks, context, steps=None)

Metric values merge exactly, so neither the size nor the order of batches matters to
them; `loss` is the plain mean over batches, as in tf.estimator.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from estimax.core.errors import InputError
from estimax.feeding import PlacedBatch
from estimax.hooks import Hook, RunContext
from estimax.metrics import metric
from estimax.training.loop import begin, tell
from estimax.training.model import Variables
from estimax.training.programs import EvalProgram


def evaluate(
    program: EvalProgram,
    variables: Variables,
    batches: Iterator[PlacedBatch],
    hooks: Sequence[Hook],
    context: RunContext,
    *,
    steps: int | None = None,
) -> dict[str, Any]:
    """Fold the metrics of up to `steps` batches; the context counts the examples.

    Hooks are called around every batch and may ask for its "loss" and for what the
    model names with `ex.log_value`.
    """
    losses: list[jax.Array] = []
    folded: dict[str, Any] | None = None
    context.logged = program.logged
    begin(hooks, context)
    for batch in itertools.islice(batches, steps):
        wanted = [hook.before_run(context) for hook in hooks]
        asked = {name for names in wanted for name in names or ()}
        sees = not program.observed.isdisjoint(asked)
        seen = program.observe(variables, batch.arrays) if sees else {}
        result = program.step(variables, batch.arrays)
        losses.append(result["outputs"]["loss"])
        values = result["metrics"]
        folded = values if folded is None else program.merge(folded, values)
        context.examples += batch.examples
        tell(hooks, wanted, context, {**result["outputs"], **seen})
        if context.stop_requested:
            break
    if folded is None:
        raise InputError(
            "evaluate: the input_fn gave no batch. An evaluation of nothing has no "
            "result; check the files and filters of the input."
        )
    loss = np.mean(np.asarray(jax.device_get(losses), np.float32), dtype=np.float32)
    results = {**metric.compute(folded), "loss": loss}
    for hook in hooks:
        hook.end(context)
    return results
