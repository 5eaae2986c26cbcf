"""The run file, and its sections that have no module of their own.

These are `run`, `warm_start`, `train`, `eval`, `test`, `early_stopping`,
`export` and `sweep`.
The sections `data`, `features`, `model`, `optimizers` and `serving` have modules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from estimax.config.schema.data import DataSection
from estimax.config.schema.features import FeatureConfig
from estimax.config.schema.hooks import HookConfig
from estimax.config.schema.model import ModelConfig
from estimax.config.schema.optimizers import OptimizersSection
from estimax.config.schema.section import (
    INFERRED,
    CodeName,
    Decay,
    Items,
    Limits,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    calls,
)
from estimax.config.schema.serving import ServingSection


@dataclass(frozen=True, kw_only=True)
class SaveCheckpoints:
    """When to save checkpoints; by default every 600 seconds.

    Args:
      every_steps: Steps between checkpoints.
      every_secs: Seconds between checkpoints.
      keep_last: Checkpoints to keep; null keeps all.
      keep_every_hours: Keep one checkpoint of every so many hours for good.
    """

    every_steps: PositiveInt | None = None
    every_secs: PositiveInt | None = None
    keep_last: PositiveInt | None = 5
    keep_every_hours: PositiveFloat | None = 10_000.0


@dataclass(frozen=True, kw_only=True)
class TaskConfig:
    """The role of a process in a cluster with a chief.

    Args:
      type: What the process does.
      index: The number of this process among those of its type.
    """

    type: Literal["chief", "worker", "evaluator"]
    index: NonNegativeInt = 0


@dataclass(frozen=True, kw_only=True)
class MasterTaskConfig:
    """The role of a process in a cluster with a master.

    Args:
      type: What the process does.
      index: The number of this process among those of its type.
    """

    type: Literal["master", "worker"]
    index: NonNegativeInt = 0


class ClusterSection:
    """The descriptions of keys that several clusters have.

    Args:
      worker: The addresses of the workers; only their number matters.
      task: The role of this process; it differs between the processes.
    """


@dataclass(frozen=True, kw_only=True)
class ChiefClusterConfig(ClusterSection):
    """A cluster whose chief only trains; an evaluator may follow it.

    Args:
      chief: The address of process 0, host:port, where the others connect.
    """

    chief: str
    worker: tuple[str, ...] = ()
    task: TaskConfig


@dataclass(frozen=True, kw_only=True)
class MasterClusterConfig(ClusterSection):
    """A cluster whose first process trains and evaluates.

    Args:
      master: The address of process 0, host:port, where the others connect.
    """

    master: str
    worker: tuple[str, ...] = ()
    task: MasterTaskConfig


@dataclass(frozen=True, kw_only=True)
class CoordinatedClusterConfig(ClusterSection):
    """A cluster of numbered processes; process 0 is the chief and evaluates.

    Args:
      coordinator: The address of process 0, host:port, where the others connect.
      processes: The number of processes that train.
      process: The number of this process, from 0.
    """

    coordinator: str
    processes: PositiveInt
    process: NonNegativeInt


JobsConfig = ChiefClusterConfig | MasterClusterConfig
Detected = Literal["auto", "slurm", "k8s", "ompi", "mpi4py"]
ClusterConfig = Detected | JobsConfig | CoordinatedClusterConfig


@calls(
    "estimax.estimator.RunConfig",
    own=(
        "model_dir",
        "on_existing",
        "on_config_change",
        "save_checkpoints",
        "report",
        "compare",
        "compilation_cache",
    ),
)
@dataclass(frozen=True, kw_only=True)
class RunSection:
    """The model directory, checkpoints, logging and how steps are executed.

    Args:
      model_dir: The directory for checkpoints, summaries and exports.
      on_existing: What to do if model_dir already holds a run.
      on_config_change: What to do if a resumed run describes another model or other
        data.
      save_checkpoints: When to save checkpoints.
      report: Whether estimax train writes report.html to model_dir at its end.
      compare: Whether estimax train shows, beside the metrics, those of a linear model
        and (if it is installed) of LightGBM with its defaults, on the same rows. Both
        are trained in a process of low priority meanwhile.
      compilation_cache: Where compiled programs are kept for the next start: auto (the
        user's cache directory), off, or a path.
      save_summary_steps: Steps between two summaries; 0 or None writes none.
      log_step_count_steps: Steps between two log lines with loss and speed; None logs
        none.
      session_creation_timeout_secs: Seconds that a process of a cluster waits at the
        start for the others.
      iterations_per_loop: Most steps to run in one compiled loop when no hook is called
        in between. None chooses by the size of a batch; 1 runs single steps. On a CPU,
        models with convolutions always run single steps, because XLA is slow in loops.
      debug: True runs the `model_fn` without jit, so that print and pdb work. "nan"
        checks every step and raises an error that names the first value that is not
        finite.
      resume_input: Where the data continues when training resumes. "exact", or True,
        continues after the last batch trained on. For a Dataset, a list or an iterator
        with `get_state` and `set_state` this takes no time; a plain iterator is read up
        to that batch. After a normal end only the same Dataset continues; other input
        is read from its beginning. If the files or arrays of a Dataset have changed
        after an interruption, ChangedInputError is raised. "refuse" raises in both
        cases, and for a plain iterator. "restart", or False, reads the data from its
        beginning in every call; model and step are kept. "unchecked" is "exact" without
        comparing the data: use it when only rows not yet read have changed.
      average_decay: Decay of an exponential moving average of every trained variable,
        in [0, 1), e.g. 0.999. None keeps no averages. An embedding table then costs
        time and memory of its full size at every step.
      use_averages: Whether evaluation, prediction and export use the averages in place
        of the variables, if there are any.
      precision: "float32", or "bfloat16" to let layers compute in bfloat16. Variables,
        optimizer state and the loss stay float32.
      accumulate_steps: Batches per step. The gradients of n batches are averaged over
        their examples before one update, in the memory of one batch. A step is an
        update, so each step reads n batches.
      devices: The devices that share every step: a number, "all", or a list of JAX
        devices. The batch is split over them. By default all devices of an accelerator
        are used, and one device of a CPU, whose further devices are simulated; in a
        cluster, all devices of all processes.
      shard_tables_above: Embedding tables of this many bytes or more are sharded by row
        over the devices, so that each holds one part; smaller ones are copied to every
        device. None shards none. With one device it has no effect.
      shard_tables: Exceptions by name: a dict from a regular expression, found in the
        name of a table such as "dnn/city_embedding/embedding_weights", to whether it is
        sharded. The first that is found decides.
      cluster: The processes that train one model, instead of TF_CONFIG: a dict of the
        same content; a dict with the address of process 0 as "coordinator"
        ("host:port"), the number of "processes", and the number of this "process"; or
        "slurm", "k8s", "ompi", "mpi4py" or "auto" to let JAX detect them, which
        connects them at once.
      lost_after_secs: Seconds without a sign of life after which a process of a cluster
        counts as lost, and the others end. They also end if all of them wait for each
        other in different places for so long. Signs of life come from a Python thread:
        choose more seconds than any single call holds Python's lock (GIL).
      split_batches: Whether, in a cluster, every process reads the whole training data
        and trains on its part of the rows of each batch, which is the same training as
        in one process. An `input_fn` with the argument `input_context` returns a share
        of the data for its process instead, and so does every `input_fn` if this is
        False.
    """

    model_dir: Annotated[str, INFERRED]
    on_existing: Literal["resume", "fail", "overwrite"] = "resume"
    on_config_change: Literal["fail", "warn"] = "fail"
    save_checkpoints: SaveCheckpoints = SaveCheckpoints()
    report: bool = True
    compare: bool = False
    compilation_cache: str = "auto"
    save_summary_steps: NonNegativeInt | None = 100
    log_step_count_steps: PositiveInt | None = 100
    session_creation_timeout_secs: PositiveFloat = 7200.0
    iterations_per_loop: PositiveInt | None = None
    debug: bool | Literal["nan"] = False
    resume_input: Literal["exact", "refuse", "restart", "unchecked"] = "exact"
    average_decay: Decay | None = None
    use_averages: bool = True
    precision: Literal["float32", "bfloat16"] = "float32"
    accumulate_steps: PositiveInt = 1
    devices: PositiveInt | str | None = None
    shard_tables_above: NonNegativeInt | None = 128 << 20
    shard_tables: Mapping[str, bool] = field(default_factory=dict)
    cluster: ClusterConfig | None = None
    lost_after_secs: PositiveFloat = 30.0
    split_batches: bool = True


@calls(
    "estimax.checkpoints.VocabInfo",
    {
        "new": "new_vocab",
        "new_size": "new_vocab_size",
        "oov_buckets": "num_oov_buckets",
        "old": "old_vocab",
        "old_size": "old_vocab_size",
    },
)
@dataclass(frozen=True, kw_only=True)
class VocabularyChange:
    """The words of a variable's rows, in this model and in the other one.

    Args:
      new: A file with the words of this model, one per line.
      new_size: Number of words to use.
      oov_buckets: Rows for unknown words, after the words.
      old: A file with the words of the other model.
      old_size: Words of the other model to use; -1 uses all.
      backup_initializer: Makes the rows of new words; null makes zeros.
      axis: The axis of the words.
    """

    new: str
    new_size: PositiveInt
    oov_buckets: NonNegativeInt = 0
    old: str
    old_size: Annotated[int, Limits(at_least=-1)] = -1
    backup_initializer: CodeName | None = None
    axis: Annotated[int, Limits(at_least=0, at_most=1)] = 0


@dataclass(frozen=True, kw_only=True)
class WarmStartSection:
    """Start from the variables of another model if model_dir has no checkpoint.

    Args:
      from_: A model directory or checkpoint, of estimax or of TensorFlow.
      variables: Regular expression that variable names must begin with, or several;
        null loads only the variables in `vocabularies` and `renamed`.
      renamed: Variable names of this model to names of the other model.
      vocabularies: Variables whose rows are words, for a vocabulary that has changed.
      slots: Load the optimizer's state as well.
      partial: Initialize variables that are missing or have another shape.
    """

    from_: str
    variables: str | tuple[str, ...] | None = ".*"
    renamed: Mapping[str, str] = field(default_factory=dict)
    vocabularies: Mapping[str, VocabularyChange] = field(default_factory=dict)
    slots: bool = True
    partial: bool = False


@dataclass(frozen=True, kw_only=True)
class TrainSection:
    """The source to train on, and when to stop.

    Args:
      source: A name in data.sources.
      max_steps: Stop at this step; null stops at the end of the data.
      hooks: Hooks of training.
    """

    source: str = "train"
    max_steps: PositiveInt | None = None
    hooks: tuple[HookConfig, ...] = ()


class EvaluationSection:
    """The descriptions of keys that all evaluations have.

    Args:
      source: A name in data.sources.
      steps: Batches to evaluate; null evaluates the whole source.
      throttle_secs: Least seconds between the starts of evaluations.
      start_delay_secs: Seconds before the first evaluation of an evaluator in a process
        of its own.
      every_steps: Evaluate at multiples of this many steps, instead of after each
        checkpoint.
      hooks: Hooks of the evaluation.
    """


@dataclass(frozen=True, kw_only=True)
class NamedEval(EvaluationSection):
    """One more evaluation, with its own source and cadence."""

    source: str
    steps: PositiveInt | None = None
    throttle_secs: NonNegativeFloat = 0.0
    start_delay_secs: NonNegativeFloat = 120.0
    every_steps: PositiveInt | None = None
    hooks: tuple[HookConfig, ...] = ()


@dataclass(frozen=True, kw_only=True)
class EvalSection(EvaluationSection):
    """Evaluation after each checkpoint and at the end of training.

    Args:
      name: Summaries are written to eval_<name>; null writes them to eval.
      slices: Columns with values for which the metrics are also reported, such as
        {gender: [F, M]}; the column must be that of a feature.
      also: More evaluations by name, each with its own source and cadence.
    """

    source: str
    name: str | None = None
    steps: PositiveInt | None = None
    throttle_secs: NonNegativeFloat = 0.0
    start_delay_secs: NonNegativeFloat = 120.0
    every_steps: PositiveInt | None = None
    hooks: tuple[HookConfig, ...] = ()
    slices: Mapping[str, tuple[str | int, ...]] = field(default_factory=dict)
    also: Mapping[str, NamedEval] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TestSection:
    """An evaluation after the end of training, on rows that decided nothing.

    It evaluates the checkpoint of the best export, or the last one if there is none.

    Args:
      source: A name in data.sources.
      steps: Batches to evaluate; null evaluates the whole source.
    """

    source: str
    steps: PositiveInt | None = None


@dataclass(frozen=True, kw_only=True)
class EarlyStopping:
    """Stop when a metric of an evaluation has not improved for some steps.

    Args:
      metric: The metric to compare.
      mode: Which value is better; null infers it from the metric's name.
      steps: Stop after this many steps without a better value.
      min_steps: Never stop before this step.
      min_delta: Smaller improvements do not count.
      evaluation: A name in eval.also; null means eval itself.
    """

    metric: str = "loss"
    mode: Literal["min", "max"] | None = None
    steps: PositiveInt
    min_steps: NonNegativeInt = 0
    min_delta: NonNegativeFloat = 0.0
    evaluation: str | None = None


Receiver = Literal["columns", "examples"] | CodeName
CalibrationName = Literal["temperature", "platt", "isotonic"]


class ExporterSection:
    """The descriptions of keys that several exports have.

    Args:
      name: The directory below model_dir/export.
      keep: Bundles to keep; null keeps all.
      assets: Files to copy into the bundle: name there to path.
      receiver: What a request holds. columns: the features of the training input.
        examples: serialized tf.train.Example, parsed as the features say. Or your own
        function.
      explain: Whether bundles also answer with the part of each feature in the output,
        as the signature "explain".
      calibrate: Fit a calibration on the source of eval, and add
        calibrated_probabilities to the predictions of the bundle. temperature: one
        number. platt: two, for each class. isotonic: a curve, for 1,000 rows or more.
      table_dtype: Store the embedding tables of the bundle in a half (float16) or about
        a quarter (int8, with a scale for each row) of the space.
      max_table_error: By how much an output may change by `table_dtype`, as a share of
        its largest value on the example rows; the export fails if it changes more.
    """


@dataclass(frozen=True, kw_only=True)
class BestExport(ExporterSection):
    """Export a bundle after each evaluation that is better than all before it.

    Args:
      type: After the best evaluation.
      metric: The metric to compare.
      mode: Which value is better; null infers it from the metric's name.
    """

    type: Literal["best"] = "best"
    name: str = "best"
    metric: str = "loss"
    mode: Literal["min", "max"] | None = None
    keep: PositiveInt | None = 5
    assets: Mapping[str, str] = field(default_factory=dict)
    receiver: Receiver = "columns"
    explain: bool = False
    calibrate: CalibrationName | None = None
    table_dtype: Literal["float16", "int8"] | None = None
    max_table_error: PositiveFloat = 0.01


@dataclass(frozen=True, kw_only=True)
class LatestExport(ExporterSection):
    """Export a bundle after each evaluation.

    Args:
      type: After each evaluation.
    """

    type: Literal["latest"] = "latest"
    name: str = "latest"
    keep: PositiveInt | None = 5
    assets: Mapping[str, str] = field(default_factory=dict)
    receiver: Receiver = "columns"
    explain: bool = False
    calibrate: CalibrationName | None = None
    table_dtype: Literal["float16", "int8"] | None = None
    max_table_error: PositiveFloat = 0.01


@dataclass(frozen=True, kw_only=True)
class FinalExport(ExporterSection):
    """Export a bundle at the end of training.

    Args:
      type: At the end of training.
    """

    type: Literal["final"] = "final"
    name: str = "final"
    assets: Mapping[str, str] = field(default_factory=dict)
    receiver: Receiver = "columns"
    explain: bool = False
    calibrate: CalibrationName | None = None
    table_dtype: Literal["float16", "int8"] | None = None
    max_table_error: PositiveFloat = 0.01


Export = BestExport | LatestExport | FinalExport


@dataclass(frozen=True, kw_only=True)
class SpaceSection:
    """The values that a sweep tries at one address. Give exactly one of the keys.

    Args:
      choice: One of these values.
      uniform: A number between two limits.
      log_uniform: A number between two limits, uniform in its logarithm.
      int_uniform: A whole number between two limits, both included.
    """

    choice: Annotated[tuple[Any, ...], Items(at_least=1)] | None = None
    uniform: Annotated[tuple[float, ...], Items(at_least=2)] | None = None
    log_uniform: Annotated[tuple[PositiveFloat, ...], Items(at_least=2)] | None = None
    int_uniform: Annotated[tuple[int, ...], Items(at_least=2)] | None = None


@dataclass(frozen=True, kw_only=True)
class PruneSection:
    """Stop a trial early if its metric is worse than the median of the others.

    Args:
      min_evals: Evaluations of a trial before it may be stopped.
      min_trials: Other trials that must have come as far.
    """

    min_evals: PositiveInt = 2
    min_trials: PositiveInt = 4


@dataclass(frozen=True, kw_only=True)
class SweepSection:
    """Trials of the run with different values, started by `estimax sweep`.

    Args:
      method: random: independent trials; grid: every combination of the choices;
        optuna: trials that learn from earlier ones. All need optuna (pip install
        estimax[sweep]).
      trials: Number of trials; a grid has as many as combinations.
      processes: Trials that run at the same time.
      metric: The metric to improve; by default that of the head, such as auc.
      mode: Whether a small or a large metric is better; null decides by its name.
      prune: Stop bad trials early; null runs all to the end.
      space: Addresses of the run, as for --set, with the values to try.
    """

    method: Literal["random", "grid", "optuna"] = "random"
    trials: PositiveInt = 20
    processes: PositiveInt = 1
    metric: str | None = None
    mode: Literal["min", "max"] | None = None
    prune: PruneSection | None = None
    space: Mapping[str, SpaceSection] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run file: data, features, model, optimizers, training and exports.

    Args:
      schema: The version of this format.
      name: The name of the run, for ${name} and the logs.
      seed: Seed of initial weights, dropout and shuffling.
      include: Files to merge, relative to this file, whose values take precedence.
      vars: Values to use elsewhere as ${vars.x}.
      metadata: Any values for your own use; estimax ignores them.
      run: Model directory, checkpoints and logging.
      data: Where the examples are.
      features: The inputs of the model by name.
      model: A canned model, or a class of your own. Without it, features and model are
        chosen from the data.
      optimizers: An optimizer for each part.
      warm_start: A model whose variables to start from.
      train: The source and when to stop.
      eval: Evaluation during training.
      test: Evaluation after training, which decides nothing.
      early_stopping: Stop when a metric no longer improves.
      export: Bundles to write after evaluations.
      serving: How `estimax serve` serves the bundles.
      sweep: Values to try, for `estimax sweep`.
    """

    schema: Literal["estimax/run/v1"]
    name: Annotated[str, INFERRED]
    seed: Annotated[int, Limits(at_least=0, at_most=2**32 - 1)] = 0
    include: tuple[str, ...] = ()
    vars: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    run: Annotated[RunSection, INFERRED]
    data: DataSection
    features: Mapping[str, FeatureConfig] = field(default_factory=dict)
    model: Annotated[ModelConfig, INFERRED]
    optimizers: OptimizersSection = field(default_factory=OptimizersSection)
    warm_start: WarmStartSection | None = None
    train: TrainSection = TrainSection()
    eval: EvalSection | None = None
    test: TestSection | None = None
    early_stopping: EarlyStopping | None = None
    export: tuple[Export, ...] = ()
    serving: ServingSection | None = None
    sweep: SweepSection | None = None
