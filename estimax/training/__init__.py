"""Steps, the loop around them, and evaluation. Read `loop.py`, then `steps.py`."""

from estimax.training.evaluation import evaluate
from estimax.training.loop import begin, run, tell
from estimax.training.model import Model, Recording, Variables, structure_of
from estimax.training.nonfinite import Finding, NonFinite, first_nonfinite
from estimax.training.programs import (
    EvalProgram,
    PredictProgram,
    TrainProgram,
    checked,
    eval_program,
    predict_program,
    train_program,
)
from estimax.training.steps import variables_of
from estimax.training.updates import Training, Way

__all__ = [
    "EvalProgram",
    "Finding",
    "Model",
    "NonFinite",
    "PredictProgram",
    "Recording",
    "TrainProgram",
    "Training",
    "Variables",
    "Way",
    "begin",
    "checked",
    "eval_program",
    "evaluate",
    "first_nonfinite",
    "predict_program",
    "run",
    "structure_of",
    "tell",
    "train_program",
    "variables_of",
]
