"""Read Parquet files one row group at a time, into columns without a copy.

    parquet_files("train-*.parquet", columns=["age", "clicks"])
    with open_parquet("new.parquet") as file:     # a pyarrow.parquet.ParquetFile
        for batch in read_record_batches(file, "new.parquet", ["age"]): ...

`read_record_batches` is for readers that keep the types of Arrow: scoring passes
columns through, and `estimax check --data` and `estimax init` read any type as text.

While a row group is cut into batches, a thread reads the next row group of the file. A
position is (file, row group, row). A row with a missing value that has no default ends
a block, so that whoever ignores its error loses this row only. Lists become `Sparse`
columns, or dense arrays if their Arrow type fixes the length.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from estimax.core.errors import InputError, did_you_mean
from estimax.core.raw_values import arrow_column
from estimax.input.sources.file_blocks import BlockStart, UnreadableError
from estimax.input.streams.background import Workers
from estimax.input.streams.chunks import Columns
from estimax.storage import files as wire_files

# Rows of a block after a bad row; blocks without one double until they are row groups.
_CAREFUL_ROWS = 64
_ALL_ROWS = 1 << 62
# Row groups with more bytes are not read ahead, because two may not fit into memory.
_MOST_AHEAD = 256 << 20


class ParquetReader:
    """Reads row groups of files with the same columns.

    A block starts at `(number of the row group,)`, or at `(row group, row)` if it
    follows a bad row.
    """

    def __init__(self, names: tuple[str, ...], defaults: dict[str, Any]) -> None:
        self.names = names
        self.defaults = defaults
        self._path = ""
        self._file: Any = None  # pyarrow.parquet.ParquetFile, imported when used
        self._workers: Workers | None = None
        self._table: tuple[int, Any] | None = None  # a row group that is not used up
        self._next: tuple[int, Future[Any]] | None = None  # a table being read ahead
        self._most = _ALL_ROWS  # of a block

    def start(self, path: str) -> BlockStart:
        """Return the first row group; raise if the file lacks a column."""
        known = self._get(path).schema_arrow.names
        missing = [name for name in self.names if name not in known]
        if missing:
            raise InputError(
                f"{path}: there is no column {missing[0]!r}; all files must have the "
                f"columns of the first file: {', '.join(self.names)}."
            )
        return (0,)

    def read(
        self, path: str, start: BlockStart, rows: int
    ) -> tuple[Columns, BlockStart] | None:
        """Return one row group as columns, and start to read the next one.

        A row group with a bad row is several blocks.

        Raises:
          UnreadableError: The row group is damaged, or the first row is bad.
        """
        group, row = (*start, 0)[:2]
        file = self._get(path)
        if group >= file.num_row_groups:
            return None
        table = self._row_group(path, group)
        convert = functools.partial(self._columns, path, group, table, row)
        count = min(table.num_rows - row, self._most)
        try:
            block = convert(count)
            self._most = min(2 * self._most, _ALL_ROWS)
        except InputError as error:
            convert(0)  # raises if the error is not about a row
            count = _rows_before_error(convert, count)
            self._most = max(_CAREFUL_ROWS, min(self._most, table.num_rows) // 8)
            if not count:
                raise _bad_row(convert, (group, row + 1)) from error
            block = convert(count)
        if row + count < table.num_rows:
            return block, (group, row + count)
        self._table = None
        return block, (group + 1,)

    def _row_group(self, path: str, group: int) -> Any:  # pyarrow.Table
        """Return the table of a row group, and start to read the next one."""
        if self._table is not None and self._table[0] == group:
            return self._table[1]
        ahead, self._next = self._next, None
        if ahead is not None and ahead[0] != group:
            # A seek went elsewhere: wait for that row group and drop it.
            ahead[1].exception()
            ahead = None
        table = ahead[1].result() if ahead is not None else self._load(path, group)
        # Before converting the columns, so that both happen at once.
        self._read_ahead(path, group + 1)
        self._table = group, table
        return table

    def _columns(
        self, path: str, group: int, table: Any, start: int, count: int
    ) -> Columns:
        """Convert rows of a row group."""
        tree = {}
        for name in self.names:
            where = f"{path}, row group {group}, column {name!r}"
            values = table.column(name).slice(start, count)
            tree[name] = arrow_column(values, self.defaults.get(name), where, start)
        return Columns(tree, count)

    def _read_ahead(self, path: str, group: int) -> None:
        """Start to read a row group in a thread, unless it is too large."""
        if group >= self._file.num_row_groups:
            return
        if self._file.metadata.row_group(group).total_byte_size > _MOST_AHEAD:
            return
        if self._workers is None:
            self._workers = Workers(1, "parquet")
        self._next = group, self._workers.submit(self._load, path, group)

    def _load(self, path: str, group: int) -> Any:  # pyarrow.Table
        """Read the table of a row group."""
        import pyarrow as pa

        file = self._file
        try:
            return file.read_row_group(group, columns=list(self.names))
        except (pa.ArrowException, OSError) as error:
            first = self._rows_before(file, group)
            raise UnreadableError(
                f"{path}, row group {group} (from row {first}): cannot be read: "
                f"{error}. Is the file damaged?",
                (group + 1,),
            ) from error

    @staticmethod
    def _rows_before(file: Any, group: int) -> int:
        rows = (file.metadata.row_group(i).num_rows for i in range(group))
        return sum(rows)

    def _get(self, path: str) -> Any:
        if self._path != path:
            self.close()
            self._file, self._path = open_parquet(path), path
            weakref.finalize(self, self._file.close)
        return self._file

    def close(self) -> None:
        """Close the file, unless a thread is still reading it."""
        workers, self._workers, self._next = self._workers, None, None
        self._table = None
        is_unused = workers is None or workers.close()
        if self._file is not None and is_unused:
            self._file.close()
        self._file, self._path = None, ""


def _rows_before_error(convert: Callable[[int], Columns], count: int) -> int:
    """Return how many rows can be converted, of `count` that cannot."""

    def fails(rows: int) -> bool:
        try:
            convert(rows)
        except InputError:
            return True
        return False

    return bisect.bisect_left(range(1, count), True, key=fails)


def _bad_row(convert: Callable[[int], Columns], after: BlockStart) -> UnreadableError:
    """Return the error of the first row, and where to read on."""
    try:
        convert(1)
    except InputError as error:
        return UnreadableError(str(error), after)
    raise AssertionError("the first row is good")


def open_parquet(path: str) -> Any:
    """Return the `pyarrow.parquet.ParquetFile` of a path.

    Raises:
      UnreadableError: The file is not a Parquet file.
    """
    import pyarrow as pa
    from pyarrow import parquet

    try:
        # pyarrow would wait for a named pipe; `open_to_read` raises an error instead.
        opened = wire_files.open_to_read(path)
        if wire_files.is_remote(path):
            return parquet.ParquetFile(opened)
        opened.close()
        # Not memory-mapped, which is not faster: if a mapped file is truncated while
        # it is read, SIGBUS ends the process.
        return parquet.ParquetFile(path, memory_map=False)
    except UnicodeDecodeError as error:
        raise UnreadableError(
            f"{path}: the name of a column is not UTF-8: {error}. Is the file damaged?"
        ) from error
    except (pa.ArrowException, OSError) as error:
        raise UnreadableError(
            f"{path}: expected a Parquet file, which begins and ends with the bytes "
            f"PAR1: {error}."
        ) from error


def read_record_batches(
    file: Any,
    path: str,
    columns: Sequence[str] | None,
    *,
    start: BlockStart = (0, 0),
    rows: int | None = None,
    batch_rows: int = 1 << 16,
) -> Iterator[Any]:
    """Yield rows of a file as pyarrow RecordBatches.

    Args:
      file: What `open_parquet` returned.
      path: Its name in messages.
      columns: The names of the columns to read; all of them if None.
      start: The row group and the row in it to start at. The rows of the row group
        before that row are decoded and dropped.
      rows: How many rows to read; all of the rest if None.
      batch_rows: The most rows of a batch.

    Raises:
      UnreadableError: The file is damaged.
    """
    import pyarrow as pa

    about = file.metadata
    sizes = [about.row_group(i).num_rows for i in range(about.num_row_groups)]
    group, skipped = start
    left = sum(sizes) if rows is None else rows
    ends = itertools.accumulate(sizes[group:])  # rows from the first row group on
    groups = 1 + sum(1 for end in ends if end < skipped + left)
    chosen = range(len(sizes))[group : group + groups]
    try:
        for batch in file.iter_batches(batch_rows, row_groups=chosen, columns=columns):
            dropped = min(skipped, len(batch))
            kept = batch.slice(dropped, left)
            skipped, left = skipped - dropped, left - len(kept)
            if len(kept):
                yield kept
            if not left:  # do not decode the rest of the row group
                return
    except (pa.ArrowException, OSError) as error:
        raise UnreadableError(
            f"{path}: cannot be read: {error}. Is the file damaged?"
        ) from error


def select_columns(
    path: str, wanted: tuple[str, ...] | None, defaults: Mapping[str, Any] | None
) -> tuple[str, ...]:
    """Return the columns to read, in the order of the file.

    Raises:
      InputError: `wanted` or `defaults` names a column that the file does not have.
    """
    file = open_parquet(path)
    known = file.schema_arrow.names
    file.close()
    for what, names in (("columns", wanted), ("defaults", defaults)):
        for name in names or ():
            if name not in known:
                raise InputError(
                    f"parquet_files: {what} names column {name!r}, which {path} does "
                    f"not have{did_you_mean(name, known)}"
                )
    chosen = known if wanted is None else set(wanted)
    return tuple(name for name in known if name in chosen)
