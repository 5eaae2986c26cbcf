"""`estimax evaluate`: print the metrics of a trained model on a source."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from estimax import config
from estimax.cli.console import log_to, metrics_table, notes, results
from estimax.cli.data_errors import located
from estimax.cli.events import emit, output
from estimax.config.data_report import check_files
from estimax.core.errors import ConfigError, did_you_mean


def evaluate(
    path: Path,
    overrides: Sequence[str],
    model_dir: str | None,
    source: str | None,
    checkpoint: str | None,
    *,
    quiet: bool = False,
    as_json: bool,
) -> None:
    """Evaluate the model and print its metrics, as a table or as an event."""
    with output(quiet=quiet, as_json=as_json):
        loaded = config.load(path, overrides, model_dir=model_dir)
        run = loaded.run
        name = _source(run, source)
        check_files(run, [name])
        with notes.status("starting"):
            from estimax.config.baseline import baseline
            from estimax.config.build import build, evaluation_name

            log_to(notes)
            built = build(loaded)
        steps = run.eval.steps if run.eval else None
        with located(run, [name]):
            metrics = built.estimator.evaluate(
                built.input_fn(name),
                steps=steps,
                checkpoint_path=checkpoint,
                name=evaluation_name(run) if source is None else source,
            )
        constant = baseline(run, built.input_fn(name), steps)
        if as_json:
            step = metrics.pop("global_step")
            found = {"step": step, "metrics": metrics, "baseline": constant}
            emit("evaluation", source=name, **found)
        else:
            results.print(metrics_table(metrics, f"{run.name} on {name}", constant))


def _source(run: config.Run, given: str | None) -> str:
    if given is None:
        if run.eval is None:
            raise ConfigError("the run has no eval section; name a source: --source.")
        return run.eval.source
    if given not in run.data.sources:
        hint = did_you_mean(given, run.data.sources)
        raise ConfigError(f"--source: unknown source {given!r}{hint}")
    source = run.data.sources[given]
    if source.epochs is None:
        raise ConfigError(f"--source: {given!r} repeats forever; set its epochs.")
    return given
