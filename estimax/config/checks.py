"""What a run must satisfy beyond the type of each value.

    check_run(run, origins, problems)

References must lead somewhere, everything declared must be used, and two settings must
not contradict each other. A part that could not be decoded is passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from estimax.config.check_features import check_features, column_key, repeats
from estimax.config.check_model import check_model
from estimax.config.columns import clashes
from estimax.config.decode import is_broken
from estimax.config.nodes import join
from estimax.config.origins import Origin, Problems
from estimax.config.schema.data import DataSection
from estimax.config.schema.model import (
    BinaryHead,
    CustomModel,
    Head,
    MultiClassHead,
    RegressionHead,
)
from estimax.config.schema.run import BestExport, Run
from estimax.core.errors import did_you_mean

Note = Callable[[str, str], None]


def check_run(run: Run, origins: Mapping[str, Origin], problems: Problems) -> None:
    """Note every contradiction in a decoded run."""

    def note(path: str, text: str) -> None:
        lone = path.replace(".0.", ".", 1)
        if path not in origins and lone in origins:
            path = lone  # a list of one, written without its brackets
        problems.add(_nearest(origins, path), path, text)

    _check_saving(run, note)
    _check_data(run.data, note)
    _check_sources(run, note)
    if not problems.under("train") and not problems.under("eval"):
        _check_ends(run, note)
    _check_export(run, note)
    check_features(run.features, run.data.label, note)
    for name, text in clashes(run.features):
        note(f"features.{name}", text)
    _check_columns(run, note)
    check_model(run, note, complete=not problems.under("model"))
    if isinstance(run.model, CustomModel):
        return
    _check_labels(run.data, run.model.head, note)


def _nearest(origins: Mapping[str, Origin], path: str) -> Origin:
    """Where an address is written, or the closest thing above it."""
    while path and path not in origins:
        path = path.rpartition(".")[0]
    return origins[path]


def _check_saving(run: Run, note: Note) -> None:
    save = run.run.save_checkpoints
    if isinstance(save.every_steps, int) and isinstance(save.every_secs, int):
        note(
            "run.save_checkpoints.every_secs",
            "conflicts with every_steps; keep one of the two",
        )


def _check_data(data: DataSection, note: Note) -> None:
    for name, source in data.sources.items():
        path = f"data.sources.{name}.csv"
        if source.csv.header is False and source.csv.columns is None:
            note(f"{path}.columns", "required key is missing: there is no header")
        delimiter = source.csv.delimiter
        if isinstance(delimiter, str) and len(delimiter) != 1:
            note(f"{path}.delimiter", "must be one character")
        elif isinstance(delimiter, str) and (
            not delimiter.isascii() or delimiter in '\r\n"'
        ):
            text = "must be an ASCII character other than a quote or a line's end"
            note(f"{path}.delimiter", f"{text}, got {delimiter!r}")
        for i, repeated in repeats(source.csv.columns or ()):
            note(f"{path}.columns.{i}", f"column {repeated!r} is named twice")
    for i, word in repeats(data.label_vocabulary or ()):
        note(f"data.label_vocabulary.{i}", f"{word!r} is listed twice")
    if isinstance(data.weight, str) and data.weight == data.label:
        note("data.weight", f"{data.weight!r} is the label")


def _check_sources(run: Run, note: Note) -> None:
    for path, section in (("train", run.train), ("eval", run.eval)):
        name = None if section is None else section.source
        if name is None or is_broken(run.data.sources) or is_broken(name):
            continue
        if name not in run.data.sources:
            hint = did_you_mean(name, run.data.sources)
            note(f"{path}.source", f"unknown source {name!r}{hint}")


def _check_ends(run: Run, note: Note) -> None:
    """Endless data needs a number of steps."""
    limits = {"train": (run.train.source, run.train.max_steps, "max_steps")}
    if run.eval is not None:
        limits["eval"] = (run.eval.source, run.eval.steps, "steps")
    for path, (name, steps, key) in limits.items():
        source = run.data.sources[name]
        if source.epochs is None and steps is None:
            text = f"would never end: give {key}, or data.sources.{name}.epochs"
            note(f"{path}.{key}", text)


def _check_export(run: Run, note: Note) -> None:
    if run.export and run.eval is None:
        note("export", "bundles are written after evaluations: add an eval section")
    exports = list(run.export)
    for i, name in repeats([export.name for export in exports]):
        note(f"export.{i}.name", f"two exports are named {name!r}; give each its own")
    head = getattr(run.model, "head", None)
    for i, export in enumerate(exports):
        if isinstance(export, BestExport) and isinstance(export.metric, str):
            _check_best(export, head, f"export.{i}", note)


def _check_best(export: BestExport, head: Head | None, path: str, note: Note) -> None:
    metric = export.metric.removeprefix("eval/")
    known = metrics_of(head)
    if known and metric not in known:
        note(
            join(path, "metric"),
            f"unknown metric {metric!r}{did_you_mean(metric, known)}",
        )
    elif export.mode is None and better(metric) is None:
        note(join(path, "mode"), f"say whether more {metric!r} is better: max or min")


# What the heads' evaluations are called, as tf.estimator names them.
_BINARY = [
    *("accuracy", "accuracy_baseline", "auc", "auc_precision_recall"),
    *("average_loss", "label/mean", "loss", "precision", "prediction/mean", "recall"),
]
_MULTI_CLASS = ["accuracy", "average_loss", "loss"]
_REGRESSION = ["average_loss", "label/mean", "loss", "prediction/mean"]


def metrics_of(head: object) -> list[str]:
    """The metrics that a head reports; nothing for a model of one's own."""
    if isinstance(head, BinaryHead):
        named = ("accuracy", "precision", "recall")
        at = [
            f"{name}/positive_threshold_{threshold:g}"
            for threshold in head.thresholds
            for name in named
            if isinstance(threshold, float)
        ]
        return [*_BINARY, *at]
    if isinstance(head, MultiClassHead):
        return _MULTI_CLASS
    return _REGRESSION if isinstance(head, RegressionHead) else []


def better(metric: str) -> str | None:
    """Whether more or less of a metric is better, where the name says it.

    >>> better("auc"), better("average_loss"), better("label/mean")
    ('max', 'min', None)
    """
    if metric.endswith("loss"):
        return "min"
    best_high = ("accuracy", "auc", "precision", "recall")
    return "max" if metric.startswith(best_high) else None


def _check_columns(run: Run, note: Note) -> None:
    """Where the columns of the files are listed, the run may use only those."""
    for name, source in run.data.sources.items():
        listed = set(source.csv.columns or ())
        if not listed:
            continue
        wanted = {"data.label": run.data.label, "data.weight": run.data.weight}
        for feature, value in run.features.items():
            wanted[f"features.{feature}"] = column_key(feature, value)
        for path, column in wanted.items():
            if isinstance(column, str) and column not in listed:
                hint = did_you_mean(column, listed)
                note(path, f"source {name!r} has no column {column!r}{hint}")


def _check_labels(data: DataSection, head: Head, note: Note) -> None:
    words = data.label_vocabulary
    if words is None or is_broken(words):
        return
    path = "data.label_vocabulary"
    if isinstance(head, RegressionHead):
        note(path, "a regression has no classes; remove it")
    elif isinstance(head, BinaryHead) and len(words) != 2:
        note(path, f"a binary head needs 2 words, got {len(words)}")
    elif isinstance(head, MultiClassHead) and len(words) != head.classes:
        note(path, f"{head.classes} classes need as many words, got {len(words)}")
