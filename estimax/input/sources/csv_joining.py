"""Parse the rows of several short CSV files at once.

    block, ends = join_rows(paths, b"age,city\\n", form)   # files with this header
    rows, row_ends = parse_joined(block, ends, schema, form)

A call of pyarrow takes a fixed time, in which it could parse 100 KB. A file is joined
only if it begins with the bytes of a header that was checked, and if it is short. If
anything is wrong with a file, it is not joined; when it is read alone, the message
names the file and the line.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import InputError
from estimax.input.sources.csv_blocks import Block, CsvFormat, are_whole, row_ends
from estimax.input.sources.csv_schema import Schema, parse
from estimax.input.sources.file_blocks import ByteFile
from estimax.input.streams.chunks import Columns


def longest_to_join(form: CsvFormat) -> int:
    """Return how many bytes a file may have to be parsed together with others."""
    return form.block_bytes // 16


def join_rows(
    paths: Iterable[str], head: bytes, form: CsvFormat
) -> tuple[Block, NDArray[np.int64]]:
    """Return the rows of the first files as one block, and the byte after each file.

    It stops before a file that is long, has no rows, cannot be read, or does not begin
    with the bytes of `head`, and before the block would have more than `block_bytes`.
    """
    pieces: list[bytes] = []
    ends: list[int] = []
    size = 0
    for path in paths:
        rows = _rows_of(path, head, form)
        if rows is None or size + len(rows) > form.block_bytes:
            break
        pieces.append(rows)
        size += len(rows)
        ends.append(size)
    block = Block("joined files", b"".join(pieces), size, 1)
    return block, np.array(ends, np.int64)


def _rows_of(path: str, head: bytes, form: CsvFormat) -> bytes | None:
    """Return the rows of a file, with a line break at the end; None if not to join."""
    most = longest_to_join(form)
    try:
        file = ByteFile(path, form.compression)
        data = file.read_at(0, most + 1)
        file.close()
    except (InputError, OSError):
        return None
    if not len(head) < len(data) <= most or not data.startswith(head):
        return None
    if not head and data.startswith(codecs.BOM_UTF8):
        return None
    rows = data[len(head) :]
    if head.endswith(b"\r") and rows.startswith(b"\n"):
        return None  # the header ends one byte later
    return rows if rows.endswith(b"\n") else rows + b"\n"


def parse_joined(
    block: Block, ends: NDArray[np.int64], schema: Schema, form: CsvFormat
) -> tuple[Columns, list[int]] | None:
    """Return the rows, and the row after the last one of each file; None on an error.

    `ends` is the byte after each file.
    """
    if not are_whole(block, ends, form):
        return None
    try:
        parsed = parse(block, schema, form)
    except InputError:
        return None
    ends_of_rows = row_ends(block, form)
    assert len(ends_of_rows) == len(parsed)
    return parsed, np.searchsorted(ends_of_rows, ends, side="right").tolist()
