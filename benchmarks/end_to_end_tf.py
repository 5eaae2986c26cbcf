"""Racer: from TFRecord files to a trained `tf.estimator.DNNClassifier`.

Runs in an environment of its own with TensorFlow 2.15.1; never beside JAX.
"""

from __future__ import annotations

import os
import sys
import tempfile
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import tensorflow as tf
from end_to_end_task import Setup
from pacing import Pacer
from parse_task import FLOATS, TEXTS
from tf_pacing import PacingHook, versions


def main() -> None:
    setup = Setup.from_json(sys.argv[1])
    pacer = Pacer(setup.warmup, versions=versions())
    fc = tf.feature_column
    columns: list[Any] = [fc.numeric_column(name) for name in FLOATS]
    for name in TEXTS:
        hashed = fc.categorical_column_with_hash_bucket(name, setup.buckets)
        columns.append(fc.embedding_column(hashed, setup.dimension))
    spec = {
        "label": tf.io.FixedLenFeature([], tf.int64),
        **{name: tf.io.FixedLenFeature([], tf.float32) for name in FLOATS},
        **{name: tf.io.FixedLenFeature([], tf.string) for name in TEXTS},
    }

    def parsed(records: tf.Tensor) -> tuple[Any, Any]:
        features = tf.io.parse_example(records, spec)
        return features, features.pop("label")

    def input_fn() -> tf.data.Dataset:
        records = tf.data.TFRecordDataset(setup.path, buffer_size=4 << 20).repeat()
        records = records.batch(setup.batch_size)
        return records.map(parsed, num_parallel_calls=setup.threads).prefetch(2)

    with tempfile.TemporaryDirectory(prefix="bench-") as model_dir:
        estimator = tf.estimator.DNNClassifier(
            hidden_units=setup.hidden_units,
            feature_columns=columns,
            model_dir=model_dir,
            optimizer=tf.keras.optimizers.legacy.Adagrad(setup.learning_rate),
            config=tf.estimator.RunConfig(
                tf_random_seed=setup.seed,
                save_summary_steps=None,
                save_checkpoints_steps=None,
                save_checkpoints_secs=None,
                log_step_count_steps=100,
            ),
        )
        estimator.train(input_fn, hooks=[PacingHook(pacer)])


if __name__ == "__main__":
    main()
