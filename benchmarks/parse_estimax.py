"""Racer: TFRecord files parsed by `ex.input`, both cores, checksums on."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Any

import parse_task
from parse_task import FLOATS, TEXTS, Setup

from estimax import input as ex_input
from estimax.feature_columns import transforms


def main() -> None:
    setup = Setup.from_json(sys.argv[1])
    features: dict[str, Any] = {
        "label": ex_input.FixedLenFeature([], "int64"),
        **{name: ex_input.FixedLenFeature([], "float32") for name in FLOATS},
        **{name: ex_input.FixedLenFeature([], "string") for name in TEXTS},
    }
    parse = ex_input.ExampleParser(features)

    def work(records: Any) -> dict[str, Any]:
        batch = parse(records)
        if setup.buckets:
            texts = {name: batch[name] for name in TEXTS}
            batch |= transforms.hash_buckets(texts, setup.buckets)
        return batch

    data = ex_input.TFRecordDataset(setup.path).repeat().batch(setup.batch_size)
    # map works ahead by itself; a prefetch would only add a thread.
    data = data.map(work, num_parallel_calls=setup.threads)
    names = ("estimax", "numpy", "numba")
    parse_task.race(setup, data, _digest, {name: version(name) for name in names})


def _digest(batch: dict[str, Any]) -> str:
    texts = [batch[name] for name in TEXTS]
    if hasattr(texts[0], "lengths"):
        texts = [text.lengths for text in texts]
    return parse_task.digest(batch["label"], [batch[name] for name in FLOATS], texts)


if __name__ == "__main__":
    main()
