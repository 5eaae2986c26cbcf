"""Compiled functions, each with the plan of the host work that feeds it.

    program = train_program(model, raw_batch)
    batch = pack(program.plan.prepare(raw_batch))     # in the input thread
    state, outputs = program.step(state, batch)

A program belongs to one model, mode and structure of input; whoever holds on to it
compiles nothing twice.
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
from estimax.training.updates import Training


@dataclass(frozen=True)
class TrainProgram:
    """Initialise and train: all functions are compiled, the state is donated."""

    plan: Plan
    spec: EstimatorSpec
    training: Training
    logged: dict[str, str]  # name of every value that the model logs -> its kind
    init: Callable[[jax.Array, Packed], TrainState]
    form: Callable[[jax.Array, Packed], TrainState]  # shapes of what `init` makes
    step: steps.TrainStep  # (state, batch)
    loop: steps.TrainLoop  # (state, stack of batches, start, stop)
    observe: observing.Observe  # (state, batch, or a stack of them and a place)
    observed: frozenset[str]  # the names of what it tells


@dataclass(frozen=True)
class EvalProgram:
    """Evaluate: metric values of a batch, and two batches' values as one."""

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
    """Predict: the recording is kept, because an export writes its transforms."""

    plan: Plan
    recording: Recording
    step: Callable[[Variables, Packed], Any]


def train_program(
    model: Model, batch: RawBatch, average_decay: float | None = None
) -> TrainProgram:
    """Record a model on its first batch and build its training functions."""
    recording = model.record(batch)
    training = Training.from_recording(model, recording, average_decay)
    step = _unpacking(steps.make_train_step(training))
    init = jax.jit(_unpacking(steps.make_init(training)))
    # A debugger wants numbers, and shapes alone come from a trace without any.
    form = init if model.eager else functools.partial(jax.eval_shape, init)
    rates = _rate_names(training, form, batch)
    logged = {**recording.logged, **dict.fromkeys(rates, "scalar")}
    return TrainProgram(
        plan=training.plan,
        spec=recording.spec,
        training=training,
        logged=logged,
        init=init,
        form=form,
        # Donated: the old state's memory becomes the new one's. Hooks copy what they
        # keep.
        step=jax.jit(step, donate_argnums=0),
        loop=jax.jit(steps.make_loop(step), donate_argnums=0),
        observe=observing.observe_training(training, recording.texts),
        observed=observing.observed_names(logged),
    )


def checked(program: TrainProgram) -> TrainProgram:
    """The same, with steps that look at themselves and tell what first goes wrong.

    Only steps that run one by one do: `loop` stays as it was.
    """
    return replace(program, step=nonfinite.checked_step(program.training))


def _rate_names(training: Training, form: Any, batch: RawBatch) -> list[str]:
    """The names of the learning rates; optax's are known by what its state keeps."""
    arrays = pack(training.plan.prepare(batch))
    state = form(jax.random.key(0), arrays)
    return list(jax.eval_shape(lambda s: observing.learning_rates(training, s), state))


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
    """The same function, of a batch that came to the device as a few buffers."""

    def call(first: Any, batch: Packed) -> Any:
        return function(first, unpack(batch))

    return call
