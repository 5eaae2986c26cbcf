"""Cut CSV files into blocks of whole rows, with regard to quotes.

    block = read_rows(ByteFile("a.csv"), offset, line, CsvFormat())
    block.data[: block.end]            # whole rows, about block_bytes of bytes

A block is found from a byte offset alone, so reading can resume at every block that was
read before. A row ends at LF, CR or CR LF, as for pyarrow, the csv module and
TensorFlow; a line break inside quotes does not end it. As in TensorFlow, a quote may
only open a field at its start and close it at its end; otherwise the ends of rows would
be ambiguous. A row that breaks this rule ends at the next line break, so that a quote
that is not closed costs one row and not all rows up to the next quote.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import InputError, Remedy
from estimax.input.sources.file_blocks import (
    LONGEST_ROW,
    BlockStart,
    ByteFile,
    UnreadableError,
)

# How much is read to find the header; more if the first row is longer.
_HEADER_BYTES = 1 << 14
_LF, _CR = 0x0A, 0x0D
_NO_QUOTES = Remedy(
    "quote", "; or pass quote=None if quotes are ordinary characters in this file"
)


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

    def start_at(self, position: int) -> BlockStart:
        """Return the byte and the line in the file of a byte of the block."""
        line = self.line + count_lines(self.data, position)
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
        is_last = len(data) < size
        can_grow = not is_last and size < LONGEST_ROW
        end = _end_of_rows(block, form, is_last=is_last, can_grow=can_grow)
        if end or is_last:
            return replace(block, end=end)
        if not can_grow:
            raise UnreadableError(
                f"{block.where(0)}: a row is longer than {LONGEST_ROW >> 20} MB. Is "
                "this a CSV file?"
            )
        size *= 2


def read_first_row(file: ByteFile, form: CsvFormat) -> tuple[bytes, int, int]:
    """Return the header without its line break, and byte and line of the next row.

    Without a header the row is empty. A byte order mark is skipped.
    """
    start = file.text_start()
    if not form.header:
        return b"", start, 1
    head = replace(form, block_bytes=min(form.block_bytes, _HEADER_BYTES))
    first = read_rows(file, start, 1, head)
    end = int(row_ends(first, form)[0]) if first.end else 0
    row = first.data[:end]
    return row.rstrip(b"\r\n"), start + end, 1 + count_lines(row, end)


def row_ends(block: Block, form: CsvFormat) -> NDArray[np.int64]:
    """Return the byte after the line break of every row of a block."""
    data = np.frombuffer(block.data, np.uint8)[: block.end]
    ends = _breaks_outside(data, _find_quotes(block, form)) + 1
    if not len(ends) or ends[-1] < block.end:
        ends = np.append(ends, block.end)
    return ends


def count_lines(data: bytes, stop: int) -> int:
    r"""Return the number of line breaks in `data[:stop]`: LF, CR or CR LF.

    >>> count_lines(b"a\nb\r\nc\rd", 8)
    3
    """
    breaks = data.count(b"\n", 0, stop)
    if b"\r" in data:
        breaks += data.count(b"\r", 0, stop) - data.count(b"\r\n", 0, stop)
    return breaks


def find_breaks(data: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the last byte of every line break; a CR at the end is one."""
    is_break = data == _LF
    is_cr = data == _CR
    if is_cr.any():
        is_cr[:-1] &= data[1:] != _LF
        is_break |= is_cr
    return np.flatnonzero(is_break)


def next_line(data: bytes, position: int) -> int:
    """Return the byte after the first line break from a position on; 0 for none."""
    ends = [data.find(b"\n", position), data.find(b"\r", position)]
    found = [end for end in ends if end >= 0]
    if not found:
        return 0
    end = min(found) + 1
    return end + 1 if data[end - 1 : end + 1] == b"\r\n" else end


def are_whole(block: Block, ends: NDArray[np.int64], form: CsvFormat) -> bool:
    """Return whether the parts of a block that end at `ends` have correct quotes.

    A part whose last field is not closed would continue in the next part.
    """
    quotes = _find_quotes(block, form)
    is_closed = np.searchsorted(quotes, ends) % 2 == 0
    bad = _first_bad_quote(block, quotes, form, is_last=True)
    return bool(is_closed.all()) and bad is None


def check_whole(block: Block, lengths: NDArray[np.int64], form: CsvFormat) -> None:
    """Raise unless every record is one row; a block holds one record per line.

    Raises:
      InputError: A record is empty, has a misplaced or open quote, or contains a line
        break outside of quotes.
    """
    if not lengths.all():
        number = int(np.flatnonzero(lengths == 0)[0])
        raise InputError(f"decode_csv: record {number} is empty.")
    quotes = _find_quotes(block, form)
    bad = _first_bad_quote(block, quotes, form, is_last=True)
    if bad is not None:
        raise _quote_error(block, bad, form)
    data = np.frombuffer(block.data, np.uint8)
    breaks = np.flatnonzero((data == _LF) | (data == _CR))
    ends = np.cumsum(lengths + 1) - 1
    is_outside = np.searchsorted(quotes, breaks) % 2 == 0
    if not np.array_equal(breaks[is_outside], ends):
        raise InputError(
            "decode_csv: a record contains a line break outside of quotes. Pass "
            "records without line ends."
        )


def _find_quotes(block: Block, form: CsvFormat) -> NDArray[np.int64]:
    """Return the bytes of the block that are quotes."""
    quote = form.quote.encode() if form.quote else b""
    if not quote or quote not in block.data:
        return np.empty(0, np.int64)
    return np.flatnonzero(np.frombuffer(block.data, np.uint8) == quote[0])


