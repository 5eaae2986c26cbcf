"""What Flax lacks: a `model_fn` as one module, scopes, and tables updated by row."""

from estimax.variables.declare import (
    assign,
    declare_variable,
    get_variable,
    regularization_losses,
)
from estimax.variables.module import ModelModule
from estimax.variables.precision import computing_in
from estimax.variables.scope import (
    AUTO_REUSE,
    VariableScope,
    current_module,
    get_variable_scope,
    scoped,
    variable_scope,
)
from estimax.variables.side_by_side import Part, ReadyRows, side_by_side
from estimax.variables.tables import lookup, ready_rows

__all__ = [
    "AUTO_REUSE",
    "ModelModule",
    "Part",
    "ReadyRows",
    "VariableScope",
    "assign",
    "computing_in",
    "current_module",
    "declare_variable",
    "get_variable",
    "get_variable_scope",
    "lookup",
    "ready_rows",
    "regularization_losses",
    "scoped",
    "side_by_side",
    "variable_scope",
]
