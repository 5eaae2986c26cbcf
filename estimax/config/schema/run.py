"""The run file, and its sections that have no module of their own.

These are `run`, `warm_start`, `train`, `eval`, `early_stopping` and `export`. The
sections `data`, `features`, `model`, `optimizers`, `serving` and `sweep` have modules.
Most keys of `run` are derived from `RunConfig`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from estimax.config.decode import About
from estimax.config.schema.cluster import ClusterConfig
from estimax.config.schema.data import DataSection
from estimax.config.schema.derive import CodeName, derive, described
from estimax.config.schema.features import FeatureConfig
from estimax.config.schema.hooks import HookConfig
from estimax.config.schema.model import ModelConfig
from estimax.config.schema.optimizers import OptimizersSection
from estimax.config.schema.serving import ServingSection
from estimax.config.schema.sweep import SweepSection


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
    keep_every_hours: Annotated[
        float | None,
        About("Keep one checkpoint of every so many hours for good.", above=0),
    ] = 10_000.0


@dataclass(frozen=True, kw_only=True)
class RunBase:
    """The keys of `run` that are not arguments of `RunConfig`, or have another form."""

    model_dir: Annotated[
        str,
        About("The directory for checkpoints, summaries and exports.", inferred=True),
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
    report: Annotated[
        bool, About("Whether estimax train writes report.html to model_dir at its end.")
    ] = True
    compilation_cache: Annotated[
        str,
        About(
            "Where compiled programs are kept for the next start: auto (the user's "
            "cache directory), off, or a path."
        ),
    ] = "auto"


if TYPE_CHECKING:

    class RunSection(RunBase):
        """The section `run`; its derived keys are those of `RunConfig`."""

        def __getattr__(self, name: str) -> Any: ...

else:
    _NO_EFFECT = "of TensorFlow; has no effect or must be None"
    RunSection = derive(
        "RunSection",
        "estimator/run_config.py",
        "RunConfig",
        calls="estimax.estimator.RunConfig",
        base=RunBase,
        elsewhere={
            "model_dir": "`run.model_dir`",
            "tf_random_seed": "`seed`",
            "save_checkpoints_steps": "`run.save_checkpoints.every_steps`",
            "save_checkpoints_secs": "`run.save_checkpoints.every_secs`",
            "keep_checkpoint_max": "`run.save_checkpoints.keep_last`",
            "keep_checkpoint_every_n_hours": "`run.save_checkpoints.keep_every_hours`",
            "prefetch_batches": "`data.prefetch`",
            "compilation_cache_dir": "`run.compilation_cache`",
        },
        python_only=dict.fromkeys(
            (
                "session_config",
                "train_distribute",
                "device_fn",
                "protocol",
                "eval_distribute",
                "experimental_distribute",
                "experimental_max_worker_delay_secs",
                "checkpoint_save_graph_def",
            ),
            _NO_EFFECT,
        ),
        kinds={
            "cluster": ClusterConfig,
            "debug": bool | Literal["nan"],
            "resume_input": Literal["exact", "refuse", "restart", "unchecked"],
            "precision": Literal["float32", "bfloat16"],
            "shard_tables": Mapping[str, bool],
        },
        defaults={
            "shard_tables": {},
            "shard_tables_above": 128 << 20,
            "lost_after_secs": 30.0,
        },
        limits={
            "save_summary_steps": About("", at_least=0),
            "log_step_count_steps": About("", at_least=1),
            "iterations_per_loop": About("", at_least=1),
            "accumulate_steps": About("", at_least=1),
            "average_decay": About("", at_least=0, below=1),
            "devices": About("", at_least=1),
            "shard_tables_above": About("", at_least=0),
            "lost_after_secs": About("", above=0),
            "session_creation_timeout_secs": About("", above=0),
        },
        doc="The model directory, checkpoints, logging and how steps are executed.",
    )


@described(
    "estimax.checkpoints.VocabInfo",
    "checkpoints/warm_start.py",
    "VocabInfo",
    keys={
        "new_vocab": "new",
        "new_vocab_size": "new_size",
        "num_oov_buckets": "oov_buckets",
        "old_vocab": "old",
        "old_vocab_size": "old_size",
    },
)
@dataclass(frozen=True, kw_only=True)
class VocabularyChange:
    """The words of a variable's rows, in this model and in the other one."""

    new: Annotated[str, About("A file with the words of this model, one per line.")]
    new_size: Annotated[int, About("Number of words to use.", at_least=1)]
    oov_buckets: Annotated[
        int, About("Rows for unknown words, after the words.", at_least=0)
    ] = 0
    old: Annotated[str, About("A file with the words of the other model.")]
    old_size: Annotated[
        int, About("Words of the other model to use; -1 uses all.", at_least=-1)
    ] = -1
    backup_initializer: Annotated[
        CodeName | None, About("Makes the rows of new words; null makes zeros.")
    ] = None
    axis: Annotated[int, About("The axis of the words.", at_least=0, at_most=1)] = 0


