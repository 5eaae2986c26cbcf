"""Racer: rows mapped by `ex.input`, before or after `batch`."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Any

import numpy as np
import row_map_task as task

from estimax import input as ex_input

_FEATURES = {
    **{name: ex_input.FixedLenFeature([], "float32") for name in task.FLOATS},
    **{name: ex_input.FixedLenFeature([], "int64") for name in task.INTS},
    **{name: ex_input.FixedLenFeature([], "string") for name in task.TEXTS},
}


def main() -> None:
    setup = task.Setup.from_json(sys.argv[1])
    data, function = _input(setup)
    if setup.batched_first:
        data = data.repeat().batch(setup.batch_size).map(function)
    else:
        data = data.map(function).repeat().batch(setup.batch_size)
    names = ("estimax", "numpy", "numba")
    task.race(setup, data, _digest, {name: version(name) for name in names})


def _input(setup: task.Setup) -> tuple[ex_input.Dataset, Any]:
    if setup.kind == "csv":
        return ex_input.TextLineDataset(setup.path), _parse_line
    if setup.kind == "records":
        parse = _parse_records if setup.batched_first else _parse_record
        return ex_input.TFRecordDataset(setup.path), parse
    return ex_input.Dataset.from_tensor_slices(task.numbers(setup)), _compute


def _parse_line(line: Any) -> Any:
    columns = ex_input.decode_csv(line, task.DEFAULTS)
    features = dict(zip(task.FIELDS, columns, strict=True))
    label = features.pop("label")
    return features, label


def _parse_record(record: Any) -> Any:
    features = ex_input.parse_single_example(record, _FEATURES)
    label = features.pop("c0")
    return features, label


def _parse_records(records: Any) -> Any:
    features = ex_input.parse_example(records, _FEATURES)
    label = features.pop("c0")
    return features, label


def _compute(row: Any) -> Any:
    return {"x": row * 2 + 1}, row[..., 0] > 0 if row.ndim > 1 else row[0] > 0


def _digest(batch: Any) -> str:
    features, label = batch
    told = [
        f"{name}={np.asarray(value).astype(np.float64).sum():.3f}"
        for name, value in sorted(features.items())
        if hasattr(value, "dtype")
    ]
    return f"{np.sum(label):.1f} {' '.join(told)}"


if __name__ == "__main__":
    main()
