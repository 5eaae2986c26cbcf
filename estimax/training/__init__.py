"""Programs, steps, and the loops of training, evaluation and prediction.

Read `loop.py`, then `steps.py`.
"""

from estimax.training.evaluation import evaluate
from estimax.training.loop import run
from estimax.training.model import Model, Recording, Variables, structure_of
from estimax.training.nonfinite import Finding, NonFinite, first_nonfinite
from estimax.training.prediction import predict
from estimax.training.programs import (
    EvalProgram,
    PredictProgram,
    TrainProgram,
    checked,
    eval_program,
    predict_program,
    train_program,
    unplaced_init,
)
from estimax.training.steps import variables_of
from estimax.training.updates import UpdateKind, UpdatePlan

__all__ = [
    "EvalProgram",
    "Finding",
    "Model",
    "NonFinite",
    "PredictProgram",
    "Recording",
    "TrainProgram",
    "UpdateKind",
    "UpdatePlan",
    "Variables",
    "checked",
    "eval_program",
    "evaluate",
    "first_nonfinite",
    "predict",
    "predict_program",
    "run",
    "structure_of",
    "train_program",
    "unplaced_init",
    "variables_of",
]
