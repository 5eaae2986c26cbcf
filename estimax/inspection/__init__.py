"""Looking into a model: what it is made of, and which features it lives on."""

from estimax.inspection.importance import (
    FeatureImportance,
    Importances,
    permutation_importance,
)
from estimax.inspection.variables import (
    VariableInfo,
    VariableTable,
    variable_table,
)

__all__ = [
    "FeatureImportance",
    "Importances",
    "VariableInfo",
    "VariableTable",
    "permutation_importance",
    "variable_table",
]
