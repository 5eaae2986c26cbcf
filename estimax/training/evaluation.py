"""Metrics folded over a dataset.

    results = evaluate(program, variables, batches, steps=None)

Metric values merge exactly, so neither the size nor the order of batches matters to
them; `loss` is the plain mean over batches, as in tf.estimator.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from estimax.core.errors import InputError
from estimax.metrics import collection
from estimax.training.loop import PlacedBatch
from estimax.training.model import Variables
from estimax.training.programs import EvalProgram


def evaluate(
    program: EvalProgram,
    variables: Variables,
    batches: Iterator[PlacedBatch],
    *,
    steps: int | None = None,
) -> tuple[dict[str, Any], int]:
    """Fold the metrics of up to `steps` batches; returns them and the example count."""
    losses: list[jax.Array] = []
    folded: dict[str, Any] | None = None
    examples = 0
    for batch in itertools.islice(batches, steps):
        result = program.step(variables, batch.arrays)
        losses.append(result["loss"])
        values = result["metrics"]
        folded = values if folded is None else program.merge(folded, values)
        examples += batch.examples
    if folded is None:
        raise InputError(
            "evaluate: the input_fn gave no batch. An evaluation of nothing has no "
            "result; check the files and filters of the input."
        )
    loss = np.mean(np.asarray(jax.device_get(losses), np.float32), dtype=np.float32)
    return {**collection.compute(folded), "loss": loss}, examples
