"""Hooks that send a run to a tracker: MLflow, Weights & Biases. Read `tracker.py`."""

from estimax.hooks.tracking.mlflow_runs import MLflowHook
from estimax.hooks.tracking.tracker import TrackerHook
from estimax.hooks.tracking.wandb_runs import WandbHook

__all__ = ["MLflowHook", "TrackerHook", "WandbHook"]
