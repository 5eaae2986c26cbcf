"""Parquet files as a source: a row group at a time, columns without a copy.

    parquet_files("train-*.parquet", columns=["age", "clicks"])

While a row group is cut into batches, a thread reads the next one of the file. A
position is (file, row group, row). Lists are multi-valued features: `Sparse`, or a
dense array where all have one length by their type.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any

import numpy as np

from estimax.core.errors import InputError, did_you_mean
from estimax.core.ragged import Ragged
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.input.background import Workers
from estimax.input.chunks import Columns
from estimax.input.columns import Column
from estimax.input.dataset import Dataset
from estimax.input.file_blocks import FileBlocks, Place, UnreadableError
from estimax.input.files import PathLike, expand
from estimax.wire import files as wire_files

# Larger row groups are not read ahead: two at once may be more than there is memory.
_MOST_AHEAD = 256 << 20


def parquet_files(
    files: PathLike | Iterable[PathLike],
    *,
    columns: Iterable[str] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> Dataset:
    """Read Parquet files into dicts of columns, one row group at a time.

    `columns` selects, and only these are read. Numbers keep their dtype, text and
    binary become `Strings`, lists `Sparse`. A missing value takes its column's default;
    text without one is empty, a number without one is an error.

    >>> import os, tempfile, pyarrow as pa, pyarrow.parquet as pq
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "a.parquet")
    ...     table = pa.table({"age": [31, 7], "clicks": [[1, 2], []]})
    ...     pq.write_table(table, path)
    ...     batch = next(iter(parquet_files(path).batch(2)))
    >>> batch["age"], batch["clicks"].values, batch["clicks"].dense_shape
    (array([31,  7]), array([1, 2]), (2, 2))
    """
    paths = expand(files)
    wanted = None if columns is None else tuple(columns)
    names = _check_columns(paths[0], wanted, defaults)
    stand_ins = dict(defaults or {})

    def reader() -> ParquetReader:
        return ParquetReader(names, stand_ins)

    return Dataset(FileBlocks(paths, reader, "parquet_files"))


def _check_columns(
    path: str, wanted: tuple[str, ...] | None, defaults: Mapping[str, Any] | None
) -> tuple[str, ...]:
    file = _open(path)
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


class ParquetReader:
    """Row groups of files with the same columns; a place is a row group's number."""

    def __init__(self, names: tuple[str, ...], defaults: dict[str, Any]) -> None:
        self.names = names
        self.defaults = defaults
        self._path = ""
        self._file: Any = None  # pyarrow.parquet.ParquetFile, imported when used
        self._workers: Workers | None = None
        self._next: tuple[int, Future[Any]] | None = None  # a table being read ahead

    def start(self, path: str) -> Place:
        """The first row group, in a file that has the columns."""
        known = self._get(path).schema_arrow.names
        missing = [name for name in self.names if name not in known]
        if missing:
            raise InputError(
                f"{path}: there is no column {missing[0]!r}; all files must have the "
                f"columns of the first: {', '.join(self.names)}."
            )
        return (0,)

    def read(self, path: str, place: Place, rows: int) -> tuple[Columns, Place] | None:
        """One row group."""
        (group,) = place
        file = self._get(path)
        if group >= file.num_row_groups:
            return None
        ahead, self._next = self._next, None
        if ahead is not None and ahead[0] != group:
            ahead[1].exception()  # waited for and dropped
            ahead = None
        table = ahead[1].result() if ahead is not None else self._load(path, group)
        self._read_ahead(path, group + 1)  # before this one's columns are made
        tree = {}
        for name in self.names:
            where = f"{path}, row group {group}, column {name!r}"
            tree[name] = arrow_column(
                table.column(name), self.defaults.get(name), where
            )
        return Columns(tree, table.num_rows), (group + 1,)

    def _read_ahead(self, path: str, group: int) -> None:
        if group >= self._file.num_row_groups:
            return
        if self._file.metadata.row_group(group).total_byte_size > _MOST_AHEAD:
            return
        if self._workers is None:
            self._workers = Workers(1, "parquet")
        self._next = group, self._workers.submit(self._load, path, group)

    def _load(self, path: str, group: int) -> Any:  # pyarrow.Table
        import pyarrow as pa

        file = self._file
        try:
            return file.read_row_group(group, columns=list(self.names))
        except (pa.ArrowException, OSError) as error:
            first = self._rows_before(file, group)
            raise UnreadableError(
                f"{path}, row group {group} (row {first} on): cannot be read: {error}. "
                "Is the file damaged?",
                (group + 1,),
            ) from error

    @staticmethod
    def _rows_before(file: Any, group: int) -> int:
        rows = (file.metadata.row_group(i).num_rows for i in range(group))
        return sum(rows)

    def _get(self, path: str) -> Any:
        if self._path != path:
            self.close()
            self._file, self._path = _open(path), path
            weakref.finalize(self, self._file.close)
        return self._file

    def close(self) -> None:
        """Close the file, once nobody reads it."""
        workers, self._workers, self._next = self._workers, None, None
        is_unused = workers is None or workers.close()
        if self._file is not None and is_unused:
            self._file.close()
        self._file, self._path = None, ""


