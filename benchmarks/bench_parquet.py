"""Parquet files: what a `Dataset` adds to bare pyarrow.

    python benchmarks/bench_parquet.py --rounds 7

40 columns (numbers, text, lists) in row groups of 50,000, read whole. A `Dataset` makes
batches of 1024. "row groups" is pyarrow reading row groups, with NumPy arrays of the
numbers and nothing more: the aim is at most 1.3 times its time. "batches" is pyarrow's
own `iter_batches(1024)`. None looks into text and lists, which all leave as Arrow has
them. All take turns in one process.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import machine
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from race import tell

from estimax import input as inputs

_BATCH = 1024
_LIBRARIES = ("estimax", "pyarrow", "numpy")


def main() -> None:
    options = _options()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        path = Path(folder) / "data.parquet"
        tell("writing the file")
        pq.write_table(_table(options.rows, options.lists), path, row_group_size=50_000)
        readers: dict[str, Callable[[], int]] = {
            "row groups": lambda: _row_groups(path),
            "batches": lambda: _batches(path),
            "estimax": lambda: _dataset(path),
        }
        laps: list[dict[str, float]] = []
        load = machine.load()
        for number in range(options.rounds + 1):
            names = list(readers) if number % 2 == 0 else list(readers)[::-1]
            lap = {name: _timed(readers[name], options.rows) for name in names}
            tell(f"round {number}: {lap}")
            laps.append(lap)
    laps = laps[1:]  # the first warms up
    machine.write_result(
        "parquet",
        {
            "setup": {"rows": options.rows, "columns": 40, "lists": options.lists},
            "load": {"before": load, "after": machine.load()},
            "versions": {name: version(name) for name in _LIBRARIES},
            "seconds": {
                name: statistics.median(lap[name] for lap in laps) for name in readers
            },
            "ratios": [_ratio(laps, "row groups"), _ratio(laps, "batches")],
        },
    )


def _table(rows: int, lists: int) -> pa.Table:
    draw = np.random.default_rng(1)
    columns: dict[str, Any] = {}
    for i in range(40 - lists):
        if i % 4 == 0:
            columns[f"int_{i}"] = draw.integers(0, 1 << 30, rows)
        elif i % 4 == 1:
            columns[f"float_{i}"] = draw.normal(size=rows).astype(np.float32)
        else:
            words = pa.array([f"{n:x}" for n in range(5000)])
            index = pa.array(draw.integers(0, 5000, rows), pa.int32())
            columns[f"text_{i}"] = words.take(index)
    for i in range(lists):
        lengths = draw.integers(0, 5, rows)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        values = draw.integers(0, 1000, int(offsets[-1]))
        columns[f"list_{i}"] = pa.ListArray.from_arrays(offsets, values)
    return pa.table(columns)


def _row_groups(path: Path) -> int:
    """Row groups by pyarrow, numbers as NumPy."""
    rows = 0
    with pq.ParquetFile(path, memory_map=True) as file:
        for group in range(file.num_row_groups):
            table = file.read_row_group(group)
            _numbers(table.columns)
            rows += table.num_rows
    return rows


def _batches(path: Path) -> int:
    """Batches by pyarrow, numbers as NumPy."""
    rows = 0
    with pq.ParquetFile(path, memory_map=True) as file:
        for batch in file.iter_batches(_BATCH):
            _numbers(batch.columns)
            rows += batch.num_rows
    return rows


def _numbers(columns: list[Any]) -> None:
    for column in columns:
        kind = column.type
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):
            column.to_numpy()


def _ratio(laps: list[dict[str, float]], name: str) -> dict[str, Any]:
    rounds = [lap["estimax"] / lap[name] for lap in laps]
    return {
        "what": f"seconds of estimax / pyarrow's {name}",
        "rounds": [round(value, 3) for value in rounds],
        "min": round(min(rounds), 3),
        "median": round(statistics.median(rounds), 3),
        "max": round(max(rounds), 3),
    }


def _dataset(path: Path) -> int:
    """Batches of a Dataset."""
    rows = 0
    with iter(inputs.parquet_files(path).batch(_BATCH)) as batches:
        for batch in batches:
            rows += len(batch["int_0"])
    return rows


def _timed(read: Callable[[], int], rows: int) -> float:
    start = time.perf_counter()
    assert read() == rows
    return time.perf_counter() - start


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--lists", type=int, default=4, help="of the 40 columns")
    parser.add_argument("--rounds", type=int, default=7)
    return parser.parse_args()


if __name__ == "__main__":
    main()
