"""Cut CSV files into blocks of whole rows, with regard to quotes.

    block = read_rows(ByteFile("a.csv"), offset, line, CsvFormat())
    block.data[: block.end]            # whole rows, about block_bytes of bytes

A block is found from a byte offset alone, so reading can resume at every block that was
read before. A line break inside quotes does not end a row. As in TensorFlow, a quote
may only open a field at its start and close it at its end; otherwise the ends of rows
would be ambiguous.
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

# How much is read to find the header; more if the first row is longer.
_HEADER_BYTES = 1 << 14
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class CsvFormat:
    """The format of CSV files, and how many bytes are read at once."""

    delimiter: str = ","
    quote: str | None = '"'
    null_values: tuple[str, ...] = ("",)
    header: bool = True
    block_bytes: int = 4 << 20
    compression: str | None = None
    encoding: str | None = None  # of text; None leaves the bytes as they are

    @staticmethod
    def of_tensorflow(
        field_delim: str,
        use_quote_delim: bool,
        na_value: str,
        *,
        header: bool = False,
        compression: str | None = None,
    ) -> CsvFormat:
        """Return the format that the arguments of TensorFlow's functions describe."""
        quote = '"' if use_quote_delim else None
        nulls = tuple({"": None, na_value: None})
        return CsvFormat(field_delim, quote, nulls, header, compression=compression)


@dataclass(frozen=True, eq=False)
class Block:
    """Whole rows of a file, in `data[:end]`."""

    path: str
    data: bytes
    end: int
    line: int  # the line of the file at which the first row begins
    offset: int = 0  # the byte of the file at which it begins

    @property
    def lines(self) -> int:
        """The number of line breaks in the rows."""
        return self.data.count(b"\n", 0, self.end)

    def start_at(self, position: int) -> BlockStart:
        """Return the byte and the line in the file of a byte of the block."""
        line = self.line + self.data.count(b"\n", 0, position)
        return self.offset + position, line

    def where(self, position: int) -> str:
        """Return the file, line and byte of a byte of the block, for messages."""
        byte, line = self.start_at(position)
        return f"{self.path}, line {line} (byte {byte})"


def read_rows(file: ByteFile, offset: int, line: int, form: CsvFormat) -> Block:
    """Return as many whole rows as fit `block_bytes`, at least one.

    At the end of the file the block is empty. The block ends before a row with a
    misplaced or open quote.

    Raises:
      UnreadableError: The first row has such a quote, or is longer than 64 MB.
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
    """Return the header without its line break, and byte and line of the next row.

    Without a header the row is empty. A byte order mark is skipped.
    """
    start = len(_BOM) if file.read_at(0, len(_BOM)) == _BOM else 0
    if not form.header:
        return b"", start, 1
    head = replace(form, block_bytes=min(form.block_bytes, _HEADER_BYTES))
    first = read_rows(file, start, 1, head)
    end = int(row_ends(first, form)[0]) if first.end else 0
    row = first.data[:end]
    return row.rstrip(b"\r\n"), start + end, 1 + row.count(b"\n")


def row_ends(block: Block, form: CsvFormat) -> NDArray[np.int64]:
    """Return the byte after the line break of every row of a block.

    A CR alone ends a row too, as it does for pyarrow, the csv module and TensorFlow.
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
    """Raise unless every record is one row; a block holds one record per line.

    Raises:
      InputError: A record is empty, has a misplaced or open quote, or contains a line
        break outside of quotes.
    """
    if not lengths.all():
        number = int(np.flatnonzero(lengths == 0)[0])
        raise InputError(f"decode_csv: record {number} is empty.")
    quotes = _quotes(block, form)
    end = _last_row_end(block, quotes, is_last=True)
    if end < block.end:
        raise _open_quote(block, quotes)
    if _good_end(block, quotes, end, form) < block.end:
        raise InputError(f"decode_csv: found a {form.quote} inside a field.")
    data = np.frombuffer(block.data, np.uint8)
    breaks = np.flatnonzero((data == 0x0A) | (data == 0x0D))
    ends = np.cumsum(lengths + 1) - 1
    is_outside = np.searchsorted(quotes, breaks) % 2 == 0
    if not np.array_equal(breaks[is_outside], ends):
        raise InputError(
            "decode_csv: a record contains a line break outside of quotes. Pass "
            "records without line ends."
        )


def _quotes(block: Block, form: CsvFormat) -> NDArray[np.int64]:
    """Return the bytes of the block that are quotes."""
    quote = form.quote.encode() if form.quote else b""
    if not quote or quote not in block.data:
        return np.empty(0, np.int64)
    return np.flatnonzero(np.frombuffer(block.data, np.uint8) == quote[0])


def _last_row_end(block: Block, quotes: NDArray[np.int64], *, is_last: bool) -> int:
    """Return the end of the last whole row; 0 if the block has none."""
    if is_last:
        if len(quotes) % 2 == 0:
            return len(block.data)
        # The rows before the open quote can still be read.
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
    """Return the line breaks that are not inside quotes."""
    breaks = np.flatnonzero(np.frombuffer(data, np.uint8) == 0x0A)
    # A line break is outside of quotes if an even number of quotes precedes it. A
    # doubled quote counts twice and changes nothing.
    is_outside = np.searchsorted(quotes, breaks) % 2 == 0
    return np.compress(is_outside, breaks)


def _good_end(
    block: Block, quotes: NDArray[np.int64], end: int, form: CsvFormat
) -> int:
    """Return the end of the rows before the first quote inside a field.

    The parser would take everything from such a quote to the next one for a field.
    """
    if not len(quotes):
        return end
    data = np.frombuffer(block.data, np.uint8)[:end]
    # Quotes alternate between opening and closing. A doubled quote in a field closes
    # it and opens it again at once, so a quote is a valid neighbour, too.
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
    next_row = block.data.find(b"\n", wrong) + 1 or end
    raise UnreadableError(
        f"{block.where(wrong)}: found a {form.quote} inside a field. Quote the whole "
        "field and double the quotes inside it; or pass quote=None if quotes are "
        "ordinary characters in this file.",
        block.start_at(next_row),
    )


def _open_quote(block: Block, quotes: NDArray[np.int64]) -> UnreadableError:
    if not len(quotes):
        return UnreadableError(
            f"{block.where(0)}: a row is longer than {LONGEST_ROW >> 20} MB. Is this a "
            "CSV file?"
        )
    # The quote from which on everything is inside quotes.
    opened = int(quotes[-1] if len(quotes) % 2 else quotes[-2])
    return UnreadableError(
        f"{block.where(opened)}: a quoted field begins here and does not end. Close "
        "the quote, or pass quote=None if quotes are ordinary characters in this file."
    )
