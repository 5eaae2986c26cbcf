"""The program that makes initial values, in parts: tables of one shape share theirs.

    init = draw_apart(init, compiler_options)
    state = init(key, batch)

Compiled as a whole, the program grows with the tables: 300 truncated normals took 27 s.
Here the trace of `init` is cut in three. The keys of tables are computed operation by
operation, each table is drawn by a compiled function that all tables of its shape and
initializer share, and the rest is one program that is given the tables. The values are
the same to the last bit: keys are integers, and an initializer is compiled whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend import core

from estimax.staging.variables.apart import DRAWN_APART

Init = Callable[[Any, Any], Any]


def draw_apart(init: Init, compiler_options: Mapping[str, Any] | None) -> Init:
    """Return `init`, compiled in parts."""
    options: Any = compiler_options
    whole = jax.jit(init, compiler_options=options)

    def call(key: Any, batch: Any) -> Any:
        given = jax.tree.leaves((key, batch))
        if any(isinstance(leaf, jax.core.Tracer) for leaf in given):
            return init(key, batch)  # for shapes only
        traced, made = jax.make_jaxpr(init, return_shape=True)(key, batch)
        parts = _cut(traced.jaxpr)
        if parts is None:
            return whole(key, batch)
        compiled: dict[int, Any] = {}  # by the identity of the traced initializer
        keys = iter(jax.core.eval_jaxpr(parts.keys, traced.consts, *given))
        tables = []
        for equation in parts.draws:
            drawn = equation.params["jaxpr"]
            if id(drawn) not in compiled:
                run = core.jaxpr_as_fun(drawn)
                compiled[id(drawn)] = jax.jit(run, compiler_options=options)
            arguments = [next(keys) for _ in equation.invars]
            tables += compiled[id(drawn)](*arguments)
        rest = core.jaxpr_as_fun(core.ClosedJaxpr(parts.rest, traced.consts))
        values = jax.jit(rest, compiler_options=options)(*given, *tables)
        return jax.tree.unflatten(jax.tree.structure(made), values)

    # Processes of a cluster compare what `jax.jit` traced.
    call.trace = whole.trace  # type: ignore[attr-defined]
    return call


class _Parts(NamedTuple):
    """The trace of `init`, cut at the tables that are drawn apart."""

    keys: Any  # inputs -> the arguments of all draws
    draws: list[Any]  # calls of initializers
    rest: Any  # inputs and tables -> outputs


def _cut(jaxpr: Any) -> _Parts | None:
    """Cut a trace; None if it has no such tables, or their keys are computed."""
    if jaxpr.effects:
        return None
    live = _needed(jaxpr.eqns, jaxpr.outvars)
    draws = [e for e in live if e.params.get("name") == DRAWN_APART]
    arguments = [given for e in draws for given in e.invars]
    before = _needed(jaxpr.eqns, arguments)
    # Operations on floats might be rounded differently alone than together.
    if not draws or not all(_is_whole(out) for e in before for out in e.outvars):
        return None
    tables = [out for e in draws for out in e.outvars]
    # A state holds no array twice, because steps donate it. A program that hands its
    # inputs on would return one array for both.
    drawn = set(tables)
    returned = [var for var in _variables(jaxpr.outvars) if var in drawn]
    if len(returned) > len(set(returned)):
        return None
    ids = {id(e) for e in draws}
    after = [e for e in live if id(e) not in ids]
    return _Parts(
        jaxpr.replace(eqns=before, outvars=arguments),
        draws,
        jaxpr.replace(
            invars=[*jaxpr.invars, *tables],
            eqns=_needed(after, jaxpr.outvars),
        ),
    )


def _needed(equations: Sequence[Any], outputs: Iterable[Any]) -> list[Any]:
    """Return the equations that outputs depend on, in their order."""
    used = set(_variables(outputs))
    kept = []
    for equation in reversed(equations):
        if not used.isdisjoint(equation.outvars):
            used.update(_variables(equation.invars))
            kept.append(equation)
    return kept[::-1]


def _variables(atoms: Iterable[Any]) -> Iterable[Any]:
    return (atom for atom in atoms if not hasattr(atom, "val"))  # no literals


def _is_whole(var: Any) -> bool:
    """Return whether a variable holds keys, integers or booleans."""
    dtype = var.aval.dtype
    return not jnp.issubdtype(dtype, jnp.inexact)
