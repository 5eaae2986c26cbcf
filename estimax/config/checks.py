"""Checks of a decoded run that concern more than one value.

    check_run(run, origins, problems)

Names must refer to something, every feature must be used, and settings must not
contradict each other. Values that could not be decoded are ignored. Features and model
have modules of their own, `feature_checks` and `model_checks`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from estimax.config.columns import clashes, data_columns, label_columns
from estimax.config.decode import is_broken
from estimax.config.feature_checks import (
    Note,
    check_features,
    column_key,
    keys_of,
    repeats,
)
from estimax.config.model_checks import (
    better,
    check_labels,
    check_model,
    metrics_of,
    why_not_explained,
)
from estimax.config.nodes import Problems, ValueOrigin, join
from estimax.config.schema.data import CsvSource, DataSection, Source
from estimax.config.schema.model import AverageModelConfig
from estimax.config.schema.run import (
    BestExport,
    ChiefClusterConfig,
    ClusterConfig,
    CoordinatedClusterConfig,
    JobsConfig,
    MasterClusterConfig,
    Run,
)
from estimax.core.encodings import encoding_problem
from estimax.core.errors import did_you_mean
from estimax.core.machine import is_address

__all__ = ["better", "check_run", "metrics_of", "nearest"]


def check_run(run: Run, origins: Mapping[str, ValueOrigin], problems: Problems) -> None:
    """Report every contradiction in a decoded run.

    Args:
      run: The run.
      origins: Where the value at each address was written.
      problems: Collects the problems.
    """

    def note(path: str, text: str) -> None:
        lone = path.replace(".0.", ".", 1)
        if path not in origins and lone in origins:
            path = lone  # a single item was written instead of a list
        problems.add(nearest(origins, path), path, text)

    if run.run.model_dir == "":
        note("run.model_dir", "must not be empty; name a directory")
    _check_saving(run, note)
    check_cluster(run.run.cluster, note)
    _check_data(run.data, note)
    _check_sources(run, note)
    if not problems.under("train") and not problems.under("eval"):
        _check_ends(run, note)
    _check_stopping(run, note)
    _check_export(run, note)
    labels = [run.data.label]
    if isinstance(run.data.labels, Mapping):
        labels += list(run.data.labels.values())
    check_features(run.features, labels, note)
    if not problems.under("features"):
        for name, text in clashes(run.features):
            note(f"features.{name}", text)
    _check_columns(run, note)
    check_model(run, note, complete=not problems.under("model"))
    check_labels(run, note)
    if not any(problems.under(path) for path in ("data", "features", "model")):
        _check_lists(run, note)
        _check_slices(run, note)


def nearest(origins: Mapping[str, ValueOrigin], path: str) -> ValueOrigin:
    """Return the origin of an address, or of the closest address above it."""
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
        _check_split(source, f"data.sources.{name}", data, note)
        for key in ("max_bad_rows", "max_bad_fraction"):
            if source.on_bad_row == "fail" and getattr(source, key) is not None:
                text = "is a limit of skipped rows: set on_bad_row to skip"
                note(f"data.sources.{name}.{key}", text)
        if isinstance(source, CsvSource):
            _check_csv(source, f"data.sources.{name}.csv", note)
    for i, word in repeats(data.label_vocabulary or ()):
        note(f"data.label_vocabulary.{i}", f"{word!r} is listed twice")
    if isinstance(data.weight, str) and data.weight == data.label:
        note("data.weight", f"{data.weight!r} is the label; name another column")


def _check_csv(source: CsvSource, path: str, note: Note) -> None:
    if source.csv.header is False and source.csv.columns is None:
        note(f"{path}.columns", "required key is missing: there is no header")
    for key in ("delimiter", "quote"):
        given = getattr(source.csv, key)
        if isinstance(given, str) and len(given) != 1:
            note(f"{path}.{key}", "must be one character")
        elif isinstance(given, str) and (
            not given.isascii() or given in ('\r\n"' if key == "delimiter" else "\r\n")
        ):
            text = "must be an ASCII character other than a quote or a line break"
            note(f"{path}.{key}", f"{text}, got {given!r}")
    given = source.csv.encoding
    problem = None if is_broken(given) else encoding_problem(given)
    if problem is not None:
        note(f"{path}.encoding", problem)
    for i, repeated in repeats(source.csv.columns or ()):
        note(f"{path}.columns.{i}", f"column {repeated!r} is named twice")


def _check_split(source: Source, path: str, data: DataSection, note: Note) -> None:
    shard = source.shard
    index, count = (0, 1) if shard is None else (shard.index, shard.count)
    if isinstance(index, int) and isinstance(count, int) and index >= count:
        note(f"{path}.shard.index", f"must be < count ({count}), got {index}")
    split = source.split
    if split is None or is_broken(split) or is_broken(split.parts):
        return
    if split.by in ("hash", "time") and split.key is None:
        note(
            f"{path}.split.key", f"required key is missing: the column to {split.by} by"
        )
    if split.by == "random" and isinstance(split.key, str):
        note(f"{path}.split.key", "is for hash and time; remove it, or set by to hash")
    if source.part is not None:
        note(f"{path}.part", "conflicts with split; keep one of the two")
    shares = [share for share in split.parts.values() if not is_broken(share)]
    if any(share <= 0 for share in shares):
        note(f"{path}.split.parts", "every share must be > 0")
    elif not 0.999 <= sum(shares) <= 1.001 and len(shares) == len(split.parts):
        note(f"{path}.split.parts", f"must add up to 1, got {sum(shares):g}")
    for name in split.parts:
        if name in data.sources:
            note(f"{path}.split.parts.{name}", "a source has this name; use another")


def _check_sources(run: Run, note: Note) -> None:
    for path, name in _uses(run):
        if is_broken(run.data.sources) or is_broken(name):
            continue
        known = source_names(run.data)
        if name not in known:
            note(
                f"{path}.source", f"unknown source {name!r}{did_you_mean(name, known)}"
            )


def source_names(data: DataSection) -> list[str]:
    """Return the names of all sources, with the parts of splits in their place."""
    found: list[str] = []
    for name, source in data.sources.items():
        parts = getattr(getattr(source, "split", None), "parts", None)
        found += list(parts) if isinstance(parts, Mapping) else [name]
    return found


def sources_of(run: Run) -> list[str]:
    """Return the sources that a run reads, that of training first."""
    return list(dict.fromkeys(source for _, source in _uses(run)))


def _uses(run: Run) -> Iterator[tuple[str, str]]:
    """Yield address and source of each section that reads a source."""
    yield "train", run.train.source
    model = run.model
    if isinstance(model, AverageModelConfig) and model.held_out is not None:
        yield "model.held_out", model.held_out
    if run.eval is not None:
        yield "eval", run.eval.source
        if isinstance(run.eval.also, Mapping):
            for name, one in run.eval.also.items():
                yield f"eval.also.{name}", one.source
    if run.test is not None and not is_broken(run.test):
        yield "test", run.test.source


def _check_ends(run: Run, note: Note) -> None:
    """Report training or evaluation that would never end."""
    limits = {"train": (run.train.max_steps, "max_steps")}
    if run.eval is not None:
        limits["eval"] = (run.eval.steps, "steps")
        for name, one in run.eval.also.items():
            limits[f"eval.also.{name}"] = (one.steps, "steps")
    if run.test is not None:
        limits["test"] = (run.test.steps, "steps")
    for path, source in _uses(run):
        steps, key = limits.get(path, (None, ""))
        # A part of a split that is evaluated is read once.
        found = run.data.sources.get(source)
        if found is not None and found.epochs is None and steps is None:
            text = f"would never end: give {key}, or data.sources.{source}.epochs"
            note(f"{path}.{key}", text)


def _check_stopping(run: Run, note: Note) -> None:
    section = run.early_stopping
    if section is None or is_broken(section):
        return
    if run.eval is None:
        note("early_stopping", "compares evaluations: add an eval section")
        return
    _check_metric(section, getattr(run.model, "head", None), "early_stopping", note)
    if isinstance(section.evaluation, str) and section.evaluation not in run.eval.also:
        hint = did_you_mean(section.evaluation, run.eval.also)
        note(
            "early_stopping.evaluation",
            f"unknown evaluation {section.evaluation!r}{hint}",
        )


def _check_lists(run: Run, note: Note) -> None:
    """Report lists in CSV files, whose values are single texts."""
    if not any(isinstance(source, CsvSource) for source in run.data.sources.values()):
        return
    lists = {
        column
        for column, read in data_columns(run).items()
        if (read.many or read.shape is not None) and read.delimiter is None
    }
    for name, feature in run.features.items():
        if column_key(name, feature) in lists:
            text = (
                "a CSV file has one text for several values; give what separates them"
            )
            note(f"features.{name}.delimiter", f"required key is missing: {text}")
    for column in lists & set(label_columns(run)):
        note(
            "data.label_delimiter",
            f"required key is missing for {column!r} in CSV files",
        )


def _check_slices(run: Run, note: Note) -> None:
    columns = data_columns(run)
    for column in run.eval.slices if run.eval is not None else ():
        if column not in columns:
            hint = did_you_mean(column, columns)
            text = f"the run reads no column {column!r}{hint}"
            note(f"eval.slices.{column}", text)


def _check_export(run: Run, note: Note) -> None:
    if run.export and run.eval is None:
        note("export", "bundles are written after evaluations: add an eval section")
    exports = list(run.export)
    for i, name in repeats([export.name for export in exports]):
        note(f"export.{i}.name", f"two exports are named {name!r}; give each its own")
    names = [export.name for export in exports]
    served = run.serving.export if run.serving is not None else None
    if isinstance(served, str) and served not in names:
        note(
            "serving.export", f"unknown export {served!r}{did_you_mean(served, names)}"
        )
    head = getattr(run.model, "head", None)
    for i, export in enumerate(exports):
        if isinstance(export, BestExport):
            _check_metric(export, head, f"export.{i}", note)
        if export.explain is True and (reason := why_not_explained(run.model, head)):
            note(f"export.{i}.explain", f"{reason}; leave explain out")
        if export.calibrate is not None:
            _check_calibrate(run, head, f"export.{i}.calibrate", note)
        if export.explain is True and export.table_dtype is not None:
            note(
                f"export.{i}.table_dtype", "cannot be given with explain; leave one out"
            )


def _check_calibrate(run: Run, head: Any, path: str, note: Note) -> None:
    """Report a calibration of a model that does not predict classes of one label."""
    found = None if head is None or is_broken(head) else head.type
    if run.data.labels or found not in (None, "binary", "multi_class"):
        several = "several labels" if run.data.labels else f"the head {found}"
        note(
            path,
            "needs a head of type binary or multi_class, which predicts probabilities; "
            f"the run has {several}. Remove it",
        )


def _check_metric(given: Any, head: Any, path: str, note: Note) -> None:
    """Report a metric that the head does not have, or of which neither end is best."""
    if not isinstance(given.metric, str):
        return
    metric = given.metric.removeprefix("eval/")
    known = metrics_of(head)
    if known and metric not in known:
        note(
            join(path, "metric"),
            f"unknown metric {metric!r}{did_you_mean(metric, known)}",
        )
    elif given.mode is None and better(metric) is None:
        note(join(path, "mode"), f"say whether more {metric!r} is better: max or min")


def _check_columns(run: Run, note: Note) -> None:
    """Report columns that the run uses and a source with listed columns lacks."""
    for name, source in run.data.sources.items():
        if not isinstance(source, CsvSource) or not source.csv.columns:
            continue
        listed = set(source.csv.columns)
        wanted: list[tuple[str, object]] = [("data.label", run.data.label)]
        wanted.append(("data.weight", run.data.weight))
        for head, label in run.data.labels.items():
            wanted.append((f"data.labels.{head}", label))
        for feature, value in run.features.items():
            keys = keys_of(feature, value)
            wanted += [(f"features.{feature}", column) for column in keys]
        for path, column in wanted:
            if isinstance(column, str) and column not in listed:
                hint = did_you_mean(column, listed)
                note(path, f"source {name!r} has no column {column!r}{hint}")


def check_cluster(given: ClusterConfig | None, note: Note) -> None:
    """Report addresses that are none, and a process that the cluster does not have."""
    if is_broken(given) or not hasattr(given, "__dataclass_fields__"):
        return
    for key, address in _addresses(given):
        if isinstance(address, str) and not is_address(address):
            text = f"must be host:port, such as 10.0.0.1:4000, got {address!r}"
            note(f"run.cluster.{key}", text)
    if isinstance(given, CoordinatedClusterConfig):
        count, process = given.processes, given.process
        if not is_broken(count) and not is_broken(process) and process >= count:
            text = f"must be less than processes ({count}), got {process}"
            note("run.cluster.process", text)
    elif isinstance(given, ChiefClusterConfig | MasterClusterConfig):
        _check_task(given, note)


def _check_task(given: JobsConfig, note: Note) -> None:
    task = given.task
    if any(map(is_broken, (task, given.worker))) or any(
        map(is_broken, (task.type, task.index))
    ):
        return
    if task.type == "worker":
        count = len(given.worker)
        if task.index >= count:
            text = f"run.cluster.worker has {count} addresses, so the index is"
            expected = f"{text} at most {count - 1}" if count else f"{text} none"
            note("run.cluster.task.index", f"{expected}, got {task.index}")
    elif task.type != "evaluator" and task.index:
        text = f"there is one {task.type}, with index 0, got {task.index}"
        note("run.cluster.task.index", text)


def _addresses(given: Any) -> Iterator[tuple[str, Any]]:
    """Yield the key and the value of each address."""
    for key in ("coordinator", "chief", "master"):
        if hasattr(given, key):
            yield key, getattr(given, key)
    workers = getattr(given, "worker", ())
    for i, address in enumerate(() if is_broken(workers) else workers):
        yield f"worker.{i}", address
