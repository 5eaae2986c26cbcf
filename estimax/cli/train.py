"""`estimax train`: check the run, prepare the model directory, train, print metrics."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from estimax import config
from estimax.cli.screen import log_to, metrics_table, note, notes, results
from estimax.config.data_report import find_files
from estimax.config.saved import claim_model_dir


def train(path: Path, overrides: Sequence[str], model_dir: str | None) -> None:
    """Train a run to its end; resume it if the model directory has a checkpoint."""
    loaded = config.load(path, overrides, model_dir=model_dir)
    _check_files(loaded.run)
    for remark in claim_model_dir(loaded):
        note(remark, "yellow")
    note(f"{loaded.run.name}: training in {loaded.run.run.model_dir}")
    # The imports below load jax, which takes seconds. All checks that do without it are
    # above.
    with notes.status("starting"):
        from estimax.cli.progress import TrainingProgress
        from estimax.config.build import build

        log_to(notes)
        built = build(loaded)
    run = loaded.run
    every = run.run.log_step_count_steps or 100
    eval_spec = built.eval_spec()
    with TrainingProgress(run.train.max_steps, every, notes) as progress:
        train_spec = built.train_spec([progress])
        if eval_spec is None:
            built.estimator.train(
                train_spec.input_fn, [progress], max_steps=train_spec.max_steps
            )
            metrics: Mapping[str, object] = {}
        else:
            from estimax.estimator import train_and_evaluate

            metrics, _ = train_and_evaluate(built.estimator, train_spec, eval_spec)
    if run.eval is not None and metrics:
        title = f"{run.name} on {run.eval.source}"
        results.print(metrics_table(metrics, title))
    _print_next(path, run, model_dir, overrides)


def _check_files(run: config.Run) -> None:
    find_files(run.data.sources[run.train.source], run.train.source)
    if run.eval is not None:
        find_files(run.data.sources[run.eval.source], run.eval.source)


def _print_next(
    path: Path, run: config.Run, model_dir: str | None, overrides: Sequence[str]
) -> None:
    """Print commands that are useful after this one."""
    options = [f"--set {shlex.quote(text)}" for text in overrides]
    options += [f"--model-dir {shlex.quote(model_dir)}"] if model_dir else []
    again = " ".join([str(path), *options])
    folder = run.run.model_dir
    lines = [f"estimax show {folder}", f"tensorboard --logdir {folder}"]
    exports = [f"{folder}/export/{export.name}" for export in run.export]
    found = [export for export in exports if Path(export).is_dir()]
    if found:
        source = run.data.sources[run.eval.source if run.eval else run.train.source]
        lines.insert(0, f"estimax show {found[0]}")
        lines.insert(1, f"estimax run {found[0]} --input {source.files[0]}")
    if run.eval is not None:
        lines.append(f"estimax evaluate {again}")
    note("next, try:")
    for line in lines:
        note(f"  {line}", "cyan")
