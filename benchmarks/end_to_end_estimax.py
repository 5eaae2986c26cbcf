"""Racer: from TFRecord files to a trained `ex.DNNClassifier`."""

from __future__ import annotations

import sys
import tempfile
from typing import Any

from end_to_end_task import Setup
from estimax_pacing import PacingHook, versions
from pacing import Pacer
from parse_task import FLOATS, TEXTS

import estimax as ex


def main() -> None:
    setup = Setup.from_json(sys.argv[1])
    pacer = Pacer(setup.warmup, versions=versions())
    fc = ex.feature_columns
    columns: list[Any] = [fc.numeric_column(name) for name in FLOATS]
    for name in TEXTS:
        hashed = fc.categorical_column_with_hash_bucket(name, setup.buckets)
        columns.append(fc.embedding_column(hashed, setup.dimension))
    spec = {
        "label": ex.input.FixedLenFeature([], "int64"),
        **{name: ex.input.FixedLenFeature([], "float32") for name in FLOATS},
        # One string each, as TensorFlow's racer reads them too.
        **{name: ex.input.FixedLenFeature([], "string") for name in TEXTS},
    }
    parse = ex.input.ExampleParser(spec)

    def parsed(records: Any) -> tuple[Any, Any]:
        features = parse(records)
        return features, features.pop("label")

    def input_fn() -> ex.input.Dataset:
        records = ex.input.TFRecordDataset(setup.path).repeat().batch(setup.batch_size)
        return records.map(parsed, num_parallel_calls=setup.threads).prefetch(2)

    with tempfile.TemporaryDirectory(prefix="bench-") as model_dir:
        estimator = ex.DNNClassifier(
            hidden_units=setup.hidden_units,
            feature_columns=columns,
            model_dir=model_dir,
            optimizer=ex.optimizers.Adagrad(setup.learning_rate),
            config=ex.RunConfig(
                tf_random_seed=setup.seed,
                save_summary_steps=None,
                save_checkpoints_steps=None,
                log_step_count_steps=100,
            ),
        )
        estimator.train(input_fn, hooks=[PacingHook(pacer)])


if __name__ == "__main__":
    main()
