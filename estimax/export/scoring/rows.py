"""Write predictions as CSV, JSON, JSON lines, Parquet or TFRecord, by the suffix.

with open_rows(Path("out.csv")) as rows:
    rows.write({"probabilities": array, "classes": array})      # a batch
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from estimax import input as inputs
from estimax.core.errors import ConfigError, InputError, did_you_mean
from estimax.core.raw_values import arrow_column, as_raw, is_arrow
from estimax.core.sparse import Sparse
from estimax.core.strings import Strings
from estimax.export.arrow_tables import as_arrow, as_list, without_class_lists
from estimax.native.records import frame
from estimax.storage import atomic

_ADVICE = (
    "Convert the column to text in the input, leave it out of --keep, or write CSV or "
    "JSON lines."
)

# Arrays, and for columns that are passed through also Strings, Sparse, lists and Arrow.
PredictionBatch = Mapping[str, Any]


class RowWriter(Protocol):
    """A writer of predictions; `count` is the number of rows written."""

    count: int

    def write(self, batch: PredictionBatch) -> None:
        """Write the rows of a batch."""

    def close(self) -> None:
        """Write the end of the file."""

    def discard(self) -> None:
        """Stop without an end of the file, which is then removed."""


@contextlib.contextmanager
def open_rows(
    path: Path | None, form: str | None = None, schema: Any = None
) -> Iterator[RowWriter]:
    """Return a writer for a file, or for standard output if `path` is None or "-".

    The file appears under its name when it is complete.

    Args:
      path: The file.
      form: "csv", "json", "jsonl", "parquet" or "tfrecord". None: by the suffix of the
        file, and CSV on standard output.
      schema: The Arrow schema of a Parquet file. None: the types of the first batch.

    Raises:
      ConfigError: The format or the suffix of the file is unknown.
      InputError: A batch does not have the types of the Parquet file.
    """
    if path is None or str(path) == "-":
        make = _writer(form or "csv", "--output-format", schema)
        yield from _run_writer(make, sys.stdout)
        return
    make = _writer(form or path.suffix.removeprefix("."), "--output", schema)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic.file(path) as file:
        text = io.TextIOWrapper(file, "utf-8", newline="")
        yield from _run_writer(make, text)
        text.detach()  # it would close the file, which is yet to be flushed to disk


def _writer(form: str, option: str, schema: Any) -> Callable[[IO[str]], RowWriter]:
    kinds: dict[str, Callable[[IO[str]], RowWriter]]
    kinds = {
        "csv": CsvRows,
        "json": JsonList,
        "jsonl": JsonLines,
        "parquet": lambda file: ParquetRows(file, schema),
        "tfrecord": TFRecordRows,
    }
    if form not in kinds:
        hint = did_you_mean(form, kinds)
        raise ConfigError(f"{option}: unknown kind of file {form!r}{hint}")
    return kinds[form]


def _run_writer(
    make: Callable[[IO[str]], RowWriter], file: IO[str]
) -> Iterator[RowWriter]:
    rows = make(file)
    try:
        yield rows
    except BaseException:
        rows.discard()
        raise
    rows.close()
    file.flush()  # a closed pipe is found out here, and not at the end of the process


class CsvRows:
    """Writes CSV, one line per row; a vector becomes columns name_0, name_1, …"""

    def __init__(self, file: IO[str]) -> None:
        self.count = 0
        self._writer = csv.writer(file, lineterminator="\n")

    def write(self, batch: PredictionBatch) -> None:
        """Write the rows of a batch."""
        columns = flat_columns(batch)
        if self.count == 0:
            self._writer.writerow(columns)
        lists = [as_list(column) for column in columns.values()]
        self._writer.writerows(zip(*lists, strict=True))
        self.count += _rows_of(lists)

    def close(self) -> None:
        """Do nothing; a CSV file has no end mark."""

    def discard(self) -> None:
        """Do nothing; nothing is held back."""


class JsonLines:
    """Writes JSON lines, one object per row."""

    def __init__(self, file: IO[str]) -> None:
        self.count = 0
        self._file = file

    def write(self, batch: PredictionBatch) -> None:
        """Write the rows of a batch."""
        # `str` for dates and the like, which JSON does not have.
        texts = [json.dumps(row, default=str) for row in objects(batch)]
        if texts:
            self._write(texts)
        self.count += len(texts)

    def close(self) -> None:
        """Do nothing; JSON lines have no end mark."""

    def discard(self) -> None:
        """Do nothing; nothing is held back."""

    def _write(self, texts: list[str]) -> None:
        self._file.write("\n".join(texts) + "\n")


class JsonList(JsonLines):
    """Writes JSON, one list with an object per row."""

    def close(self) -> None:
        """Close the list."""
        self._file.write("\n]\n" if self.count else "[]\n")

    def _write(self, texts: list[str]) -> None:
        self._file.write(",\n" if self.count else "[\n")
        self._file.write(",\n".join(texts))


class ParquetRows:
    """Writes Parquet; a vector becomes a list of fixed length.

    The types are those of the schema, or else of the first batch.
    """

    def __init__(self, file: Any, schema: Any = None) -> None:
        self.count = 0
        self._file = file.buffer  # text files have a `buffer` of bytes
        self._schema = schema
        self._writer: Any = None

    def write(self, batch: PredictionBatch) -> None:
        """Write the rows of a batch."""
        import pyarrow as pa

        columns = without_class_lists(batch)
        table = pa.table({name: _arrow(name, v) for name, v in columns.items()})
        self._open(table.schema)
        self._writer.write_table(_as_schema(table, self._writer.schema))
        self.count += len(table)

    def _open(self, found: Any) -> None:
        import pyarrow.parquet as pq

        if self._writer is None:
            self._writer = pq.ParquetWriter(self._file, self._schema or found)

    def close(self) -> None:
        """Write the footer; without schema and batch, a file without columns."""
        import pyarrow as pa

        self._open(pa.schema([]))
        self._writer.close()

    def discard(self) -> None:
        """Close the writer, which would otherwise write to a closed file later."""
        if self._writer is not None:
            with contextlib.suppress(OSError):
                self._writer.close()


def _as_schema(table: Any, schema: Any) -> Any:
    """Return a pyarrow Table in the types of a file; raise InputError if none fits."""
    import pyarrow as pa

    try:
        return table.cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        pairs = zip(schema, table.schema, strict=True)
        wrong = [(a, b.type) for a, b in pairs if a.type != b.type]
        named = "; ".join(f"{a.name!r} {a.type}, found {b}" for a, b in wrong)
        raise InputError(
            "a column of a Parquet file has one type, that of the first rows: expected "
            f"{named} ({error}). {_ADVICE}"
        ) from error


class TFRecordRows:
    """Writes TFRecords of tf.train.Examples; a missing value has no key in a row."""

    def __init__(self, file: Any) -> None:
        self.count = 0
        self._file = file.buffer  # text files have a `buffer` of bytes

    def write(self, batch: PredictionBatch) -> None:
        """Write the rows of a batch."""
        columns = {
            name: _example_column(name, value)
            for name, value in without_class_lists(batch).items()
        }
        records = inputs.serialize_examples(columns)
        self._file.write(frame(records).data)
        self.count += len(records)

    def close(self) -> None:
        """Do nothing; a TFRecord file has no end mark."""

    def discard(self) -> None:
        """Do nothing; nothing is held back."""


def _example_column(name: str, value: Any) -> Any:  # ndarray, Strings or Sparse
    """Return a column in a form that `serialize_examples` takes."""
    from pyarrow import types

    where = f"column {name!r}"
    if not isinstance(value, list) and not is_arrow(value):
        return as_raw(value, where)
    column = _arrow(name, value)
    if types.is_null(column.type):  # no row has a value, so the type does not matter
        column = column.cast("string")
    if not column.null_count or types.is_nested(column.type):
        return arrow_column(column, None, where)
    is_there = column.is_valid().to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(is_there)])
    present: Any = arrow_column(column.drop_null(), None, where)
    return Sparse.of_lists(present, offsets)


def _arrow(name: str, value: Any) -> Any:
    """Return a column as an Arrow array; raise InputError if its values differ."""
    import pyarrow as pa

    try:
        return as_arrow(value)
    except pa.ArrowException as error:
        raise InputError(
            f"column {name!r}: expected values of one type, found others ({error}). "
            f"{_ADVICE}"
        ) from error


def flat_columns(batch: PredictionBatch) -> dict[str, Any]:
    """Return one-dimensional columns by name; one for each item of a vector.

    >>> list(flat_columns({"p": np.ones((2, 2)), "id": np.ones((2, 1))}))
    ['p_0', 'p_1', 'id']
    """
    columns: dict[str, Any] = {}
    for name, value in without_class_lists(batch).items():
        if not isinstance(value, np.ndarray | Strings):
            columns[name] = value
            continue
        array = _decimal(np.asarray(value))
        flat = array.reshape(len(array), -1)
        for i in range(flat.shape[1]):
            columns[name if flat.shape[1] == 1 else f"{name}_{i}"] = flat[:, i]
    return columns


def objects(batch: PredictionBatch) -> Iterator[dict[str, object]]:
    """Yield a dict for each row; a vector with one item becomes a scalar."""
    columns = without_class_lists(batch)
    lists = [
        as_list(_decimal(value) if isinstance(value, np.ndarray) else value)
        for value in columns.values()
    ]
    for row in zip(*lists, strict=True):
        yield dict(zip(columns, row, strict=True))


def _decimal(array: NDArray[Any]) -> NDArray[Any]:
    """Return float32 as the float64 with the same short text; others as they are.

    Python has only float64, in which 0.2 would be 0.20000000298023224.
    """
    is_short = array.dtype == np.float32
    return array.astype(str).astype(np.float64) if is_short else array


def _rows_of(lists: list[list[Any]]) -> int:
    return len(lists[0]) if lists else 0
