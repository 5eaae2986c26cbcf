"""A whole run: the top of the file, and the sections about when things happen."""

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
    """When checkpoints are written; by default every 600 seconds."""

    every_steps: Annotated[int | None, About("So many steps apart.", at_least=1)] = None
    every_secs: Annotated[int | None, About("So many seconds apart.", at_least=1)] = (
        None
    )
    keep_last: Annotated[
        int | None, About("Keep the newest; null keeps all.", at_least=1)
    ] = 5


@dataclass(frozen=True, kw_only=True)
class RunSection:
    """Where the run lives and how it reports."""

    model_dir: Annotated[str, About("Checkpoints, summaries and exports go here.")]
    on_existing: Annotated[
        Literal["resume", "fail", "overwrite"],
        About("When model_dir already holds a run."),
    ] = "resume"
    on_config_change: Annotated[
        Literal["fail", "warn"],
        About("When a resumed run describes another model or other data."),
    ] = "fail"
    save_checkpoints: Annotated[SaveCheckpoints, About("When to save.")] = (
        SaveCheckpoints()
    )
    save_summary_steps: Annotated[
        int, About("Steps between summaries; 0 writes none.", at_least=0)
    ] = 100
    log_step_count_steps: Annotated[
        int | None, About("Steps between reports of the loss.", at_least=1)
    ] = 100
    iterations_per_loop: Annotated[
        int | None,
        About("Steps in one compiled call, at most; null: as many as pay.", at_least=1),
    ] = None
    resume_input: Annotated[
        Literal["exact", "refuse", "restart", "unchecked"],
        About(
            "Where a resumed run goes on in the data; restart: at its beginning, also "
            "if the data has changed; unchecked: behind the last batch, also then."
        ),
    ] = "exact"
    precision: Annotated[
        Literal["float32", "bfloat16"],
        About("What layers compute in; variables are float32 in any case."),
    ] = "float32"
    accumulate_steps: Annotated[
        int, About("Batches whose gradients make up one step.", at_least=1)
    ] = 1
    compilation_cache: Annotated[
        str,
        About(
            "auto: in your cache folder, so that the next start is fast; off; a path."
        ),
    ] = "auto"


@dataclass(frozen=True, kw_only=True)
class WarmStartSection:
    """Another model to start from, when model_dir has no checkpoint yet."""

    from_: Annotated[str, About("A model_dir or checkpoint; TensorFlow's as well.")]
    variables: Annotated[
        str, About("Those whose names match this expression at their start.")
    ] = ".*"
    renamed: Annotated[
        Mapping[str, str], About("Names in this model to those in the other.")
    ] = field(default_factory=dict)
    slots: Annotated[bool, About("Take the optimizer's state along.")] = True
    partial: Annotated[
        bool, About("Start what is missing or of another shape from scratch.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class TrainSection:
    """How long to train, on what."""

    source: Annotated[str, About("A name in data.sources.")] = "train"
    max_steps: Annotated[
        int | None,
        About("Stop at this step; null when the source ends.", at_least=1),
    ] = None


@dataclass(frozen=True, kw_only=True)
class EvalSection:
    """Evaluation, after each checkpoint and at the end."""

    source: Annotated[str, About("A name in data.sources.")]
    name: Annotated[str | None, About("Its folder is eval_<name>; null: eval.")] = None
    steps: Annotated[
        int | None, About("Batches to use; null uses the whole source.", at_least=1)
    ] = None
    throttle_secs: Annotated[
        int, About("Skip when the last one began less long ago.", at_least=0)
    ] = 0


@dataclass(frozen=True, kw_only=True)
class BestExport:
    """A bundle whenever an evaluation beats all before it."""

    type: Annotated[Literal["best"], About("The best so far.")] = "best"
    name: Annotated[str, About("Its folder under model_dir/export.")] = "best"
    metric: Annotated[str, About("A metric of the evaluation.")] = "loss"
    mode: Annotated[
        Literal["min", "max"] | None,
        About("Which is better; null when the metric's name tells."),
    ] = None
    keep: Annotated[int | None, About("Keep the newest; null: all.", at_least=1)] = 5


@dataclass(frozen=True, kw_only=True)
class LatestExport:
    """A bundle after each evaluation."""

    type: Annotated[Literal["latest"], About("Each time.")] = "latest"
    name: Annotated[str, About("Its folder under model_dir/export.")] = "latest"
    keep: Annotated[int | None, About("Keep the newest; null: all.", at_least=1)] = 5


@dataclass(frozen=True, kw_only=True)
class FinalExport:
    """A bundle at the end of training."""

    type: Annotated[Literal["final"], About("Once, at the end.")] = "final"
    name: Annotated[str, About("Its folder under model_dir/export.")] = "final"


Export = BestExport | LatestExport | FinalExport


@dataclass(frozen=True, kw_only=True)
class Run:
    """One YAML file: data, features, model, optimizers, training and exports."""

    schema: Annotated[Literal["estimax/run/v1"], About("The version of this format.")]
    name: Annotated[str, About("The run's name, for ${name} and the logs.")]
    seed: Annotated[
        int,
        About(
            "Initial weights, dropout and shuffling follow from it.",
            at_least=0,
            at_most=2**32 - 1,  # jax keeps 32 bits: 2**32 would be the same as 0
        ),
    ] = 0
    include: Annotated[
        tuple[str, ...],
        About("Files to start from, relative to this one; this one wins."),
    ] = ()
    vars: Annotated[
        Mapping[str, Any], About("Values to use elsewhere as ${vars.x}.")
    ] = field(default_factory=dict)
    metadata: Annotated[
        Mapping[str, Any], About("Anything you like; estimax does not read it.")
    ] = field(default_factory=dict)
    run: Annotated[RunSection, About("Where the run lives and how it reports.")]
    data: Annotated[DataSection, About("The examples.")]
    features: Annotated[
        Mapping[str, FeatureConfig], About("What the model may look at.")
    ] = field(default_factory=dict)
    model: Annotated[ModelConfig, About("A stock model, or a class of your own.")]
    optimizers: Annotated[OptimizersSection, About("How each part learns.")] = field(
        default_factory=OptimizersSection
    )
    warm_start: Annotated[
        WarmStartSection | None, About("Another model to start from.")
    ] = None
    train: Annotated[TrainSection, About("How long to train, on what.")] = (
        TrainSection()
    )
    eval: Annotated[EvalSection | None, About("Evaluation beside training.")] = None
    export: Annotated[
        tuple[Export, ...], About("Bundles to write after evaluations.")
    ] = ()
