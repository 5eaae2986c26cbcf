"""Hooks: code that runs between training steps. Read `hook.py` first."""

from estimax.hooks.checkpointing import (
    CheckpointSaverHook,
    CheckpointSaverListener,
    InMemoryEvaluatorHook,
)
from estimax.hooks.early_stopping import (
    make_early_stopping_hook,
    stop_if_higher_hook,
    stop_if_lower_hook,
    stop_if_no_decrease_hook,
    stop_if_no_increase_hook,
)
from estimax.hooks.hook import NEVER, Hook, RunContext, SecondOrStepTimer, Values
from estimax.hooks.hook import __getattr__ as __getattr__
from estimax.hooks.nan_guard import NanTensorHook
from estimax.hooks.profiling import ProfilerHook
from estimax.hooks.progress import FinalOpsHook, LoggingTensorHook, StepCounterHook
from estimax.hooks.stopping import (
    GlobalStepWaiterHook,
    StopAtStepHook,
    make_stop_at_checkpoint_step_hook,
)
from estimax.hooks.summaries import SummarySaverHook

__all__ = [
    "NEVER",
    "CheckpointSaverHook",
    "CheckpointSaverListener",
    "FinalOpsHook",
    "GlobalStepWaiterHook",
    "Hook",
    "InMemoryEvaluatorHook",
    "LoggingTensorHook",
    "NanTensorHook",
    "ProfilerHook",
    "RunContext",
    "SecondOrStepTimer",
    "StepCounterHook",
    "StopAtStepHook",
    "SummarySaverHook",
    "Values",
    "make_early_stopping_hook",
    "make_stop_at_checkpoint_step_hook",
    "stop_if_higher_hook",
    "stop_if_lower_hook",
    "stop_if_no_decrease_hook",
    "stop_if_no_increase_hook",
]