@described(
    "estimax.checkpoints.WarmStartSettings",
    "checkpoints/warm_start.py",
    "WarmStartSettings",
    keys={
        "ckpt_to_initialize_from": "from",
        "vars_to_warm_start": "variables",
        "var_name_to_vocab_info": "vocabularies",
        "var_name_to_prev_var_name": "renamed",
    },
)
@dataclass(frozen=True, kw_only=True)
class WarmStartSection:
    """Start from the variables of another model if model_dir has no checkpoint."""

    from_: Annotated[
        str, About("A model directory or checkpoint, of estimax or of TensorFlow.")
    ]
    variables: Annotated[
        str | tuple[str, ...] | None,
        About(
            "Regular expression that variable names must begin with, or several; null "
            "loads only the variables in `vocabularies` and `renamed`."
        ),
    ] = ".*"
    renamed: Annotated[
        Mapping[str, str],
        About("Variable names of this model to names of the other model."),
    ] = field(default_factory=dict)
    vocabularies: Annotated[
        Mapping[str, VocabularyChange],
        About("Variables whose rows are words, for a vocabulary that has changed."),
    ] = field(default_factory=dict)
    slots: Annotated[bool, About("Load the optimizer's state as well.")] = True
    partial: Annotated[
        bool,
        About("Initialize variables that are missing or have another shape."),
    ] = False


@described(
    "estimax.estimator.TrainSpec",
    "estimator/train_evaluate.py",
    "TrainSpec",
    keys={"input_fn": "source"},
    python_only={"saving_listeners": "Python objects"},
)
@dataclass(frozen=True, kw_only=True)
class TrainSection:
    """The source to train on, and when to stop."""

    source: Annotated[str, About("A name in data.sources.")] = "train"
    max_steps: Annotated[
        int | None,
        About("Stop at this step; null stops at the end of the data.", at_least=1),
    ] = None
    hooks: Annotated[tuple[HookConfig, ...], About("Hooks of training.")] = ()


_EVAL_STEPS = About("Batches to evaluate; null evaluates the whole source.", at_least=1)
_THROTTLE = About("Least seconds between the starts of evaluations.", at_least=0)
_START_DELAY = About(
    "Seconds before the first evaluation of an evaluator in a process of its own.",
    at_least=0,
)
_EVERY_STEPS = About(
    "Evaluate at multiples of this many steps, instead of after each checkpoint.",
    at_least=1,
)


@dataclass(frozen=True, kw_only=True)
class NamedEval:
    """One more evaluation, with its own source and cadence."""

    source: Annotated[str, About("A name in data.sources.")]
    steps: Annotated[int | None, _EVAL_STEPS] = None
    throttle_secs: Annotated[float, _THROTTLE] = 0.0
    start_delay_secs: Annotated[float, _START_DELAY] = 120.0
    every_steps: Annotated[int | None, _EVERY_STEPS] = None
    hooks: Annotated[tuple[HookConfig, ...], About("Hooks of the evaluation.")] = ()


@described(
    "estimax.estimator.EvalSpec",
    "estimator/train_evaluate.py",
    "EvalSpec",
    keys={"input_fn": "source"},
    elsewhere={"exporters": "`export`"},
)
@dataclass(frozen=True, kw_only=True)
class EvalSection:
    """Evaluation after each checkpoint and at the end of training."""

    source: Annotated[str, About("A name in data.sources.")]
    name: Annotated[
        str | None,
        About("Summaries are written to eval_<name>; null writes them to eval."),
    ] = None
    steps: Annotated[int | None, _EVAL_STEPS] = None
    throttle_secs: Annotated[float, _THROTTLE] = 0.0
    start_delay_secs: Annotated[float, _START_DELAY] = 120.0
    every_steps: Annotated[int | None, _EVERY_STEPS] = None
    hooks: Annotated[tuple[HookConfig, ...], About("Hooks of the evaluation.")] = ()
    slices: Annotated[
        Mapping[str, tuple[str | int, ...]],
        About(
            "Columns with values for which the metrics are also reported, such as "
            "{gender: [F, M]}; the column must be that of a feature."
        ),
    ] = field(default_factory=dict)
    also: Annotated[
        Mapping[str, NamedEval],
        About("More evaluations by name, each with its own source and cadence."),
    ] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class EarlyStopping:
    """Stop when a metric of an evaluation has not improved for some steps."""

    metric: Annotated[str, About("The metric to compare.")] = "loss"
    mode: Annotated[
        Literal["min", "max"] | None,
        About("Which value is better; null infers it from the metric's name."),
    ] = None
    steps: Annotated[
        int, About("Stop after this many steps without a better value.", at_least=1)
    ]
    min_steps: Annotated[int, About("Never stop before this step.", at_least=0)] = 0
    min_delta: Annotated[
        float, About("Smaller improvements do not count.", at_least=0)
    ] = 0.0
    evaluation: Annotated[
        str | None, About("A name in eval.also; null means eval itself.")
    ] = None


