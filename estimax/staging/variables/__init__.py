"""Additions to Flax: `model_fn` as a module, variable scopes, tables updated by row."""

from estimax.staging.variables.apart import apart, is_pure
from estimax.staging.variables.declare import (
    AUTO_REUSE,
    ModelModule,
    VariableScope,
    assign,
    current_module,
    declare_variable,
    declared_name,
    get_variable,
    get_variable_scope,
    model_scope,
    model_top,
    regularization_losses,
    scoped,
    variable_scope,
)
from estimax.staging.variables.listing import (
    GraphKeys,
    get_collection,
    get_global_step,
    get_or_create_global_step,
    trainable_variables,
    variables_by_name,
)
from estimax.staging.variables.precision import computing_in
from estimax.staging.variables.tables import (
    ColumnBlock,
    GatheredRows,
    gathered_rows,
    lookup,
    lookup_declared,
    side_by_side,
)

__all__ = [
    "AUTO_REUSE",
    "ColumnBlock",
    "GatheredRows",
    "GraphKeys",
    "ModelModule",
    "VariableScope",
    "apart",
    "assign",
    "computing_in",
    "current_module",
    "declare_variable",
    "declared_name",
    "gathered_rows",
    "get_collection",
    "get_global_step",
    "get_or_create_global_step",
    "get_variable",
    "get_variable_scope",
    "is_pure",
    "lookup",
    "lookup_declared",
    "model_scope",
    "model_top",
    "regularization_losses",
    "scoped",
    "side_by_side",
    "trainable_variables",
    "variable_scope",
    "variables_by_name",
]
