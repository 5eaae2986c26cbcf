"""What Flax lacks: a `model_fn` as one module, scopes, and tables updated by row."""

from estimax.variables.declare import (
    AUTO_REUSE,
    ModelModule,
    VariableScope,
    assign,
    current_module,
    declare_variable,
    get_variable,
    get_variable_scope,
    regularization_losses,
    scoped,
    variable_scope,
)
from estimax.variables.precision import computing_in
from estimax.variables.tables import Part, ReadyRows, lookup, ready_rows, side_by_side

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
