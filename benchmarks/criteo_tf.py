"""Racer: `tf.estimator.DNNClassifier.train` on the Criteo-shaped task.

Its argument starts with the API: v2 is `tf.estimator` with a Keras optimizer, v1 is
`tf.compat.v1.estimator` with a `tf.compat.v1.train` one. Then comes the input: "rows"
batches rows with tf.data, as estimax's racer does with its own Dataset; "cut" gets
batches that NumPy has cut beforehand, which is as fast as an input can be.
Runs in an environment of its own with TensorFlow 2.15.1; never beside JAX.
"""

from __future__ import annotations

import os
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy as np
import tensorflow as tf
from criteo import Setup, checksum, examples
from pacing import Pacer
from tf_pacing import PacingHook, versions


def main() -> None:
    api, feeding, argument = sys.argv[1].split(":", 2)
    setup = Setup.from_json(argument)
    classifier, adagrad = {
        "v1": (
            tf.compat.v1.estimator.DNNClassifier,
            tf.compat.v1.train.AdagradOptimizer,
        ),
        "v2": (tf.estimator.DNNClassifier, tf.keras.optimizers.legacy.Adagrad),
    }[api]
    features, labels = examples(setup)
    pacer = Pacer(setup.warmup, data=checksum(features), versions=versions())

    def input_fn() -> tf.data.Dataset:
        if feeding == "rows":
            rows = tf.data.Dataset.from_tensor_slices((features, labels))
            return rows.repeat().batch(setup.batch_size).prefetch(2)

        def cut(column: np.ndarray) -> np.ndarray:
            return column.reshape(setup.batches, setup.batch_size)

        batched = ({k: cut(v) for k, v in features.items()}, cut(labels))
        return tf.data.Dataset.from_tensor_slices(batched).repeat().prefetch(2)

    with tempfile.TemporaryDirectory(prefix="bench-") as model_dir:
        estimator = classifier(
            hidden_units=setup.hidden_units,
            feature_columns=columns(setup),
            model_dir=model_dir,
            optimizer=adagrad(setup.learning_rate),
            # As in criteo_estimax.py.
            config=tf.estimator.RunConfig(
                tf_random_seed=setup.seed,
                save_summary_steps=None,
                save_checkpoints_steps=None,
                save_checkpoints_secs=None,
                log_step_count_steps=100,
            ),
        )
        estimator.train(input_fn, hooks=[PacingHook(pacer)])


def columns(setup: Setup) -> list[object]:
    fc = tf.feature_column
    numbers = [fc.numeric_column(f"n{i}") for i in range(setup.numeric)]
    ids = [
        fc.categorical_column_with_identity(f"c{i}", setup.vocabulary)
        for i in range(setup.categorical)
    ]
    return [*numbers, *(fc.embedding_column(c, setup.dimension) for c in ids)]


if __name__ == "__main__":
    main()
