"""Programs: the compiled functions of a mode, with the host plan that feeds them.

    program = train_program(model, raw_batch)
    batch = pack(program.plan.prepare(raw_batch))     # in the input thread
    state, outputs = program.step(state, batch)

A program belongs to one model, mode and structure of input. The estimator keeps its
programs, so that nothing is compiled twice.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp

from estimax.core.spec import EstimatorSpec
from estimax.core.state import TrainState
from estimax.feature_columns.transforms import Vocabulary
from estimax.feature_columns.transforms.words import WordList
from estimax.metrics import metric
from estimax.parallel import Placement
from estimax.staging.host_plan import Plan, RawBatch
from estimax.staging.packing import Packed, pack, unpack
from estimax.training import logged_values, nonfinite, steps
from estimax.training.advice import advice_on_tables
from estimax.training.model import Model, Recording, Variables
from estimax.training.table_detection import with_declared_tables
from estimax.training.updates import UpdatePlan

# (tables by name, names of those that cannot be padded) -> where they are on a mesh
Place = Callable[..., Placement]


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
    trace_step: Callable[..., Any]  # (state, batch) -> what JAX traced of the step
    loop: steps.TrainLoop  # (state, stack of batches, start, stop)
    observe: logged_values.Observe  # (state, batch) or (state, stack, place), names=
    observed: frozenset[str]  # names of the values that `observe` returns
    is_slow_in_loops: bool  # whether `step` is much faster than `loop`
    advice: Sequence[str]  # to be logged: how to make steps faster
    graph: Callable[[], bytes] | None  # the model for TensorBoard, a GraphDef
    words: Mapping[str, WordList]  # of tables whose rows stand for words


@dataclass(frozen=True)
class EvalProgram:
    """The compiled functions of evaluation: metrics of a batch, and merging them."""

    plan: Plan
    spec: EstimatorSpec
    shapes: Variables  # as in a checkpoint, without padding
    placement: Placement | None
    step: Callable[[Variables, Packed], dict[str, Any]]
    merge: Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]]
    logged: dict[str, str]
    observe: logged_values.Observe  # (variables, batch)
    observed: frozenset[str]


@dataclass(frozen=True)
class PredictProgram:
    """The compiled function of prediction; an export needs the recording.

    `exported` keeps what an export has lowered, so that the next one writes new weights
    only.
    """

    plan: Plan
    recording: Recording
    placement: Placement | None
    step: Callable[[Variables, Packed], Any]
    exported: dict[Any, Any] = field(default_factory=dict)


def train_program(
    model: Model,
    batch: RawBatch,
    average_decay: float | None = None,
    place: Place | None = None,
) -> TrainProgram:
    """Record a model on its first batch and build its training functions.

    `place` decides where tables are on a mesh; None is for one device.
    """
    model, recording, reads = with_declared_tables(model, model.record(batch), batch)
    model = _placed(model, recording, place)
    updates = UpdatePlan.from_recording(model, recording, average_decay)
    step = _unpacking(steps.make_train_step(updates))
    init = jax.jit(_unpacking(steps.make_init(updates)), compiler_options=_run_once())
    # Tracing for shapes would hand tracers to an eager model.
    form = init if model.eager else functools.partial(jax.eval_shape, init)
    if model.placement is not None:
        form = _with_shardings(model.placement, form)
    # The state is donated: its memory is reused for the new state. Hooks must copy
    # what they keep.
    compiled = model.compiled(step, donate_argnums=0)
    rates = _rate_names(updates, form, batch)
    norms = logged_values.norm_names(updates)
    logged = {
        **recording.logged,
        **dict.fromkeys(rates, "scalar"),
        **dict.fromkeys(norms, "norm"),
    }
    return TrainProgram(
        plan=updates.plan,
        spec=recording.spec,
        updates=updates,
        logged=logged,
        init=init,
        form=form,
        step=compiled,
        trace_step=compiled.trace,
        loop=model.compiled(steps.make_loop(step), donate_argnums=0),
        observe=logged_values.observe_training(
            updates, recording.texts, frozenset(norms)
        ),
        observed=logged_values.observed_names(logged),
        # XLA has fast convolutions for CPUs only outside of loops: a step of a small
        # network took 13 ms alone and 270 ms in a loop.
        is_slow_in_loops=recording.has_convolutions and _on_cpu(),
        advice=advice_on_tables(updates, recording, reads),
        graph=recording.graph,
        words=_words(recording),
    )


def _words(recording: Recording) -> dict[str, WordList]:
    """Return the vocabularies of the tables that have one."""
    found = {}
    for use in recording.lookups:
        source = getattr(use.call and use.call.transform, "source", None)
        if isinstance(source, Vocabulary):
            found[use.table] = source.words
    return found


def checked(program: TrainProgram) -> TrainProgram:
    """Return the program with a `step` that raises on values that are not finite.

    `loop` is not changed, so run single steps.
    """
    return replace(program, step=nonfinite.checked_step(program.updates))


def _run_once() -> dict[str, int] | None:
    """Return compiler options for a program that runs once per training.

    With fewer optimizations, the initial values of a wide-and-deep model take 1.2 s of
    CPU time to compile instead of 1.8 s. They are the same values, and large tables
    take as long to fill as before.
    """
    return {"xla_backend_optimization_level": 1} if _on_cpu() else None


def _on_cpu() -> bool:
    return jax.default_backend() == "cpu"


def _rate_names(updates: UpdatePlan, form: Any, batch: RawBatch) -> list[str]:
    """Return the names of the learning rates that can be read from the state."""
    arrays = pack(updates.plan.prepare(batch))
    state = form(jax.random.key(0), arrays)
    # Rates that the model computes are not needed for the names.
    computed = dict.fromkeys(updates.train_op.rates, jnp.zeros(()))
    return list(
        jax.eval_shape(
            lambda s: logged_values.learning_rates(updates, s, computed), state
        )
    )


def unplaced_init(program: TrainProgram) -> Callable[[jax.Array, Packed], TrainState]:
    """Return `program.init` for one device; a warm start changes that state."""
    updates = program.updates
    updates = replace(updates, model=replace(updates.model, placement=None))
    return jax.jit(_unpacking(steps.make_init(updates)), compiler_options=_run_once())


def _placed(model: Model, recording: Recording, place: Place | None) -> Model:
    """Return the model with its placement on the mesh, if there is one."""
    if place is None:
        return model
    shapes = recording.shapes
    looked_up = {use.table for use in recording.lookups}
    # Variables of `get_variable` have the shape that the model asked for.
    declared = {n: form for n, form in shapes.params.items() if n in looked_up}
    unpadded = model.row_variables | declared.keys()
    return replace(model, placement=place({**shapes.tables, **declared}, unpadded))


def _with_shardings(placement: Placement, form: Any) -> Any:
    return lambda key, batch: placement.forms(form(key, batch))


def eval_program(
    model: Model, batch: RawBatch, place: Place | None = None
) -> EvalProgram:
    """Record a model in EVAL mode and build its evaluation functions."""
    recording = model.record(batch)
    model = _placed(model, recording, place)
    step = steps.make_eval_step(model, recording.structure)
    return EvalProgram(
        plan=recording.plan,
        spec=recording.spec,
        shapes=recording.shapes,
        placement=model.placement,
        step=model.compiled(_unpacking(step)),
        merge=model.compiled(metric.merge, donate_argnums=0),
        logged=recording.logged,
        observe=logged_values.observe_evaluation(
            model, recording.structure, recording.texts
        ),
        observed=logged_values.observed_names(recording.logged),
    )


def predict_program(
    model: Model, batch: RawBatch, place: Place | None = None
) -> PredictProgram:
    """Record a model in PREDICT mode and build its prediction function."""
    recording = model.record(batch)
    model = _placed(model, recording, place)
    step = model.compiled(
        _unpacking(steps.make_predict_step(model, recording.structure))
    )
    return PredictProgram(recording.plan, recording, model.placement, step)


def _unpacking(function: Callable[[Any, Any], Any]) -> Callable[[Any, Packed], Any]:
    """Return the function for batches that are packed into a few buffers."""

    def call(first: Any, batch: Packed) -> Any:
        return function(first, unpack(batch))

    return call
