"""A `model_fn` as a function that JAX can trace: recorded once, then applied.

    model = Model(function, ModeKeys.TRAIN)
    recording = model.record(raw_batch)          # transforms, features, variables
    result = model.apply(variables, arrays, …)   # inside jit: numbers only

Recording finds out which transforms run on the host (`staging/recording.py`), which raw
features the device needs, and which variables there are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import traverse_util

from estimax import parallel, staging
from estimax.core.device_dtypes import Forwarded, device_dtype, is_host_value, is_wide
from estimax.core.errors import SpecError
from estimax.core.spec import EstimatorSpec, ExportOutput, Mode, ModeKeys
from estimax.core.strings import Strings
from estimax.feature_columns import transforms
from estimax.parallel import Placement
from estimax.staging import host_plan as plans
from estimax.staging.trace import HostOnly, Lookup, Origin
from estimax.staging.variables import ModelModule, computing_in
from estimax.training.tensorboard_graph import graph_def, names_of_constants

PARAMS, TABLES, GLOBAL_STEP = "params", "tables", "global_step"

Flat = dict[str, Any]  # variable name ("dnn/logits/kernel") -> array or its shape


@dataclass(frozen=True)
class ValueKind:
    """The kind, shape and dtype of a raw feature or label, without its batch axis."""

    kind: str  # "array", "text" or "sparse"
    tail: tuple[int, ...] = ()  # an array's shape after the batch axis
    dtype: str = ""


@dataclass(frozen=True)
class BatchStructure:
    """What a model is given: the kind of every raw value, and the host transforms.

    `calls` are those of the recording. A trace that makes its calls in another order,
    or only some of them, finds each result under its recorded name.
    """

    kinds: Mapping[Origin, ValueKind]
    calls: tuple[staging.Call, ...] = ()

    @classmethod
    def of(
        cls, batch: plans.RawBatch, calls: Sequence[staging.Call] = ()
    ) -> BatchStructure:
        """Return the structure of a raw batch."""
        kinds = {origin: kind_of(value) for origin, value in batch.items()}
        return cls(kinds, tuple(calls))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Variables:
    """The variables of a model: params and tables by name, others as trees."""

    params: Flat
    tables: Flat
    model_state: dict[str, Any] = field(default_factory=dict)
    # The number of steps done, for models that ask for it; else None.
    step: Any = None


@dataclass(frozen=True)
class Recording:
    """What was learned from tracing a model on a real batch."""

    plan: plans.Plan
    spec: EstimatorSpec  # use its static parts only: its arrays are dead tracers
    shapes: Variables  # shape and dtype of every variable
    lookups: tuple[Lookup, ...]
    logged: dict[str, str]  # name of each logged value -> its kind
    texts: dict[str, str]  # name of each logged text -> the text
    structure: BatchStructure
    has_convolutions: bool
    graph: Callable[[], bytes] | None  # the model as a GraphDef; None if it is eager


@dataclass(frozen=True)
class Applied:
    """The result of running a model inside a traced function."""

    spec: EstimatorSpec
    model_state: dict[str, Any]
    logged: Mapping[str, staging.LoggedValue]
    lookups: tuple[Lookup, ...]


@dataclass(frozen=True)
class Model:
    """A `model_fn` bound to its mode, params and config.

    Attributes:
      function: Called with features and labels; returns an `EstimatorSpec`.
      mode: TRAIN, EVAL or PREDICT.
      compute_dtype: The dtype of layers that were given none; None is Flax's default.
      eager: Whether to run on real arrays even to record, for `print` and debuggers.
      row_variables: Params of the model that are tables, updated by row; see
        `declared_tables.py`.
      placement: The mesh that the model runs on, with its sharded tables; None is one
        device.
    """

    function: Callable[[Any, Any], EstimatorSpec]
    mode: Mode
    compute_dtype: str | None = None
    eager: bool = False
    row_variables: frozenset[str] = frozenset()
    placement: Placement | None = None

    def record(self, batch: plans.RawBatch) -> Recording:
        """Trace the model on a raw batch; host transforms run to find their shapes.

        A first trace initializes the variables. What the model reads is then found by
        running it, because a module may skip work while it is initialized.
        """
        results: dict[staging.Call, Any] = {}

        def run_call(call: staging.Call) -> Any:
            if call not in results:
                results[call] = call.run(batch)
            return _on_device(results[call])

        first = staging.Trace(self.mode, run_call)
        trace = staging.Trace(self.mode, run_call)
        trace.calls = first.calls  # a call has one name in both
        arrays = self._arrays(batch)
        structure = BatchStructure.of(batch)
        counted = {"": np.zeros(plans.batch_size(batch), np.bool_)}
        specs: list[EstimatorSpec] = []

        def init(key: jax.Array, raw: dict[str, Any]) -> Variables:
            prepared = plans.PreparedBatch(raw, counted)
            return self._init(first, structure, key, prepared)

        def run(key: jax.Array, variables: Variables, raw: dict[str, Any]) -> Any:
            prepared = plans.PreparedBatch(raw, counted)
            # A mode without a key for dropout gets none here either.
            given = key if self.mode == ModeKeys.TRAIN else None
            applied = self._apply(trace, variables, prepared, structure, given)
            spec = applied.spec
            specs.append(spec)
            kept = (spec.loss, spec.predictions, spec.eval_metric_ops, _exported(spec))
            return kept, logged_arrays(trace.logged), applied.model_state

        key = jax.random.key(0)
        graph = None
        if self.eager:
            variables = init(key, arrays)
            run(key, variables, arrays)
            shapes = jax.eval_shape(lambda made: made, variables)
            used, has_convolutions = set(arrays), False
        else:
            made, shapes = jax.make_jaxpr(init, return_shape=True)(key, arrays)
            jaxpr, outputs = jax.make_jaxpr(run, return_shape=True)(key, shapes, arrays)
            if _contains(jaxpr.jaxpr, "check"):
                raise SpecError(
                    "the model_fn calls checkify.check. Assertions are for "
                    "RunConfig(debug=True), which runs it without jit: give the "
                    "model_fn an argument config, and write 'if config.debug:' before "
                    "the check."
                )
            used = _used_names(made.jaxpr, arrays) | _used_names(jaxpr.jaxpr, arrays)
            has_convolutions = _contains(jaxpr.jaxpr, "conv_general_dilated")
            constants = names_of_constants(jaxpr.consts, results)
            inputs = (shapes, arrays)
            graph = partial(graph_def, jaxpr.jaxpr, constants, inputs, outputs)
        # A model that reads no feature (a baseline) still needs the number of rows. An
        # eager one may have no raw value left, if none of them fits a device.
        if batch and (self.eager or not (used or trace.calls)):
            _ = trace.call(transforms.RowCount(), (_smallest(batch),))
        plan = plans.Plan(
            raw=tuple(o for o in batch if o.name in used),
            calls=tuple(trace.calls.values()),
            is_eager=self.eager,
            defaults=tuple((o, _agreed(given)) for o, given in trace.defaults.items()),
        )
        (spec,) = specs
        if self.mode == ModeKeys.PREDICT:
            forwarded = forwarded_of([spec.predictions, *_exported(spec)])
            plan = replace(plan, forwarded=forwarded)
        if trace.reads_step:
            form: Any = jax.ShapeDtypeStruct  # jax leaves it without types
            shapes = replace(shapes, step=form((), jnp.int32))
        return Recording(
            plan=plan,
            spec=spec,
            shapes=shapes,
            lookups=tuple(trace.lookups),
            logged={name: value.kind for name, value in trace.logged.items()},
            texts={n: v.value for n, v in trace.logged.items() if v.kind == "text"},
            structure=BatchStructure.of(batch, plan.calls),
            has_convolutions=has_convolutions,
            graph=graph,
        )

    def init(
        self,
        key: jax.Array,
        arrays: plans.PreparedBatch,
        structure: BatchStructure,
    ) -> Variables:
        """Return the initial variables; works inside and outside of jit."""
        return self._init(self._trace(arrays, structure), structure, key, arrays)

    def apply(
        self,
        variables: Variables,
        arrays: plans.PreparedBatch,
        structure: BatchStructure,
        *,
        key: jax.Array | None = None,
        rows: Mapping[str, staging.TableRows] | None = None,
        row_zeros: Mapping[str, Sequence[jax.Array]] | None = None,
        cuts_lookups: bool = False,
    ) -> Applied:
        """Run the `model_fn` on a prepared batch with given variables.

        `rows` are the gathered rows of tables. `row_zeros` holds arrays of zeros that
        are added to the rows of each lookup in other tables, so that the gradient can
        be taken with respect to them. With `cuts_lookups`, no gradient flows through
        lookups.
        """
        trace = self._trace(arrays, structure)
        trace.rows, trace.row_zeros = rows or {}, row_zeros or {}
        trace.cuts_lookups = cuts_lookups
        return self._apply(trace, variables, arrays, structure, key)

    def compiled(self, function: Callable[..., Any], **options: Any) -> Any:
        """Return the function, compiled by `jax.jit` for the devices of the model."""
        mesh = None if self.placement is None else self.placement.mesh
        return parallel.one_at_a_time(jax.jit(function, **options), mesh)

    def _apply(
        self,
        trace: staging.Trace,
        variables: Variables,
        arrays: plans.PreparedBatch,
        structure: BatchStructure,
        key: jax.Array | None,
    ) -> Applied:
        step = variables.step
        trace.step = jnp.zeros((), jnp.int32) if step is None else step
        features, labels = self._view(trace, structure, arrays)
        with staging.tracing(trace), computing_in(self.compute_dtype):
            spec, changed = ModelModule(self.function).apply(
                variables_to_flax(variables, self.row_variables),
                features,
                labels,
                rngs=None if key is None else {"dropout": key},
                mutable=list(variables.model_state),
            )
            spec = self._outputs(spec)
        return Applied(spec, dict(changed), trace.logged, tuple(trace.lookups))

    def _trace(
        self, arrays: plans.PreparedBatch, structure: BatchStructure
    ) -> staging.Trace:
        trace = staging.Trace(self.mode, lambda call: arrays.staged[call.name])
        trace.calls = {(c.transform, c.inputs): c for c in structure.calls}
        if self.placement is not None:
            trace.uses_kernels = False
            trace.readers = {
                name: partial(parallel.read_rows, self.placement, name)
                for name in self.placement.rows
            }
        return trace

    def _arrays(self, batch: plans.RawBatch) -> dict[str, Any]:
        """Return the numeric values of a batch by name, in the dtypes of the device.

        A trace needs only their shapes. Which of them the model reads, and so which
        must fit into 32 bits, is known after the trace.
        """
        dense = {o: v for o, v in batch.items() if isinstance(v, np.ndarray)}
        if self.eager:
            return {
                o.name: plans.as_device_dtype(o, v)
                for o, v in dense.items()
                if plans.fits_device(v)
            }
        form: Any = jax.ShapeDtypeStruct  # jax leaves it without types
        return {o.name: form(v.shape, device_dtype(v.dtype)) for o, v in dense.items()}

    def _init(
        self,
        trace: staging.Trace,
        structure: BatchStructure,
        key: jax.Array,
        arrays: plans.PreparedBatch,
    ) -> Variables:
        params_key, dropout_key = jax.random.split(key)
        trace.step = jnp.zeros((), jnp.int32)
        features, labels = self._view(trace, structure, arrays)
        with staging.tracing(trace), computing_in(self.compute_dtype):
            variables = ModelModule(self.function).init(
                {"params": params_key, "dropout": dropout_key}, features, labels
            )
        return variables_from_flax(variables, self.row_variables)

    def _view(
        self,
        trace: staging.Trace,
        structure: BatchStructure,
        arrays: plans.PreparedBatch,
    ) -> tuple[Any, Any]:
        """Return the features and labels as the model sees them."""
        raw = arrays.raw
        rows = rows_of(arrays)
        values: dict[Origin, Any] = {}
        for origin, kind in structure.kinds.items():
            if kind.kind != "array":
                value: Any = HostOnly(origin, kind.kind)
            elif origin.name in raw:
                value = jnp.asarray(raw[origin.name])
            elif self.eager:
                # Integers that do not fit the device were left out of the batch. A
                # model that uses one gets an error that explains this.
                value = HostOnly(origin, "wide", (rows, *kind.tail))
            else:
                # Recording showed that its values are not used; its shape may be.
                dtype = device_dtype(np.dtype(kind.dtype))
                value = jnp.zeros((rows, *kind.tail), dtype)
            wide = kind.kind == "array" and is_wide(kind.dtype)
            values[origin] = trace.knows(value, origin, is_wide=wide)
        return plans.unflatten("features", values), plans.unflatten("labels", values)

    def _outputs(self, spec: EstimatorSpec) -> EstimatorSpec:
        """Return the spec with raw features forwarded, and its arrays in float32."""
        narrow = None if self.compute_dtype is None else jnp.dtype(self.compute_dtype)

        def output(value: Any) -> Any:
            if isinstance(value, Mapping):
                return {key: output(item) for key, item in value.items()}
            if isinstance(value, ExportOutput):
                parts = {f.name: getattr(value, f.name) for f in fields(value)}
                return replace(value, **output(parts))
            value = staging.forward(value)
            is_narrow = narrow is not None and getattr(value, "dtype", None) == narrow
            return value.astype(jnp.float32) if is_narrow else value

        return spec._replace(
            loss=output(spec.loss),
            predictions=output(spec.predictions),
            export_outputs=output(spec.export_outputs),
        )


def forwarded_of(outputs: Any) -> tuple[Forwarded, ...]:
    """Return the features that are outputs as they are, each once."""
    found = jax.tree.leaves(outputs, is_leaf=is_host_value)
    return tuple(dict.fromkeys(one for one in found if isinstance(one, Forwarded)))


def logged_arrays(logged: Mapping[str, staging.LoggedValue]) -> dict[str, jax.Array]:
    """Return the logged values that are not text, as arrays."""
    return {n: jnp.asarray(v.value) for n, v in logged.items() if v.kind != "text"}


def kind_of(value: staging.Raw) -> ValueKind:
    """Return the kind, shape and dtype of a raw value."""
    if isinstance(value, Strings):
        return ValueKind("text")
    if not isinstance(value, np.ndarray):
        return ValueKind("sparse")
    return ValueKind("array", value.shape[1:], value.dtype.name)


def structure_of(batch: plans.RawBatch) -> frozenset[tuple[Origin, ValueKind]]:
    """Return a hashable key: inputs with different keys need different programs."""
    return frozenset((origin, kind_of(value)) for origin, value in batch.items())


def variables_from_flax(
    tree: Mapping[str, Any], row_variables: frozenset[str] = frozenset()
) -> Variables:
    """Split Flax's collections into named variables; `row_variables` are tables."""
    rest = {k: v for k, v in tree.items() if k not in (PARAMS, TABLES)}
    params, tables = _flat(tree.get(PARAMS, {})), _flat(tree.get(TABLES, {}))
    tables |= {name: params.pop(name) for name in sorted(row_variables)}
    return Variables(params, dict(sorted(tables.items())), rest)


