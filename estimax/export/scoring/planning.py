"""Make the plan of a scoring, and compare a scoring with an earlier plan.

    files, shards = make_shards(paths, None, SHARD_ROWS, processes=2)
    differences(plan, job, paths, None)      # texts; empty if it is the same scoring

A file has changed if its size or a sample of its bytes differs. If only the time of its
last change differs, as for a file that was copied again, the checksum of the whole file
decides.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from estimax.export.scoring import parts
from estimax.export.scoring.plan import (
    BATCH_ROWS,
    FilePart,
    InputFile,
    ScoringJob,
    Shard,
    ShardPart,
    ShardPlan,
)
from estimax.export.scoring.tables import format_of
from estimax.input.fingerprints import file_print
from estimax.storage import files

_THREADS = 8  # that read files; finding the ends of rows mostly releases the GIL
# Files are cut into parts of this size, which are then joined to shards.
_FINE_ROWS = 4 * BATCH_ROWS
_SHARDS_PER_PROCESS = 4  # at least, so that the processes end at about the same time
# The bytes of a row of a file whose rows are not counted, to join small files.
_LEAST_ROW_BYTES = 32


def make_shards(
    paths: Sequence[str], input_format: str | None, rows: int, *, processes: int
) -> tuple[tuple[InputFile, ...], tuple[Shard, ...]]:
    """Return the files and the shards of a new scoring.

    A shard has `rows` rows at most, and fewer if there would be less than four shards
    for each process. Row groups of Parquet files are cut only if there are too few.

    Raises:
      InputError: A file cannot be read.
    """
    fine = min(rows, _FINE_ROWS)
    with ThreadPoolExecutor(_THREADS) as pool:
        cuts = list(pool.map(lambda path: _cut(path, input_format, fine), paths))
    total = sum(_rows(found.file, part) for found in cuts for part in found.parts)
    rows = min(rows, max(fine, total // (_SHARDS_PER_PROCESS * processes)))
    shards = tuple(_joined(cuts, rows))
    if len(shards) < 2 * processes:
        cuts = [_cut_finer(found, rows, processes) for found in cuts]
        shards = tuple(_joined(cuts, rows))
    return tuple(found.file for found in cuts), shards


def differences(
    plan: ShardPlan, job: ScoringJob, paths: Sequence[str], input_format: str | None
) -> list[str]:
    """Return how a scoring differs from an earlier plan, one text per difference."""
    before = plan.job
    found = []
    if job.checksum != before.checksum:
        found.append(f"the bundle was {before.bundle}, and is {job.bundle} now")
    options = (
        ("signature", before.signature, job.signature),
        ("keep", ",".join(before.keep), ",".join(job.keep)),
        ("output_format", before.output_format, job.output_format),
        ("shard_rows", before.shard_rows, job.shard_rows),
    )
    for what, old, new in options:
        if old != new:
            found.append(f"{what} was {old or 'none'}, and is {new or 'none'} now")
    if len(paths) != len(plan.files):
        found.append(f"there were {len(plan.files)} input files, and are {len(paths)}")
        return found
    with ThreadPoolExecutor(_THREADS) as pool:
        pairs = pool.map(lambda f, p: _change(f, p, input_format), plan.files, paths)
        return found + [text for text in pairs if text]


def with_paths(plan: ShardPlan, paths: Sequence[str]) -> ShardPlan:
    """Return the plan with the present paths and times of files that are the same."""
    pairs = zip(plan.files, paths, strict=True)
    now = (replace(f, path=p, modified=os.stat(p).st_mtime_ns) for f, p in pairs)
    return replace(plan, files=tuple(now))


def _change(before: InputFile, path: str, input_format: str | None) -> str:
    """Return how a file has changed; "" if it is the same."""
    if os.path.basename(path) != os.path.basename(before.path):
        return f"the input file was {before.path}, and is {path} now"
    form = format_of(path, input_format)
    if form != before.form:
        return f"{path} was read as {before.form}, and is read as {form} now"
    now = _described(path, form)
    if now.size != before.size:
        return f"{path} had {before.size:,} bytes, and has {now.size:,} now"
    is_same = now.sample == before.sample and (
        now.modified == before.modified
        or parts.content_checksum(path, form) == before.content
    )
    return "" if is_same else f"{path} has other content, with the same size"


@dataclass(frozen=True)
class _Cut:
    """A file and its parts."""

    file: InputFile
    parts: list[FilePart]


def _cut(path: str, input_format: str | None, rows: int) -> _Cut:
    form = format_of(path, input_format)
    file = replace(_described(path, form), content=parts.content_checksum(path, form))
    return _Cut(file, parts.cut(path, form, rows=rows))


def _cut_finer(found: _Cut, rows: int, pieces: int) -> _Cut:
    if found.file.form != "parquet" or pieces < 2:
        return found
    path, form = found.file.path, found.file.form
    return replace(found, parts=parts.cut(path, form, rows=rows, pieces=pieces))


def _described(path: str, form: str) -> InputFile:
    """Return a file without the checksum of its whole content."""
    with files.open_to_read(path) as file:  # raises for pipes, which have no positions
        about = os.fstat(file.fileno())
    sample = file_print(path).crc
    return InputFile(path, form, about.st_size, about.st_mtime_ns, sample or 0, None)


def _joined(cuts: Iterable[_Cut], rows: int) -> Iterator[Shard]:
    """Yield shards of up to `rows` rows, with the parts of the input in its order."""
    waiting: list[ShardPart] = []
    total = 0
    for number, found in enumerate(cuts):
        for part in found.parts:
            count = _rows(found.file, part)
            if waiting and total + count > rows:
                yield tuple(waiting)
                waiting, total = [], 0
            if waiting and waiting[-1].file == number:
                before = waiting.pop().part
                joined = (before.rows or 0) + (part.rows or 0)
                part = replace(before, end=part.end, rows=joined)
            waiting.append(ShardPart(number, part))
            total += count
    if waiting:
        yield tuple(waiting)


def _rows(file: InputFile, part: FilePart) -> int:
    """Return the rows of a part; the most there can be, if they are not counted."""
    return file.size // _LEAST_ROW_BYTES if part.rows is None else part.rows
