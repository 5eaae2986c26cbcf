"""The one place where time passes: steps are run until the data ends or a hook stops.

    state = run(program, state, loops, hooks, context)

Batches come alone or stacked. Those of a stack run in one compiled call, or in several
where a hook wants to be called in between. Nothing waits for the device but a hook that
asks for a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import jax

from estimax.core.state import TrainState
from estimax.feeding import BatchStack
from estimax.hooks.hook import NEVER, Hook, RunContext
from estimax.training.programs import TrainProgram
from estimax.training.signals import WaitingEnded


def run(
    program: TrainProgram,
    state: TrainState,
    loops: Iterator[BatchStack],
    hooks: Sequence[Hook],
    context: RunContext,
    *,
    waited: Callable[[], float] = lambda: 0.0,
) -> TrainState:
    """Step until the data ends or a hook asks to stop; returns the last state.

    `waited` tells how many seconds `loops` has kept us waiting so far.
    """
    context.state = state
    begin(hooks, context)
    schedule = _Schedule(hooks, context.step)
    loop, at = None, 0
    while not context.stop_requested:
        if loop is None or at == len(loop):
            loop, at = _next_loop(loops, context), 0
        if loop is None:
            break
        stop = min(len(loop), at + schedule.steps_until_due(context.step))
        due = schedule.due(context.step + stop - at)
        try:
            wanted = [hook.before_run(context) for hook in due]
        except StopIteration:  # a hook's other way of asking to stop
            break
        state, outputs = _advance(program, state, loop, at, stop, _names(wanted))
        context.state = state
        context.step += stop - at
        context.examples += sum(loop.examples[at:stop])
        context.input_state = loop.positions[stop - 1]
        context.input_wait = waited()
        context.losses.append((context.step, outputs["loss"]))
        context.fetcher = partial(
            _fetch_now, program, context, outputs, loop.batch(stop - 1)
        )
        at = stop
        try:
            tell(due, wanted, context, outputs)
        except StopIteration:
            break
        schedule.visited(context.step)
    for hook in hooks:
        hook.end(context)
    # It knows the context, which knows it: nobody else would free the last state.
    context.fetcher = None
    return state


def _next_loop(loops: Iterator[BatchStack], context: RunContext) -> BatchStack | None:
    """The next batches; None at the end of the data, or if a signal came instead."""
    try:
        context.is_waiting = True
        try:
            return next(loops, None)
        finally:
            context.is_waiting = False
    except WaitingEnded:  # outside, as it may come at any point of the above
        return None


def _advance(
    program: TrainProgram,
    state: TrainState,
    loop: BatchStack,
    start: int,
    stop: int,
    names: set[str],
) -> tuple[TrainState, Mapping[str, Any]]:
    """Run some batches of a loop; returns what the last step tells, and is asked."""
    seen: Mapping[str, Any] = {}
    if not program.observed.isdisjoint(names):
        if stop - start > 1:  # up to the step that is looked at
            state, _ = program.loop(state, loop.arrays, start, stop - 1)
            start = stop - 1
        seen = program.observe(state, *loop.batch(stop - 1))
    if loop.is_stack:
        state, outputs = program.loop(state, loop.arrays, start, stop)
    else:
        state, outputs = program.step(state, loop.arrays)
    return state, {**outputs, **seen} if seen else outputs


def _fetch_now(
    program: TrainProgram,
    context: RunContext,
    outputs: Mapping[str, Any],
    batch: tuple[Any, ...],
    names: Sequence[str],
) -> dict[str, Any]:
    """What the last step told; what the model says of its batch, computed anew."""
    wanted = set(names)
    if not program.observed.isdisjoint(wanted):
        outputs = {**outputs, **program.observe(context.state, *batch)}
    return _fetch(outputs, wanted, context)


def begin(hooks: Sequence[Hook], context: RunContext) -> None:
    """Let every hook begin, and then do what needs that all have."""
    for hook in hooks:
        hook.begin(context)
    for hook in hooks:
        hook.after_create_session(context)


def tell(
    hooks: Sequence[Hook],
    wanted: Sequence[Sequence[str] | None],
    context: RunContext,
    outputs: Mapping[str, Any],
) -> None:
    """Hand every hook the values that it wanted, fetched from the device only now."""
    fetched = _fetch(outputs, _names(wanted), context)
    for hook, names in zip(hooks, wanted, strict=True):
        hook.after_run(context, {name: fetched[name] for name in names or ()})


class _Schedule:
    """When each hook wants to be called next."""

    def __init__(self, hooks: Sequence[Hook], step: int) -> None:
        self._hooks = hooks
        self._next = [hook.next_step(step) for hook in hooks]

    def steps_until_due(self, step: int) -> int:
        # A hook on the clock names the present step: it is called when the loop ends.
        return min((at for at in self._next if at > step), default=NEVER) - step

    def due(self, step: int) -> list[Hook]:
        return [
            hook for hook, at in zip(self._hooks, self._next, strict=True) if at <= step
        ]

    def visited(self, step: int) -> None:
        """Ask the hooks that were due at this step when they want to be called next."""
        for index, at in enumerate(self._next):
            if at <= step:
                self._next[index] = self._hooks[index].next_step(step)


def _names(wanted: Sequence[Sequence[str] | None]) -> set[str]:
    return {name for names in wanted for name in names or ()}


def _fetch(
    outputs: Mapping[str, Any], names: set[str], context: RunContext
) -> dict[str, Any]:
    if not names:
        return {}
    known = outputs
    if not names <= known.keys() and isinstance(context.state, TrainState):
        known = {**context.state.params, **context.state.tables, **outputs}
    unknown = names - known.keys()
    if unknown:
        logged = sorted({*outputs, *context.logged})
        raise KeyError(
            f"a hook asked for {sorted(unknown)}, which the model does not log; it "
            f"logs {logged}. Name a value with ex.log_value(name, value)."
        )
    texts = {n: known[n] for n in names if isinstance(known[n], str)}
    arrays = {n: known[n] for n in names if n not in texts}
    return {**jax.device_get(arrays), **texts}
