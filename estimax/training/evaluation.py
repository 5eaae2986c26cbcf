"""The evaluation loop: metrics merged over all batches.

    results, metrics = evaluate(program, variables, batches, hooks, context, steps=None)

Metrics merge exactly, so their result does not depend on the size or order of batches.
`loss` is the mean over batches, as in tf.estimator.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from estimax.core.errors import InputError
from estimax.hooks import Hook, RunContext
from estimax.hooks.fetching import plain_names
from estimax.metrics import metric
from estimax.staging.batches import PlacedBatch
from estimax.training.loop import begin, call_after_run
from estimax.training.model import Variables
from estimax.training.programs import Program


def evaluate(
    program: Program,
    variables: Variables,
    batches: Iterator[PlacedBatch],
    hooks: Sequence[Hook],
    context: RunContext,
    *,
    steps: int | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the results of up to `steps` batches, and the metrics behind them.

    Examples are counted in `context`. Hooks are called around every batch. They may
    request its "loss" and the values that the model logs with `ex.log_value`.
    """
    losses: list[jax.Array] = []
    merged: dict[str, Any] | None = None
    context.logged = program.logged
    begin(hooks, context)
    for batch in itertools.islice(batches, steps):
        wanted = [hook.before_run(context) for hook in hooks]
        sees = not program.observed.isdisjoint(plain_names(wanted))
        # A forward pass of its own, so that it is run only for a batch that is asked.
        seen = program.observe(variables, batch.arrays) if sees else {}
        result = program.step(variables, batch.arrays)
        # Kept on the device: fetching each loss would wait for each batch.
        losses.append(result["outputs"]["loss"])
        values = result["metrics"]
        merged = values if merged is None else program.merge(merged, values)
        context.examples += batch.examples
        context.outputs = result["outputs"]
        call_after_run(hooks, wanted, context, {**result["outputs"], **seen})
        if context.stop_requested:
            break
    if merged is None:
        raise InputError(
            "evaluate: the input_fn gave no batch. An evaluation of nothing has no "
            "result; check the files and filters of the input."
        )
    # On the host and in float32, so that the mean does not depend on the devices.
    loss = np.mean(np.asarray(jax.device_get(losses), np.float32), dtype=np.float32)
    results = {**metric.compute(merged), "loss": loss}
    for hook in hooks:
        hook.end(context)
    return results, merged
