"""`estimax train`: check the run, prepare the model directory, train, print metrics.

In a cluster, the chief claims the model directory and saves the statistics of the data
there. The others begin when it has done so: they would otherwise read what an earlier
run left.
"""

from __future__ import annotations

import dataclasses
import os
import shlex
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from estimax import config
from estimax.cli.best_checkpoint import KeepBestCheckpoint
from estimax.cli.console import (
    EvaluationEvents,
    emit,
    log_to,
    note,
    notes,
    output,
    with_exporter,
)
from estimax.cli.data_errors import locate_errors
from estimax.cli.report import report_after_training
from estimax.cli.tensorboard import write_config
from estimax.config import references
from estimax.config.checks import sources_of
from estimax.config.data_report import check_files
from estimax.config.saved import claim_model_dir
from estimax.config.schema.model import CustomModelConfig

if TYPE_CHECKING:  # both load jax
    from estimax.cli.training_progress import TrainingProgress
    from estimax.config.build import Built
    from estimax.estimator import EvalSpec, TrainSpec
    from estimax.hooks import Hook


def train(
    path: Path,
    overrides: Sequence[str],
    model_dir: str | None,
    *,
    with_report: bool = True,
    quiet: bool = False,
    as_json: bool = False,
) -> None:
    """Train a run to its end; resume it if the model directory has a checkpoint.

    `with_report` writes a report at the end, unless the run file says otherwise.
    """
    with output(quiet=quiet, as_json=as_json):
        _train(path, overrides, model_dir, with_report=with_report, as_json=as_json)


def _train(
    path: Path,
    overrides: Sequence[str],
    model_dir: str | None,
    *,
    with_report: bool,
    as_json: bool,
) -> None:
    loaded = config.load(path, overrides, model_dir=model_dir)
    run = loaded.run
    sources = sources_of(run)
    check_files(run, sources)
    with chief_first(run) as is_first:
        if is_first:
            for remark in claim_model_dir(loaded):
                note(remark, "yellow")
        note(f"{run.name}: training in {run.run.model_dir}")
        limit = run.train.max_steps
        emit("start", name=run.name, model_dir=run.run.model_dir, max_steps=limit)
        # The imports below load jax, which takes seconds. All checks that do without
        # it are above.
        with notes.status("starting"):
            from estimax.config.build import build

            log_to(notes)
            with locate_errors(run, sources):
                built = build(loaded)
            if is_first:
                write_config(loaded, built)
    again = _command(path, model_dir, overrides)
    with _tracked(built.train_spec()) as spec:
        _train_and_print(loaded, built, spec, again, is_first, as_json)
        if is_first and with_report and run.run.report:
            report_after_training(loaded, built)
    if is_first:
        _print_next(run, again)


@contextmanager
def _tracked(spec: TrainSpec) -> Iterator[TrainSpec]:
    """Let the trackers among the hooks see all that is done in the block."""
    from estimax.hooks.tracking import TrackerHook

    with ExitStack() as stack:
        for hook in spec.hooks:
            if isinstance(hook, TrackerHook):
                stack.enter_context(hook)
        yield spec


def _train_and_print(
    loaded: config.LoadedRun,
    built: Built,
    spec: TrainSpec,
    again: str,
    is_first: bool,
    as_json: bool,
) -> None:
    from estimax.cli.training_progress import TrainingProgress
    from estimax.cli.training_results import print_results

    run = loaded.run
    compares = run.run.compare and is_first
    comparison = references.start(run) if compares else None
    every = run.run.log_step_count_steps or 100
    try:
        with (
            locate_errors(run, sources_of(run)),
            TrainingProgress(run.train.max_steps, every, notes) as progress,
        ):
            metrics = _run(built, spec, progress)
    except KeyboardInterrupt:
        # Training itself has told what it saved.
        note(f"to resume: estimax train {again}", "cyan")
        raise typer.Exit(128 + signal.SIGINT) from None
    finally:
        if sys.exc_info()[0] is not None:
            references.finish(comparison, 0)
    print_results(built, metrics, comparison, as_json=as_json)
    references.finish(comparison, 0)


