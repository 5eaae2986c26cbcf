"""The hooks of `train.hooks` and `eval.hooks`: classes of `estimax.hooks`, or yours.

train:
  hooks:
    - {type: profiler, save_steps: 1000}
    - {type: logging, tensors: [loss], every_n_iter: 50}
    - {class: "my_package.hooks:SlackHook", params: {channel: "#training"}}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from estimax.config.schema.section import (
    CodeName,
    NonNegativeFloat,
    PositiveInt,
    calls,
)


@calls("estimax.hooks.LoggingTensorHook")
@dataclass(frozen=True, kw_only=True)
class LoggingHookConfig:
    """Log values by name at an interval.

    Args:
      type: `ex.hooks.LoggingTensorHook`.
      tensors: Names of values; or a dict from the label in the log to the name.
      every_n_iter: Steps between two lines.
      every_n_secs: Seconds between two lines. Give at most one of the two.
      at_end: Whether to log the values once more when training has ended. This may
        replace the interval.
      formatter: Function that takes a dict of the values by label and returns the line.
        The default writes "label = value" pairs.
    """

    type: Literal["logging"] = "logging"
    tensors: tuple[str, ...]
    every_n_iter: PositiveInt | None = None
    every_n_secs: NonNegativeFloat | None = None
    at_end: bool = False
    formatter: CodeName | None = None


@calls("estimax.hooks.StepCounterHook")
@dataclass(frozen=True, kw_only=True)
class StepCounterHookConfig:
    """Log the speed of training as `global_step/sec` and `examples/sec`.

    Args:
      type: `ex.hooks.StepCounterHook`.
      every_n_steps: Steps between two lines.
      every_n_secs: Seconds between two lines. If given, the default of `every_n_steps`
        does not apply.
    """

    type: Literal["step_counter"] = "step_counter"
    every_n_steps: PositiveInt | None = 100
    every_n_secs: NonNegativeFloat | None = None


@calls("estimax.hooks.NanTensorHook")
@dataclass(frozen=True, kw_only=True)
class NanHookConfig:
    """End training when the loss is NaN.

    Args:
      type: `ex.hooks.NanTensorHook`.
      loss_tensor: Name of the value to check: "loss", or a value that the model logs.
      fail_on_nan_loss: True raises NanLossError; False logs a warning and stops.
      every_n_steps: Steps between two checks. Each check waits for the device.
    """

    type: Literal["nan"] = "nan"
    loss_tensor: str = "loss"
    fail_on_nan_loss: bool = True
    every_n_steps: PositiveInt = 100


@calls("estimax.hooks.ProfilerHook")
@dataclass(frozen=True, kw_only=True)
class ProfilerHookConfig:
    """Write a profiler trace of one compiled loop at an interval.

    Args:
      type: `ex.hooks.ProfilerHook`.
      save_steps: Steps between two traces.
      save_secs: Seconds between two traces. Give exactly one of the two.
      show_dataflow: Whether to trace the calls of Python functions on the host too.
      show_memory: Whether to write the content of the device's memory as
        `memory-<step>.prof`, for pprof.
    """

    type: Literal["profiler"] = "profiler"
    save_steps: PositiveInt | None = None
    save_secs: NonNegativeFloat | None = None
    show_dataflow: bool = True
    show_memory: bool = False


@calls("estimax.hooks.SummarySaverHook")
@dataclass(frozen=True, kw_only=True)
class SummarySaverHookConfig:
    """Write the loss, the model's summaries, and histograms and norms of its variables.

    Args:
      type: `ex.hooks.SummarySaverHook`.
      save_steps: Steps between two writes.
      save_secs: Seconds between two writes. Give exactly one of the two.
      histograms_every: Write histograms of the variables, and the norms of the
        gradients and weights of each layer, at every n-th write; 0 for never. A
        histogram is made from a sample of 10,000 values. Variables of more than a
        million elements have none. Norms start at the second write.
    """

    type: Literal["summary_saver"] = "summary_saver"
    save_steps: PositiveInt | None = None
    save_secs: NonNegativeFloat | None = None
    histograms_every: int = 10


@calls("estimax.hooks.StopAtStepHook")
@dataclass(frozen=True, kw_only=True)
class StopAtStepHookConfig:
    """Stop training after a number of steps, or at a step.

    Args:
      type: `ex.hooks.StopAtStepHook`.
      num_steps: Steps to train in each `train` call.
      last_step: Step at which to stop, counted from the start of the model. A call that
        begins at or above it trains no step. Give exactly one of the two.
    """

    type: Literal["stop_at_step"] = "stop_at_step"
    num_steps: PositiveInt | None = None
    last_step: PositiveInt | None = None


@calls("estimax.hooks.GlobalStepWaiterHook")
@dataclass(frozen=True, kw_only=True)
class GlobalStepWaiterHookConfig:
    """Delay the first step until another run has saved a checkpoint of a step.

    Args:
      type: `ex.hooks.GlobalStepWaiterHook`.
      wait_until_step: Step that the other run must have saved; 0 does not wait.
      checkpoint_dir: Folder in which the other run saves checkpoints.
      poll_secs: Seconds between two checks of the folder.
    """

    type: Literal["global_step_waiter"] = "global_step_waiter"
    wait_until_step: int
    checkpoint_dir: str | None = None
    poll_secs: float = 0.5


@calls("estimax.hooks.make_stop_at_checkpoint_step_hook")
@dataclass(frozen=True, kw_only=True)
class StopAtCheckpointStepHookConfig:
    """Make a hook that stops at a step, for the chief and for processes beside it.

    Args:
      type: `ex.hooks.make_stop_at_checkpoint_step_hook`.
      last_step: Step at which to stop, counted from the start of the model.
      wait_after_file_check_secs: Seconds that other processes wait when the checkpoint
        is not there yet.
    """

    type: Literal["stop_at_checkpoint_step"] = "stop_at_checkpoint_step"
    last_step: PositiveInt
    wait_after_file_check_secs: float = 30.0


@calls("estimax.hooks.CheckpointSaverHook")
@dataclass(frozen=True, kw_only=True)
class CheckpointSaverHookConfig:
    """Save a checkpoint at the start, at an interval, and at the end of training.

    Args:
      type: `ex.hooks.CheckpointSaverHook`.
      checkpoint_dir: Folder of the checkpoints.
      save_secs: Seconds between two saves.
      save_steps: Steps between two saves. Give exactly one of the two.
      checkpoint_basename: Must be "model.ckpt", the name of every checkpoint.
      save_graph_def: Ignored: a checkpoint has no graph.
      also_every_steps: Further intervals in steps. A checkpoint is saved at every
        multiple of each of them as well.
      keep_max: Number of newest checkpoints to keep; 0 or None keeps all.
      keep_every_n_hours: Keep one checkpoint of every so many hours for good, in
        addition to `keep_max`. None keeps no additional ones.
    """

    type: Literal["checkpoint_saver"] = "checkpoint_saver"
    checkpoint_dir: str
    save_secs: NonNegativeFloat | None = None
    save_steps: PositiveInt | None = None
    checkpoint_basename: str = "model.ckpt"
    save_graph_def: bool = True
    also_every_steps: tuple[int, ...] = ()
    keep_max: int | None = 5
    keep_every_n_hours: float | None = None


class StoppingHookSection:
    """The descriptions of keys that several hooks of early stopping have.

    Args:
      metric_name: Name of the metric, as in the results of `evaluate`.
      eval_dir: Folder of the evaluations; by default that of unnamed evaluations,
        `estimator.eval_dir()`.
      min_steps: Evaluations before this step are ignored.
      run_every_secs: Seconds between two checks; 0 for every step. Evaluations of this
        process are checked at once.
      run_every_steps: Steps between two checks, at multiples of it. Set
        `run_every_secs` to None to use it.
    """


@calls("estimax.hooks.stop_if_higher_hook")
@dataclass(frozen=True, kw_only=True)
class StopIfHigherHookConfig(StoppingHookSection):
    """Make a hook that stops training when a metric is above a threshold.

    Args:
      type: `ex.hooks.stop_if_higher_hook`.
      threshold: Training stops when a value is above it, not when it is equal.
    """

    type: Literal["stop_if_higher"] = "stop_if_higher"
    metric_name: str
    threshold: float
    eval_dir: str | None = None
    min_steps: int = 0
    run_every_secs: NonNegativeFloat | None = 60
    run_every_steps: PositiveInt | None = None


@calls("estimax.hooks.stop_if_lower_hook")
@dataclass(frozen=True, kw_only=True)
class StopIfLowerHookConfig(StoppingHookSection):
    """Make a hook that stops training when a metric is below a threshold.

    Args:
      type: `ex.hooks.stop_if_lower_hook`.
      threshold: Training stops when a value is below it, not when it is equal.
    """

    type: Literal["stop_if_lower"] = "stop_if_lower"
    metric_name: str
    threshold: float
    eval_dir: str | None = None
    min_steps: int = 0
    run_every_secs: NonNegativeFloat | None = 60
    run_every_steps: PositiveInt | None = None


@calls("estimax.hooks.stop_if_no_increase_hook")
@dataclass(frozen=True, kw_only=True)
class StopIfNoIncreaseHookConfig(StoppingHookSection):
    """Make a hook that stops training when a metric no longer increases.

    Args:
      type: `ex.hooks.stop_if_no_increase_hook`.
      max_steps_without_increase: Training stops when the best value is this many steps
        old.
      min_delta: Only a value more than this above the best one counts as an increase.
    """

    type: Literal["stop_if_no_increase"] = "stop_if_no_increase"
    metric_name: str
    max_steps_without_increase: int
    eval_dir: str | None = None
    min_steps: int = 0
    run_every_secs: NonNegativeFloat | None = 60
    run_every_steps: PositiveInt | None = None
    min_delta: float = 0.0


@calls("estimax.hooks.stop_if_no_decrease_hook")
@dataclass(frozen=True, kw_only=True)
class StopIfNoDecreaseHookConfig(StoppingHookSection):
    """Make a hook that stops training when a metric no longer decreases.

    Args:
      type: `ex.hooks.stop_if_no_decrease_hook`.
      max_steps_without_decrease: Training stops when the best value is this many steps
        old.
      min_delta: Only a value more than this below the best one counts as a decrease.
    """

    type: Literal["stop_if_no_decrease"] = "stop_if_no_decrease"
    metric_name: str
    max_steps_without_decrease: int
    eval_dir: str | None = None
    min_steps: int = 0
    run_every_secs: NonNegativeFloat | None = 60
    run_every_steps: PositiveInt | None = None
    min_delta: float = 0.0


@calls("estimax.hooks.make_early_stopping_hook")
@dataclass(frozen=True, kw_only=True)
class EarlyStoppingHookConfig(StoppingHookSection):
    """Make a hook that stops training when `should_stop_fn` returns True.

    Args:
      type: `ex.hooks.make_early_stopping_hook`.
      should_stop_fn: Function without arguments that returns whether to stop.
      run_every_secs: Seconds between two calls of the function; 0 for every step.
      run_every_steps: Steps between two calls; the function is called at multiples of
        it. Set `run_every_secs` to None to use it.
      eval_dir: Folder of the evaluations after which the function is called once more;
        by default that of unnamed evaluations, `estimator.eval_dir()`.
    """

    type: Literal["early_stopping"] = "early_stopping"
    should_stop_fn: CodeName
    run_every_secs: NonNegativeFloat | None = 60
    run_every_steps: PositiveInt | None = None
    eval_dir: str | None = None


@calls("estimax.hooks.MLflowHook")
@dataclass(frozen=True, kw_only=True)
class MLflowHookConfig:
    """Log a run to MLflow: parameters, metrics by step, the report and the bundle.

    Args:
      type: `ex.hooks.MLflowHook`.
      experiment: The name of the experiment; it is made if there is none.
      run_name: The name of the run; null lets MLflow choose.
      tracking_uri: The server or store, such as "http://localhost:5000" or
        "sqlite:///mlruns.db". None: that of MLflow's settings (MLFLOW_TRACKING_URI).
      params: More parameters to log.
      every_n_steps: Steps between two logs of loss and speed.
      log_model: Whether to log the newest bundle as a model, which
        `mlflow.pyfunc.load_model("runs:/<run id>/model")` loads.
      wait_secs: Most seconds to wait for the tracker at the end.
    """

    type: Literal["mlflow"] = "mlflow"
    experiment: str = "estimax"
    run_name: str | None = None
    tracking_uri: str | None = None
    params: Mapping[str, Any] | None = None
    every_n_steps: PositiveInt = 100
    log_model: bool = True
    wait_secs: NonNegativeFloat = 60.0


@calls("estimax.hooks.WandbHook")
@dataclass(frozen=True, kw_only=True)
class WandbHookConfig:
    """Log a run to Weights & Biases: parameters, metrics, the report and the bundle.

    Args:
      type: `ex.hooks.WandbHook`.
      project: The name of the project.
      run_name: The name of the run; null lets W&B choose.
      entity: The user or team; null is the default of the account.
      mode: "online", "offline" (files that `wandb sync` sends later) or "disabled".
        None: that of the environment (WANDB_MODE), or "online".
      params: More parameters to log.
      every_n_steps: Steps between two logs of loss and speed.
      log_model: Whether to log the newest bundle as an artifact of the type "model".
      wait_secs: Most seconds to wait for the tracker at the end.
    """

    type: Literal["wandb"] = "wandb"
    project: str = "estimax"
    run_name: str | None = None
    entity: str | None = None
    mode: Literal["online", "offline", "disabled"] | None = None
    params: Mapping[str, Any] | None = None
    every_n_steps: PositiveInt = 100
    log_model: bool = True
    wait_secs: NonNegativeFloat = 60.0


@dataclass(frozen=True, kw_only=True)
class CustomHookConfig:
    """A hook of your own.

    Args:
      class_: "package.module:Name" of the hook.
      params: Its keyword arguments.
    """

    class_: CodeName
    params: Mapping[str, Any] = field(default_factory=dict)


HookConfig = (
    LoggingHookConfig
    | StepCounterHookConfig
    | NanHookConfig
    | ProfilerHookConfig
    | SummarySaverHookConfig
    | StopAtStepHookConfig
    | GlobalStepWaiterHookConfig
    | StopAtCheckpointStepHookConfig
    | CheckpointSaverHookConfig
    | StopIfHigherHookConfig
    | StopIfLowerHookConfig
    | StopIfNoIncreaseHookConfig
    | StopIfNoDecreaseHookConfig
    | EarlyStoppingHookConfig
    | MLflowHookConfig
    | WandbHookConfig
    | CustomHookConfig
)
