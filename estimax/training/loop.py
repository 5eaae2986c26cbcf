"""The training loop: run steps until the data ends or a hook requests a stop.

    state = run(program, state, stacks, hooks, context)

Batches come alone or stacked. The batches of a stack run in one compiled call, or in
several if a hook must be called in between. Steps are dispatched asynchronously: only a
hook that requests a value waits for the device.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import jax
import numpy as np

from estimax.core.errors import ClusterError, SpecError
from estimax.core.state import TrainState
from estimax.hooks import tf_signatures
from estimax.hooks.fetching import STEP_NAMES, RunValues, plain_names
from estimax.hooks.hook import NEVER, Hook, Requested, RunContext
from estimax.staging.batches import BatchStack
from estimax.training.gradients import add_counts
from estimax.training.programs import Program
from estimax.training.signals import unless_interrupted


def run(
    program: Program,
    state: TrainState,
    stacks: Iterator[BatchStack],
    hooks: Sequence[Hook],
    context: RunContext,
    *,
    waited: Callable[[], float] = lambda: 0.0,
) -> TrainState:
    """Train until `stacks` ends or a hook requests a stop; return the last state.

    `waited` returns the seconds that the loop has waited for `stacks` so far.
    """
    context.state = state
    begin(hooks, context)
    schedule = _Schedule(hooks, context.step)
    stack, at = None, 0
    while not context.stop_requested:
        if stack is None or at == len(stack):
            stack, at = _next(stacks, context), 0
        if stack is None:
            break
        context.agreed = stack.agreed
        # A compiled loop runs up to the next step at which a hook is due, and no
        # further: the hook must see the state of that step.
        stop = min(len(stack), at + schedule.steps_until_due(context.step))
        due = schedule.due(context.step + stop - at)
        try:
            due, wanted = _call_before_run(due, context)
        except StopIteration:  # another way for a hook to request a stop
            break
        names = _names_to_observe(program, plain_names(wanted), context)
        with explaining_arrays_of_model():
            state, outputs = _advance(program, state, stack, at, stop, names, context)
        # Set at once: the old state was donated, so its arrays no longer exist.
        context.state = state
        context.step += stop - at
        context.examples += sum(stack.examples[at:stop])
        # The position behind the last batch trained on, not behind the last one read:
        # a checkpoint must not skip the batches that are only prefetched.
        context.input_state = stack.positions[stop - 1]
        context.input_wait = waited()
        context.outputs = outputs
        # Arrays, not numbers: reading one here would wait for the device at every loop.
        context.losses.append((context.step, outputs["loss"]))
        context.fetcher = partial(
            _fetch_now, program, context, outputs, stack.batch(stop - 1)
        )
        at = stop
        try:
            call_after_run(due, wanted, context, outputs)
        except StopIteration:
            break
        schedule.mark_visited(context.step)
    if context.requests is not None:
        agreed = context.requests.interrupted_by
        context.interrupted_by = agreed or context.interrupted_by
    for hook in hooks:
        hook.end(context)
    # Break the reference cycle with the context, which would keep the last state alive.
    context.fetcher = None
    return state


@contextmanager
def explaining_arrays_of_model() -> Iterator[None]:
    """Raise SpecError if an optimizer uses an array of the recorded `model_fn`.

    The array belongs to the trace in which the model was recorded, which has ended.
    """
    try:
        yield
    except jax.errors.UnexpectedTracerError as error:
        raise SpecError(
            "train_op: a schedule, an optax transformation or a function in it uses an "
            "array that the model_fn computed. Only the learning rate of an optimizer "
            "of estimax may be such an array, as in ex.optimizers.SGD(0.1 * 0.99 ** "
            "ex.get_global_step()). Otherwise write a schedule, a function of the "
            "step: optax.sgd(lambda step: 0.1 * 0.99**step)."
        ) from error


def _next(stacks: Iterator[BatchStack], context: RunContext) -> BatchStack | None:
    """Return the next stack; None if there is none, or a signal arrived."""
    if context.requests is not None:
        # A process of a cluster ends with the others, at a step that they agree on.
        with context.peers.awaiting_input() if context.peers else nullcontext():
            return next(stacks, None)
    return unless_interrupted(context, lambda: next(stacks, None))


def _advance(
    program: Program,
    state: TrainState,
    stack: BatchStack,
    start: int,
    stop: int,
    names: frozenset[str],
    context: RunContext,
) -> tuple[TrainState, Mapping[str, Any]]:
    """Run stack[start:stop]; return the state and the outputs of the last step.

    If `names`, values that `observe` computes, are requested, they are computed for the
    last batch from the state before its step, and added to the outputs.
    """
    if context.peers is not None:
        # Noted after the exchanges that precede the step: a process that still waits in
        # one of them has not begun the step, and the others wait for it on the device.
        context.peers.begin_step(context.step + stop - start)
    seen: Mapping[str, Any] = {}
    before: Mapping[str, Any] = {}
    if names:
        if stop - start > 1:  # run up to the observed step
            state, before = program.loop(state, stack.arrays, start, stop - 1)
            start = stop - 1
        # Before the step, which donates this state.
        seen = program.observe(state, *stack.batch(stop - 1), names=names)
    if stack.is_stack:
        state, outputs = program.loop(state, stack.arrays, start, stop)
    else:
        state, outputs = program.step(state, stack.arrays)
    return state, add_counts(before, {**outputs, **seen}) if seen else outputs


def _names_to_observe(
    program: Program, names: Set[str], context: RunContext
) -> frozenset[str]:
    """Return which of the requested values `observe` computes.

    All processes of a cluster compute them together, so they compare the step, and
    compute what any of them requested. A process that requests none does not come here:
    the others then wait in this exchange, and not on the device.
    """
    wanted = program.observed & names
    if not wanted or context.peers is None:
        return wanted
    mine = {"step": context.step, "names": sorted(wanted)}
    # On a mesh, `observe` is a program that all processes must start together.
    found = context.peers.gather("observe", mine)
    if len({one["step"] for one in found}) > 1:
        told = ", ".join(
            f"{context.peers.name_of(i)} at step {one['step']}"
            for i, one in enumerate(found)
        )
        raise ClusterError(
            "hooks of the processes request values that all compute together, but at "
            f"different steps: {told}. Request {', '.join(sorted(wanted))} at the same "
            "steps in all processes, or log them with ex.log_value."
        )
    return frozenset(name for one in found for name in one["names"])


def _fetch_now(
    program: Program,
    context: RunContext,
    outputs: Mapping[str, Any],
    batch: tuple[Any, ...],
    names: Sequence[str],
) -> dict[str, Any]:
    """Return values of the last step; observed values are computed again."""
    wanted = plain_names([names])
    observed = _names_to_observe(program, wanted, context)
    if observed:
        seen = program.observe(context.state, *batch, names=observed)
        outputs = {**outputs, **seen}
    return RunValues.of(names, _fetch(outputs, wanted, context))


def begin(hooks: Sequence[Hook], context: RunContext) -> None:
    """Call `begin` of every hook, then `after_create_session` of every hook."""
    # All are checked before the first begins: `begin` may already write files.
    for hook in hooks:
        tf_signatures.check_hook(hook)
    for hook in hooks:
        tf_signatures.begin(hook, context)
    for hook in hooks:
        tf_signatures.after_create_session(hook, context)


def _call_before_run(
    hooks: Sequence[Hook], context: RunContext
) -> tuple[list[Hook], list[Requested]]:
    """Return the hooks that take part in the coming step, and what they request.

    In a cluster, a hook that raises StopIteration requests a stop, and is left out. The
    others go on: they may save or compute a summary together with other processes.
    """
    due, wanted = [], []
    for hook in hooks:
        try:
            wanted.append(hook.before_run(context))
        except StopIteration:
            if context.requests is None:
                raise
            context.request_stop()
        else:
            due.append(hook)
    return due, wanted


def call_after_run(
    hooks: Sequence[Hook],
    wanted: Sequence[Requested],
    context: RunContext,
    outputs: Mapping[str, Any],
) -> None:
    """Fetch the requested values from the device and call `after_run` of every hook.

    In a cluster, a hook that raises StopIteration requests a stop; the others go on.
    """
    # One transfer for all hooks: each waits for the device.
    fetched = _fetch(outputs, plain_names(wanted), context)
    for hook, names in zip(hooks, wanted, strict=True):
        try:
            hook.after_run(context, RunValues.of(names, fetched))
        except StopIteration:
            if context.requests is None:
                raise
            context.request_stop()


class _Schedule:
    """The step at which each hook is to be called next."""

    def __init__(self, hooks: Sequence[Hook], step: int) -> None:
        self._hooks = hooks
        self._next = [hook.next_step(step) for hook in hooks]

    def steps_until_due(self, step: int) -> int:
        # A hook that acts on elapsed time returns the current step: it is called after
        # every compiled loop and does not shorten one.
        return min((at for at in self._next if at > step), default=NEVER) - step

    def due(self, step: int) -> list[Hook]:
        return [
            hook for hook, at in zip(self._hooks, self._next, strict=True) if at <= step
        ]

    def mark_visited(self, step: int) -> None:
        """Ask the hooks that were due at this step for their next one."""
        for index, at in enumerate(self._next):
            if at <= step:
                self._next[index] = self._hooks[index].next_step(step)


def _fetch(
    outputs: Mapping[str, Any], names: set[str], context: RunContext
) -> dict[str, Any]:
    if not names:
        return {}
    known: Mapping[str, Any] = outputs
    if not names <= known.keys():
        steps = dict.fromkeys(STEP_NAMES, np.int64(context.step))
        variables: Any = {}
        if isinstance(context.state, TrainState):
            variables = _variables(context.state)
        # Looked up one by one: a table of a stack is copied when it is read.
        known = ChainMap(dict(outputs), variables, steps)
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


def _variables(state: TrainState) -> Any:  # a mapping
    """Return the variables by name; tables sharded by row without their padding.

    Those that are sharded over several processes are left out: none has all rows.
    """
    tables: Any = state.tables  # which is never changed
    if not state.row_counts:
        return ChainMap(state.params, tables)
    every = {**state.params, **state.tables}
    for name, rows in state.row_counts:
        table = every.pop(name)
        if table.is_fully_addressable:
            every[name] = np.asarray(table)[:rows]
    return every