_EXPORT_NAME = About("The directory below model_dir/export.")
_KEEP = About("Bundles to keep; null keeps all.", at_least=1)
_ASSETS = About("Files to copy into the bundle: name there to path.")
_RECEIVER = About(
    "What a request holds. columns: the features of the training input. examples: "
    "serialized tf.train.Example, parsed as the features say. Or your own function."
)
Receiver = Literal["columns", "examples"] | CodeName


@described(
    "estimax.export.BestExporter",
    "export/exporters.py",
    "BestExporter",
    keys={
        "compare_fn": "metric",
        "exports_to_keep": "keep",
        "assets_extra": "assets",
        "serving_input_receiver_fn": "receiver",
    },
    python_only={"event_file_pattern": "ignored", "as_text": "ignored"},
)
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
    assets: Annotated[Mapping[str, str], _ASSETS] = field(default_factory=dict)
    receiver: Annotated[Receiver, _RECEIVER] = "columns"


@described(
    "estimax.export.LatestExporter",
    "export/exporters.py",
    "LatestExporter",
    keys={
        "exports_to_keep": "keep",
        "assets_extra": "assets",
        "serving_input_receiver_fn": "receiver",
    },
    python_only={"as_text": "ignored"},
)
@dataclass(frozen=True, kw_only=True)
class LatestExport:
    """Export a bundle after each evaluation."""

    type: Annotated[Literal["latest"], About("After each evaluation.")] = "latest"
    name: Annotated[str, _EXPORT_NAME] = "latest"
    keep: Annotated[int | None, _KEEP] = 5
    assets: Annotated[Mapping[str, str], _ASSETS] = field(default_factory=dict)
    receiver: Annotated[Receiver, _RECEIVER] = "columns"


@described(
    "estimax.export.FinalExporter",
    "export/exporters.py",
    "FinalExporter",
    keys={"assets_extra": "assets", "serving_input_receiver_fn": "receiver"},
    python_only={"as_text": "ignored"},
)
@dataclass(frozen=True, kw_only=True)
class FinalExport:
    """Export a bundle at the end of training."""

    type: Annotated[Literal["final"], About("At the end of training.")] = "final"
    name: Annotated[str, _EXPORT_NAME] = "final"
    assets: Annotated[Mapping[str, str], _ASSETS] = field(default_factory=dict)
    receiver: Annotated[Receiver, _RECEIVER] = "columns"


Export = BestExport | LatestExport | FinalExport


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run file: data, features, model, optimizers, training and exports."""

    schema: Annotated[Literal["estimax/run/v1"], About("The version of this format.")]
    name: Annotated[
        str, About("The name of the run, for ${name} and the logs.", inferred=True)
    ]
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
    run: Annotated[
        RunSection, About("Model directory, checkpoints and logging.", inferred=True)
    ]
    data: Annotated[DataSection, About("Where the examples are.")]
    features: Annotated[
        Mapping[str, FeatureConfig], About("The inputs of the model by name.")
    ] = field(default_factory=dict)
    model: Annotated[
        ModelConfig,
        About(
            "A canned model, or a class of your own. Without it, features and model "
            "are chosen from the data.",
            inferred=True,
        ),
    ]
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
    early_stopping: Annotated[
        EarlyStopping | None, About("Stop when a metric no longer improves.")
    ] = None
    export: Annotated[
        tuple[Export, ...], About("Bundles to write after evaluations.")
    ] = ()
    serving: Annotated[
        ServingSection | None, About("How `estimax serve` serves the bundles.")
    ] = None
    sweep: Annotated[
        SweepSection | None, About("Values to try, for `estimax sweep`.")
    ] = None
