"""The prediction loop.

for predictions, forwarded in predict(program, variables, batches, hooks, context): ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from numpy.typing import NDArray

from estimax.core.device_dtypes import Forwarded
from estimax.hooks import Hook, RunContext
from estimax.staging.batches import PlacedBatch
from estimax.training.loop import begin, call_after_run
from estimax.training.model import Variables
from estimax.training.programs import Program


def predict(
    program: Program,
    variables: Variables,
    batches: Iterator[PlacedBatch],
    hooks: Sequence[Hook],
    context: RunContext,
    *,
    debugging: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> Iterator[tuple[Any, Mapping[Forwarded, NDArray[Any]]]]:
    """Yield the predictions of each batch, on the device, and its forwarded features.

    `debugging` is entered around each step only. Around the whole loop it would also
    hold for the code of the caller, which runs between two batches.
    """
    begin(hooks, context)
    for batch in batches:
        wanted = [hook.before_run(context) for hook in hooks]
        with debugging():
            predictions = program.step(variables, batch.arrays)
        call_after_run(hooks, wanted, context, {})
        # Still on the device: the next batch may be dispatched before this one is read.
        yield predictions, batch.forwarded
        if context.stop_requested:
            break
    for hook in hooks:
        hook.end(context)
