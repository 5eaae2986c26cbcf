"""A `model_fn` as two functions that JAX can trace: `init` and `apply`.

    variables = init(model, key, arrays, structure)
    applied = apply(model, variables, arrays, structure)    # inside jit: numbers only

Both run the `model_fn` as one Flax module, inside a `Trace` that hands it the results
of host transforms. `recording.py` finds out which transforms and variables there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import traverse_util

from estimax import parallel, staging
from estimax.core.device_dtypes import device_dtype, is_wide
from estimax.core.spec import EstimatorSpec, ExportOutput, Mode
from estimax.core.strings import Strings
from estimax.feature_columns.embed_layers import embeds_by_row
from estimax.parallel import Placement
from estimax.staging import host_plan as plans
from estimax.staging.trace import HostOnly, Lookup, Origin
from estimax.staging.variables import ModelModule, computing_in
from estimax.training.indexed_tables import read_rows

PARAMS, TABLES, GLOBAL_STEP = "params", "tables", "global_step"

Flat = dict[str, Any]  # variable name ("dnn/logits/kernel") -> array or its shape


@dataclass(frozen=True)
class ModelFunction:
    """A `model_fn` bound to its mode, params and config.

    Attributes:
      function: Called with features and labels; returns an `EstimatorSpec`.
      mode: TRAIN, EVAL or PREDICT.
      compute_dtype: The dtype of layers that were given none; None is Flax's default.
      eager: Whether to run on real arrays even to record, for `print` and debuggers.
      row_variables: Params of the model that are tables, updated by row; see
        `table_detection.py`.
      embeds: Those of them that layers of Flax's `nn.Embed` read.
      indexed: Those of them that the model indexes; see `indexed_tables.py`.
    """

    function: Callable[[Any, Any], EstimatorSpec]
    mode: Mode
    compute_dtype: str | None = None
    eager: bool = False
    row_variables: frozenset[str] = frozenset()
    embeds: frozenset[str] = frozenset()
    indexed: frozenset[str] = frozenset()


@dataclass(frozen=True)
class ValueKind:
    """The kind, shape and dtype of a raw feature or label, without its batch axis."""

    kind: str  # "array", "text" or "sparse"
    tail: tuple[int, ...] = ()  # an array's shape after the batch axis
    dtype: str = ""


@dataclass(frozen=True)
class BatchStructure:
    """What a model is given: the kind of every raw value, and the host transforms.

    `calls` were recorded. A trace that makes its calls in another order,
    or only some of them, finds each result under its recorded name.
    """

    kinds: Mapping[Origin, ValueKind]
    calls: tuple[staging.HostCall, ...] = ()

    @classmethod
    def of(
        cls, batch: plans.RawBatch, calls: Sequence[staging.HostCall] = ()
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
class Applied:
    """The result of running a model inside a traced function."""

    spec: EstimatorSpec
    model_state: dict[str, Any]
    logged: Mapping[str, staging.LoggedValue]
    lookups: tuple[Lookup, ...]


def init(
    model: ModelFunction,
    key: jax.Array,
    arrays: plans.PreparedBatch,
    structure: BatchStructure,
    trace: staging.Trace | None = None,
) -> Variables:
    """Return the initial variables; works inside and outside of jit.

    The values are the same for any number of devices: unpadded, and not placed.
    """
    trace = trace or _trace(model, arrays, structure, Placement())
    params_key, dropout_key = jax.random.split(key)
    trace.step = jnp.zeros((), jnp.int32)
    features, labels = _view(model, trace, structure, arrays)
    with _running(model, trace):
        variables = ModelModule(model.function).init(
            {"params": params_key, "dropout": dropout_key}, features, labels
        )
    return variables_from_flax(variables, model.row_variables)


def apply(
    model: ModelFunction,
    variables: Variables,
    arrays: plans.PreparedBatch,
    structure: BatchStructure,
    placement: Placement | None = None,
    *,
    key: jax.Array | None = None,
    rows: Mapping[str, staging.TableRows] | None = None,
    row_zeros: Mapping[str, Sequence[jax.Array]] | None = None,
    cuts_lookups: bool = False,
    inputs: staging.ModelInputs | None = None,
    readers: staging.RowReaders | None = None,
) -> Applied:
    """Run the `model_fn` on a prepared batch with given variables.

    `rows` are the gathered rows of tables. `row_zeros` holds arrays of zeros that are
    added to the rows of each lookup in other tables, so that the gradient can be taken
    with respect to them. With `cuts_lookups`, no gradient flows through lookups.
    `inputs` records the numbers through which features enter the model, or replaces
    them.
    `readers` read the rows of tables that are stored in another form.
    """
    trace = _trace(model, arrays, structure, placement or Placement())
    trace.readers = {**trace.readers, **(readers or {})}
    trace.rows, trace.row_zeros = rows or {}, row_zeros or {}
    trace.cuts_lookups = cuts_lookups
    trace.inputs = inputs
    return apply_in_trace(model, trace, variables, arrays, structure, key)


def apply_in_trace(
    model: ModelFunction,
    trace: staging.Trace,
    variables: Variables,
    arrays: plans.PreparedBatch,
    structure: BatchStructure,
    key: jax.Array | None,
) -> Applied:
    """Run the `model_fn` within a trace of the caller, which records what it reads."""
    step = variables.step
    trace.step = jnp.zeros((), jnp.int32) if step is None else step
    features, labels = _view(model, trace, structure, arrays)

    def run(indexed: Mapping[str, Any]) -> tuple[EstimatorSpec, Any]:
        params = {n: indexed.get(n, v) for n, v in variables.params.items()}
        tables = {n: indexed.get(n, v) for n, v in variables.tables.items()}
        given = replace(variables, params=params, tables=tables)
        spec, changed = ModelModule(model.function).apply(
            variables_to_flax(given, model.row_variables),
            features,
            labels,
            rngs=None if key is None else {"dropout": key},
            mutable=list(variables.model_state),
        )
        # Within the trace: forwarded features are known by the identity of their
        # arrays, which the trace holds.
        return _convert_outputs(model, spec), changed

    with _running(model, trace):
        if model.indexed:
            named = variables.params | variables.tables
            indexed = {name: named[name] for name in model.indexed}
            spec, changed = read_rows(run, trace, indexed)
        else:
            spec, changed = run({})
    return Applied(spec, dict(changed), trace.logged, tuple(trace.lookups))


@contextmanager
def _running(model: ModelFunction, trace: staging.Trace) -> Iterator[None]:
    """Run a `model_fn` within a trace, inside a `with` block."""
    # A layer gets its dtype first: what is entered last is called first.
    dtypes = computing_in(model.compute_dtype)
    with staging.tracing(trace), embeds_by_row(trace, model.embeds), dtypes:
        yield


def _trace(
    model: ModelFunction,
    arrays: plans.PreparedBatch,
    structure: BatchStructure,
    placement: Placement,
) -> staging.Trace:
    trace = staging.Trace(model.mode, lambda call: arrays.staged[call.name])
    trace.calls = {(c.transform, c.inputs): c for c in structure.calls}
    trace.mask = arrays.mask
    if not placement.is_one_device:
        # XLA cannot partition a call of native code over the devices of a mesh.
        trace.uses_kernels = False
        trace.readers = {
            name: partial(parallel.read_rows, placement, name)
            for name in placement.rows
        }
    return trace


def _view(
    model: ModelFunction,
    trace: staging.Trace,
    structure: BatchStructure,
    arrays: plans.PreparedBatch,
) -> tuple[Any, Any]:
    """Return the features and labels as the model sees them."""
    raw = arrays.raw
    rows = rows_of(arrays)
    staged = {origin for call in structure.calls for origin in call.inputs}
    values: dict[Origin, Any] = {}
    for origin, kind in structure.kinds.items():
        if kind.kind != "array":
            value: Any = HostOnly(origin, kind.kind)
        elif origin.name in raw:
            value = jnp.asarray(raw[origin.name])
        elif model.eager:
            # Integers that do not fit the device were left out of the batch. A model
            # that uses one gets an error that explains this.
            value = HostOnly(origin, "wide", (rows, *kind.tail))
        else:
            # Recording showed that its values are not used; its shape may be.
            dtype = device_dtype(np.dtype(kind.dtype))
            # A view of one zero where a host transform stands for the feature: an array
            # of the trace for each of a thousand columns took 0.3 s in every trace.
            on_host = origin in staged and isinstance(rows, int)
            zeros: Any = _zeros_view if on_host else jnp.zeros
            value = zeros((rows, *kind.tail), dtype)
        wide = kind.kind == "array" and is_wide(kind.dtype)
        values[origin] = trace.register_feature(value, origin, is_wide=wide)
    return plans.unflatten("features", values), plans.unflatten("labels", values)


def _zeros_view(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    return np.broadcast_to(np.zeros((), dtype), shape)


def _convert_outputs(model: ModelFunction, spec: EstimatorSpec) -> EstimatorSpec:
    """Return the spec with raw features forwarded, and its arrays in float32."""
    narrow = None if model.compute_dtype is None else jnp.dtype(model.compute_dtype)

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
    params, tables = _flatten(tree.get(PARAMS, {})), _flatten(tree.get(TABLES, {}))
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
        PARAMS: _nest(variables.params | rows),
        TABLES: _nest(tables),
        **variables.model_state,
    }


def variables_to_names(variables: Variables) -> Flat:
    """Return all variables by name, from every collection."""
    rest = [_flatten(tree) for tree in variables.model_state.values()]
    named = variables.params | variables.tables
    for flat in rest:
        named |= flat
    if variables.step is not None:
        named[GLOBAL_STEP] = variables.step
    return named


def variables_from_names(shapes: Variables, named: Mapping[str, Any]) -> Variables:
    """Undo `variables_to_names`, for a model with variables of these shapes."""
    state = {
        collection: _nest({name: named[name] for name in _flatten(tree)})
        for collection, tree in shapes.model_state.items()
    }
    return Variables(
        {name: named[name] for name in shapes.params},
        {name: named[name] for name in shapes.tables},
        state,
        None if shapes.step is None else named[GLOBAL_STEP],
    )


def _flatten(tree: Any) -> Flat:
    flat = traverse_util.flatten_dict(tree, sep="/")  # type: ignore[no-untyped-call]
    return dict(sorted(flat.items()))


def _nest(flat: Flat) -> dict[str, Any]:
    tree: dict[str, Any] = traverse_util.unflatten_dict(  # type: ignore[no-untyped-call]
        flat, sep="/"
    )
    return tree


def rows_of(batch: plans.PreparedBatch) -> Any:  # an int, or a symbolic dimension
    """Return the number of examples of a prepared batch."""
    leaves = jax.tree.leaves([batch.raw, batch.staged])
    return leaves[0].shape[0] if leaves else 1
