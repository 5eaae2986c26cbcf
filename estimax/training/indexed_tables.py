"""`table[ids]` in a training model: rows of large tables are read by lookups.

    spec, changed = read_rows(run, trace, {"emb": table})

`table[ids]` and `jnp.take(table, ids, axis=0)` have a gradient as large as the table.
So the `model_fn` is traced, its program is evaluated equation by equation, and each
gather of whole rows from one of the tables is replaced by a lookup, whose rows the step
gathers and updates alone. Results are those of the gather: the program itself makes
negative ids count from the end, and `_look_up` keeps what JAX does with ids beyond the
table. `recording.py` decides which tables these are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal, jaxpr_as_fun
from jax.lax import GatherScatterMode

from estimax import optimizers, staging
from estimax.core.spec import EstimatorSpec
from estimax.feature_columns.embed_layers import is_in_range
from estimax.feature_columns.transforms.embedding_lookups import IndexIds
from estimax.staging import variables

Run = Callable[[Mapping[str, Any]], tuple[EstimatorSpec, Any]]

# Longer texts of how an array was computed are dropped: those of indices are short.
_LONGEST = 4000


class _Table(NamedTuple):
    """A variable in the program whose rows are read by lookups."""

    name: str
    value: jax.Array


class _Origin(NamedTuple):
    """How an integer array was computed, as text, and the one input it came from.

    In the text, the input is `@`.
    """

    text: str
    source: Any


# Called with a gather, its table, its indices and their origin; returns the rows.
ReadRows = Callable[[Any, _Table, Any, _Origin | None], jax.Array]


def read_rows(
    run: Run, trace: staging.Trace, tables: Mapping[str, jax.Array]
) -> tuple[EstimatorSpec, Any]:
    """Return run(tables), with the rows of tables that it indexes read by lookups.

    The spec has the fields that a training step needs: its other arrays are dropped.
    """
    # Results of host calls that are known belong to the trace outside, not to `inner`.
    for transform, inputs in list(trace.calls):
        trace.call(transform, inputs)
    specs: list[EstimatorSpec] = []

    def inner(tables: dict[str, jax.Array]) -> Any:
        spec, changed = run(tables)
        specs.append(spec)
        logged = {n: v.value for n, v in trace.logged.items() if v.kind != "text"}
        ids = [use.ids for use in trace.lookups]
        rates = optimizers.as_train_op(spec.train_op).rates
        arrays = spec.loss, logged, ids, rates, changed
        return jax.tree.map(jnp.asarray, arrays)

    closed, shapes = jax.make_jaxpr(inner, return_shape=True)(dict(tables))
    given = [_Table(name, tables[name]) for name in sorted(tables)]  # in tree order
    found = _evaluate(closed, given, [None] * len(given), _look_up)
    results = [_array(value) for value in found]
    loss, logged, ids, rates, changed = jax.tree.unflatten(
        jax.tree.structure(shapes), results
    )
    for name, value in logged.items():
        trace.logged[name] = replace(trace.logged[name], value=value)
    for place, outside in enumerate(ids):
        trace.lookups[place] = replace(trace.lookups[place], ids=outside)
    (spec,) = specs
    train_op = optimizers.as_train_op(spec.train_op).with_rates(rates)
    return EstimatorSpec(
        spec.mode,
        loss=loss,
        train_op=replace(train_op, loss=None),
        training_hooks=spec.training_hooks,
        training_chief_hooks=spec.training_chief_hooks,
    ), changed


def _evaluate(
    closed: Any,
    args: Sequence[Any],
    origins: Sequence[_Origin | None],
    read: ReadRows,
) -> list[Any]:
    """Return the results of a program, some of whose arguments are tables."""
    jaxpr = closed.jaxpr
    values = dict(zip(jaxpr.constvars, closed.consts, strict=True))
    known = {v: _origin_of_input(value) for v, value in values.items()}
    values |= zip(jaxpr.invars, args, strict=True)
    known |= zip(jaxpr.invars, origins, strict=True)

    def value_of(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else values[atom]

    for equation in jaxpr.eqns:
        given = [value_of(v) for v in equation.invars]
        of_given = [_origin_of(known, v) for v in equation.invars]
        if not any(isinstance(value, _Table) for value in given):
            found = _run(closed, equation, values)
        elif equation.primitive.name in ("jit", "pjit"):
            found = _evaluate(equation.params["jaxpr"], given, of_given, read)
        elif _takes_rows(equation, given):
            found = [read(equation, given[0], given[1], of_given[1])]
        else:  # the table is read as a whole
            found = _run(closed, equation, values)
        values |= zip(equation.outvars, found, strict=True)
        result = _origin_of_result(equation, of_given)
        known |= dict.fromkeys(equation.outvars, result)
    return [value_of(v) for v in jaxpr.outvars]


def _array(value: Any) -> Any:
    return value.value if isinstance(value, _Table) else value


def _run(closed: Any, equation: Any, values: Mapping[Any, Any]) -> list[Any]:
    """Return the results of one equation, as it is."""
    given = [v for v in equation.invars if not isinstance(v, Literal)]
    inputs = list(dict.fromkeys(given))
    jaxpr = closed.jaxpr.replace(
        constvars=[], invars=inputs, outvars=equation.outvars, eqns=[equation]
    )
    alone: Any = jaxpr_as_fun(closed.replace(jaxpr=jaxpr, consts=[]))
    results: list[Any] = alone(*(_array(values[v]) for v in inputs))
    return results


def _takes_rows(equation: Any, given: Sequence[Any]) -> bool:
    """Return whether an equation gathers whole rows of a table by a list of ids."""
    if equation.primitive.name != "gather" or not isinstance(given[0], _Table):
        return False
    table, indices, params = given[0].value, given[1], equation.params
    numbers, rank, fill = (
        params["dimension_numbers"],
        indices.ndim - 1,
        params["fill_value"],
    )
    return bool(
        rank > 0
        and np.can_cast(indices.dtype, np.int32)
        and jnp.issubdtype(table.dtype, jnp.floating)
        and (fill is None or np.isnan(fill))
        and params["slice_sizes"] == (1, *table.shape[1:])
        and numbers.offset_dims == tuple(range(rank, rank + table.ndim - 1))
        and numbers.collapsed_slice_dims == numbers.start_index_map == (0,)
        and not numbers.operand_batching_dims
    )


def _look_up(
    equation: Any, table: _Table, indices: Any, origin: _Origin | None
) -> jax.Array:
    """Return the rows of a gather, by a lookup."""
    size = table.value.shape[0]
    ids = indices[..., 0].astype(jnp.int32)
    where = _ids_of_host(table.value, origin)
    if where is None:
        where = jnp.clip(ids, 0, size - 1)
    rows = variables.lookup_declared(table.name, table.value, where)
    mode = equation.params["mode"]
    if mode == GatherScatterMode.CLIP:
        return rows
    # Beyond the table, `jnp.take` gives NaN, and `table[ids]` the nearest row without
    # a gradient.
    is_nan = mode == GatherScatterMode.FILL_OR_DROP
    beyond = jnp.nan if is_nan else jax.lax.stop_gradient(rows)
    is_inside = (ids >= 0) & (ids < size)
    return jnp.where(
        jnp.expand_dims(is_inside, range(ids.ndim, rows.ndim)), rows, beyond
    )


def _ids_of_host(table: jax.Array, origin: _Origin | None) -> jax.Array | None:
    """Return the ids that the host makes distinct, all in range.

    Return None unless the indices of a gather are ids of the host, of which nothing
    else was computed than `table[ids]` computes.
    """
    trace = staging.current()
    if trace is None or origin is None:
        return None
    ids, size = origin.source, table.shape[0]
    if origin.text not in _texts_of_indices(table.shape, ids.shape):
        return None
    feature = trace.origin(ids)
    if feature is None:
        return ids if is_in_range(trace.call_of(ids), size) else None
    key = feature.part if feature.key is None else str(feature.key)
    staged: jax.Array = staging.stage(IndexIds(key, size, clips=True), {key: ids})
    return staged


@lru_cache
def _texts_of_indices(table: tuple[int, ...], ids: tuple[int, ...]) -> frozenset[str]:
    """Return how JAX computes the indices of a gather from ids that index a table."""
    texts = set[str]()

    def note(equation: Any, table: _Table, _: Any, origin: _Origin | None) -> jax.Array:
        texts.add("" if origin is None else origin.text)
        return jnp.zeros(equation.outvars[0].aval.shape)

    def trace(index: Callable[[Any, Any], jax.Array]) -> Callable[[Any, Any], Any]:
        def read(table: jax.Array, ids: jax.Array) -> Any:
            closed = jax.make_jaxpr(index)(table, ids)
            given = [_Table("", table), ids]
            return _evaluate(closed, given, [None, _Origin("@", ids)], note)

        return read

    form: Any = jax.ShapeDtypeStruct  # jax leaves it without types
    forms = form(table, jnp.float32), form(ids, jnp.int32)
    jax.eval_shape(trace(lambda table, ids: table[ids]), *forms)
    jax.eval_shape(trace(lambda table, ids: jnp.take(table, ids, axis=0)), *forms)
    return frozenset(texts - {""})


def _origin_of_input(value: Any) -> _Origin | None:
    trace = staging.current()
    is_of_host = trace is not None and (trace.origin(value) or trace.call_of(value))
    is_usual = getattr(value, "dtype", None) == jnp.int32
    return _Origin("@", value) if is_of_host and is_usual else None


def _origin_of(known: Mapping[Any, _Origin | None], atom: Any) -> _Origin | None:
    if isinstance(atom, Literal):
        return _Origin(f"{atom.val} {atom.aval}", None)
    return known[atom]


def _origin_of_result(equation: Any, given: Sequence[_Origin | None]) -> _Origin | None:
    """Return how the result of an equation was computed; None if from more inputs."""
    inner = inner_jaxprs(equation)
    if len(equation.outvars) != 1 or any(len(jaxpr.eqns) > 1 for jaxpr in inner):
        return None
    found = [origin for origin in given if origin is not None]
    sources = {id(o.source): o.source for o in found if o.source is not None}
    if len(found) < len(given) or len(sources) != 1:
        return None
    terms = ", ".join(origin.text for origin in found)
    text = f"{equation.primitive} {equation.params} ({terms})"
    return _Origin(text, *sources.values()) if len(text) < _LONGEST else None


def inner_jaxprs(equation: Any) -> list[Any]:
    """Return the jaxprs that an equation calls, such as the body of a loop."""
    values = jax.tree.leaves(list(equation.params.values()))
    found = [getattr(value, "jaxpr", value) for value in values]  # of a ClosedJaxpr
    return [inner for inner in found if hasattr(inner, "eqns")]
