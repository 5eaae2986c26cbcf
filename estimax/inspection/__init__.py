"""Tools to inspect a model: its variables, its features, and the first NaN of a run."""

from estimax.inspection.explanations import Explanations, integrated_gradients
from estimax.inspection.importance import (
    FeatureImportance,
    Importances,
    permutation_importance,
)
from estimax.inspection.nonfinite import find_nonfinite, value
from estimax.inspection.variables import (
    VariableInfo,
    VariableTable,
    variable_table,
)
from estimax.training import Finding, NonFinite

__all__ = [
    "Explanations",
    "FeatureImportance",
    "Finding",
    "Importances",
    "NonFinite",
    "VariableInfo",
    "VariableTable",
    "find_nonfinite",
    "integrated_gradients",
    "permutation_importance",
    "value",
    "variable_table",
]