def _open(path: str) -> Any:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        # A named pipe would keep pyarrow waiting; ours says what it is.
        opened = wire_files.open_to_read(path)
        if wire_files.is_remote(path):
            return parquet.ParquetFile(opened)
        opened.close()
        # Not mapped, which is no faster: a mapped file that is cut while it is read
        # ends the process by SIGBUS.
        return parquet.ParquetFile(path, memory_map=False)
    except (pa.ArrowException, OSError) as error:
        raise UnreadableError(
            f"{path}: expected a Parquet file, which begins and ends with the bytes "
            f"PAR1 and has its description at the end: {error}."
        ) from error


def arrow_column(values: Any, default: Any, where: str) -> Column:
    """An arrow column as one of ours, without a copy where memory allows."""
    from pyarrow import types

    values = values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()
    kind = values.type
    if types.is_dictionary(kind):
        values = values.dictionary_decode()
        kind = values.type
    if types.is_fixed_size_list(kind):
        inner = _column_of(values.flatten(), default, where)
        assert not isinstance(inner, Sparse | Ragged)
        return inner.reshape((len(values), kind.list_size))
    if types.is_list(kind) or types.is_large_list(kind):
        return _sparse(values, default, where)
    return _column_of(values, default, where)


def _column_of(values: Any, default: Any, where: str) -> Column:
    """Numbers or text, with the default in place of missing values."""
    from pyarrow import types

    kind = values.type
    is_text = any(
        check(kind)
        for check in (
            types.is_string,
            types.is_large_string,
            types.is_binary,
            types.is_large_binary,
        )
    )
    if types.is_fixed_size_binary(kind):
        values, is_text = values.cast("binary"), True
    if types.is_dictionary(kind):
        return _column_of(values.dictionary_decode(), default, where)
    if types.is_decimal(kind):
        values = values.cast("float64")
    elif types.is_temporal(kind):
        values = values.view("int64" if kind.bit_width == 64 else "int32")
    elif not is_text and not types.is_boolean(kind) and not _is_number(kind):
        raise InputError(
            f"{where}: cannot use values of type {kind}. Leave the column out with "
            "columns=[…], or write it as numbers, text or lists of these."
        )
    if values.null_count:
        values = _filled(values, default, is_text, where)
    if is_text:
        return Strings.of(values)
    column: Column = values.to_numpy(zero_copy_only=not types.is_boolean(kind))
    return column


def _is_number(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_integer(kind) or types.is_floating(kind))


def _filled(values: Any, default: Any, is_text: bool, where: str) -> Any:
    if default is None:
        if is_text:
            return values  # Strings reads a missing value as empty
        row = int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0])
        raise InputError(
            f"{where}, row {row} of the group: expected {values.type}, found a missing "
            "value. Pass defaults={column: …} to say what stands in for them."
        )
    import pyarrow as pa

    return values.fill_null(pa.scalar(default, values.type))


def _sparse(values: Any, default: Any, where: str) -> Sparse:
    """Lists as a sparse column; a missing list is an empty one, nested ones rank 3."""
    from pyarrow import types

    offsets = np.asarray(values.offsets)
    if values.null_count:
        # A missing list may own values that nobody is to see.
        lengths = np.diff(offsets)
        lengths[values.is_null().to_numpy(zero_copy_only=False)] = 0
        offsets = np.concatenate([[0], np.cumsum(lengths)])
    flat = values.flatten()
    if types.is_list(flat.type) or types.is_large_list(flat.type):
        outer = Sparse.of_lists(np.arange(len(flat)), offsets)
        inner = _sparse(flat, default, where)
        places = outer.indices[inner.indices[:, 0]]
        shape = (*outer.dense_shape, inner.dense_shape[1])
        return Sparse(np.hstack([places, inner.indices[:, 1:]]), inner.values, shape)
    column = _column_of(flat, default, where)
    assert not isinstance(column, Sparse | Ragged)
    return Sparse.of_lists(column, offsets)
