"""Programs: the compiled functions of a mode, with the host plan that feeds them.

    program = train_program(model, raw_batch)
    batch = pack(program.plan.prepare(raw_batch))     # in the input thread
    state, outputs = program.step(state, batch)

A program belongs to one model, mode and structure of input. The estimator keeps its
programs, so that nothing is compiled twice.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax

from estimax.core.spec import EstimatorSpec
from estimax.core.state import TrainState
from estimax.feeding.packing import Packed, pack, unpack
from estimax.metrics import metric
from estimax.staging.plan import Plan, RawBatch
from estimax.training import nonfinite, observing, steps
from estimax.training.model import Model, Recording, Variables
from estimax.training.updates import UpdatePlan


@dataclass(frozen=True)
class TrainProgram:
    """The compiled functions of training. `step` and `loop` donate the state."""

    plan: Plan
    spec: EstimatorSpec
    updates: UpdatePlan
    logged: dict[str, str]  # name of each logged value -> its kind
    init: Callable[[jax.Array, Packed], TrainState]
    form: Callable[[jax.Array, Packed], TrainState]  # shapes of the result of `init`
    step: steps.TrainStep  # (state, batch)
    loop: steps.TrainLoop  # (state, stack of batches, start, stop)
    observe: observing.Observe  # (state, batch) or (state, stack, place)
    observed: frozenset[str]  # names of the values that `observe` returns
    is_slow_in_loops: bool  # whether `step` is much faster than `loop`


@dataclass(frozen=True)
class EvalProgram:
    """The compiled functions of evaluation: metrics of a batch, and merging them."""

    plan: Plan
    spec: EstimatorSpec
    shapes: Variables
    step: Callable[[Variables, Packed], dict[str, Any]]
    merge: Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]]
    logged: dict[str, str]
    observe: observing.Observe  # (variables, batch)
    observed: frozenset[str]


@dataclass(frozen=True)
class PredictProgram:
    """The compiled function of prediction; an export needs the recording."""

    plan: Plan
    recording: Recording
    step: Callable[[Variables, Packed], Any]


def train_program(
    model: Model, batch: RawBatch, average_decay: float | None = None
) -> TrainProgram:
    """Record a model on its first batch and build its training functions."""
    recording = model.record(batch)
    updates = UpdatePlan.from_recording(model, recording, average_decay)
    step = _unpacking(steps.make_train_step(updates))
    init = jax.jit(_unpacking(steps.make_init(updates)))
    # Tracing for shapes would hand tracers to an eager model.
    form = init if model.eager else functools.partial(jax.eval_shape, init)
    rates = _rate_names(updates, form, batch)
    logged = {**recording.logged, **dict.fromkeys(rates, "scalar")}
    return TrainProgram(
        plan=updates.plan,
        spec=recording.spec,
        updates=updates,
        logged=logged,
        init=init,
        form=form,
        # The state is donated: its memory is reused for the new state. Hooks must copy
        # what they keep.
        step=jax.jit(step, donate_argnums=0),
        loop=jax.jit(steps.make_loop(step), donate_argnums=0),
        observe=observing.observe_training(updates, recording.texts),
        observed=observing.observed_names(logged),
        # XLA has fast convolutions for CPUs only outside of loops: a step of a small
        # network took 13 ms alone and 270 ms in a loop.
        is_slow_in_loops=recording.has_convolutions and jax.default_backend() == "cpu",
    )


def checked(program: TrainProgram) -> TrainProgram:
    """Return the program with a `step` that raises on values that are not finite.

    `loop` is not changed, so run single steps.
    """
    return replace(program, step=nonfinite.checked_step(program.updates))


def _rate_names(updates: UpdatePlan, form: Any, batch: RawBatch) -> list[str]:
    """Return the names of the learning rates that can be read from the state."""
    arrays = pack(updates.plan.prepare(batch))
    state = form(jax.random.key(0), arrays)
    return list(jax.eval_shape(lambda s: observing.learning_rates(updates, s), state))


def eval_program(model: Model, batch: RawBatch) -> EvalProgram:
    """Record a model in EVAL mode and build its evaluation functions."""
    recording = model.record(batch)
    step = steps.make_eval_step(model, recording.structure)
    return EvalProgram(
        plan=recording.plan,
        spec=recording.spec,
        shapes=recording.shapes,
        step=jax.jit(_unpacking(step)),
        merge=jax.jit(metric.merge, donate_argnums=0),
        logged=recording.logged,
        observe=observing.observe_evaluation(
            model, recording.structure, recording.texts
        ),
        observed=observing.observed_names(recording.logged),
    )


def predict_program(model: Model, batch: RawBatch) -> PredictProgram:
    """Record a model in PREDICT mode and build its prediction function."""
    recording = model.record(batch)
    step = steps.make_predict_step(model, recording.structure)
    return PredictProgram(recording.plan, recording, jax.jit(_unpacking(step)))


def _unpacking(function: Callable[[Any, Any], Any]) -> Callable[[Any, Packed], Any]:
    """Return the function for batches that are packed into a few buffers."""

    def call(first: Any, batch: Packed) -> Any:
        return function(first, unpack(batch))

    return call
