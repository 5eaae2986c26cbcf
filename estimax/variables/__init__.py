"""What Flax lacks: a `model_fn` as one module, and tables updated by row."""

from estimax.variables.module import ModelModule
from estimax.variables.scope import scoped
from estimax.variables.tables import lookup

__all__ = ["ModelModule", "lookup", "scoped"]
