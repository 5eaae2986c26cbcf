"""Make the plan of a scoring, and compare a scoring with an earlier plan.

    files, shards = make_shards(paths, None, SHARD_ROWS, processes=2)
    differences(plan, job, paths, None)      # texts; empty if it is the same scoring
    for part in cut("new.csv", "csv", rows=131_072):
        part.start, part.rows             # (byte, line) and the number of rows

A file has changed if its size or a sample of its bytes differs. If only the time of its
last change differs, as for a file that was copied again, the checksum of the whole file
decides.

A part begins where a reader of the format can begin: at a byte of a CSV, JSON lines or
TFRecord file, and at a row group of a Parquet file. Text and TFRecord files are read
once to find the ends of rows, which takes far less time than predicting them; so the
parts have exact numbers of rows, and errors name exact lines. Compressed files and .npz
files are one part each.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.export.scoring.plan import (
    BATCH_ROWS,
    FilePart,
    InputFile,
    ScoringJob,
    Shard,
    ShardPart,
    ShardPlan,
    is_compressed,
)
from estimax.export.scoring.tables import format_of
from estimax.formats.records import iter_record_blocks
from estimax.input.fingerprints import file_print
from estimax.input.sources.csv_blocks import (
    CsvFormat,
    read_first_row,
    read_rows,
    row_ends,
)
from estimax.input.sources.file_blocks import ByteFile
from estimax.input.sources.json_reader import line_ends, read_whole_lines
from estimax.input.sources.parquet import open_parquet
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
    shards = tuple(_make_shards(cuts, rows))
    if len(shards) < 2 * processes:
        cuts = [_cut_finer(found, rows, processes) for found in cuts]
        shards = tuple(_make_shards(cuts, rows))
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
    now = _describe_file(path, form)
    if now.size != before.size:
        return f"{path} had {before.size:,} bytes, and has {now.size:,} now"
    is_same = now.sample == before.sample and (
        now.modified == before.modified
        or content_checksum(path, form) == before.content
    )
    return "" if is_same else f"{path} has other content, with the same size"


@dataclass(frozen=True)
class _Cut:
    """A file and its parts."""

    file: InputFile
    parts: list[FilePart]


def _cut(path: str, input_format: str | None, rows: int) -> _Cut:
    form = format_of(path, input_format)
    file = replace(_describe_file(path, form), content=content_checksum(path, form))
    return _Cut(file, cut(path, form, rows=rows))


def _cut_finer(found: _Cut, rows: int, pieces: int) -> _Cut:
    if found.file.form != "parquet" or pieces < 2:
        return found
    path, form = found.file.path, found.file.form
    return replace(found, parts=cut(path, form, rows=rows, pieces=pieces))


def _describe_file(path: str, form: str) -> InputFile:
    """Return a file without the checksum of its whole content."""
    with files.open_to_read(path) as file:  # raises for pipes, which have no positions
        about = os.fstat(file.fileno())
    sample = file_print(path).crc
    return InputFile(path, form, about.st_size, about.st_mtime_ns, sample or 0, None)


def _make_shards(cuts: Iterable[_Cut], rows: int) -> Iterator[Shard]:
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
                both = (before.rows or 0) + (part.rows or 0)
                part = replace(before, end=part.end, rows=both)
            waiting.append(ShardPart(number, part))
            total += count
    if waiting:
        yield tuple(waiting)


def _rows(file: InputFile, part: FilePart) -> int:
    """Return the rows of a part; the most there can be, if they are not counted."""
    return file.size // _LEAST_ROW_BYTES if part.rows is None else part.rows


_PIECE_BYTES = 4 << 20
_SPACES = np.frombuffer(b" \t\r\n\v\f", np.uint8)


def cut(path: str, form: str, *, rows: int, pieces: int = 1) -> list[FilePart]:
    """Return the parts of a file, in its order; none if it has no rows.

    Args:
      path: The file.
      form: "csv", "jsonl", "npz", "parquet" or "tfrecord".
      rows: How many rows a part has; the last part of a file may have fewer. Of a
        Parquet file, each row group is a part.
      pieces: Into how many parts a row group with more rows may be cut. A reader
        decodes a row group from its start, so each piece decodes those before it too.

    Raises:
      InputError: The file cannot be read.
    """
    if form == "parquet":
        return _cut_parquet(path, rows, pieces)
    if is_compressed(path) or form not in _BLOCKS:
        return [FilePart(form)]
    return list(_parts(form, _BLOCKS[form](path), rows))


def content_checksum(path: str, form: str) -> int | None:
    """Return the CRC-32 of a file, for formats without a checksum of their own.

    A sample of the end of a Parquet, .npz or gzip file depends on the whole content:
    it has the sizes of all parts, or a checksum.
    """
    if is_compressed(path) or form not in _BLOCKS:
        return None
    crc = 0
    with files.open_to_read(path) as file:
        while piece := file.read(_PIECE_BYTES):
            crc = zlib.crc32(piece, crc)
    return crc


@dataclass(frozen=True, eq=False)
class _RowEnds:
    """Some rows of a file: where each ends, and how to name the place after one."""

    start: tuple[int, int]  # of the first row: byte, and line or record
    ends: NDArray[np.int64]  # the byte after each row, in the file
    number_at: Callable[[int], int]  # the line or record after the row with this index


def _parts(form: str, blocks: Iterable[_RowEnds], rows: int) -> Iterator[FilePart]:
    start: tuple[int, ...] = ()
    first, count, end = 1, 0, 0  # of the part that is being made
    for block in blocks:
        start = start or block.start
        done = 0  # rows of the block
        while done < len(block.ends):
            added = min(rows - count, len(block.ends) - done)
            done, count = done + added, count + added
            end = int(block.ends[done - 1])
            if count == rows:
                yield _part(form, start, end, first, count)
                start, first, count = (end, block.number_at(done - 1)), first + rows, 0
    if count:
        yield _part(form, start, end, first, count)


def _part(
    form: str, start: tuple[int, ...], end: int, first: int, rows: int
) -> FilePart:
    # Rows of JSON lines are counted by their lines, because empty lines are skipped.
    return FilePart(form, start, end, start[1] if form == "jsonl" else first, rows)


def _csv_blocks(path: str) -> Iterator[_RowEnds]:
    form = CsvFormat()
    file = ByteFile(path)
    try:
        _, offset, line = read_first_row(file, form)
        while (block := read_rows(file, offset, line, form)).end:
            ends = row_ends(block, form)

            def number_at(row: int, block: Any = block, ends: Any = ends) -> int:
                return int(block.start_at(int(ends[row]))[1])

            yield _RowEnds((offset, line), offset + ends, number_at)
            offset, line = block.start_at(block.end)
    finally:
        file.close()


def _json_blocks(path: str) -> Iterator[_RowEnds]:
    file = ByteFile(path)
    offset, line = file.text_start(), 1
    try:
        while data := read_whole_lines(file, offset, line, _PIECE_BYTES):
            breaks = line_ends(data)
            lines = np.arange(line + 1, line + 1 + len(breaks))
            is_row = ~_are_empty(data, breaks)
            numbers = lines[is_row]

            def number_at(row: int, numbers: Any = numbers) -> int:
                return int(numbers[row])

            yield _RowEnds((offset, line), offset + breaks[is_row], number_at)
            offset, line = offset + len(data), line + len(breaks)
    finally:
        file.close()


def _are_empty(data: bytes, breaks: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which lines hold only white space; most begin with another character."""
    starts = np.concatenate([[0], breaks[:-1]])
    first = np.frombuffer(data, np.uint8)[starts]
    empty: NDArray[np.bool_] = np.isin(first, _SPACES)
    for i in np.flatnonzero(empty).tolist():
        empty[i] = not data[starts[i] : breaks[i]].strip()
    return empty


