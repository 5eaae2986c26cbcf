"""The Estimator and how to run it. Read `estimator.py`, then `training/loop.py`."""

from estimax.estimator.estimator import Estimator
from estimax.estimator.run_config import RunConfig
from estimax.estimator.train_evaluate import EvalSpec, TrainSpec, train_and_evaluate
from estimax.estimator.wrappers import add_metrics, call_logit_fn, forward_features

__all__ = [
    "Estimator",
    "EvalSpec",
    "RunConfig",
    "TrainSpec",
    "add_metrics",
    "call_logit_fn",
    "forward_features",
    "train_and_evaluate",
]
