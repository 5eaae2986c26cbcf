"""Hooks: code that runs between training steps. Read `hook.py` first."""

from typing import TYPE_CHECKING, Any

from estimax.core import migration
from estimax.core.errors import NanLossError
from estimax.hooks.checkpointing import (
    CheckpointSaverHook,
    CheckpointSaverListener,
    InMemoryEvaluatorHook,
)
from estimax.hooks.early_stopping import (
    make_early_stopping_hook,
    read_eval_metrics,
    stop_if_higher_hook,
    stop_if_lower_hook,
    stop_if_no_decrease_hook,
    stop_if_no_increase_hook,
)
from estimax.hooks.fetching import RunValues, SessionRunArgs
from estimax.hooks.guards import NanTensorHook
from estimax.hooks.hook import NEVER, Hook, RunContext, SecondOrStepTimer, Values
from estimax.hooks.progress import FinalOpsHook, LoggingTensorHook, StepCounterHook
from estimax.hooks.stopping import (
    GlobalStepWaiterHook,
    StopAtStepHook,
    make_stop_at_checkpoint_step_hook,
)
from estimax.hooks.tensorboard import BoardHook, ProfilerHook, SummarySaverHook
from estimax.hooks.tracking import MLflowHook, WandbHook

SessionRunHook = Hook
"""The name of `Hook` in tf.estimator."""
SessionRunContext = RunContext
"""The name of `RunContext` in tf.estimator."""
SessionRunValues = RunValues
"""The name of `RunValues` in tf.estimator."""
NanLossDuringTrainingError = NanLossError
"""The name of `NanLossError` in tf.estimator."""

__all__ = [
    "NEVER",
    "BoardHook",
    "CheckpointSaverHook",
    "CheckpointSaverListener",
    "FinalOpsHook",
    "GlobalStepWaiterHook",
    "Hook",
    "InMemoryEvaluatorHook",
    "LoggingTensorHook",
    "MLflowHook",
    "NanLossDuringTrainingError",
    "NanTensorHook",
    "ProfilerHook",
    "RunContext",
    "RunValues",
    "SecondOrStepTimer",
    "SessionRunArgs",
    "SessionRunContext",
    "SessionRunHook",
    "SessionRunValues",
    "StepCounterHook",
    "StopAtStepHook",
    "SummarySaverHook",
    "Values",
    "WandbHook",
    "make_early_stopping_hook",
    "make_stop_at_checkpoint_step_hook",
    "read_eval_metrics",
    "stop_if_higher_hook",
    "stop_if_lower_hook",
    "stop_if_no_decrease_hook",
    "stop_if_no_increase_hook",
]


if not TYPE_CHECKING:  # a type checker must report a name that does not exist

    def __getattr__(name: str) -> Any:
        migration.missing("estimax.hooks", name, __all__)
