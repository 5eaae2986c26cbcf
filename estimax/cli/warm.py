"""`estimax warm`: fill the caches of compiled code, so that later starts find it.

Kernels are compiled by proving them on tiny cases. The programs of a run are compiled
by running it as `estimax train` does, for a few steps and in a temporary folder: this
way they are the programs that the real run asks for.
"""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from estimax import config
from estimax.cli.console import log_to, note, notes, output
from estimax.cli.data_errors import locate_errors
from estimax.cli.report import report_after_training
from estimax.config.checks import sources_of
from estimax.config.data_report import check_files
from estimax.core.errors import ConfigError
from estimax.native import loading

# Groups of batches double from 1 to 32 while the input is fast. After so many steps,
# every size has been stacked.
_STACKED = 64
# Then summaries are written once more, of a step in the largest group.
_STEPS = 2 * _STACKED


def warm(path: Path | None, overrides: Sequence[str], *, quiet: bool = False) -> None:
    """Compile all host kernels, and the programs of a run if one is given.

    Raises:
      ConfigError: The run file is invalid, or is one of a cluster.
    """
    loading.wait_for_compiler()
    with output(quiet=quiet, as_json=False):
        loaded = None
        if path is not None:
            loaded = config.load(path, overrides)
            _check_alone(loaded.run)
            check_files(loaded.run, sources_of(loaded.run))
        if path is not None and loaded is not None:
            _warm_run(path, overrides, loaded.run)
        # Afterwards: a run proves the kernels that it needs within its own programs.
        with notes.status("compiling kernels"):
            from estimax.native.every_kernel import compile_kernels

            log_to(notes)
            made = compile_kernels()
        note(f"{len(made)} modules of host kernels are compiled")


def _check_alone(run: config.Run) -> None:
    if "TF_CONFIG" in os.environ or run.run.cluster is not None:
        raise ConfigError(
            "warm compiles the programs of one process, but TF_CONFIG or run.cluster "
            "describes a cluster. Start the cluster once instead: its processes fill "
            "their caches."
        )


def _warm_run(path: Path, overrides: Sequence[str], run: config.Run) -> None:
    sources = sources_of(run)
    with (
        notes.status("compiling programs"),
        tempfile.TemporaryDirectory(prefix="estimax-warm-") as folder,
        locate_errors(run, sources),
    ):
        from estimax.config.build import build
        from estimax.estimator import train_and_evaluate

        log_to(notes)
        overrides = [*overrides, *_summaries(run)]
        loaded = config.load(path, overrides, model_dir=folder)
        built = build(loaded)
        spec, eval_spec = built.train_spec(), built.eval_spec()
        steps = min(_STEPS, spec.max_steps or _STEPS)
        spec = dataclasses.replace(spec, max_steps=steps)
        if eval_spec is None:
            built.estimator.train(spec.input_fn, spec.hooks, max_steps=steps)
        else:
            train_and_evaluate(built.estimator, spec, eval_spec)
        if run.run.report:
            report_after_training(loaded, built)
    note(f"{run.name}: the programs are compiled; {run.run.model_dir} was not touched")


def _summaries(run: config.Run) -> list[str]:
    """Return the override with which summaries are written within the few steps."""
    every = run.run.save_summary_steps
    return [f"run.save_summary_steps={min(every, _STACKED)}"] if every else []
