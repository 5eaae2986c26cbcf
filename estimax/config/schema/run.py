"""The run file, and its sections `run`, `warm_start`, `train`, `eval` and `export`.

The sections `data`, `features`, `model` and `optimizers` have modules of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from estimax.config.decode import About
from estimax.config.schema.data import DataSection
from estimax.config.schema.features import FeatureConfig
from estimax.config.schema.model import ModelConfig
from estimax.config.schema.optimizers import OptimizersSection


@dataclass(frozen=True, kw_only=True)
class SaveCheckpoints:
    """When to save checkpoints; by default every 600 seconds."""

    every_steps: Annotated[
        int | None, About("Steps between checkpoints.", at_least=1)
    ] = None
    every_secs: Annotated[
        int | None, About("Seconds between checkpoints.", at_least=1)
    ] = None
    keep_last: Annotated[
        int | None, About("Checkpoints to keep; null keeps all.", at_least=1)
    ] = 5


@dataclass(frozen=True, kw_only=True)
class RunSection:
    """The model directory, checkpoints, logging and how steps are executed."""

    model_dir: Annotated[
        str, About("The directory for checkpoints, summaries and exports.")
    ]
    on_existing: Annotated[
        Literal["resume", "fail", "overwrite"],
        About("What to do if model_dir already holds a run."),
    ] = "resume"
    on_config_change: Annotated[
        Literal["fail", "warn"],
        About("What to do if a resumed run describes another model or other data."),
    ] = "fail"
    save_checkpoints: Annotated[SaveCheckpoints, About("When to save checkpoints.")] = (
        SaveCheckpoints()
    )
    save_summary_steps: Annotated[
        int, About("Steps between summaries; 0 writes none.", at_least=0)
    ] = 100
    log_step_count_steps: Annotated[
        int | None, About("Steps between log lines of loss and speed.", at_least=1)
    ] = 100
    iterations_per_loop: Annotated[
        int | None,
        About(
            "Largest number of steps in one compiled call; null chooses it.",
            at_least=1,
        ),
    ] = None
    resume_input: Annotated[
        Literal["exact", "refuse", "restart", "unchecked"],
        About(
            "Where a resumed run continues in the data. restart: at the beginning, "
            "even if the data has changed. unchecked: behind the last batch, even if "
            "the data has changed."
        ),
    ] = "exact"
    precision: Annotated[
        Literal["float32", "bfloat16"],
        About("The dtype in which layers compute; variables are always float32."),
    ] = "float32"
    accumulate_steps: Annotated[
        int,
        About("Batches whose gradients are averaged for one update.", at_least=1),
    ] = 1
    compilation_cache: Annotated[
        str,
        About(
            "Where compiled programs are kept for the next start: auto (the user's "
            "cache directory), off, or a path."
        ),
    ] = "auto"


@dataclass(frozen=True, kw_only=True)
class WarmStartSection:
    """Start from the variables of another model if model_dir has no checkpoint."""

    from_: Annotated[
        str, About("A model directory or checkpoint, of estimax or of TensorFlow.")
    ]
    variables: Annotated[
        str, About("Regular expression that variable names must begin with.")
    ] = ".*"
    renamed: Annotated[
        Mapping[str, str],
        About("Variable names of this model to names of the other model."),
    ] = field(default_factory=dict)
    slots: Annotated[bool, About("Load the optimizer's state as well.")] = True
    partial: Annotated[
        bool,
        About("Initialize variables that are missing or have another shape."),
    ] = False


@dataclass(frozen=True, kw_only=True)
class TrainSection:
    """The source to train on, and when to stop."""

    source: Annotated[str, About("A name in data.sources.")] = "train"
    max_steps: Annotated[
        int | None,
        About("Stop at this step; null stops at the end of the data.", at_least=1),
    ] = None


@dataclass(frozen=True, kw_only=True)
class EvalSection:
    """Evaluation after each checkpoint and at the end of training."""

    source: Annotated[str, About("A name in data.sources.")]
    name: Annotated[
        str | None,
        About("Summaries are written to eval_<name>; null writes them to eval."),
    ] = None
    steps: Annotated[
        int | None,
        About("Batches to evaluate; null evaluates the whole source.", at_least=1),
    ] = None
    throttle_secs: Annotated[
        int, About("Least seconds between the starts of evaluations.", at_least=0)
    ] = 0


_EXPORT_NAME = About("The directory below model_dir/export.")
_KEEP = About("Bundles to keep; null keeps all.", at_least=1)


@dataclass(frozen=True, kw_only=True)
class BestExport:
    """Export a bundle after each evaluation that is better than all before it."""

    type: Annotated[Literal["best"], About("After the best evaluation.")] = "best"
    name: Annotated[str, _EXPORT_NAME] = "best"
    metric: Annotated[str, About("The metric to compare.")] = "loss"
    mode: Annotated[
        Literal["min", "max"] | None,
        About("Which value is better; null infers it from the metric's name."),
    ] = None
    keep: Annotated[int | None, _KEEP] = 5


@dataclass(frozen=True, kw_only=True)
class LatestExport:
    """Export a bundle after each evaluation."""

    type: Annotated[Literal["latest"], About("After each evaluation.")] = "latest"
    name: Annotated[str, _EXPORT_NAME] = "latest"
    keep: Annotated[int | None, _KEEP] = 5


@dataclass(frozen=True, kw_only=True)
class FinalExport:
    """Export a bundle at the end of training."""

    type: Annotated[Literal["final"], About("At the end of training.")] = "final"
    name: Annotated[str, _EXPORT_NAME] = "final"


Export = BestExport | LatestExport | FinalExport


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run file: data, features, model, optimizers, training and exports."""

    schema: Annotated[Literal["estimax/run/v1"], About("The version of this format.")]
    name: Annotated[str, About("The name of the run, for ${name} and the logs.")]
    seed: Annotated[
        int,
        About(
            "Seed of initial weights, dropout and shuffling.",
            at_least=0,
            at_most=2**32 - 1,  # jax keeps 32 bits: 2**32 would be the same as 0
        ),
    ] = 0
    include: Annotated[
        tuple[str, ...],
        About("Files to merge, relative to this file, whose values take precedence."),
    ] = ()
    vars: Annotated[
        Mapping[str, Any], About("Values to use elsewhere as ${vars.x}.")
    ] = field(default_factory=dict)
    metadata: Annotated[
        Mapping[str, Any], About("Any values for your own use; estimax ignores them.")
    ] = field(default_factory=dict)
    run: Annotated[RunSection, About("Model directory, checkpoints and logging.")]
    data: Annotated[DataSection, About("Where the examples are.")]
    features: Annotated[
        Mapping[str, FeatureConfig], About("The inputs of the model by name.")
    ] = field(default_factory=dict)
    model: Annotated[ModelConfig, About("A canned model, or a class of your own.")]
    optimizers: Annotated[OptimizersSection, About("An optimizer for each part.")] = (
        field(default_factory=OptimizersSection)
    )
    warm_start: Annotated[
        WarmStartSection | None, About("A model whose variables to start from.")
    ] = None
    train: Annotated[TrainSection, About("The source and when to stop.")] = (
        TrainSection()
    )
    eval: Annotated[EvalSection | None, About("Evaluation during training.")] = None
    export: Annotated[
        tuple[Export, ...], About("Bundles to write after evaluations.")
    ] = ()