def _run(
    built: Built, spec: TrainSpec, progress: TrainingProgress
) -> Mapping[str, Mapping[str, object]]:
    """Train, and evaluate if the run says so; return the last metrics by evaluation."""
    eval_spec = built.eval_spec()
    more = [progress, *_compiling_ahead(built, eval_spec)]
    train_spec = dataclasses.replace(spec, hooks=(*spec.hooks, *more))
    if eval_spec is None:
        built.estimator.train(
            train_spec.input_fn, train_spec.hooks, max_steps=train_spec.max_steps
        )
        return {}
    from estimax.estimator import train_and_evaluate

    eval_spec = with_exporter(eval_spec, EvaluationEvents())
    eval_spec = with_exporter(eval_spec, KeepBestCheckpoint(built.run))
    metrics, _ = train_and_evaluate(built.estimator, train_spec, eval_spec)
    if isinstance(eval_spec, list) or not metrics:
        return metrics or {}
    assert built.run.eval is not None, "there is an eval_spec"
    return {built.run.eval.source: metrics}


def _compiling_ahead(
    built: Built, eval_spec: EvalSpec | list[EvalSpec] | None
) -> list[Hook]:
    """Return a hook that compiles evaluation and export beside the first steps.

    Data and stock models of a run file may be used in a thread, code of the user not.
    """
    if eval_spec is None or isinstance(built.run.model, CustomModelConfig):
        return []
    from estimax.estimator.compile_ahead import CompileAhead

    first = eval_spec[0] if isinstance(eval_spec, list) else eval_spec
    return [CompileAhead(built.estimator, first)]


def _command(path: Path, model_dir: str | None, overrides: Sequence[str]) -> str:
    """Return the arguments of this command, for other commands on the same run."""
    options = [f"--set {shlex.quote(text)}" for text in overrides]
    options += [f"--model-dir {shlex.quote(model_dir)}"] if model_dir else []
    return " ".join([shlex.quote(str(path)), *options])


def _print_next(run: config.Run, again: str) -> None:
    """Print commands that are useful after this one."""
    folder = run.run.model_dir
    lines = [f"estimax show {folder}", f"tensorboard --logdir {folder}"]
    exports = [f"{folder}/export/{export.name}" for export in run.export]
    found = [export for export in exports if Path(export).is_dir()]
    if found:
        name = run.eval.source if run.eval else run.train.source
        source = run.data.sources[run.test.source if run.test else name]
        lines.insert(0, f"estimax show {found[0]}")
        lines.insert(1, f"estimax run {found[0]} --input {source.files[0]}")
    if run.eval is not None:
        lines.append(f"estimax evaluate {again}")
    note("next, try:")
    for line in lines:
        note(f"  {line}", "cyan")


if TYPE_CHECKING:  # loads jax
    from estimax.estimator import RunConfig


@contextmanager
def chief_first(run: config.Run) -> Iterator[bool]:
    """Run the block in the chief of a cluster, and then in the other processes.

    Yields:
      Whether this process writes what all have in common: it is the chief, or there is
      no cluster.

    Raises:
      ConfigError: TF_CONFIG or `run.cluster` describes no cluster.
      ClusterError: The other processes cannot be reached.
    """
    if "TF_CONFIG" not in os.environ and run.run.cluster is None:
        yield True  # without loading jax
        return
    settings = _settings(run)
    peers = settings.connect()
    if peers is None:  # alone, or an evaluator
        yield settings.is_chief
        return
    with peers.together():
        if not peers.is_chief:
            peers.wait("chief first")
        yield peers.is_chief
        if peers.is_chief:
            peers.wait("chief first")


def _settings(run: config.Run) -> RunConfig:
    from estimax.config.build import run_config_call
    from estimax.config.expressions import evaluate

    made: RunConfig = evaluate(run_config_call(run))
    return made
