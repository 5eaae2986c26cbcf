"""The one place where time passes: steps are run until the data ends or a hook stops.

    state = run(program, state, batches, hooks, context, iterations_per_loop=1)

Between two steps at which a hook wants to be called, up to `iterations_per_loop` steps
run in one compiled call. Nothing waits for the device but a hook that asks for a value.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from estimax.core.packing import Packed
from estimax.core.state import TrainState
from estimax.hooks.hook import Hook, RunContext
from estimax.training.programs import TrainProgram
from estimax.training.steps import Outputs


@dataclass(frozen=True)
class PlacedBatch:
    """A batch on the device, its number of examples, and where the input was after."""

    arrays: Packed
    examples: int
    position: Any  # JSON-able; None where the input has no position


def run(
    program: TrainProgram,
    state: TrainState,
    batches: Iterator[PlacedBatch],
    hooks: Sequence[Hook],
    context: RunContext,
    *,
    iterations_per_loop: int = 1,
    waited: Callable[[], float] = lambda: 0.0,
) -> TrainState:
    """Step until the data ends or a hook asks to stop; returns the last state.

    `waited` tells how many seconds `batches` has kept us waiting so far.
    """
    context.state = state
    for hook in hooks:
        hook.begin(context)
    schedule = _Schedule(hooks, context.step)
    while not context.stop_requested:
        length = schedule.steps_until_due(context.step, iterations_per_loop)
        chunk = list(itertools.islice(batches, length))
        if not chunk:
            break
        due = schedule.due(context.step + len(chunk))
        wanted = [hook.before_run(context) for hook in due]
        state, outputs = _advance(program, state, chunk, iterations_per_loop)
        context.state = state
        context.step += len(chunk)
        context.examples += sum(batch.examples for batch in chunk)
        context.input_state = chunk[-1].position
        context.input_wait = waited()
        context.losses.append((context.step, outputs["loss"]))
        tell(due, wanted, context, outputs)
        schedule.visited(context.step)
    for hook in hooks:
        hook.end(context)
    return state


def tell(
    hooks: Sequence[Hook],
    wanted: Sequence[Sequence[str] | None],
    context: RunContext,
    outputs: Mapping[str, Any],
) -> None:
    """Hand every hook the values that it wanted, fetched from the device only now."""
    fetched = _fetch(outputs, {name for names in wanted for name in names or ()})
    for hook, names in zip(hooks, wanted, strict=True):
        hook.after_run(context, {name: fetched[name] for name in names or ()})


class _Schedule:
    """When each hook wants to be called next."""

    def __init__(self, hooks: Sequence[Hook], step: int) -> None:
        self._hooks = hooks
        self._next = [hook.next_step(step) for hook in hooks]

    def steps_until_due(self, step: int, at_most: int) -> int:
        # Loops end at multiples of their length, whatever step a run began at: a
        # resumed run then runs the same programs on the same steps, to the same bits.
        room = at_most - step % at_most
        # A hook on the clock names the present step: it is called when the loop ends.
        nearest = min((at for at in self._next if at > step), default=step + room)
        return min(room, nearest - step)

    def due(self, step: int) -> list[Hook]:
        return [
            hook for hook, at in zip(self._hooks, self._next, strict=True) if at <= step
        ]

    def visited(self, step: int) -> None:
        """Ask the hooks that were due at this step when they want to be called next."""
        for index, at in enumerate(self._next):
            if at <= step:
                self._next[index] = self._hooks[index].next_step(step)


def _advance(
    program: TrainProgram, state: TrainState, chunk: list[PlacedBatch], full: int
) -> tuple[TrainState, Outputs]:
    """Run the steps of a chunk: in one call if it is a full loop of equal shapes."""
    if len(chunk) == full > 1 and len({batch.arrays.layout for batch in chunk}) == 1:
        return program.multi_step(state, [batch.arrays for batch in chunk])
    outputs: Outputs = {}
    for batch in chunk:
        state, outputs = program.step(state, batch.arrays)
    return state, outputs


def _fetch(outputs: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    if not names:
        return {}
    unknown = names - outputs.keys()
    if unknown:
        raise KeyError(
            f"a hook asked for {sorted(unknown)}, which the model does not log; it "
            f"logs {sorted(outputs)}. Log a value with ex.summary.scalar(name, value)."
        )
    fetched: dict[str, Any] = jax.device_get({name: outputs[name] for name in names})
    return fetched
