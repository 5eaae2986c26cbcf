"""The run that `fit` trains, and the model that remains of it.

    task = Task("label", "weight", InferredTask({"type": "binary"}, None, ""))
    trained = train(table, task, options)
    trained.predict(table)["probabilities"]          # [B, 2]

`fit` chooses features, model and training as `estimax init` does, writes a run file and
its data, and trains it. What is kept is the exported bundle, so that a trained model is
data: it can be copied, pickled, and written to a folder for a server.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from estimax.config.build import build
from estimax.config.columns import ColumnKind, data_columns
from estimax.config.dump import dump_plain
from estimax.config.infer import BEST_METRIC, Inferred, InferredTask, infer
from estimax.config.load import LoadedRun, load
from estimax.config.model_choice import choose_models
from estimax.config.profile import profile_table
from estimax.config.saved import claim_model_dir
from estimax.export import manifest
from estimax.sklearn.tables import cast_columns

_PREDICTED_AT_ONCE = 16_384  # rows


@dataclass(frozen=True)
class Task:
    """What is learned, and the columns of the table that are no features.

    Args:
      label: The column of labels.
      weight: The column of weights; None if all rows count alike.
      inferred: The head, and the words of the label if it has words.
    """

    label: str
    weight: str | None
    inferred: InferredTask


@dataclass(frozen=True)
class FitOptions:
    """How a model is trained; the arguments of the estimators explain the fields."""

    model: str
    max_steps: int | None
    model_dir: str | None
    seed: int
    verbose: bool


@dataclass
class TrainedModel:
    """A bundle as bytes, with what is needed to read a table as in training.

    Args:
      files: The files of the bundle, by their path in it.
      kinds: How each column is read.
      left_out: The columns that are not used, with the reasons.
      steps: The step that was trained to.
    """

    files: dict[str, bytes]
    kinds: dict[str, ColumnKind]
    left_out: dict[str, str]
    steps: int
    _loaded: list[Any] = field(default_factory=list, repr=False)

    def predict(self, table: Any) -> dict[str, np.ndarray[Any, Any]]:
        """Return the predictions of the rows of a table, by name."""
        rows = cast_columns(table, self.kinds)
        parts = [
            self._bundle().predict(rows.slice(start, _PREDICTED_AT_ONCE))
            for start in range(0, rows.num_rows, _PREDICTED_AT_ONCE)
        ]
        return {
            name: np.concatenate([part[name] for part in parts]) for name in parts[0]
        }

    def write(self, folder: Path) -> None:
        """Write the bundle into a folder."""
        for name, content in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def _bundle(self) -> Any:
        from estimax import export

        if not self._loaded:
            folder = tempfile.mkdtemp(prefix="estimax-")
            self.write(Path(folder))
            bundle = export.load(folder)
            # Not before: some files of a bundle are read when they are needed.
            weakref.finalize(bundle, shutil.rmtree, folder, ignore_errors=True)
            self._loaded.append(bundle)
        return self._loaded[0]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_loaded": []}


def train(rows: Any, held_out: Any, task: Task, options: FitOptions) -> TrainedModel:
    """Train a model on a table.

    Args:
      rows: The rows to train on, with label and weight.
      held_out: The rows that choose the step of the model; None trains to the end.
      task: What is learned.
      options: How.

    Raises:
      EstimaxError: No column can be a feature, or the model cannot be trained.
    """
    profile = profile_table(rows, "X")
    inferred = infer(
        profile,
        task.label,
        weight=task.weight,
        keep=rows.column_names,
        task=task.inferred,
    ).with_models(choose_models(options.model))
    with tempfile.TemporaryDirectory(prefix="estimax-") as base, _log(options.verbose):
        folder = Path(base)
        path = folder / "run.yaml"
        path.write_text(
            dump_plain(_run_file(inferred, task, options, folder, held_out))
        )
        loaded = load(path)
        kinds: dict[str, Any] = {
            name: column.kind
            for name, column in data_columns(loaded.run).items()
            if name not in (task.label, task.weight)
        }
        _write(folder / "train.parquet", rows, kinds, task)
        if held_out is not None:
            _write(folder / "validation.parquet", held_out, kinds, task)
        claim_model_dir(loaded)
        bundle, steps = _train_and_export(loaded, folder)
        files = {
            str(file.relative_to(bundle)): file.read_bytes()
            for file in sorted(bundle.rglob("*"))
            if file.is_file()
        }
    return TrainedModel(files, kinds, _left_out(inferred, rows, kinds, task), steps)


def _left_out(
    inferred: Inferred, rows: Any, kinds: Mapping[str, ColumnKind], task: Task
) -> dict[str, str]:
    """Return the columns that no feature of the model reads, with the reasons."""
    reasons = dict(inferred.skipped)
    return {
        name: reasons.get(name, "is of a kind that a linear model does not read")
        for name in rows.column_names
        if name not in kinds and name not in (task.label, task.weight)
    }


def _run_file(
    inferred: Inferred, task: Task, options: FitOptions, folder: Path, held_out: Any
) -> dict[str, Any]:
    """Return a run file with everything that was chosen."""
    made = inferred.sections()
    if options.max_steps is not None:
        made["train"] = {"max_steps": options.max_steps}
        saving = made["run"]["save_checkpoints"]
        saving["every_steps"] = min(saving["every_steps"], options.max_steps)
    if "linear" in inferred.models:
        # Another table may have missing numbers where this one has none.
        for section in made["features"].values():
            if section["type"] == "numeric":
                section.setdefault("default", "mean")
    made["run"] |= {
        "model_dir": options.model_dir or str(folder / "model"),
        "on_existing": "overwrite",
        "compare": False,
        "report": False,
        "save_summary_steps": 100 if options.model_dir else None,
    }
    sources = {"train": inferred.source(for_training=True)}
    sources["train"]["files"] = str(folder / "train.parquet")
    if held_out is not None:
        sources["validation"] = inferred.source(for_training=False)
        sources["validation"]["files"] = str(folder / "validation.parquet")
        made["eval"] = {"source": "validation"}
        made["export"] = [{"type": "best", "metric": BEST_METRIC, "keep": 1}]
        if inferred.early_stopping is not None:
            made["early_stopping"] = inferred.early_stopping
    made["data"] |= {"sources": sources}
    if task.weight is not None:
        made["data"]["weight"] = task.weight
    about = {"schema": "estimax/run/v1", "name": "sklearn", "seed": options.seed}
    return about | made


def _write(path: Path, rows: Any, kinds: Mapping[str, ColumnKind], task: Task) -> None:
    table = cast_columns(rows, kinds)
    for name in filter(None, (task.label, task.weight)):
        table = table.append_column(name, rows[name])
    pq.write_table(table, path)


def _train_and_export(loaded: LoadedRun, folder: Path) -> tuple[Path, int]:
    """Train a run; return the folder of its bundle, and its last step."""
    from estimax import checkpoints
    from estimax.estimator import train_and_evaluate

    built = build(loaded)
    spec, eval_spec = built.train_spec(), built.eval_spec()
    model_dir = loaded.run.run.model_dir
    if eval_spec is None:
        built.estimator.train(spec.input_fn, spec.hooks, max_steps=spec.max_steps)
        bundle = built.estimator.export_saved_model(folder / "export")
    else:
        train_and_evaluate(built.estimator, spec, eval_spec)
        bundle = str(manifest.resolve(Path(model_dir) / "export" / "best"))
    last = checkpoints.latest(model_dir)
    return Path(bundle), 0 if last is None else checkpoints.step_of(last)


@contextlib.contextmanager
def _log(is_shown: bool) -> Iterator[None]:
    """Show only warnings of the training within the block, unless all is shown."""
    logger = logging.getLogger("estimax")
    before = logger.level
    if not is_shown and before == logging.NOTSET:
        logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(before)
