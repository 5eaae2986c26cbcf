"""The plan of a scoring: what is asked for, the input files, and the shards.

    plan.shards[3]                  # the parts of files that shard 3 consists of
    plan.file_name(3)               # "part-00003-of-00010.parquet"
    ShardPlan.from_json(plan.to_json())  # equal: the folder of the output keeps it

A plan is made once, by `planning.py`, and does not change: a scoring that was killed
continues with the same shards, in any number of processes. Only light modules are
imported here, because the process that starts the others should not load jax first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from estimax.storage import json_text

BATCH_ROWS = 4096  # rows that are read, predicted and written at a time
SHARD_ROWS = 32 * BATCH_ROWS  # whole batches, so that programs compile for one size
FORMAT_VERSION = 1


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
        """Return the part whose fields were saved; raise ValueError for others."""
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
        """Return the file whose fields were saved; raise ValueError for others."""
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
