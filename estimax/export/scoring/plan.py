"""The plan of a scoring, and the folder that keeps the plan and the shards.

    plan.shards[3]                  # the parts of files that shard 3 consists of
    plan.file_name(3)               # "part-00003-of-00010.parquet"
    folder = OutputFolder(path)
    with folder.hold():
        folder.start(plan)
        folder.record(CompleteShard(3, rows=131_072, size=9_451_120))
        folder.finish(plan, folder.complete_shards(plan))

A plan is made once, by `planning.py`, and does not change: a scoring that was killed
continues with the same shards, in any number of processes. Only light modules are
imported here, because the process that starts the others should not load jax first.

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
from estimax.storage import atomic, files, json_text, locks

BATCH_ROWS = 4096  # rows that are read, predicted and written at a time
SHARD_ROWS = 32 * BATCH_ROWS  # whole batches, so that programs compile for one size
FORMAT_VERSION = 1


def is_compressed(path: str) -> bool:
    """Return whether readers decompress a file, by its suffix.

    >>> is_compressed("new.csv.gz")
    True
    """
    return path.endswith(".gz")


@dataclass(frozen=True)
class FilePart:
    """Consecutive rows of a file.

    Args:
      form: The format of the file.
      start: Where the first row begins: (byte, line) in text, (byte, record) in
        TFRecords, (row group, row in it) in Parquet. Empty for a whole file.
      end: The byte after the last row; 0 for a whole file and for Parquet.
      first: The number of the first row in the file, or of its line in JSON lines, for
        messages.
      rows: The number of rows; None if it is not known before the file is read.
    """

    form: str
    start: tuple[int, ...] = ()
    end: int = 0
    first: int = 1
    rows: int | None = None

    @staticmethod
    def from_json(record: Any) -> FilePart:
        """Return the part whose fields were saved; raise ValueError if any is wrong."""
        record = json_text.mapping(record, "part")
        rows = record["rows"]
        return FilePart(
            json_text.text(record, "form"),
            json_text.dimensions(record, "start"),
            json_text.whole(record, "end"),
            json_text.whole(record, "first"),
            None if rows is None else json_text.whole(record, "rows"),
        )


@dataclass(frozen=True)
class InputFile:
    """A file to score, and how to notice that it has changed.

    Args:
      path: The path, as it was given or found.
      form: The format that it is read in.
      size: Its size in bytes.
      modified: The time of its last change, in nanoseconds since 1970.
      sample: The CRC-32 of its first, middle and last 64 KiB.
      content: The CRC-32 of all bytes, for formats without a checksum of their own.
    """

    path: str
    form: str
    size: int
    modified: int
    sample: int
    content: int | None

    @staticmethod
    def from_json(record: Any) -> InputFile:
        """Return the file whose fields were saved; raise ValueError if any is wrong."""
        record = json_text.mapping(record, "file")
        content = record["content"]
        return InputFile(
            json_text.text(record, "path"),
            json_text.text(record, "form"),
            json_text.whole(record, "size"),
            json_text.whole(record, "modified"),
            json_text.whole(record, "sample"),
            None if content is None else json_text.whole(record, "content"),
        )


@dataclass(frozen=True)
class ShardPart:
    """A part of the input file with the number `file`."""

    file: int
    part: FilePart


Shard = tuple[ShardPart, ...]


@dataclass(frozen=True)
class ScoringJob:
    """What is asked for: the model, and the form of the output.

    Args:
      bundle: The folder of the version.
      checksum: The checksum of its manifest, which covers all of its files.
      signature: The signature to call.
      keep: The columns of the input to write beside the predictions.
      output_format: The format of the shards.
      shard_rows: How many rows a shard should have.
    """

    bundle: str
    checksum: str
    signature: str
    keep: tuple[str, ...]
    output_format: str
    shard_rows: int

    @staticmethod
    def from_json(record: Any) -> ScoringJob:
        """Return the job whose fields were saved; raise ValueError for others."""
        record = json_text.mapping(record, "job")
        keep = record["keep"]
        if not isinstance(keep, list) or not all(isinstance(n, str) for n in keep):
            raise ValueError(f"keep: expected a list of names, found {keep!r}")
        texts = ("bundle", "checksum", "signature", "output_format")
        fields: dict[str, Any] = {key: json_text.text(record, key) for key in texts}
        rows = json_text.whole(record, "shard_rows")
        return ScoringJob(**fields, keep=tuple(keep), shard_rows=rows)


@dataclass(frozen=True)
class ShardPlan:
    """The shards of a scoring.

    Args:
      job: What is asked for.
      files: The files to score.
      shards: The parts that each shard consists of, in the order of the input.
      schema: The Arrow schema of Parquet shards, in base64; None for other formats.
    """

    job: ScoringJob
    files: tuple[InputFile, ...]
    shards: tuple[Shard, ...]
    schema: str | None = None

    def file_name(self, shard: int) -> str:
        """Return the name of the file of a shard."""
        suffix = self.job.output_format
        return f"part-{shard:05d}-of-{len(self.shards):05d}.{suffix}"

    def rows(self, shard: int) -> int | None:
        """Return the number of rows of a shard; None if it is not known."""
        counts = [one.part.rows for one in self.shards[shard]]
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None

    @property
    def total_rows(self) -> int | None:
        """The number of rows of all shards; None if it is not known."""
        counts = [self.rows(shard) for shard in range(len(self.shards))]
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        return {"format_version": FORMAT_VERSION, **dataclasses.asdict(self)}

    @staticmethod
    def from_json(value: Any) -> ShardPlan:
        """Return the plan that `to_json` described.

        Raises:
          ValueError: It is none, or one of a newer version.
          KeyError: A field is missing.
        """
        record = json_text.mapping(value, "plan")
        version = json_text.whole(record, "format_version")
        if version > FORMAT_VERSION:
            raise ValueError(
                f"expected format version {FORMAT_VERSION}, found {version}; it was "
                "written by a newer estimax"
            )
        files = tuple(InputFile.from_json(one) for one in _list(record, "files"))
        shards = tuple(
            tuple(_shard_part(one, len(files)) for one in _list({"shard": s}, "shard"))
            for s in _list(record, "shards")
        )
        schema = record["schema"]
        return ShardPlan(
            ScoringJob.from_json(record["job"]),
            files,
            shards,
            None if schema is None else json_text.text(record, "schema"),
        )


def _list(record: Mapping[str, Any], key: str) -> list[Any]:
    value = record[key]
    if not isinstance(value, list):
        raise ValueError(f"{key}: expected a list")
    return value


def _shard_part(value: Any, files: int) -> ShardPart:
    record = json_text.mapping(value, "shard")
    number = json_text.whole(record, "file", below=max(files, 1))
    return ShardPart(number, FilePart.from_json(record["part"]))


PLAN, DONE, MANIFEST = "_plan.json", "_done.jsonl", "_manifest.json"
SCORING = locks.Activity(
    "_scoring.lock",
    "scoring",
    "Two scorings in one folder would overwrite each other's shards.",
    "choose another output folder",
)


@dataclass(frozen=True)
class CompleteShard:
    """A shard that is complete: its number, its rows, and the bytes of its file."""

    shard: int
    rows: int
    size: int


class OutputFolder:
    """The folder of one scoring."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
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

    def complete_shards(self, plan: ShardPlan) -> dict[int, CompleteShard]:
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

    def _records(self, shards: int) -> Iterator[CompleteShard]:
        for line in (_read(self.path / DONE) or b"").splitlines():
            with contextlib.suppress(ValueError, KeyError):
                record = json_text.mapping(json_text.parse(line), DONE)
                found = CompleteShard(
                    json_text.whole(record, "shard", below=max(shards, 1)),
                    json_text.whole(record, "rows"),
                    json_text.whole(record, "size"),
                )
                if _line(found) == line + b"\n":
                    yield found

    def record(self, done: CompleteShard) -> None:
        """Add a shard whose file is in place to those that are complete."""
        with atomic.names_file(self.path / DONE), open(self.path / DONE, "ab") as file:
            file.write(_line(done))
            file.flush()
            os.fsync(file.fileno())

    def finish(self, plan: ShardPlan, completed: Mapping[int, CompleteShard]) -> None:
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


def _line(done: CompleteShard) -> bytes:
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
