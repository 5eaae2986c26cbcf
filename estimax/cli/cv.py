"""`estimax cv`: train a run on folds of its rows, and average the metrics.

    FOLDER/cv.json        the run, the metrics of each fold, mean and deviation
    FOLDER/fold-0/        the model directory of a fold

A fold whose metrics are in cv.json is never trained again. One that was interrupted
continues from its last checkpoint.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from estimax import config
from estimax.cli.best_checkpoint import KeepBestCheckpoint, best_checkpoint
from estimax.cli.console import emit, note, number, output, results, with_exporter
from estimax.config.checks import sources_of
from estimax.config.data_report import check_files
from estimax.config.dump import to_plain
from estimax.config.load import LoadedRun
from estimax.config.saved import claim_model_dir
from estimax.config.schema.data import AnySource, PartConfig
from estimax.config.schema.run import TestSection
from estimax.core.errors import ConfigError
from estimax.storage import atomic, locks

_RUNNING = locks.Activity(
    "cv.lock",
    "cross-validating",
    "Two of them in one folder would train the same folds.",
    "use another --output",
)
_FOLD = "fold"  # the source of the held-out rows
_SHOWN = ("average_loss", "accuracy", "auc")  # after each fold


def cv(
    path: Path,
    overrides: Sequence[str],
    folds: int,
    folder: Path | None,
    *,
    quiet: bool = False,
    as_json: bool = False,
) -> None:
    """Train the folds that have no metrics yet, and print mean and deviation.

    Args:
      path: The run file.
      overrides: Values of --set, for all folds.
      folds: The number of folds.
      folder: The folder of the folds; by default beside the model directory.
      quiet: Print only the table and errors.
      as_json: Print events instead of the table.
    """
    if folds < 2:
        raise ConfigError(f"--folds: expected at least 2, got {folds}.")
    with output(quiet=quiet, as_json=as_json):
        loaded = config.load(path, [*overrides, "run.on_existing=resume"])
        check_files(loaded.run, sources_of(loaded.run))
        folder = folder or Path(f"{loaded.run.run.model_dir.rstrip('/')}-cv")
        runs = [_of_fold(loaded, fold, folds, folder) for fold in range(folds)]
        with locks.hold(folder, "cv", _RUNNING):
            record = _claim(folder, loaded, folds)
            try:
                _train_missing(runs, record, folder)
            except KeyboardInterrupt:
                note("interrupted; the same command continues with the other folds")
                raise
        _report(loaded.run.name, record, folder, as_json=as_json)


def _of_fold(loaded: LoadedRun, fold: int, folds: int, folder: Path) -> LoadedRun:
    """Return the run with a fold held out of its training rows.

    The rows of the train source, and of the parts that were split off it, are on a
    circle from 0 to 1: the fold, then the rows that evaluate the training, if they were
    such a part, then the training rows.
    """
    run = loaded.run
    sources = dict(run.data.sources)
    train = sources[run.train.source]
    part = train.part or PartConfig(start=0.0, stop=1.0)
    if part.by == "time":
        raise ConfigError(
            f"{loaded.path}: data.sources.{run.train.source} is split by time, and a "
            "fold would be predicted from later rows. `estimax train` measures on the "
            "last rows; for folds, split by random or hash."
        )
    start, stop = fold / folds, (fold + 1) / folds % 1.0
    held_out = _part(train, part, start, stop or 1.0)
    sources[_FOLD] = dataclasses.replace(
        held_out, shuffle=None, epochs=1, drop_remainder=False
    )
    for name in dict.fromkeys(_evaluated(run)):
        share = _share(sources[name], train) * (folds - 1) / folds
        if name != run.train.source and share:
            end = round((stop + share) % 1.0, 12)
            sources[name] = _part(sources[name], part, stop, end)
            stop = end
    sources[run.train.source] = _part(train, part, stop, start or 1.0)
    changed = dataclasses.replace(
        run,
        data=dataclasses.replace(run.data, sources=sources),
        test=TestSection(source=_FOLD),
        run=dataclasses.replace(run.run, model_dir=str(folder / f"fold-{fold}")),
    )
    return dataclasses.replace(loaded, run=changed)


def _evaluated(run: config.Run) -> list[str]:
    """Return the sources that are evaluated while the run trains."""
    held_out = getattr(run.model, "held_out", None)
    found = [] if run.eval is None else [run.eval.source]
    found += [] if run.eval is None else [one.source for one in run.eval.also.values()]
    return found + ([held_out] if isinstance(held_out, str) else [])


def _share(source: AnySource, train: AnySource) -> float:
    """Return the share of the rows that a part has; 0 for a source of its own."""
    if source.part is None or source.files != train.files:
        return 0.0
    return source.part.stop - source.part.start


def _part(source: AnySource, like: PartConfig, start: float, stop: float) -> AnySource:
    part = dataclasses.replace(like, start=start, stop=stop)
    return dataclasses.replace(source, part=part)


def _claim(folder: Path, loaded: LoadedRun, folds: int) -> dict[str, Any]:
    """Return what is known of the folds; raise if the folder holds another run."""
    about = {"folds": folds, "run": to_plain(loaded.run)}
    about = json.loads(json.dumps(about))
    saved = folder / "cv.json"
    if saved.is_file():
        record: dict[str, Any] = json.loads(saved.read_bytes())
        changed = [key for key in about if record.get(key) != about[key]]
        if changed:
            raise ConfigError(
                f"{folder} holds a cross-validation with another {changed[0]}. Undo "
                "the change to continue it, or use another --output."
            )
        return record
    record = {**about, "metrics": {}}
    atomic.write_json(saved, record)
    return record


def _train_missing(runs: Sequence[LoadedRun], record: dict[str, Any], to: Path) -> None:
    for fold, loaded in enumerate(runs):
        if str(fold) not in record["metrics"]:
            note(f"fold {fold + 1} of {len(runs)}: training")
            with _only_warnings():
                metrics = _train(loaded)
            shown = {name: value for name, value in metrics.items() if name in _SHOWN}
            note(", ".join(f"{name} {number(value)}" for name, value in shown.items()))
            record["metrics"][str(fold)] = metrics
            record["summary"] = _summary(record["metrics"])
            atomic.write_json(to / "cv.json", record)
        emit("fold", fold=fold, metrics=record["metrics"][str(fold)])


@contextlib.contextmanager
def _only_warnings() -> Iterator[None]:
    """Show only warnings of the training of a fold, whose log is long."""
    logger = logging.getLogger("estimax")
    before = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(before)


def _train(loaded: LoadedRun) -> dict[str, float]:
    """Train a fold to its end; return the metrics of the rows that are held out."""
    from estimax.config.build import build
    from estimax.estimator import train_and_evaluate

    claim_model_dir(loaded)
    built = build(loaded)
    spec, eval_spec = built.train_spec(), built.eval_spec()
    if eval_spec is None:
        built.estimator.train(spec.input_fn, spec.hooks, max_steps=spec.max_steps)
    else:
        eval_spec = with_exporter(eval_spec, KeepBestCheckpoint(built.run))
        train_and_evaluate(built.estimator, spec, eval_spec)
    best = best_checkpoint(built.run)
    found = built.estimator.evaluate(
        built.input_fn(_FOLD),
        checkpoint_path=None if best is None else best.checkpoint,
        name=_FOLD,
    )
    return {
        name: float(value)
        for name, value in found.items()
        if name != "global_step" and isinstance(value, int | float | np.number)
    }


def _summary(metrics: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """Return mean and standard deviation of each metric over the folds.

    >>> _summary({"0": {"auc": 0.5}, "1": {"auc": 0.75}})["auc"]["mean"]
    0.625
    """
    folds = list(metrics.values())
    found = {}
    for name in folds[0]:
        values = [fold[name] for fold in folds if name in fold]
        mean = math.fsum(values) / len(values)
        squares = math.fsum((value - mean) ** 2 for value in values)
        deviation = math.sqrt(squares / (len(values) - 1)) if len(values) > 1 else 0.0
        found[name] = {"mean": mean, "deviation": deviation}
    return found


def _report(
    name: str, record: Mapping[str, Any], folder: Path, *, as_json: bool
) -> None:
    emit("end", summary=record["summary"], folds=record["folds"])
    note(f"metrics of each fold: {folder / 'cv.json'}")
    if as_json:
        return
    table = Table(title=f"{name}: {record['folds']} folds", title_justify="left")
    for column in ("metric", "mean", "± deviation"):
        table.add_column(column, justify="left" if column == "metric" else "right")
    for metric, found in sorted(record["summary"].items()):
        table.add_row(metric, number(found["mean"]), number(found["deviation"]))
    results.print(table)
