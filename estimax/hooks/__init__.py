"""Hooks: code beside training, at the steps it asks for. Read `hook.py` first."""

from estimax.hooks.cadence import NEVER, SecondOrStepTimer
from estimax.hooks.checkpointing import CheckpointSaverHook, CheckpointSaverListener
from estimax.hooks.hook import Hook, RunContext, Values
from estimax.hooks.nan_guard import NanTensorHook
from estimax.hooks.progress import LoggingTensorHook, StepCounterHook
from estimax.hooks.signals import stopping_on_signals
from estimax.hooks.stopping import StopAtStepHook
from estimax.hooks.summaries import SummarySaverHook

__all__ = [
    "NEVER",
    "CheckpointSaverHook",
    "CheckpointSaverListener",
    "Hook",
    "LoggingTensorHook",
    "NanTensorHook",
    "RunContext",
    "SecondOrStepTimer",
    "StepCounterHook",
    "StopAtStepHook",
    "SummarySaverHook",
    "Values",
    "stopping_on_signals",
]
