"""Write predictions as CSV, JSON or JSON lines, by the suffix of the file.

with open_rows(Path("out.csv")) as rows:
    rows.write({"probabilities": array, "classes": array})      # a batch
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Protocol

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import ConfigError, did_you_mean

PredictionBatch = Mapping[str, NDArray[np.generic]]


class Rows(Protocol):
    """A writer of predictions; `count` is the number of rows written."""

    count: int

    def write(self, batch: PredictionBatch) -> None:
        """Write the rows of a batch."""

    def close(self) -> None:
        """Write the end of the file."""


@contextlib.contextmanager
def open_rows(path: Path | None) -> Iterator[Rows]:
    """Return a writer for a file, or for standard output if `path` is None.

    The file appears under its name when it is complete.

    Raises:
      ConfigError: The suffix of the file is unknown.
    """
    if path is None:
        rows: Rows = CsvRows(sys.stdout)
        yield rows
        rows.close()
        return
    kinds: dict[str, Callable[[IO[str]], Rows]]
    kinds = {".csv": CsvRows, ".json": JsonRows, ".jsonl": JsonLines}
    if path.suffix not in kinds:
        hint = did_you_mean(path.suffix, kinds)
        raise ConfigError(f"--output: unknown kind of file {path.suffix!r}{hint}")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.part")
    with open(temporary, "w", newline="", encoding="utf-8") as file:
        rows = kinds[path.suffix](file)
        yield rows
        rows.close()
    os.replace(temporary, path)


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
        lists = [column.tolist() for column in columns.values()]
        lines = [[_text(v) for v in row] for row in zip(*lists, strict=True)]
        self._writer.writerows(lines)
        self.count += len(lines)

    def close(self) -> None:
        """Do nothing; a CSV file has no end mark."""


class JsonLines:
    """Writes JSON lines, one object per row."""

    def __init__(self, file: IO[str]) -> None:
        self.count = 0
        self._file = file

    def write(self, batch: PredictionBatch) -> None:
        """Write the rows of a batch."""
        for row in objects(batch):
            self._begin()
            json.dump(row, self._file)
            self._end()
            self.count += 1

    def close(self) -> None:
        """Do nothing; JSON lines have no end mark."""

    def _begin(self) -> None:
        pass

    def _end(self) -> None:
        self._file.write("\n")


class JsonRows(JsonLines):
    """Writes JSON, one list with an object per row."""

    def close(self) -> None:
        """Close the list."""
        self._file.write("\n]\n" if self.count else "[]\n")

    def _begin(self) -> None:
        self._file.write("[\n" if self.count == 0 else ",\n")

    def _end(self) -> None:
        pass


def wanted(batch: PredictionBatch) -> PredictionBatch:
    """Return the predictions without the list of all classes, equal in every row."""
    return {name: v for name, v in batch.items() if not name.startswith("all_class")}


def flat_columns(batch: PredictionBatch) -> dict[str, NDArray[np.generic]]:
    """Return one-dimensional columns by name; one for each item of a vector.

    >>> list(flat_columns({"p": np.ones((2, 2)), "id": np.ones((2, 1))}))
    ['p_0', 'p_1', 'id']
    """
    columns: dict[str, NDArray[np.generic]] = {}
    for name, value in wanted(batch).items():
        array = np.asarray(value)
        flat = array.reshape(len(array), -1)
        for i in range(flat.shape[1]):
            columns[name if flat.shape[1] == 1 else f"{name}_{i}"] = flat[:, i]
    return columns


def objects(batch: PredictionBatch) -> Iterator[dict[str, object]]:
    """Yield a dict for each row; a vector with one item becomes a scalar."""
    names = list(wanted(batch))
    lists = [_squeezed(np.asarray(batch[name])).tolist() for name in names]
    for row in zip(*lists, strict=True):
        yield {name: _text(value) for name, value in zip(names, row, strict=True)}


def _squeezed(array: NDArray[np.generic]) -> NDArray[np.generic]:
    one = array.ndim == 2 and array.shape[1] == 1
    return array[:, 0] if one else array


def _text(value: object) -> object:
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace")
    if isinstance(value, list):
        return [_text(item) for item in value]
    return value
