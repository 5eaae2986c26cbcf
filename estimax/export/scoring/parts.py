"""Cut files into parts of consecutive rows, which several processes read.

    for part in cut("new.csv", "csv", rows=131_072):
        part.start, part.rows             # (byte, line) and the number of rows

A part begins where a reader of the format can begin: at a byte of a CSV, JSON lines or
TFRecord file, and at a row group of a Parquet file. Text and TFRecord files are read
once to find the ends of rows, which takes far less time than predicting them; so the
parts have exact numbers of rows, and errors name exact lines. Compressed files and .npz
files are one part each.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import InputError
from estimax.export.scoring.plan import BATCH_ROWS, FilePart
from estimax.formats.records import iter_record_blocks
from estimax.input.sources.csv_blocks import (
    CsvFormat,
    read_first_row,
    read_rows,
    row_ends,
)
from estimax.input.sources.file_blocks import ByteFile
from estimax.storage import files

_PIECE_BYTES = 4 << 20
_LF = 0x0A
_SPACES = np.frombuffer(b" \t\r\n\v\f", np.uint8)


def is_compressed(path: str) -> bool:
    """Return whether readers decompress a file, by its suffix.

    >>> is_compressed("new.csv.gz")
    True
    """
    return path.endswith(".gz")


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
    offset, line = 0, 1
    with open(path, "rb") as file:
        # Whole lines: the rest of the last one is read on.
        while data := file.read(_PIECE_BYTES) + file.readline():
            array = np.frombuffer(data, np.uint8)
            breaks = np.flatnonzero(array == _LF) + 1
            if not len(breaks) or breaks[-1] < len(data):
                breaks = np.append(breaks, len(data))
            lines = np.arange(line + 1, line + 1 + len(breaks))
            is_row = ~_are_empty(data, array, breaks)
            numbers = lines[is_row]

            def number_at(row: int, numbers: Any = numbers) -> int:
                return int(numbers[row])

            yield _RowEnds((offset, line), offset + breaks[is_row], number_at)
            offset, line = offset + len(data), line + len(breaks)


def _are_empty(
    data: bytes, array: NDArray[np.uint8], breaks: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return which lines hold only white space; most begin with another character."""
    starts = np.concatenate([[0], breaks[:-1]])
    empty: NDArray[np.bool_] = np.isin(array[starts], _SPACES)
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
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        about = pq.read_metadata(path)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path}: cannot be read as Parquet: {error}") from error
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
