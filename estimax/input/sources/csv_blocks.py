"""Bytes of whole CSV rows: cutting a file at row ends, quotes minded.

    block = read_rows(ByteFile("a.csv"), offset, line, CsvFormat())
    block.data[: block.end]            # complete rows, about block_bytes of them

Blocks are found from a byte offset alone, so a reader can start anywhere it has been.
A line break inside quotes ends no row. As in TensorFlow, a quote may only open a field
at its start and close it at its end: otherwise nobody could tell where rows end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import InputError
from estimax.input.sources.file_blocks import (
    LONGEST_ROW,
    BlockStart,
    ByteFile,
    UnreadableError,
)

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
    compression: str | None = None


@dataclass(frozen=True, eq=False)
class Block:
    """Whole rows in `data[:end]`; the first begins at line `line`, byte `offset`."""

    path: str
    data: bytes
    end: int
    line: int
    offset: int = 0

    @property
    def lines(self) -> int:
        """How many line breaks the rows hold."""
        return self.data.count(b"\n", 0, self.end)

    def place(self, position: int) -> BlockStart:
        """The byte in the file, and the line, of a position in the block."""
        line = self.line + self.data.count(b"\n", 0, position)
        return self.offset + position, line

    def where(self, position: int) -> str:
        """The same for a message."""
        byte, line = self.place(position)
        return f"{self.path}, line {line} (byte {byte})"


def read_rows(file: ByteFile, offset: int, line: int, form: CsvFormat) -> Block:
    """As many whole rows as fit `block_bytes`, at least one; empty at the end.

    Rows before a quote that cannot be read are given, then an `UnreadableError`.
    """
    size = form.block_bytes
    while True:
        data = file.read_at(offset, size)
        block = Block(file.path, data, 0, line, offset)
        quotes = _quotes(block, form)
        is_last = len(data) < size
        end = _last_row_end(block, quotes, is_last=is_last)
        if end or is_last:
            end = _good_end(block, quotes[quotes < end], end, form)
            return Block(file.path, data, end, line, offset)
        if size >= LONGEST_ROW:
            raise _open_quote(block, quotes)
        size *= 2


def read_first_row(file: ByteFile, form: CsvFormat) -> tuple[bytes, int, int]:
    """The first row without its line break, where the next begins, and its line."""
    start = len(_BOM) if file.read_at(0, len(_BOM)) == _BOM else 0
    if not form.header:
        return b"", start, 1
    head = replace(form, block_bytes=min(form.block_bytes, _HEADER_BYTES))
    first = read_rows(file, start, 1, head)
    end = int(row_ends(first, form)[0]) if first.end else 0
    row = first.data[:end]
    return row.rstrip(b"\r\n"), start + end, 1 + row.count(b"\n")


def row_ends(block: Block, form: CsvFormat) -> NDArray[np.int64]:
    """Where each row of a block ends, its line break included.

    A CR alone ends a row too: for pyarrow, for the csv module and for TensorFlow.
    """
    data = np.frombuffer(block.data, np.uint8)[: block.end]
    is_break = data == 0x0A
    is_break[:-1] |= (data[:-1] == 0x0D) & (data[1:] != 0x0A)
    breaks = np.flatnonzero(is_break)
    is_outside = np.searchsorted(_quotes(block, form), breaks) % 2 == 0
    ends = np.compress(is_outside, breaks) + 1
    if not len(ends) or ends[-1] < block.end:
        ends = np.append(ends, block.end)
    return ends


def check_whole(block: Block, lengths: NDArray[np.int64], form: CsvFormat) -> None:
    """Refuse records, each followed by a line break, that are not one row each."""
    if not lengths.all():
        number = int(np.flatnonzero(lengths == 0)[0])
        raise InputError(f"decode_csv: record {number} is empty: it has no field.")
    quotes = _quotes(block, form)
    end = _last_row_end(block, quotes, is_last=True)
    if end < block.end:
        raise _open_quote(block, quotes)
    if _good_end(block, quotes, end, form) < block.end:
        raise InputError(f"decode_csv: a {form.quote} stands amid a field.")
    data = np.frombuffer(block.data, np.uint8)
    breaks = np.flatnonzero((data == 0x0A) | (data == 0x0D))
    ends = np.cumsum(lengths + 1) - 1
    is_outside = np.searchsorted(quotes, breaks) % 2 == 0
    if not np.array_equal(breaks[is_outside], ends):
        raise InputError(
            "decode_csv: a record holds a line break outside of quotes. Pass records "
            "without their line ends."
        )


def _quotes(block: Block, form: CsvFormat) -> NDArray[np.int64]:
    quote = form.quote.encode() if form.quote else b""
    if not quote or quote not in block.data:
        return np.empty(0, np.int64)
    return np.flatnonzero(np.frombuffer(block.data, np.uint8) == quote[0])


def _last_row_end(block: Block, quotes: NDArray[np.int64], *, is_last: bool) -> int:
    if is_last:
        if len(quotes) % 2 == 0:
            return len(block.data)
        # Rows before the one whose quote is never closed can still be read.
        end = block.data.rfind(b"\n", 0, int(quotes[-1])) + 1
        if not end:
            raise _open_quote(block, quotes)
        return end
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


def _good_end(
    block: Block, quotes: NDArray[np.int64], end: int, form: CsvFormat
) -> int:
    """Where rows end to be good: a stray quote would swallow what follows."""
    if not len(quotes):
        return end
    data = np.frombuffer(block.data, np.uint8)[:end]
    opening, closing = quotes[0::2], quotes[1::2]
    delimiter, quote = ord(form.delimiter), data[quotes[0]]
    before = data[np.maximum(opening - 1, 0)]
    after = data[np.minimum(closing + 1, end - 1)]
    starts = np.isin(before, (delimiter, 0x0A, 0x0D, quote)) | (opening == 0)
    stops = np.isin(after, (delimiter, 0x0A, 0x0D, quote)) | (closing == end - 1)
    if starts.all() and stops.all():
        return end
    wrong = min(
        int(opening[~starts][0]) if not starts.all() else end,
        int(closing[~stops][0]) if not stops.all() else end,
    )
    good = block.data.rfind(b"\n", 0, wrong) + 1
    if good:
        return good
    behind = block.data.find(b"\n", wrong) + 1 or end
    raise UnreadableError(
        f"{block.where(wrong)}: a {form.quote} stands amid a field. Quote the whole "
        "field and double the quotes inside it; or pass quote=None if quotes are "
        "ordinary characters in this file.",
        block.place(behind),
    )


def _open_quote(block: Block, quotes: NDArray[np.int64]) -> UnreadableError:
    if not len(quotes):
        return UnreadableError(
            f"{block.where(0)}: a row is longer than {LONGEST_ROW >> 20} MB. Is this a "
            "CSV file?"
        )
    # The last place from which everything is inside quotes.
    opened = int(quotes[-1] if len(quotes) % 2 else quotes[-2])
    return UnreadableError(
        f"{block.where(opened)}: a quoted field begins here and does not end. Close "
        "the quote; or pass quote=None if quotes are ordinary characters in this file."
    )
