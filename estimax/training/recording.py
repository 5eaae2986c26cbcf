"""What a `model_fn` asks for, found out by tracing it on the first batch.

    recording = record(function, raw_batch, ModeKeys.TRAIN)
    program = compile(recording, placement)        # `programs.py`

Recording shows which transforms run on the host (`staging/trace.py`), which raw
features the device needs, which variables there are and which of them are tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from estimax import optimizers, staging
from estimax.core.device_dtypes import Forwarded, device_dtype, is_host_value
from estimax.core.errors import SpecError
from estimax.core.spec import EstimatorSpec, Mode, ModeKeys
from estimax.feature_columns import transforms
from estimax.optimizers.rows import keeps_other_rows
from estimax.staging import host_plan as plans
from estimax.staging.trace import Lookup, Origin
from estimax.training import max_pooling
from estimax.training.indexed_tables import inner_jaxprs
from estimax.training.model import (
    BatchStructure,
    ModelFunction,
    Variables,
    apply_in_trace,
    init,
    logged_arrays,
)
from estimax.training.table_detection import WholeReads, detect_tables
from estimax.training.tensorboard_graph import graph_def, names_of_constants


@dataclass(frozen=True)
class Recording:
    """What was learned from tracing a model on a real batch."""

    model: ModelFunction
    plan: plans.HostPlan
    spec: EstimatorSpec  # use its static parts only: its arrays are dead tracers
    shapes: Variables  # shape and dtype of every variable, without padding
    lookups: tuple[Lookup, ...]
    reads: WholeReads  # how the loss reads large variables, in mode TRAIN
    logged: dict[str, str]  # name of each logged value -> its kind
    texts: dict[str, str]  # name of each logged text -> the text
    structure: BatchStructure
    has_convolutions: bool
    graph: Callable[[], bytes] | None  # the model as a GraphDef; None if it is eager
    has_max_pooling: bool = False  # always False for an eager model
    embeds: frozenset[str] = frozenset()  # large tables of `nn.Embed`, in mode TRAIN


def record(
    function: Callable[[Any, Any], EstimatorSpec],
    batch: plans.RawBatch,
    mode: Mode,
    *,
    compute_dtype: str | None = None,
    eager: bool = False,
    reads_by_row: bool = True,
) -> Recording:
    """Trace a model on a raw batch; host transforms run to find their shapes.

    A first trace initializes the variables. What the model reads is then found by
    running it, because a module may skip work while it is initialized. Large tables
    that the model indexes, or Flax's `nn.Embed`, are read by row if `reads_by_row` is
    True and the results stay the same; the other arguments are the fields of
    `ModelFunction`.
    """
    model = ModelFunction(function, mode, compute_dtype, eager)
    traced = _trace_model(model, batch)
    recording = _record(model, batch, traced)
    if mode != ModeKeys.TRAIN or not reads_by_row or eager:
        return recording
    of_layers = traced.trace.embeds
    names = _names_to_read_by_row(recording, of_layers | recording.reads.indexed)
    while names:
        by_row = replace(model, embeds=names & of_layers, indexed=names - of_layers)
        changed = _record(by_row, batch, _trace_model(by_row, batch))
        if names <= changed.model.row_variables:
            return changed
        # The others are also read otherwise, as by `attend` or in a penalty, and stay
        # as they are.
        names &= changed.model.row_variables
    return recording


def _names_to_read_by_row(recording: Recording, found: Set[str]) -> frozenset[str]:
    """Return the tables whose other rows an update leaves as they are."""
    if not found:
        return frozenset()
    train_op = optimizers.as_train_op(recording.spec.train_op)
    shapes = recording.shapes
    group_of = optimizers.assign(train_op, [*shapes.params, *shapes.tables])
    return frozenset(
        name
        for name in found & shapes.params.keys()
        if (index := group_of[name]) is not None
        and _is_same_by_row(train_op.groups[index])
    )


def _is_same_by_row(group: optimizers.Group) -> bool:
    # A function of the user gets all gradients, and may look at their shapes.
    clips = isinstance(group.clip, optimizers.Clip | None)
    return clips and keeps_other_rows(group.optimizer)


def _record(model: ModelFunction, batch: plans.RawBatch, traced: _Traced) -> Recording:
    """Return what a trace of the model has shown."""
    mode = model.mode
    trace, spec, shapes = traced.trace, traced.spec, traced.shapes
    plan = _plan_of(model, batch, traced)
    structure = BatchStructure.of(batch, plan.calls)
    if trace.reads_step:
        form: Any = jax.ShapeDtypeStruct  # jax leaves it without types
        shapes = replace(shapes, step=form((), jnp.int32))
    reads = WholeReads()
    if mode == ModeKeys.TRAIN:
        looked_up = {use.table for use in trace.lookups}
        model, shapes, reads = detect_tables(
            model, shapes, looked_up, plan.prepare, batch, structure
        )
    return Recording(
        model=model,
        plan=plan,
        spec=spec,
        shapes=shapes,
        lookups=tuple(trace.lookups),
        reads=reads,
        logged={name: value.kind for name, value in trace.logged.items()},
        texts={n: v.value for n, v in trace.logged.items() if v.kind == "text"},
        structure=structure,
        has_convolutions=traced.has_convolutions,
        graph=traced.graph,
        has_max_pooling=traced.has_max_pooling,
        embeds=frozenset(trace.embeds),
    )


class _Traced(NamedTuple):
    """The result of running a model once, on arrays or on their shapes."""

    trace: staging.Trace
    spec: EstimatorSpec
    shapes: Variables
    used: set[str]  # names of the raw arrays that the model reads
    has_convolutions: bool = False
    graph: Callable[[], bytes] | None = None
    has_max_pooling: bool = False


def _trace_model(model: ModelFunction, batch: plans.RawBatch) -> _Traced:
    """Initialize a model and run it, each within a trace."""
    results: dict[staging.HostCall, Any] = {}

    def run_call(call: staging.HostCall) -> Any:
        if call not in results:
            results[call] = call.run(batch)
        return _on_device(results[call])

    first = staging.Trace(model.mode, run_call)
    trace = staging.Trace(model.mode, run_call)
    trace.calls = first.calls  # a call has one name in both
    arrays = _raw_arrays(batch, model.eager)
    structure = BatchStructure.of(batch)
    counted = {"": np.zeros(plans.batch_size(batch), np.bool_)}
    specs: list[EstimatorSpec] = []

    def make(key: jax.Array, raw: dict[str, Any]) -> Variables:
        prepared = plans.PreparedBatch(raw, counted)
        return init(model, key, prepared, structure, first)

    def run(key: jax.Array, variables: Variables, raw: dict[str, Any]) -> Any:
        prepared = plans.PreparedBatch(raw, counted)
        # A mode without a key for dropout gets none here either.
        given = key if model.mode == ModeKeys.TRAIN else None
        applied = apply_in_trace(model, trace, variables, prepared, structure, given)
        spec = applied.spec
        specs.append(spec)
        exports = _export_outputs(spec)
        kept = (spec.loss, spec.predictions, spec.eval_metric_ops, exports)
        return kept, logged_arrays(trace.logged), applied.model_state

    key = jax.random.key(0)
    if model.eager:
        variables = make(key, arrays)
        run(key, variables, arrays)
        shapes = jax.eval_shape(lambda made: made, variables)
        (spec,) = specs
        return _Traced(trace, spec, shapes, set(arrays))
    made, shapes = jax.make_jaxpr(make, return_shape=True)(key, arrays)
    jaxpr, outputs = jax.make_jaxpr(run, return_shape=True)(key, shapes, arrays)
    (spec,) = specs
    _refuse_checks(jaxpr.jaxpr)
    constants = names_of_constants(jaxpr.consts, results)
    return _Traced(
        trace,
        spec,
        shapes,
        # A feature that only initial values read must reach the device as well.
        _used_names(made.jaxpr, arrays) | _used_names(jaxpr.jaxpr, arrays),
        _contains(jaxpr.jaxpr, "conv_general_dilated"),
        partial(graph_def, jaxpr.jaxpr, constants, (shapes, arrays), outputs),
        _contains(jaxpr.jaxpr, max_pooling.PRIMITIVE),
    )


def _refuse_checks(jaxpr: Any) -> None:
    if _contains(jaxpr, "check"):
        raise SpecError(
            "the model_fn calls checkify.check. Assertions are for "
            "RunConfig(debug=True), which runs it without jit: give the model_fn an "
            "argument config, and write 'if config.debug:' before the check."
        )


def _plan_of(
    model: ModelFunction, batch: plans.RawBatch, traced: _Traced
) -> plans.HostPlan:
    """Return the work of a model on the host."""
    trace, spec = traced.trace, traced.spec
    # A model that reads no feature (a baseline) still needs the number of rows. An
    # eager one may have no raw value left, if none of them fits a device.
    if batch and (model.eager or not (traced.used or trace.calls)):
        _ = trace.call(transforms.RowCount(), (_cheapest_value(batch),))
    is_predict = model.mode == ModeKeys.PREDICT
    outputs = [spec.predictions, *_export_outputs(spec)] if is_predict else []
    return plans.HostPlan(
        raw=tuple(origin for origin in batch if origin.name in traced.used),
        calls=tuple(trace.calls.values()),
        is_eager=model.eager,
        defaults=tuple((o, _common_default(d)) for o, d in trace.defaults.items()),
        forwarded=find_forwarded(outputs),
    )


def _raw_arrays(batch: plans.RawBatch, eager: bool) -> dict[str, Any]:
    """Return the numeric values of a batch by name, in the dtypes of the device.

    A trace needs only their shapes. Which of them the model reads, and so which
    must fit into 32 bits, is known after the trace.
    """
    dense = {o: v for o, v in batch.items() if isinstance(v, np.ndarray)}
    if eager:
        return {
            o.name: plans.as_device_dtype(o, v)
            for o, v in dense.items()
            if plans.fits_device(v)
        }
    form: Any = jax.ShapeDtypeStruct  # jax leaves it without types
    return {o.name: form(v.shape, device_dtype(v.dtype)) for o, v in dense.items()}


def find_forwarded(outputs: Any) -> tuple[Forwarded, ...]:
    """Return the features that are outputs as they are, each once."""
    found = jax.tree.leaves(outputs, is_leaf=is_host_value)
    return tuple(dict.fromkeys(one for one in found if isinstance(one, Forwarded)))


def _on_device(tree: Any) -> Any:
    return jax.tree.map(jnp.asarray, tree)


def _export_outputs(spec: EstimatorSpec) -> list[dict[str, Any]]:
    """Return the outputs of all export signatures, which predictions may lack."""
    if spec.mode != ModeKeys.PREDICT:
        return []
    return [output.as_outputs() for output in (spec.export_outputs or {}).values()]


def _common_default(defaults: list[Any]) -> Any:
    """Return the default that all columns of a feature share, or None."""
    # By text, since NaN differs from itself.
    return defaults[0] if len(set(map(repr, defaults))) == 1 else None


def _cheapest_value(batch: plans.RawBatch) -> Origin:
    """Return the cheapest value for a request to send, preferably a dense feature."""

    def cost(origin: Origin) -> tuple[bool, bool, int]:
        value = batch[origin]
        is_dense = isinstance(value, np.ndarray)
        return origin.part != "features", not is_dense, int(value.nbytes)

    return min(batch, key=cost)


def _contains(jaxpr: Any, primitive: str) -> bool:
    """Return whether a primitive is in a jaxpr or in one that it calls."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == primitive:
            return True
        if any(_contains(inner, primitive) for inner in inner_jaxprs(equation)):
            return True
    return False


def _used_names(jaxpr: Any, arrays: Mapping[str, Any]) -> set[str]:
    """Return the raw arrays that some equation or output of a trace reads."""
    read = {id(v) for equation in jaxpr.eqns for v in equation.invars}
    read |= {id(v) for v in jaxpr.outvars}
    # Inputs are the key and then the arrays, in tree order: dicts sort their keys.
    inputs = jaxpr.invars[-len(arrays) :] if arrays else []
    names = sorted(arrays)
    return {name for name, v in zip(names, inputs, strict=True) if id(v) in read}
