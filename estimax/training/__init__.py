"""Recording, programs, and the loops of training, evaluation and prediction.

    recording = record(function, first_batch, mode)
    program = compile(recording, placement)

Read `programs.py`, then `loop.py`, then `steps.py`.
"""

from estimax.training.evaluation import evaluate
from estimax.training.explaining import Explained, Explainer, make_explainer
from estimax.training.loop import run
from estimax.training.model import Variables, structure_of
from estimax.training.nonfinite import Finding, NonFinite
from estimax.training.prediction import predict
from estimax.training.programs import Program, compile
from estimax.training.recording import Recording, record
from estimax.training.steps import variables_of
from estimax.training.updates import UpdateKind, VariableUpdate

__all__ = [
    "Explained",
    "Explainer",
    "Finding",
    "NonFinite",
    "Program",
    "Recording",
    "UpdateKind",
    "VariableUpdate",
    "Variables",
    "compile",
    "evaluate",
    "make_explainer",
    "predict",
    "record",
    "run",
    "structure_of",
    "variables_of",
]
