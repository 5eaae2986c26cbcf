"""Bytes of whole CSV rows: cutting a file at row ends, quotes minded.

    block = read_rows("a.csv", offset, CsvFormat())
    block.data[: block.end]            # complete rows, about block_bytes of them

Blocks are found from a byte offset alone, so a reader can start anywhere it has been.
A line break inside quotes ends no row. As in TensorFlow, a quote may only open a field
at its start and close it at its end: otherwise nobody could tell where rows end.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import BinaryIO, NoReturn

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import InputError

# A row beyond this is taken for a quote that was never closed.
LONGEST_ROW = 64 << 20
# Enough for most headers; more is read where it is not.
_HEADER_BYTES = 1 << 14
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class CsvFormat:
    """How the files are written, and how much of one is read at once."""

    delimiter: str = ","
    quote: str | None = '"'
    null_values: tuple[str, ...] = ("",)
    header: bool = True
    block_bytes: int = 4 << 20


@dataclass(frozen=True, eq=False)
class Block:
    """Whole rows in `data[:end]`; `line` is the number of the first."""

    path: str
    data: bytes
    end: int
    line: int

    @property
    def lines(self) -> int:
        """How many line breaks the rows hold."""
        return self.data.count(b"\n", 0, self.end)


def read_rows(path: str, offset: int, line: int, form: CsvFormat) -> Block:
    """As many whole rows as fit `block_bytes`, at least one; empty at the end."""
    size = form.block_bytes
    with open_file(path) as file:
        if offset > os.fstat(file.fileno()).st_size:
            raise InputError(
                f"{path}: is shorter than the position to resume from (byte {offset}). "
                "Restore the file, or start the input from its beginning."
            )
        while True:
            file.seek(offset)
            data = file.read(size)
            block = Block(path, data, 0, line)
            quotes = _quotes(block, form)
            end = _last_row_end(block, quotes, is_last=len(data) < size)
            if end or len(data) < size:
                _check_quotes(block, quotes[quotes < end], end, form)
                return Block(path, data, end, line)
            if size >= LONGEST_ROW:
                _refuse_open_quote(block, quotes)
            size *= 2


def read_first_row(path: str, form: CsvFormat) -> tuple[bytes, int, int]:
    """The first row without its line break, where the next begins, and its line."""
    with open_file(path) as file:
        start = len(_BOM) if file.read(len(_BOM)) == _BOM else 0
    if not form.header:
        return b"", start, 1
    head = replace(form, block_bytes=min(form.block_bytes, _HEADER_BYTES))
    first = read_rows(path, start, 1, head)
    quotes = _quotes(first, form)
    breaks = _breaks_outside(first.data[: first.end], quotes)
    end = int(breaks[0]) + 1 if len(breaks) else first.end
    row = first.data[:end]
    return row.rstrip(b"\r\n"), start + end, 1 + row.count(b"\n")


def open_file(path: str) -> BinaryIO:
    """Open for reading, or say which file cannot be."""
    try:
        return open(path, "rb")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}.") from error


def _quotes(block: Block, form: CsvFormat) -> NDArray[np.int64]:
    quote = form.quote.encode() if form.quote else b""
    if not quote or quote not in block.data:
        return np.empty(0, np.int64)
    return np.flatnonzero(np.frombuffer(block.data, np.uint8) == quote[0])


def _last_row_end(block: Block, quotes: NDArray[np.int64], *, is_last: bool) -> int:
    if is_last:
        if len(quotes) % 2:
            _refuse_open_quote(block, quotes)
        return len(block.data)
    last_quote = int(quotes[-1]) if len(quotes) else 0
    if len(quotes) % 2 == 0:
        end = block.data.rfind(b"\n", last_quote) + 1
        if end:
            return end
    breaks = _breaks_outside(block.data, quotes)
    return int(breaks[-1]) + 1 if len(breaks) else 0


def _breaks_outside(data: bytes, quotes: NDArray[np.int64]) -> NDArray[np.int64]:
    breaks = np.flatnonzero(np.frombuffer(data, np.uint8) == 0x0A)
    # An even number of quotes before it: the line break is outside of them. A doubled
    # quote counts twice and so changes nothing.
    is_outside = np.searchsorted(quotes, breaks) % 2 == 0
    return np.compress(is_outside, breaks)


def _check_quotes(
    block: Block, quotes: NDArray[np.int64], end: int, form: CsvFormat
) -> None:
    """Refuse quotes amid a field, as one stray quote would swallow what follows."""
    if not len(quotes):
        return
    data = np.frombuffer(block.data, np.uint8)[:end]
    opening, closing = quotes[0::2], quotes[1::2]
    delimiter, quote = ord(form.delimiter), data[quotes[0]]
    before = data[np.maximum(opening - 1, 0)]
    after = data[np.minimum(closing + 1, end - 1)]
    starts = np.isin(before, (delimiter, 0x0A, 0x0D, quote)) | (opening == 0)
    stops = np.isin(after, (delimiter, 0x0A, 0x0D, quote)) | (closing == end - 1)
    if starts.all() and stops.all():
        return
    wrong = min(
        int(opening[~starts][0]) if not starts.all() else end,
        int(closing[~stops][0]) if not stops.all() else end,
    )
    raise InputError(
        f"{block.path}, line {_line_at(block, wrong)}: a {form.quote} stands amid a "
        "field. Quote the whole field and double the quotes inside it; or pass "
        "quote=None if quotes are ordinary characters in this file."
    )


def _refuse_open_quote(block: Block, quotes: NDArray[np.int64]) -> NoReturn:
    if not len(quotes):
        raise InputError(
            f"{block.path}, line {block.line}: a row is longer than "
            f"{LONGEST_ROW >> 20} MB. Is this a CSV file?"
        )
    # The last place from which everything is inside quotes.
    opened = int(quotes[-1] if len(quotes) % 2 else quotes[-2])
    raise InputError(
        f"{block.path}, line {_line_at(block, opened)}: a quoted field begins here "
        "and does not end. Close the quote; or pass quote=None if quotes are ordinary "
        "characters in this file."
    )


def _line_at(block: Block, position: int) -> int:
    return block.line + block.data.count(b"\n", 0, position)
