"""The folder of a scoring: its shards, its plan, and which shards are complete.

    folder = OutputFolder(path)
    with folder.held():
        folder.start(plan)
        folder.record(Completed(3, rows=131_072, size=9_451_120))
        folder.finish(plan, folder.completed(plan))

| file | content |
|---|---|
| `part-00003-of-00010.parquet` | a shard; has this name from when it is complete |
| `_plan.json` | the plan, written before the first shard |
| `_done.jsonl` | a line for each shard that is complete: its rows and bytes |
| `_manifest.json` | written at the end: all shards, the bundle and the input files |
| `_scoring.lock` | there while a process writes to the folder |

A shard counts as complete if it has a line and a file of that size. So a process may be
killed at any moment: a shard without a line is made again, with the same rows, under
the same name. Readers of folders, such as Spark and pyarrow, ignore names with `_`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import stat
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from estimax.core.errors import InputError
from estimax.export.scoring.plan import ShardPlan
from estimax.storage import atomic, files, json_text, locks

PLAN, DONE, MANIFEST = "_plan.json", "_done.jsonl", "_manifest.json"
SCORING = locks.Activity(
    "_scoring.lock",
    "scoring",
    "Two scorings in one folder would overwrite each other's shards.",
    "choose another output folder",
)


@dataclass(frozen=True)
class Completed:
    """A shard that is complete: its number, its rows, and the bytes of its file."""

    shard: int
    rows: int
    size: int


class OutputFolder:
    """The folder of one scoring."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Create the folder, and let no other process write to it within the block.

        Raises:
          InUseError: Another process is scoring into the folder.
          InputError: The path is a file, or the folder has files of another origin.
        """
        if self.path.exists() and not self.path.is_dir():
            raise InputError(
                f"{self.path}: expected a folder for the shards, found a file. Choose "
                "another output folder."
            )
        self.path.mkdir(parents=True, exist_ok=True)
        with locks.hold(self.path, "score", SCORING):
            self.remove_leftovers()
            self._check_content()
            try:
                yield
            finally:
                self.remove_leftovers()

    def remove_leftovers(self) -> None:
        """Remove the unfinished files of processes that have ended."""
        atomic.remove_leftovers(self.path, sole_writer_of=lambda name: True)

    def _check_content(self) -> None:
        if (self.path / PLAN).exists():
            return
        others = sorted(p.name for p in self.path.iterdir() if p.name != SCORING.file)
        if others:
            raise InputError(
                f"{self.path}: expected an empty folder or one with the plan of a "
                f"scoring ({PLAN}), found {others[0]!r}"
                f"{f' and {len(others) - 1} more' if others[1:] else ''}. Choose "
                "another output folder."
            )

    def plan(self) -> ShardPlan | None:
        """Return the plan of the scoring in the folder; None if there is none yet."""
        path = self.path / PLAN
        data = _read(path)
        if data is None:
            return None
        try:
            record = dict(json_text.mapping(json_text.parse(data), PLAN))
            if record.pop("checksum") != _checksum(record):
                raise ValueError("its checksum differs")
            return ShardPlan.from_json(record)
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{path}: expected the plan of a scoring, found other content "
                f"({error}). Delete the folder to score again."
            ) from error

    def start(self, plan: ShardPlan) -> None:
        """Save the plan, before the first shard."""
        record = plan.to_json()
        record |= {"checksum": _checksum(record)}
        atomic.write_bytes(self.path / PLAN, _one_line(record))

    def discard(self, plan: ShardPlan) -> None:
        """Remove a plan and all of its shards."""
        (self.path / PLAN).unlink(missing_ok=True)
        for shard in range(len(plan.shards)):
            (self.path / plan.file_name(shard)).unlink(missing_ok=True)

    def completed(self, plan: ShardPlan) -> dict[int, Completed]:
        """Return the shards that are complete, by number."""
        found = {
            one.shard: one
            for one in self._records(len(plan.shards))
            if _size(self.path / plan.file_name(one.shard)) == one.size
        }
        # Also removes a line that was cut off when the process was killed.
        atomic.write_bytes(self.path / DONE, b"".join(map(_line, found.values())))
        if len(found) < len(plan.shards):
            (self.path / MANIFEST).unlink(missing_ok=True)
        return found

    def _records(self, shards: int) -> Iterator[Completed]:
        for line in (_read(self.path / DONE) or b"").splitlines():
            with contextlib.suppress(ValueError, KeyError):
                record = json_text.mapping(json_text.parse(line), DONE)
                found = Completed(
                    json_text.whole(record, "shard", below=max(shards, 1)),
                    json_text.whole(record, "rows"),
                    json_text.whole(record, "size"),
                )
                if _line(found) == line + b"\n":
                    yield found

    def record(self, done: Completed) -> None:
        """Add a shard whose file is in place to those that are complete."""
        with atomic.names_file(self.path / DONE), open(self.path / DONE, "ab") as file:
            file.write(_line(done))
            file.flush()
            os.fsync(file.fileno())

    def finish(self, plan: ShardPlan, completed: Mapping[int, Completed]) -> None:
        """Write the manifest, which says that the scoring is complete."""
        job = dataclasses.asdict(plan.job)
        atomic.write_json(
            self.path / MANIFEST,
            {
                "rows": sum(one.rows for one in completed.values()),
                **job,
                "files": [dataclasses.asdict(file) for file in plan.files],
                "shards": [
                    {"name": plan.file_name(n), "rows": one.rows, "bytes": one.size}
                    for n, one in sorted(completed.items())
                ],
            },
        )


def _line(done: Completed) -> bytes:
    """Return the line of a complete shard, with a checksum."""
    record = dataclasses.asdict(done)
    return _one_line(record | {"crc": zlib.crc32(_one_line(record))})


def _one_line(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def _checksum(record: Mapping[str, Any]) -> str:
    canonical = json.dumps(record, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _read(path: Path) -> bytes | None:
    """Return the content of a file; None if there is none."""
    if not os.path.lexists(path):
        return None
    with files.open_to_read(path) as file:
        return file.read()


def _size(path: Path) -> int | None:
    """Return the size of a file; None if there is none of this name."""
    try:
        about = path.stat()
    except OSError:
        return None
    return about.st_size if stat.S_ISREG(about.st_mode) else None