def _end_of_rows(
    block: Block, form: CsvFormat, *, is_last: bool, can_grow: bool
) -> int:
    """Return the end of the last whole row before a bad quote; 0 if there is none.

    Raises:
      UnreadableError: The first row has a bad quote, and reading more bytes would not
        change that.
    """
    quotes = _find_quotes(block, form)
    bad = _first_bad_quote(block, quotes, form, is_last=is_last or not can_grow)
    if bad is None:
        return len(block.data) if is_last else _last_row_end(block.data, quotes)
    # The quotes before the bad one are pairs.
    end = _last_row_end(block.data[: bad.opened + 1], quotes[quotes < bad.opened])
    if end or (can_grow and not next_line(block.data, bad.opened)):
        return end
    raise _quote_error(block, bad, form)


def _last_row_end(data: bytes, quotes: NDArray[np.int64]) -> int:
    """Return the end of the last row in the data; 0 if it has none.

    A CR at the end of the data is not counted: an LF may follow it.
    """
    if len(quotes) % 2 == 0:
        # Most blocks: look for the last line break after the last quote.
        start = int(quotes[-1]) + 1 if len(quotes) else 0
        line_feed = data.rfind(b"\n", start)
        end = max(line_feed, data.rfind(b"\r", max(start, line_feed), -1)) + 1
        if end > start:
            return end
    breaks = _breaks_outside(np.frombuffer(data, np.uint8), quotes)
    if data.endswith(b"\r"):
        breaks = breaks[breaks < len(data) - 1]
    return int(breaks[-1]) + 1 if len(breaks) else 0


def _breaks_outside(
    data: NDArray[np.uint8], quotes: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the last bytes of the line breaks that are not inside quotes."""
    breaks = find_breaks(data)
    # A line break is outside of quotes if an even number of quotes precedes it. A
    # doubled quote counts twice and changes nothing.
    is_outside = np.searchsorted(quotes, breaks) % 2 == 0
    return np.compress(is_outside, breaks)


@dataclass(frozen=True)
class _BadQuote:
    """A quote that is not at the start or end of a field, or is not closed."""

    opened: int  # the quote that opens the field; the bad quote itself if none does
    found: int | None  # the quote inside a field; None if the field is not closed


def _first_bad_quote(
    block: Block, quotes: NDArray[np.int64], form: CsvFormat, *, is_last: bool
) -> _BadQuote | None:
    """Return the first quote at which the rule for quotes is broken.

    A field that is not closed in the data counts only in the last data of a file.
    """
    if not len(quotes):
        return None
    data = np.frombuffer(block.data, np.uint8)
    # Quotes alternate between opening and closing. A doubled quote in a field closes
    # it and opens it again at once, so a quote is a valid neighbour, too.
    opening, closing = quotes[0::2], quotes[1::2]
    neighbours = (ord(form.delimiter), _LF, _CR, data[quotes[0]])
    before = data[np.maximum(opening - 1, 0)]
    after = data[np.minimum(closing + 1, len(data) - 1)]
    starts = np.isin(before, neighbours) | (opening == 0)
    stops = np.isin(after, neighbours) | (closing == len(data) - 1)
    bad_opening = int(np.argmin(starts)) if not starts.all() else None
    bad_closing = int(np.argmin(stops)) if not stops.all() else None
    if bad_opening is not None and (bad_closing is None or bad_opening <= bad_closing):
        place = int(opening[bad_opening])
        return _BadQuote(_first_broken_field(block.data, quotes, place), place)
    if bad_closing is not None:
        opened = _find_opening_quote(opening, closing, bad_closing)
        return _BadQuote(opened, int(closing[bad_closing]))
    if is_last and len(quotes) % 2:
        return _BadQuote(_find_opening_quote(opening, closing, len(opening) - 1), None)
    return None


def _first_broken_field(data: bytes, quotes: NDArray[np.int64], place: int) -> int:
    """Return the quote of the first field with a line break in the row of a bad quote.

    That field was probably not closed, and a quote of a later row closed it. Return the
    bad quote itself if its row has no such field.
    """
    before = quotes[quotes < place]
    first_break = next_line(data, _last_row_end(data[: place + 1], before))
    if not first_break or first_break > place:
        return place
    pair = int(np.searchsorted(before, first_break - 1)) // 2
    return _find_opening_quote(before[0::2], before[1::2], pair)


def _find_opening_quote(
    opening: NDArray[np.int64], closing: NDArray[np.int64], index: int
) -> int:
    """Return the quote that opens a field, before all doubled quotes in it."""
    while index and opening[index] == closing[index - 1] + 1:
        index -= 1
    return int(opening[index])


def _quote_error(block: Block, bad: _BadQuote, form: CsvFormat) -> UnreadableError:
    """Return the error of a bad quote; reading can go on in the next line."""
    after = next_line(block.data, bad.opened)
    if bad.found is None:
        problem = "a quoted field begins here and does not end. Close the quote"
    elif after and bad.found >= after:
        line = block.start_at(bad.found)[1]
        problem = (
            f"a quoted field begins here, and then line {line} has a {form.quote} that "
            "neither begins nor ends a field. Close the quote where the field ends, "
            "and double the quotes inside it"
        )
    else:
        problem = (
            f"found a {form.quote} inside a field. Quote the whole field and double "
            "the quotes inside it"
        )
    return UnreadableError(
        f"{block.where(bad.opened)}: {problem}",
        block.start_at(after) if after else None,
        _NO_QUOTES,
    )
