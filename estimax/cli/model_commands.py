"""Commands that use a trained model: `estimax evaluate`, `predict` and `export`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from estimax import config
from estimax.cli.best_checkpoint import checkpoint_of
from estimax.cli.console import (
    emit,
    log_to,
    metrics_table,
    note,
    notes,
    output,
    results,
    say,
)
from estimax.cli.data_errors import locate_errors
from estimax.config import references
from estimax.config.data_report import check_files
from estimax.config.model_checks import why_not_explained
from estimax.config.schema.run import CalibrationName
from estimax.config.verdict import label_units
from estimax.core.errors import ConfigError, MissingFileError, did_you_mean


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
        section = run.test if run.test and run.test.source == name else run.eval
        steps = section.steps if section else None
        is_eval = source is None and run.test is None
        with locate_errors(run, [name]):
            metrics = built.estimator.evaluate(
                built.input_fn(name),
                steps=steps,
                checkpoint_path=checkpoint_of(run, checkpoint),
                name=evaluation_name(run) if is_eval else name,
            )
        constant = dict(baseline(run, built.input_fn(name), steps))
        units = label_units(metrics, constant)
        metrics = {**metrics, **units.of_model}
        constant |= units.of_constant
        if as_json:
            step = metrics.pop("global_step")
            found = {"step": step, "metrics": metrics, "baseline": constant}
            emit("evaluation", source=name, **found)
        else:
            others = references.of_source(run, name)
            title = f"{run.name} on {name}"
            results.print(metrics_table(metrics, title, constant, others))


def _source(run: config.Run, given: str | None) -> str:
    if given is None and run.test is not None:
        return run.test.source
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


def predict(
    path: Path,
    input_files: str,
    output_path: Path | None,
    output_form: str | None,
    overrides: Sequence[str],
    model_dir: str | None,
    checkpoint: str | None,
    *,
    quiet: bool = False,
    as_json: bool = False,
) -> None:
    """Write the predictions of each row of the input, in its order."""
    if as_json and output_path in (None, Path("-")):
        raise ConfigError(
            "--json: standard output has the events; name a file for the predictions "
            "with --output. For predictions as JSON, use --output-format jsonl."
        )
    with output(quiet=quiet, as_json=as_json):
        loaded = config.load(path, overrides, model_dir=model_dir)
        with notes.status("starting"):
            from estimax.config.build import build
            from estimax.config.build_input import make_predict_input_fn
            from estimax.core.spec import PredictOutput
            from estimax.export.scoring.rows import open_rows

            log_to(notes)
            built = build(loaded)
        batches = built.estimator.predict(
            make_predict_input_fn(loaded.run, input_files),
            checkpoint_path=checkpoint_of(loaded.run, checkpoint),
            yield_single_examples=False,
        )
        with open_rows(output_path, output_form) as rows:
            for batch in batches:
                rows.write(PredictOutput(batch).as_outputs())  # as a bundle names them
                emit("rows", rows=rows.count)
        emit("end", rows=rows.count, output=output_path)
        where = "" if output_path is None else f" in {output_path}"
        note(f"{rows.count:,} rows{where}")


def export(
    run: Path,
    overrides: Sequence[str],
    model_dir: str | None,
    checkpoint: str | None,
    output: Path | None,
    *,
    explain: bool,
    calibrate: str | None,
    table_dtype: str | None,
) -> None:
    """Export a checkpoint; print the path of the bundle.

    Args:
      run: A model directory, or a run file.
      overrides: Values of --set.
      model_dir: Replaces the model directory of a run file.
      checkpoint: The checkpoint; if None, that of the best export, or the latest.
      output: The folder of versions; `export/manual` in the model directory if None.
      explain: Whether the bundle gets the signature "explain".
      calibrate: A method to calibrate with on the source of eval; None: none.
      table_dtype: The dtype of embedding tables; None: float32.
    """
    methods = get_args(CalibrationName)
    if calibrate not in (None, *methods):
        hint = did_you_mean(str(calibrate), methods)
        raise ConfigError(f"--calibrate: unknown method {calibrate!r}{hint}")
    if run.is_dir():
        file = run / "config" / "resolved.yaml"
        if not file.is_file():
            raise MissingFileError(
                f"{run}: expected a run file, or a model directory of `estimax train`, "
                "which has config/resolved.yaml."
            )
        loaded = config.load(file, overrides, model_dir=str(run))
    else:
        loaded = config.load(run, overrides, model_dir=model_dir)
    model = loaded.run.model
    reason = why_not_explained(model, getattr(model, "head", None)) if explain else ""
    if reason:
        raise ConfigError(f"--explain: {reason}.")
    if calibrate is not None and loaded.run.eval is None:
        raise ConfigError("--calibrate: the run has no eval section to fit it on.")
    folder = Path(loaded.run.run.model_dir)
    with notes.status("starting"):
        from estimax.config.build import build, calibration_call
        from estimax.config.expressions import evaluate

        log_to(notes)
        built = build(loaded)
    more: dict[str, Any] = {}
    if calibrate is not None:
        call = calibration_call(calibrate, built.plan)
        more["calibration"] = evaluate(call, built.known)
    if table_dtype is not None:
        more["table_dtype"] = table_dtype
    target = folder / "export" / "manual" if output is None else output
    chosen = checkpoint_of(loaded.run, checkpoint)
    bundle = built.estimator.export_saved_model(
        target, checkpoint_path=chosen, explain=explain, **more
    )
    say(bundle)
    note("next, try:")
    note(f"  estimax show {shlex.quote(str(target))}", "cyan")
    note(f"  estimax serve {shlex.quote(str(target))}", "cyan")
