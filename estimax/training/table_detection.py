"""Which params of a model are embedding tables, updated by row.

    model, shapes, reads = detect_tables(model, shapes, looked_up, …)

`get_variable`, or `self.param` of a Flax module, returns an array, which a model may
look up (`ex.embedding_lookup`), index or multiply. A variable whose gradient comes from
lookups alone becomes a table: the step gathers and updates the rows of the batch. To
find these, the loss is linearized with the lookups cut off. A variable that the result
still depends on is read as a whole, by a penalty for instance, and every row of it has
a gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from estimax.staging import host_plan as plans
from estimax.training.indexed_tables import inner_jaxprs
from estimax.training.model import (
    BatchStructure,
    ModelFunction,
    Variables,
    apply,
    init,
)

# From this many numbers on, updating all rows takes longer than a typical small step:
# about 3 ms with Adagrad on a CPU.
LARGE = 1_000_000


@dataclass(frozen=True)
class WholeReads:
    """How the loss depends on variables, lookups aside.

    Attributes:
      whole: Variables that it depends on, by operations other than a lookup.
      indexed: Those of them that are indexed, as in `table[ids]`.
    """

    whole: frozenset[str] = frozenset()
    indexed: frozenset[str] = frozenset()


def detect_tables(
    model: ModelFunction,
    shapes: Variables,
    looked_up: Set[str],
    prepare: Callable[[plans.RawBatch], plans.PreparedBatch],
    batch: plans.RawBatch,
    structure: BatchStructure,
) -> tuple[ModelFunction, Variables, WholeReads]:
    """Return model and shapes in which variables read by lookups alone are tables.

    Also return how the loss reads the other variables that are large or looked up.
    """
    params = shapes.params
    looked_up = looked_up & params.keys()
    large = {name for name, form in params.items() if _is_large_table(form)}
    watched = sorted(looked_up | large)
    if not watched:
        return model, shapes, WholeReads()
    reads = _whole_reads(model, shapes, prepare(batch), structure, watched)
    tables = frozenset(looked_up - reads.whole)
    moved = Variables(
        {name: form for name, form in params.items() if name not in tables},
        dict(sorted((shapes.tables | {n: params[n] for n in tables}).items())),
        shapes.model_state,
        shapes.step,
    )
    return replace(model, row_variables=tables), moved, reads


def _is_large_table(form: Any) -> bool:
    size = int(np.prod(form.shape))
    # Rows of a table are shorter than the table. This leaves out most dense layers.
    return bool(form.shape) and size >= LARGE and form.shape[0] ** 2 >= size


def _whole_reads(
    model: ModelFunction,
    shapes: Variables,
    prepared: plans.PreparedBatch,
    structure: BatchStructure,
    names: Sequence[str],
) -> WholeReads:
    jaxprs: list[Any] = []

    def linearize(variables: Variables, arrays: plans.PreparedBatch) -> None:
        def loss(values: dict[str, jax.Array]) -> Any:
            applied = apply(
                model,
                replace(variables, params=variables.params | values),
                arrays,
                structure,
                key=jax.random.key(0),
                cuts_lookups=True,
            )
            return applied.spec.loss

        values = {name: variables.params[name] for name in names}
        _, linear = jax.linearize(loss, values)
        jaxprs.append(jax.make_jaxpr(linear)(values).jaxpr)

    # Only the structure of the linear map is wanted, so shapes suffice. An eager model
    # cannot be traced with shapes, and gets arrays.
    if model.eager:
        arrays = jax.tree.map(jnp.asarray, prepared)
        linearize(init(model, jax.random.key(0), arrays, structure), arrays)
    else:
        jax.eval_shape(linearize, shapes, prepared)
    (jaxpr,) = jaxprs
    inputs = dict(zip(sorted(names), jaxpr.invars, strict=True))  # in tree order
    needed = _find_needed(jaxpr)
    return WholeReads(
        frozenset(name for name, v in inputs.items() if v in needed),
        frozenset(name for name, v in inputs.items() if _is_indexed(jaxpr, v)),
    )


def _find_needed(jaxpr: Any) -> set[Any]:
    """Return the variables of a jaxpr that its outputs depend on."""
    needed = {v for v in jaxpr.outvars if _is_variable(v)}
    for equation in reversed(jaxpr.eqns):
        if not needed.isdisjoint(equation.outvars):
            needed |= {v for v in equation.invars if _is_variable(v)}
    return needed


def _is_indexed(jaxpr: Any, table: Any) -> bool:
    """Return whether rows are gathered from a variable of a jaxpr."""
    uses = (e for e in jaxpr.eqns if any(v is table for v in e.invars))
    return any(_indexes(jaxpr, equation, table) for equation in uses)


def _indexes(jaxpr: Any, equation: Any, table: Any) -> bool:
    """Return whether an equation, or one behind it or inside it, gathers rows."""
    if equation.primitive.name in ("convert_element_type", "copy", "reshape"):
        return _is_indexed(jaxpr, equation.outvars[0])
    for inner in inner_jaxprs(equation):
        if len(inner.invars) == len(equation.invars):
            pairs = zip(equation.invars, inner.invars, strict=True)
            if any(_is_indexed(inner, mine) for given, mine in pairs if given is table):
                return True
    return bool(equation.primitive.name == "gather")


def _is_variable(value: Any) -> bool:
    return not hasattr(value, "val")  # a literal has a value
