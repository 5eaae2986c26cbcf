"""`estimax report`: write one HTML file about a trained model."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from estimax import config
from estimax.cli.best_checkpoint import checkpoint_of
from estimax.cli.console import log_to, note, notes, number, say
from estimax.cli.data_errors import locate_errors
from estimax.config.data_report import check_files
from estimax.config.saved import config_dir, environment
from estimax.core.display import format_path
from estimax.core.errors import ConfigError, EstimaxError

if TYPE_CHECKING:  # both load jax
    from estimax.config.build import Built
    from estimax.inspection.report import RunFacts


def report(
    path: Path,
    overrides: Sequence[str],
    model_dir: str | None,
    *,
    output: Path | None,
    source: str | None,
    group: str | None,
    max_rows: int,
) -> None:
    """Write the report of a run file, or of a model directory that a run has made."""
    is_folder = path.is_dir()
    file = path / "config" / "resolved.yaml" if is_folder else path
    if is_folder and not file.is_file():
        raise ConfigError(
            f"{path}: expected a run file, or a model directory of `estimax train`; "
            "found a folder without config/resolved.yaml. For a model trained from "
            "Python, call ex.report.write_report."
        )
    folder = str(path) if is_folder and model_dir is None else model_dir
    loaded = config.load(file, overrides, model_dir=folder)
    name = _source(loaded.run, source)
    check_files(loaded.run, [name])
    with notes.status("starting"):
        from estimax.config.build import build
        from estimax.inspection.report import figures

        figures.check_installed()
        log_to(notes)
        with locate_errors(loaded.run, [name]):
            built = build(loaded)
    with notes.status("writing the report"), locate_errors(loaded.run, [name]):
        written = _write(loaded, built, name, output, group, max_rows)
    say(f"{written}")


def report_after_training(loaded: config.LoadedRun, built: Built) -> None:
    """Write the report of a run that was just trained; on failure, say how to get one.

    The model is trained and saved, so a report that fails is no error of the command.
    """
    run = loaded.run
    try:
        from estimax.inspection.report import figures

        figures.check_installed()
        name = _source(run, None)
        with notes.status("writing the report (--no-report leaves it out)"):
            written = _write(loaded, built, name, None, None, MAX_ROWS)
    except Exception as error:
        what = "" if isinstance(error, EstimaxError) else f"{type(error).__name__}: "
        note(f"no report was written: {what}{error}", "yellow")
    else:
        note(f"report: {format_path(written)}")


MAX_ROWS = 20_000  # rows that a report looks at


def _source(run: config.Run, given: str | None) -> str:
    """Return the source to look at: `given`, or the source of eval, or of train."""
    if given is None and run.test is not None:
        return run.test.source
    if given is None:
        return run.eval.source if run.eval is not None else run.train.source
    if given not in run.data.sources:
        known = ", ".join(run.data.sources)
        raise ConfigError(f"--source: unknown source {given!r}; the run has {known}.")
    return given


def _write(
    loaded: config.LoadedRun,
    built: Built,
    source: str,
    output: Path | None,
    group: str | None,
    max_rows: int,
) -> Path:
    from estimax.inspection.report import write_report

    run = loaded.run
    has_train = source != run.train.source
    return write_report(
        built.estimator,
        in_order(built, source),
        output,
        train_input_fn=in_order(built, run.train.source) if has_train else None,
        group=group,
        weight=run.data.weight,
        max_rows=max_rows,
        checkpoint_path=checkpoint_of(run, None),
        evaluation=_evaluation(run, source),
        facts=_facts(loaded),
    )


def _evaluation(run: config.Run, source: str) -> str | None:
    """Return the name of the evaluation of a source; the source if there is none."""
    from estimax.config.build import evaluation_name

    if run.eval is None:
        return source
    if run.eval.source == source:
        return evaluation_name(run)
    also = (name for name, one in run.eval.also.items() if one.source == source)
    return next(also, source)


def in_order(built: Built, name: str) -> Any:
    """Return an input function of a source in the order of its files.

    Shuffling would first fill a buffer, which may be as large as the files.
    """
    from estimax.config.build_input import input_fn
    from estimax.config.expressions import evaluate

    run = built.run
    source = dataclasses.replace(run.data.sources[name], shuffle=None, epochs=1)
    data = dataclasses.replace(run.data, sources={**run.data.sources, name: source})
    run = dataclasses.replace(run, data=data)
    return evaluate(input_fn(run, name, built.plan.statistics.cuts), built.known)


def _facts(loaded: config.LoadedRun) -> RunFacts:
    from estimax.inspection.report import RunFacts

    saved = config_dir(loaded.run)
    about = _environment(saved / "environment.json")
    verdict, compared = _results(loaded.run)
    return RunFacts(
        verdict=verdict,
        compared=compared,
        name=loaded.run.name,
        settings=_settings(loaded, saved / "origins.json"),
        environment=about,
        commands=_commands(loaded, about),
    )


def _results(
    run: config.Run,
) -> tuple[list[tuple[str, str]], tuple[list[str], list[list[str]]]]:
    """Return the verdict of the training, and its metrics beside those of others."""
    from estimax.cli.training_results import RESULTS_FILE
    from estimax.config.references import read_references

    try:
        saved = json.loads((config_dir(run) / RESULTS_FILE).read_bytes())
        remarks = [(str(title), str(text)) for title, text in saved["remarks"]]
        metrics, constant = dict(saved["metrics"]), dict(saved["baseline"])
        source, step = saved["source"], saved["step"]
    except (OSError, ValueError, KeyError, TypeError):
        return [], ([], [])
    beside = {"a constant": constant, **read_references(run)}
    names = [n for n in metrics if any(n in found for found in beside.values())]
    beside = {title: found for title, found in beside.items() if found}
    rows = [
        [
            n,
            number(metrics[n]),
            *(number(f[n]) if n in f else "" for f in beside.values()),
        ]
        for n in names
    ]
    model = f"this model on {source}" + ("" if step is None else f", step {step:,}")
    return remarks, (["metric", model, *beside], rows)


def _settings(loaded: config.LoadedRun, saved: Path) -> list[tuple[str, str, str]]:
    """Return address, value and origin of every setting.

    A run that is read back from its model directory has the origins that were saved
    when it was trained.
    """
    from estimax.config.dump import dump_plain, leaves, to_plain

    origins: Mapping[str, str] = {}
    is_resolved = loaded.path.name == "resolved.yaml"
    if is_resolved and saved.is_file():
        origins = json.loads(saved.read_text())
    found = []
    for address, value in leaves(to_plain(loaded.run)):
        text = " ".join(dump_plain(value).removesuffix("...\n").split())
        origin = origins.get(address, "") if origins else loaded.origin_of(address)
        found.append((address, text, origin or "default"))
    return found


def _environment(saved: Path) -> dict[str, str]:
    """Return versions and machine of the training, or else of this process."""
    about: Mapping[str, Any] = environment()
    if saved.is_file():
        about = json.loads(saved.read_text())
    shown = {k: v for k, v in about.items() if isinstance(v, str)}
    packages = {k: v for k, v in about.get("packages", {}).items() if v}
    command = shlex.join(map(str, about.get("command", ())))
    return {**shown, "command": command, **packages}


def _commands(loaded: config.LoadedRun, about: Mapping[str, str]) -> list[str]:
    saved = config_dir(loaded.run)
    pinned = [
        f"{p}=={about[p]}" for p in ("jax", "flax", "optax", "numpy") if p in about
    ]
    folder = loaded.run.run.model_dir
    return [
        "# the same versions",
        f"pip install {' '.join(pinned)} 'estimax[report]'",
        "# the same model, from the settings that the run was trained with",
        f"estimax train {shlex.quote(str(saved / 'resolved.yaml'))} "
        f"--model-dir {shlex.quote(f'{folder}-again')}",
        "# this report",
        f"estimax report {shlex.quote(folder)}",
    ]