def _record_blocks(path: str) -> Iterator[_RowEnds]:
    for block in iter_record_blocks(path):

        def number_at(row: int, first: int = block.first) -> int:
            return first + row + 1

        yield _RowEnds((block.start, block.first), block.offsets[1:], number_at)


_BLOCKS: dict[str, Callable[[str], Iterator[_RowEnds]]] = {
    "csv": _csv_blocks,
    "jsonl": _json_blocks,
    "tfrecord": _record_blocks,
}


def _cut_parquet(path: str, rows: int, pieces: int) -> list[FilePart]:
    with open_parquet(path) as file:
        about = file.metadata
    sizes = [about.row_group(i).num_rows for i in range(about.num_row_groups)]
    parts, first = [], 1
    for group, size in enumerate(sizes):
        step = _piece_rows(size, rows, pieces)
        for row in range(0, size, step):
            count = min(step, size - row)
            parts.append(FilePart("parquet", (group, row), 0, first, count))
            first += count
    return parts


def _piece_rows(size: int, rows: int, pieces: int) -> int:
    """Return the rows of a piece of a row group, whole batches except for the last.

    >>> _piece_rows(20_000, rows=5_000, pieces=3), _piece_rows(20_000, 5_000, pieces=1)
    (8192, 20000)
    """
    count = max(1, min(pieces, -(-size // rows)))
    return -(-size // count // BATCH_ROWS) * BATCH_ROWS if count > 1 else max(1, size)
