"""Build the estimator and the specs of a checked run.

    built = build(load("run.yaml"))
    ex.train_and_evaluate(built.estimator, built.train_spec(), built.eval_spec())

`plan` describes the whole run as expressions (`expressions.py`), which `build`
evaluates and `estimax python` prints. Evaluating imports jax; the rest does not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from estimax.config.baseline import yaml_hint
from estimax.config.build_columns import ColumnBuilder
from estimax.config.build_custom import check_code, custom_call
from estimax.config.build_input import input_fn, slice_name
from estimax.config.build_model import model_call
from estimax.config.checks import better
from estimax.config.columns import column_of, kind_of
from estimax.config.expressions import (
    CallExpression,
    Function,
    Known,
    Reference,
    call_of,
    changed_values,
    evaluate,
    expression_of,
)
from estimax.config.load import LoadedRun
from estimax.config.saved import config_dir
from estimax.config.schema.features import COMPUTED, WeightedConfig
from estimax.config.schema.hooks import (
    CustomHookConfig,
    MLflowHookConfig,
    ProfilerHookConfig,
    StepCounterHookConfig,
    StopAtCheckpointStepHookConfig,
    StoppingHookSection,
    SummarySaverHookConfig,
    WandbHookConfig,
)
from estimax.config.schema.model import CustomModelConfig, ModelFnConfig
from estimax.config.schema.run import (
    BestExport,
    ChiefClusterConfig,
    ClusterConfig,
    CoordinatedClusterConfig,
    EarlyStopping,
    EvalSection,
    Export,
    FinalExport,
    NamedEval,
    Run,
    VocabularyChange,
    WarmStartSection,
)
from estimax.config.statistics import Statistics, statistics_for

if TYPE_CHECKING:  # loads jax
    from estimax.estimator import Estimator, TrainSpec


@dataclass(frozen=True)
class Inputs:
    """The input functions of a run, each made once.

    Args:
      run: The run.
      statistics: What parts of the data take from it.
      made: The input functions made so far, by source.
    """

    run: Run
    statistics: Statistics
    made: dict[str, Function] = field(default_factory=dict)

    def of(self, source: str) -> Function:
        """Return the input function of a source, the same one each time."""
        if source not in self.made:
            self.made[source] = input_fn(self.run, source, self.statistics.cuts)
        return self.made[source]


@dataclass(frozen=True)
class RunPlan:
    """A run as expressions.

    Args:
      run: The run.
      model: The estimator.
      columns: The columns of the features, for requests of examples.
      statistics: What features take from the data.
      inputs: The input functions.
    """

    run: Run
    model: CallExpression
    columns: ColumnBuilder
    statistics: Statistics
    inputs: Inputs

    def input_fn(self, source: str) -> Function:
        """Return the input function of a source, the same one each time."""
        return self.inputs.of(source)

    def train_spec(self) -> CallExpression:
        """Return the `TrainSpec`."""
        train = self.run.train
        given = changed_values(train, "max_steps")
        hooks = [hook_call(self.run, hook, self.model) for hook in train.hooks]
        if self.run.early_stopping is not None:
            hooks.append(
                early_stopping_call(self.run, self.run.early_stopping, self.model)
            )
        if hooks:
            given["hooks"] = hooks
        return CallExpression(
            "estimax.estimator.TrainSpec", given, (self.input_fn(train.source),)
        )

    def eval_specs(self) -> list[CallExpression]:
        """Return an `EvalSpec` for each evaluation; exporters belong to the first."""
        section = self.run.eval
        if section is None:
            return []
        exporters = [exporter_call(given, self) for given in self.run.export]
        more = {"exporters": exporters} if exporters else {}
        data = self.input_fn(section.source)
        found = [self._eval_spec(section, evaluation_name(self.run), data, more)]
        for column, values in section.slices.items():
            for value in values:
                part = input_fn(
                    self.run, section.source, self.statistics.cuts, {column: value}
                )
                name = slice_name(column, value)
                found.append(self._eval_spec(section, name, part, {}))
        for name, one in section.also.items():
            found.append(self._eval_spec(one, name, self.input_fn(one.source), {}))
        return found

    def _eval_spec(
        self,
        section: EvalSection | NamedEval,
        name: str | None,
        data: Function,
        more: dict[str, Any],
    ) -> CallExpression:
        given: dict[str, Any] = {"throttle_secs": section.throttle_secs}
        given |= changed_values(section, "steps")
        if name is not None:
            given["name"] = name
        given |= changed_values(section, "start_delay_secs", "every_steps")
        if section.hooks:
            given["hooks"] = [hook_call(self.run, h, self.model) for h in section.hooks]
        return CallExpression("estimax.estimator.EvalSpec", {**given, **more}, (data,))


@dataclass(frozen=True)
class Built:
    """An estimator, with the specs to train and evaluate it as the run file says."""

    run: Run
    estimator: Estimator
    plan: RunPlan
    known: Known = field(default_factory=dict, repr=False)

    def input_fn(self, source: str) -> Callable[[], Any]:
        """Return the input function of a source in `data.sources`."""
        made: Callable[[], Any] = evaluate(self.plan.input_fn(source), self.known)
        return made

    def train_spec(self, extra_hooks: Sequence[Any] = ()) -> TrainSpec:
        """Return the `TrainSpec` of the run, with more hooks."""
        spec: TrainSpec = evaluate(self.plan.train_spec(), self.known)
        return dataclasses.replace(spec, hooks=(*spec.hooks, *extra_hooks))

    def eval_spec(self) -> Any:
        """Return the `EvalSpec` with its exporters; None without an eval section.

        A run with several evaluations has a list of them.
        """
        specs = evaluate(self.plan.eval_specs(), self.known)
        if not specs:
            return None
        return specs[0] if len(specs) == 1 else specs


def build(loaded: LoadedRun) -> Built:
    """Build the estimator of a run.

    Reads the train source once if features need its statistics (`normalize: zscore`,
    `default: mean`, `from_data`) and they are not in the model directory yet.
    """
    made = plan(loaded)
    known: Known = {}
    estimator = evaluate(made.model, known)
    if not isinstance(loaded.run.model, CustomModelConfig | ModelFnConfig):
        estimator.not_learning_hint = yaml_hint(loaded.run)
    return Built(loaded.run, estimator, made, known)


def plan(loaded: LoadedRun) -> RunPlan:
    """Return the expressions of a run, with the statistics of its data."""
    from estimax import checkpoints

    run = loaded.run
    check_code(loaded)
    has_weights = checkpoints.latest(run.run.model_dir) is not None
    cache = config_dir(run) / "statistics.json"
    statistics = statistics_for(run, cache, keep=has_weights)
    columns = ColumnBuilder(run, statistics)
    config = run_config_call(run)
    inputs = Inputs(run, statistics)
    warm_start = None if run.warm_start is None else warm_start_call(run.warm_start)
    if isinstance(run.model, CustomModelConfig):
        model = custom_call(loaded, columns.all(), config, warm_start)
    else:
        model = model_call(run, columns, statistics, config, warm_start, inputs.of)
    return RunPlan(run, model, columns, statistics, inputs)


def run_config_call(run: Run) -> CallExpression:
    """Return the `RunConfig` of a run."""
    section = run.run
    save, cache = section.save_checkpoints, section.compilation_cache
    given: dict[str, Any] = {"model_dir": section.model_dir, "tf_random_seed": run.seed}
    if save.every_steps is not None:
        given["save_checkpoints_steps"] = save.every_steps
    elif save.every_secs is not None:
        given["save_checkpoints_secs"] = save.every_secs
    given |= changed_values(
        save,
        keep_last="keep_checkpoint_max",
        keep_every_hours="keep_checkpoint_every_n_hours",
    )
    given["prefetch_batches"] = run.data.prefetch
    if cache != "auto":
        given["compilation_cache_dir"] = None if cache == "off" else cache
    if section.cluster is not None:
        given["cluster"] = cluster_value(section.cluster)
    return call_of(section, variable="config", **given)


def warm_start_call(given: WarmStartSection) -> CallExpression:
    """Return the settings of the warm_start section."""
    named: dict[str, Any] = {}
    variables = given.variables
    if variables != ".*":
        several = isinstance(variables, tuple)
        named["vars_to_warm_start"] = list(variables or ()) if several else variables
    if given.vocabularies:
        named["var_name_to_vocab_info"] = {
            name: _vocabulary_call(change)
            for name, change in given.vocabularies.items()
        }
    named |= changed_values(given, renamed="var_name_to_prev_var_name")
    named |= changed_values(given, "slots", "partial")
    return CallExpression(
        "estimax.checkpoints.WarmStartSettings", named, (given.from_,)
    )


def _vocabulary_call(change: VocabularyChange) -> CallExpression:
    # `VocabInfo` has no default for this argument, so 0 is passed as well.
    more: dict[str, Any] = {} if change.oov_buckets else {"num_oov_buckets": 0}
    return call_of(change, **more)


def evaluation_name(run: Run) -> str | None:
    """Return the name of the first evaluation; several need names, one does not."""
    section = run.eval
    if section is None:
        return None
    has_more = bool(section.also or section.slices)
    return section.name or (section.source if has_more else None)


_WRITES = (ProfilerHookConfig, StepCounterHookConfig, SummarySaverHookConfig)
_TRACKS = (MLflowHookConfig, WandbHookConfig)
_NEEDS_MODEL = (StoppingHookSection, StopAtCheckpointStepHookConfig)


def hook_call(run: Run, hook: Any, model: CallExpression) -> CallExpression:
    """Return a hook of a section."""
    if isinstance(hook, CustomHookConfig):
        return CallExpression(str(hook.class_), expression_of(hook.params))
    given: dict[str, Any] = {}
    if isinstance(hook, _NEEDS_MODEL):
        given["estimator"] = model
    if isinstance(hook, _WRITES):
        given["output_dir"] = run.run.model_dir
    if isinstance(hook, _TRACKS):
        given["model_dir"] = run.run.model_dir
    return call_of(hook, **given)


def early_stopping_call(
    run: Run, section: EarlyStopping, model: CallExpression
) -> CallExpression:
    """Return the hook of the early_stopping section."""
    mode = section.mode or better(section.metric) or "min"
    change = "increase" if mode == "max" else "decrease"
    given = changed_values(section, "min_steps", "min_delta")
    named = section.evaluation or evaluation_name(run)
    if named is not None:
        given["eval_dir"] = CallExpression("eval_dir", {}, (named,), of=model)
    every = run.eval.every_steps if run.eval else None
    every = every or run.run.save_checkpoints.every_steps
    if every is not None:
        # As often as there are new evaluations, not by the clock.
        given |= {"run_every_secs": None, "run_every_steps": every}
    path = f"estimax.hooks.stop_if_no_{change}_hook"
    return CallExpression(path, given, (model, section.metric, section.steps))


def exporter_call(given: Export, plan: RunPlan) -> CallExpression:
    """Return the exporter of a section."""
    named = changed_values(
        given, "explain", "table_dtype", "max_table_error", assets="assets_extra"
    )
    if given.receiver == "examples":
        columns = [plan.columns.column(name) for name in _inputs(plan.run)]
        spec = CallExpression(
            "estimax.feature_columns.make_parse_example_spec", {}, (columns,)
        )
        path = "estimax.export.build_parsing_serving_input_receiver_fn"
        named["serving_input_receiver_fn"] = CallExpression(path, {}, (spec,))
    elif given.receiver != "columns":
        named["serving_input_receiver_fn"] = Reference(str(given.receiver))
    if given.calibrate is not None:
        named["calibration"] = calibration_call(given.calibrate, plan)
    if isinstance(given, FinalExport):
        return CallExpression("estimax.export.FinalExporter", named, (given.name,))
    named |= changed_values(given, keep="exports_to_keep")
    if not isinstance(given, BestExport):
        return CallExpression("estimax.export.LatestExporter", named, (given.name,))
    metric = given.metric.removeprefix("eval/")
    mode = given.mode or better(metric) or "min"
    compare = CallExpression("estimax.export.metric_compare", {}, (metric, mode))
    named["compare_fn"] = compare
    return CallExpression("estimax.export.BestExporter", named, (given.name,))


def calibration_call(method: str, plan: RunPlan) -> CallExpression:
    """Return a calibration that is fitted on the source of the evaluation."""
    section = plan.run.eval
    assert section is not None, "an export needs an evaluation; see checks.py"
    named = changed_values(section, "steps")
    if plan.run.data.weight is not None:
        named["weight"] = plan.run.data.weight
    path = f"estimax.calibration.{method.capitalize()}"
    return CallExpression(path, named, (plan.input_fn(section.source),))


def _inputs(run: Run) -> list[str]:
    """Return the features that read a column, once for each column, and weights."""
    found: dict[str, str] = {}
    for name, feature in run.features.items():
        if kind_of(feature) is not None:
            found.setdefault(column_of(name, feature), name)
    several = (WeightedConfig, *COMPUTED)
    return [
        *found.values(),
        *(name for name, f in run.features.items() if isinstance(f, several)),
    ]


def cluster_value(given: ClusterConfig | None) -> Any:
    """Return what `RunConfig(cluster=…)` takes: a name, a dict or None."""
    if given is None or isinstance(given, str):
        return given
    if isinstance(given, CoordinatedClusterConfig):
        return {
            "coordinator": given.coordinator,
            "processes": given.processes,
            "process": given.process,
        }
    if isinstance(given, ChiefClusterConfig):
        jobs = {"chief": [given.chief]}
    else:
        jobs = {"master": [given.master]}
    if given.worker:
        jobs["worker"] = list(given.worker)
    task = {"type": given.task.type, "index": given.task.index}
    return {"cluster": jobs, "task": task}
