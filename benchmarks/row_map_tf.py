"""Racer: rows mapped by tf.data, before or after `batch`, as the idiom has it.

Runs in an environment of its own with TensorFlow 2.15.1; never beside JAX.
"""

from __future__ import annotations

import os
import sys
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy as np
import row_map_task as task
import tensorflow as tf

_FEATURES = {
    **{name: tf.io.FixedLenFeature([], tf.float32) for name in task.FLOATS},
    **{name: tf.io.FixedLenFeature([], tf.int64) for name in task.INTS},
    **{name: tf.io.FixedLenFeature([], tf.string) for name in task.TEXTS},
}


def main() -> None:
    setup = task.Setup.from_json(sys.argv[1])
    data, function = _input(setup)
    if setup.batched_first:
        data = data.repeat().batch(setup.batch_size).map(function)
    else:
        data = data.map(function).repeat().batch(setup.batch_size)
    versions = {"tensorflow": tf.__version__, "numpy": np.__version__}
    task.race(setup, data, _digest, versions)


def _input(setup: task.Setup) -> tuple[tf.data.Dataset, Any]:
    if setup.kind == "csv":
        return tf.data.TextLineDataset(setup.path), _parse_line
    if setup.kind == "records":
        parse = _parse_records if setup.batched_first else _parse_record
        return tf.data.TFRecordDataset(setup.path), parse
    return tf.data.Dataset.from_tensor_slices(task.numbers(setup)), _compute


def _parse_line(line: Any) -> Any:
    columns = tf.io.decode_csv(line, task.DEFAULTS)
    features = dict(zip(task.FIELDS, columns, strict=True))
    label = features.pop("label")
    return features, label


def _parse_record(record: Any) -> Any:
    features = tf.io.parse_single_example(record, _FEATURES)
    label = features.pop("c0")
    return features, label


def _parse_records(records: Any) -> Any:
    features = tf.io.parse_example(records, _FEATURES)
    label = features.pop("c0")
    return features, label


def _compute(row: Any) -> Any:
    return {"x": row * 2 + 1}, row[..., 0] > 0


def _digest(batch: Any) -> str:
    features, label = batch
    told = [
        f"{name}={value.numpy().astype(np.float64).sum():.3f}"
        for name, value in sorted(features.items())
        if value.dtype != tf.string
    ]
    return f"{np.sum(label.numpy()):.1f} {' '.join(told)}"


if __name__ == "__main__":
    main()
