"""The hooks of `train.hooks` and `eval.hooks`, derived from `estimax.hooks`.

train:
  hooks:
    - {type: profiler, save_steps: 1000}
    - {type: logging, tensors: [loss], every_n_iter: 50}
    - {class: "my_package.hooks:SlackHook", params: {channel: "#training"}}
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from estimax.config.decode import About
from estimax.config.schema.derive import CodeName, derive

_STEPS = About("", at_least=1)
_SECS = About("", at_least=0)
_LIMITS = {
    "every_n_iter": _STEPS,
    "every_n_steps": _STEPS,
    "save_steps": _STEPS,
    "num_steps": _STEPS,
    "last_step": _STEPS,
    "run_every_steps": _STEPS,
    "save_secs": _SECS,
    "every_n_secs": _SECS,
    "run_every_secs": _SECS,
}
_TENSORFLOW = dict.fromkeys(
    ("saver", "scaffold", "summary_op", "final_ops_feed_dict"),
    "of TensorFlow; must be None",
)


def _hook(file: str, name: str, tag: str, **options: Any) -> Any:
    given = options.pop("python_only", {})
    return derive(
        f"{''.join(word.title() for word in tag.split('_'))}HookConfig",
        f"hooks/{file}.py",
        name,
        calls=f"estimax.hooks.{name}",
        tag=("type", tag),
        tag_doc=f"`ex.hooks.{name}`.",
        elsewhere=options.pop("elsewhere", {}),
        python_only=given,
        kinds={"Pathish": str, **options.pop("kinds", {})},
        limits=_LIMITS,
        **options,
    )


_OF_ESTIMATOR = {"estimator": "the model of the run"}
_OUTPUT = {"output_dir": "`run.model_dir`"}
LoggingHookConfig = _hook(
    "progress",
    "LoggingTensorHook",
    "logging",
    kinds={"tensors": tuple[str, ...], "formatter": CodeName},
)
StepCounterHookConfig = _hook(
    "progress", "StepCounterHook", "step_counter", elsewhere=_OUTPUT
)
NanHookConfig = _hook("guards", "NanTensorHook", "nan")
ProfilerHookConfig = _hook("tensorboard", "ProfilerHook", "profiler", elsewhere=_OUTPUT)
SummaryHookConfig = _hook(
    "tensorboard",
    "SummarySaverHook",
    "summary_saver",
    elsewhere=_OUTPUT,
    python_only={k: _TENSORFLOW[k] for k in ("scaffold", "summary_op")},
)
StopAtStepHookConfig = _hook("stopping", "StopAtStepHook", "stop_at_step")
WaiterHookConfig = _hook("stopping", "GlobalStepWaiterHook", "global_step_waiter")
CheckpointStepHookConfig = _hook(
    "stopping",
    "make_stop_at_checkpoint_step_hook",
    "stop_at_checkpoint_step",
    elsewhere=_OF_ESTIMATOR,
)
CheckpointSaverHookConfig = _hook(
    "checkpointing",
    "CheckpointSaverHook",
    "checkpoint_saver",
    python_only={
        **{k: _TENSORFLOW[k] for k in ("saver", "scaffold")},
        "listeners": "Python objects; name a hook of your own with `class`",
    },
)


def _early(name: str, tag: str, **options: Any) -> Any:
    return _hook("early_stopping", name, tag, elsewhere=_OF_ESTIMATOR, **options)


_EARLY = (
    _early("stop_if_higher_hook", "stop_if_higher"),
    _early("stop_if_lower_hook", "stop_if_lower"),
    _early("stop_if_no_increase_hook", "stop_if_no_increase"),
    _early("stop_if_no_decrease_hook", "stop_if_no_decrease"),
    _early(
        "make_early_stopping_hook",
        "early_stopping",
        kinds={"should_stop_fn": CodeName},
    ),
)


@dataclass(frozen=True, kw_only=True)
class CustomHookConfig:
    """A hook of your own."""

    class_: Annotated[CodeName, About('"package.module:Name" of the hook.')]
    params: Annotated[Mapping[str, Any], About("Its keyword arguments.")] = field(
        default_factory=dict
    )


DERIVED_HOOKS = (
    LoggingHookConfig,
    StepCounterHookConfig,
    NanHookConfig,
    ProfilerHookConfig,
    SummaryHookConfig,
    StopAtStepHookConfig,
    WaiterHookConfig,
    CheckpointStepHookConfig,
    CheckpointSaverHookConfig,
    *_EARLY,
)
if TYPE_CHECKING:
    # Derived sections are classes made at run time.
    HookConfig = Any
else:
    HookConfig = functools.reduce(operator.or_, (*DERIVED_HOOKS, CustomHookConfig))
