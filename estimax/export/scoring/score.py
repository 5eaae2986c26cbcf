"""Score files in several processes, into a folder of shards.

    result = score_files("export", "new-*.parquet", "scores", keep=["id"], processes=4)
    result.rows, result.folder

The processes load the bundle while this one cuts the input into shards. Then each is
given the next shard whenever it has completed one. `plan.py` says why nothing is lost
or written twice if any of the processes is killed.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from estimax.core import errors
from estimax.core.errors import ConfigError, EstimaxError, InputError, did_you_mean
from estimax.export.scoring.plan import (
    SHARD_ROWS,
    CompleteShard,
    OutputFolder,
    ScoringJob,
    ShardPlan,
)
from estimax.storage.worker_pool import WorkerEnd, WorkerPool

_WORKER = "estimax.export.scoring.worker"
OUTPUT_FORMATS = ("csv", "jsonl", "parquet", "tfrecord")

PathLike = str | os.PathLike[str]


class ScoringError(EstimaxError, RuntimeError):
    """A scoring process has ended before its work was done.

    The shards that are complete stay. The same call continues with the others.
    """


class ChangedScoringError(InputError):
    """A folder has shards of another scoring: other input, bundle or options.

    The message lists what differs.
    """


@dataclass(frozen=True)
class ScoringProgress:
    """How far a scoring is.

    Args:
      rows: The rows that are predicted, including the rows of an earlier call.
      total_rows: All rows; None if the input has files whose rows are not counted.
      shards: The shards that are complete.
      total_shards: All shards.
    """

    rows: int
    total_rows: int | None
    shards: int
    total_shards: int


@dataclass(frozen=True)
class ScoringResult:
    """What `score_files` returns.

    Args:
      folder: The folder of the shards.
      rows: The rows in all shards.
      files: The files of the shards, in the order of the input.
      new_rows: The rows that this call has scored; others were complete before.
      seconds: How long they took, from the first shard on.
    """

    folder: Path
    rows: int
    files: tuple[Path, ...]
    new_rows: int
    seconds: float


def score_files(
    bundle: PathLike,
    files: PathLike | Iterable[PathLike],
    output: PathLike,
    *,
    processes: int = 1,
    keep: Sequence[str] = (),
    signature: str | None = None,
    input_format: str | None = None,
    output_format: str = "parquet",
    shard_rows: int = SHARD_ROWS,
    on_progress: Callable[[ScoringProgress], None] | None = None,
) -> ScoringResult:
    """Predict every row of some files with a bundle, in several processes.

    Use it for files that are too large to score in one process, or that must not be
    scored twice if the machine fails. `estimax run --processes` calls it. Every process
    loads the bundle from disk. The output is a folder of shards, in the order of the
    input. If a call is killed, the same call continues with the shards that are
    missing, in any number of processes.

    Args:
      bundle: A bundle, or a folder of versions, of which the newest is used.
      files: A path, a pattern, or a list of these: CSV, JSON lines, Parquet, TFRecord
        or .npz files. Large files are shared by several processes, except for
        compressed ones and .npz.
      output: The folder for the shards. It is created; it must be empty, or have the
        shards of an earlier call with the same arguments.
      processes: How many processes score. More than there are processors do not help.
      keep: The columns of the input to write beside the predictions, such as keys.
      signature: The signature to call. None: `Bundle.default_signature`.
      input_format: "csv", "jsonl", "npz", "parquet" or "tfrecord". None: by the suffix
        or the content of each file.
      output_format: "csv", "jsonl", "parquet" or "tfrecord".
      shard_rows: How many rows a shard has, at most; a row group of a Parquet file is
        not cut unless there are too few of them. If a process is killed, at most this
        many rows of each process are predicted again.
      on_progress: Called with a `ScoringProgress` while rows are predicted.

    Returns:
      A `ScoringResult`.

    Raises:
      ConfigError: An argument is invalid.
      InputError: A file cannot be read, lacks a column, or has a row that the bundle
        refuses; the message names the file and the row.
      BundleError: The bundle cannot be loaded.
      ChangedScoringError: The folder has shards of another input, bundle or option.
      InUseError: Another process is scoring into the folder.
      ScoringError: A scoring process was killed.
      OSError: A shard cannot be written, for example because the disk is full.

    Example:
      >>> score_files("export", "new.csv", "scores", processes=0)
      Traceback (most recent call last):
      estimax.core.errors.ConfigError: processes: expected at least 1, found 0.
    """
    _check_arguments(processes, output_format, shard_rows)
    folder = OutputFolder(Path(output))
    keep = tuple(dict.fromkeys(keep))
    setup = {"bundle": os.fspath(bundle), "signature": signature, "keep": keep}
    asked = _Asked(files, input_format, keep, output_format, shard_rows, processes)
    with folder.hold(), WorkerPool(_WORKER, processes) as pool:
        for number in range(processes):
            pool.send(number, setup)
        plan = _plan(asked, pool, folder)
        tell = on_progress or (lambda progress: None)
        return _Scoring(plan, folder, pool, tell).run()


def _check_arguments(processes: int, output_format: str, shard_rows: int) -> None:
    for name, value in (("processes", processes), ("shard_rows", shard_rows)):
        if value < 1:
            raise ConfigError(f"{name}: expected at least 1, found {value}.")
    if output_format not in OUTPUT_FORMATS:
        hint = did_you_mean(output_format, OUTPUT_FORMATS)
        raise ConfigError(
            f"output_format: unknown format {output_format!r}{hint}; shards are "
            f"{', '.join(OUTPUT_FORMATS)}."
        )


@dataclass(frozen=True)
class _Asked:
    """The arguments of `score_files` that make the plan."""

    files: PathLike | Iterable[PathLike]
    input_format: str | None
    keep: tuple[str, ...]
    output_format: str
    shard_rows: int
    processes: int


def _plan(asked: _Asked, pool: WorkerPool, folder: OutputFolder) -> ShardPlan:
    """Return the plan in the folder, if it is of the same scoring, or a new one."""
    # Imported while the processes load the bundle.
    from estimax.export.scoring import planning
    from estimax.export.scoring.tables import check_format
    from estimax.input.sources.file_blocks import expand

    check_format(asked.input_format)
    paths = expand(asked.files)
    before = folder.plan()
    if before is not None and not folder.complete_shards(before):
        # Nothing to continue, and the mistake that ended it may have been corrected.
        folder.discard(before)
        before = None
    if before is not None:
        job = _job(asked, pool)
        found = planning.differences(before, job, paths, asked.input_format)
        if found:
            raise _make_changed_error(folder, before, found)
        return planning.with_paths(before, paths)
    files, shards = planning.make_shards(
        paths, asked.input_format, asked.shard_rows, processes=asked.processes
    )
    plan = ShardPlan(_job(asked, pool), files, shards)
    if asked.output_format == "parquet" and shards:
        first = shards[0][0]
        path, part = files[first.file].path, dataclasses.asdict(first.part)
        pool.send(0, {"schema_of": {"path": path, "part": part}})
        plan = replace(plan, schema=_receive(pool)[2])
    folder.start(plan)
    return plan


def _job(asked: _Asked, pool: WorkerPool) -> ScoringJob:
    """Wait until all processes have loaded the bundle; return what is asked for."""
    loaded = [_receive(pool)[2] for _ in range(pool.size)]
    first = loaded[0]
    for about in loaded:
        if about != first:
            raise InputError(
                f"a new version of the bundle has appeared: {about['bundle']} beside "
                f"{first['bundle']}. Run the same again."
            )
    from estimax.export.scoring.tables import check_keep

    check_keep(asked.keep, first["outputs"])
    return ScoringJob(
        first["bundle"],
        first["checksum"],
        first["signature"],
        asked.keep,
        asked.output_format,
        asked.shard_rows,
    )


def _make_changed_error(
    folder: OutputFolder, plan: ShardPlan, found: Sequence[str]
) -> ChangedScoringError:
    done = len(folder.complete_shards(plan))
    return ChangedScoringError(
        f"{folder.path}: the folder has {done} of {len(plan.shards)} shards of another "
        "scoring, which this one would not continue:\n  "
        + "\n  ".join(found)
        + "\nRestore what has changed to continue that scoring. To start a new one, "
        "delete the folder or choose another one."
    )


def _receive(pool: WorkerPool) -> tuple[int, str, Any]:
    """Return the next message: the number of the process, its kind, its content.

    Raises:
      EstimaxError, OSError: The process reports an error.
      ScoringError: The process has ended, or reports an unexpected error.
    """
    number, message = pool.receive()
    if isinstance(message, WorkerEnd):
        raise _end_error(message, f"{number + 1} of {pool.size}")
    ((kind, value),) = message.items()
    if kind == "error":
        raise _error_from_json(value)
    return number, kind, value


def _end_error(end: WorkerEnd, which: str) -> ScoringError:
    if end.signal is None:
        how, advice = f"ended with status {end.status}", " Its messages are above."
    else:
        how, advice = f"was killed by {end.signal}", ""
        if end.signal == "SIGKILL":
            advice = " If the machine ran out of memory, use fewer processes."
    return ScoringError(
        f"scoring process {which} (process id {end.pid}) {how}.{advice} The shards "
        "that are complete stay; run the same again to continue."
    )


def _error_from_json(value: Mapping[str, Any]) -> Exception:
    """Return the error that a process reports, of the same class if it is known."""
    kind = getattr(errors, value["kind"], None)
    if isinstance(kind, type) and issubclass(kind, EstimaxError):
        return kind(value["message"])
    if "system" in value:  # such as a full disk
        return OSError(*value["system"])
    return ScoringError(
        f"a scoring process failed: {value['kind']}: {value['message']}\n"
        f"{value['traceback']}"
    )


class _Scoring:
    """The shards of a plan on their way through the processes."""

    def __init__(
        self,
        plan: ShardPlan,
        folder: OutputFolder,
        pool: WorkerPool,
        tell: Callable[[ScoringProgress], None],
    ) -> None:
        self._plan = plan
        self._folder = folder
        self._pool = pool
        self._tell_caller = tell
        self._done = folder.complete_shards(plan)
        self._done_rows = sum(one.rows for one in self._done.values())
        self._total_rows = plan.total_rows
        self._waiting = deque(n for n in range(len(plan.shards)) if n not in self._done)
        self._rows: dict[int, int] = {}  # of the shard of each process that has one

    def run(self) -> ScoringResult:
        """Have all missing shards scored; return when the folder is complete."""
        before, started = self._done_rows, time.monotonic()
        self._tell()
        for number in range(self._pool.size):
            self._assign(number)
        while self._rows:
            number, kind, value = _receive(self._pool)
            if kind == "rows":
                self._rows[number] += value
            else:
                self._complete(CompleteShard(**value))
                del self._rows[number]
                self._assign(number)
            self._tell()
        seconds = time.monotonic() - started
        self._folder.finish(self._plan, self._done)
        shards = range(len(self._plan.shards))
        return ScoringResult(
            self._folder.path,
            self._done_rows,
            tuple(self._folder.path / self._plan.file_name(n) for n in shards),
            self._done_rows - before,
            seconds,
        )

    def _assign(self, number: int) -> None:
        """Give a process the next shard, if there is one."""
        if not self._waiting:
            return
        shard, plan = self._waiting.popleft(), self._plan
        self._rows[number] = 0
        parts = [
            {
                "path": plan.files[one.file].path,
                "size": plan.files[one.file].size,
                "modified": plan.files[one.file].modified,
                "part": dataclasses.asdict(one.part),
            }
            for one in plan.shards[shard]
        ]
        task = {
            "shard": shard,
            "output": str(self._folder.path / plan.file_name(shard)),
            "format": plan.job.output_format,
            "schema": plan.schema,
            "parts": parts,
        }
        self._pool.send(number, task)

    def _complete(self, found: CompleteShard) -> None:
        self._folder.record(found)
        self._done[found.shard] = found
        self._done_rows += found.rows

    def _tell(self) -> None:
        self._tell_caller(
            ScoringProgress(
                self._done_rows + sum(self._rows.values()),
                self._total_rows,
                len(self._done),
                len(self._plan.shards),
            )
        )
