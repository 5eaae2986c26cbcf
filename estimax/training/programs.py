"""Programs: what runs. The compiled functions of a mode, host plan and placement.

    recording = record(function, raw_batch, ModeKeys.TRAIN)
    program = compile(recording, placement)
    batch = pack(program.plan.prepare(raw_batch))     # in the input thread
    state, outputs = program.step(state, batch)

This is the only way from a `model_fn` to something that runs, for training, evaluation,
prediction and export. A program belongs to one model, mode and structure of input. The
estimator keeps its programs, so that nothing is compiled twice. XLA compiles a function
when it is first called; until then a program costs no more than its recording.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import jax
import jax.numpy as jnp

from estimax import optimizers
from estimax.core.spec import EstimatorSpec, ModeKeys
from estimax.core.state import TrainState
from estimax.feature_columns.transforms import Vocabulary
from estimax.feature_columns.transforms.words import WordList
from estimax.metrics import metric
from estimax.parallel import Placement
from estimax.staging.host_plan import HostPlan, PreparedBatch
from estimax.staging.packing import Packed, unpack
from estimax.staging.trace import RowReaders
from estimax.training import logged_values, nonfinite, steps
from estimax.training.advice import advice_on_tables
from estimax.training.apply_updates import init_groups
from estimax.training.initial_values import draw_apart
from estimax.training.model import Variables, apply
from estimax.training.recording import Recording
from estimax.training.updates import UpdatePlan, VariableUpdate


def _absent(*_: Any, **__: Any) -> NoReturn:
    raise TypeError("a program of this mode does not have this function")


@dataclass(frozen=True)
class Program:
    """What runs a model in one mode.

    A function that a mode does not have raises TypeError.

    Attributes:
      recording: What the `model_fn` asked for, with its spec and its variables.
      plan: What the host does to every batch.
      placement: The devices, and where variables, tables and batches are.
      step: In training (state, batch) -> (state, outputs), which donates the state. In
        evaluation (variables, batch) -> {"outputs", "metrics"}. In prediction
        (variables, batch) -> predictions, class names still as ids.
      outputs: (variables, prepared batch, readers of tables in another form) -> spec,
        on one device and not compiled. Exports lower it.
      logged: The name of each logged value and its kind.
      observe: Computes logged values that `step` does not return, for (state or
        variables, batch) or (state, stack, place).
      observed: The names of the values that `observe` returns.
      merge: In evaluation, merges the metrics of two batches.
      init: In training (key, batch) -> the state before the first step.
      form: (key, batch) -> shapes, dtypes and shardings of the result of `init`.
      init_unplaced: `init` for one device; a warm start changes that state.
      loop: (state, stack of batches, start, stop) -> (state, outputs) after a step for
        each; donates the state.
      trace_step: (state, batch) -> what JAX traced of the step.
      find_nonfinite: (state, batches) -> the first step with a value that is NaN.
      is_slow_in_loops: Whether `step` is much faster than `loop`.
      advice: Sentences to be logged: how to make steps faster.
      optimizers: The optimizers, each with its variables and its clipping.
      updates: How each param and table is updated.
      words: The vocabularies of tables whose rows stand for words.
      exported: What an export has lowered, so that the next writes new weights only.
    """

    recording: Recording
    plan: HostPlan
    placement: Placement
    step: Callable[..., Any]
    outputs: Callable[..., EstimatorSpec]
    logged: Mapping[str, str] = field(default_factory=dict)
    observe: logged_values.Observe = _absent
    observed: frozenset[str] = frozenset()
    merge: Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]] = _absent
    init: Callable[[jax.Array, Packed], TrainState] = _absent
    form: Callable[[jax.Array, Packed], TrainState] = _absent
    init_unplaced: Callable[[jax.Array, Packed], TrainState] = _absent
    loop: steps.TrainLoop = _absent
    trace_step: Callable[..., Any] = _absent
    find_nonfinite: Callable[..., nonfinite.NonFinite | None] = _absent
    is_slow_in_loops: bool = False
    advice: Sequence[str] = ()
    optimizers: Sequence[optimizers.Group] = ()
    updates: Mapping[str, VariableUpdate] = field(default_factory=dict)
    words: Mapping[str, WordList] = field(default_factory=dict)
    exported: dict[Any, Any] = field(default_factory=dict)

    @property
    def spec(self) -> EstimatorSpec:
        """The spec of the recording; only its static parts may be used."""
        return self.recording.spec

    @property
    def shapes(self) -> Variables:
        """Shape and dtype of every variable, as in a checkpoint, without padding."""
        return self.recording.shapes


def compile(
    recording: Recording,
    placement: Placement | None = None,
    *,
    average_decay: float | None = None,
    checks_values: bool = False,
    has_mask: bool = False,
) -> Program:
    """Build the functions of the mode in which a model was recorded.

    Args:
      recording: The result of `record`.
      placement: The devices; where tables are is decided here. None is one device.
      average_decay: In training, the decay of moving averages; None keeps none.
      checks_values: In training, whether `step` raises on values that are not finite.
        `loop` does not, so run single steps.
      has_mask: In evaluation, whether the heads of the model leave out rows of padding,
        and the model computes every row by itself.
    """
    placement = _place_tables(recording, placement or Placement())
    program = Program(
        recording=recording,
        plan=recording.plan,
        placement=placement,
        step=_absent,
        outputs=_make_outputs(recording),
    )
    if recording.model.mode == ModeKeys.TRAIN:
        return _for_training(program, average_decay, checks_values)
    if recording.model.mode == ModeKeys.EVAL:
        return _for_evaluation(program, has_mask)
    step = _unpacking(steps.make_predict_step(recording, placement))
    return replace(program, step=placement.compile(step))


def _for_training(
    program: Program, average_decay: float | None, checks_values: bool
) -> Program:
    recording, placement = program.recording, program.placement
    updates = UpdatePlan.from_recording(recording, placement, average_decay)
    step = _unpacking(steps.make_train_step(updates))
    init = _compile_init(updates)
    # Tracing for shapes would hand tracers to an eager model.
    shapes_of = (
        init if recording.model.eager else functools.partial(jax.eval_shape, init)
    )
    # The state is donated: its memory is reused for the new state. Hooks must copy
    # what they keep.
    compiled = placement.compile(step, donate_argnums=0)
    rates = _rate_names(updates, recording.shapes)
    norms = logged_values.norm_names(updates)
    logged = {
        **recording.logged,
        **dict.fromkeys(rates, "scalar"),
        **dict.fromkeys(norms, "norm"),
    }
    return replace(
        program,
        plan=updates.plan,
        step=nonfinite.make_checked_step(updates) if checks_values else compiled,
        logged=logged,
        observe=logged_values.observe_training(
            updates, recording.texts, frozenset(norms)
        ),
        observed=logged_values.names_to_observe(logged),
        init=init,
        form=lambda key, batch: placement.forms(shapes_of(key, batch)),
        # The same function on one device, so that it is compiled once.
        init_unplaced=init
        if placement.is_one_device
        else _compile_init(replace(updates, placement=Placement())),
        # Uncompiled inside: XLA then sees the loop and its step as one program.
        loop=placement.compile(steps.make_loop(step), donate_argnums=0),
        trace_step=compiled.trace,
        find_nonfinite=functools.partial(nonfinite.first_nonfinite, updates),
        # XLA has fast convolutions for CPUs only outside of loops: a step of a small
        # network took 13 ms alone and 270 ms in a loop.
        is_slow_in_loops=recording.has_convolutions and _on_cpu(),
        advice=advice_on_tables(updates, recording),
        optimizers=updates.train_op.groups,
        updates=updates.by_variable(),
        words=_words(recording),
    )


def _for_evaluation(program: Program, has_mask: bool) -> Program:
    recording, placement = program.recording, program.placement
    step = _unpacking(steps.make_eval_step(recording, placement))
    return replace(
        program,
        plan=replace(program.plan, has_mask=has_mask),
        step=placement.compile(step),
        # The sums so far are donated; an AUC with many thresholds is not copied.
        merge=placement.compile(metric.merge, donate_argnums=0),
        logged=recording.logged,
        observe=logged_values.observe_evaluation(recording, placement),
        observed=logged_values.names_to_observe(recording.logged),
    )


def _place_tables(recording: Recording, placement: Placement) -> Placement:
    """Decide where the tables of a model are, and the variables that it looks up."""
    shapes = recording.shapes
    looked_up = {use.table for use in recording.lookups}
    # Variables of `get_variable` have the shape that the model asked for: with padding
    # the `model_fn` would see more rows than it declared.
    declared = {n: form for n, form in shapes.params.items() if n in looked_up}
    unpadded = recording.model.row_variables | declared.keys()
    return placement.with_tables({**shapes.tables, **declared}, unpadded)


def _make_outputs(recording: Recording) -> Callable[..., EstimatorSpec]:
    """Build outputs(variables, batch, readers) -> spec, for one device.

    An eager model is applied as one that is traced: an export always traces.
    """
    model = replace(recording.model, eager=False)

    def outputs(
        variables: Variables, batch: PreparedBatch, readers: RowReaders | None = None
    ) -> EstimatorSpec:
        structure = recording.structure
        return apply(model, variables, batch, structure, readers=readers).spec

    return outputs


def _words(recording: Recording) -> dict[str, WordList]:
    """Return the vocabularies of the tables that have one."""
    found = {}
    for use in recording.lookups:
        source = getattr(use.call and use.call.transform, "source", None)
        if isinstance(source, Vocabulary):
            found[use.table] = source.words
    return found


def _compile_init(
    updates: UpdatePlan,
) -> Callable[[jax.Array, Packed], TrainState]:
    init = _unpacking(steps.make_init(updates))
    if updates.placement.is_one_device and not updates.model.eager:
        return draw_apart(init, _run_once())
    return jax.jit(init, compiler_options=_run_once())


def _run_once() -> dict[str, int] | None:
    """Return compiler options for a program that runs once per training.

    With fewer optimizations, the initial values of a wide-and-deep model take 1.2 s of
    CPU time to compile instead of 1.8 s. They are the same values, and large tables
    take as long to fill as before.
    """
    return {"xla_backend_optimization_level": 1} if _on_cpu() else None


def _on_cpu() -> bool:
    return jax.default_backend() == "cpu"


def _rate_names(updates: UpdatePlan, shapes: Variables) -> Iterable[str]:
    """Return the names of the learning rates that can be read from the state."""
    # Rates that the model computes are not needed for the names.
    computed = dict.fromkeys(updates.train_op.rates, jnp.zeros(()))

    def rates(variables: Variables) -> dict[str, Any]:
        opt_state = init_groups(updates, variables)
        step = jnp.zeros((), jnp.int32)
        return logged_values.learning_rates(updates, opt_state, step, computed)

    return list(jax.eval_shape(rates, shapes))


def _unpacking(function: Callable[[Any, Any], Any]) -> Callable[[Any, Packed], Any]:
    """Return the function for batches that are packed into a few buffers."""

    def call(first: Any, batch: Packed) -> Any:
        return function(first, unpack(batch))

    return call