def variables_to_flax(
    variables: Variables, row_variables: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """Put named variables back into Flax's collections.

    Tables that are `row_variables` are params for the model: it declares them as such.
    """
    rows = {name: variables.tables[name] for name in sorted(row_variables)}
    tables = {n: v for n, v in variables.tables.items() if n not in rows}
    return {
        PARAMS: _nested(variables.params | rows),
        TABLES: _nested(tables),
        **variables.model_state,
    }


def variables_to_names(variables: Variables) -> Flat:
    """Return all variables by name, from every collection."""
    rest = [_flat(tree) for tree in variables.model_state.values()]
    named = variables.params | variables.tables
    for flat in rest:
        named |= flat
    if variables.step is not None:
        named[GLOBAL_STEP] = variables.step
    return named


def variables_from_names(shapes: Variables, named: Mapping[str, Any]) -> Variables:
    """Undo `variables_to_names`, for a model with variables of these shapes."""
    state = {
        collection: _nested({name: named[name] for name in _flat(tree)})
        for collection, tree in shapes.model_state.items()
    }
    return Variables(
        {name: named[name] for name in shapes.params},
        {name: named[name] for name in shapes.tables},
        state,
        None if shapes.step is None else named[GLOBAL_STEP],
    )


def _flat(tree: Any) -> Flat:
    flat = traverse_util.flatten_dict(tree, sep="/")  # type: ignore[no-untyped-call]
    return dict(sorted(flat.items()))


def _nested(flat: Flat) -> dict[str, Any]:
    tree: dict[str, Any] = traverse_util.unflatten_dict(  # type: ignore[no-untyped-call]
        flat, sep="/"
    )
    return tree


def rows_of(batch: plans.PreparedBatch) -> Any:  # an int, or a symbolic dimension
    """Return the number of examples of a prepared batch."""
    leaves = jax.tree.leaves([batch.raw, batch.staged])
    return leaves[0].shape[0] if leaves else 1


def _on_device(tree: Any) -> Any:
    return jax.tree.map(jnp.asarray, tree)


def _exported(spec: EstimatorSpec) -> list[dict[str, Any]]:
    """Return the outputs of all export signatures, which predictions may lack."""
    if spec.mode != ModeKeys.PREDICT:
        return []
    return [output.as_outputs() for output in (spec.export_outputs or {}).values()]


def _agreed(defaults: list[Any]) -> Any:
    """Return the default that all columns of a feature share, or None."""
    # By text, since NaN differs from itself.
    return defaults[0] if len(set(map(repr, defaults))) == 1 else None


def _smallest(batch: plans.RawBatch) -> Origin:
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


def inner_jaxprs(equation: Any) -> list[Any]:
    """Return the jaxprs that an equation calls, such as the body of a loop."""
    values = jax.tree.leaves(list(equation.params.values()))
    found = [getattr(value, "jaxpr", value) for value in values]  # of a ClosedJaxpr
    return [inner for inner in found if hasattr(inner, "eqns")]


def _used_names(jaxpr: Any, arrays: Mapping[str, Any]) -> set[str]:
    """Return the raw arrays that some equation or output of a trace reads."""
    read = {id(v) for equation in jaxpr.eqns for v in equation.invars}
    read |= {id(v) for v in jaxpr.outvars}
    # Inputs are the key and then the arrays, in tree order: dicts sort their keys.
    inputs = jaxpr.invars[-len(arrays) :] if arrays else []
    names = sorted(arrays)
    return {name for name, v in zip(names, inputs, strict=True) if id(v) in read}
