"""Starter: `tf.estimator.DNNClassifier.train`, as in columns_estimax.py.

Runs in an environment of its own with TensorFlow 2.15.1; never beside JAX.
"""

from __future__ import annotations

import os
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import columns_task as task
import tensorflow as tf


class Timed(tf.estimator.SessionRunHook):
    """Take the time after each step."""

    def __init__(self) -> None:
        self._clock = task.Clock()
        self._step = 0

    def after_run(self, run_context, run_values):
        self._step += 1
        self._clock.step_done(self._step)


def main() -> None:
    names = task.columns()
    columns = tf.feature_column
    ids = [
        columns.categorical_column_with_identity(name, task.VOCABULARY)
        for name in names
    ]
    data = task.examples(names)

    def input_fn() -> tf.data.Dataset:
        rows = tf.data.Dataset.from_tensor_slices(data)
        return rows.repeat().batch(task.BATCH_SIZE).prefetch(2)

    with tempfile.TemporaryDirectory(prefix="bench-") as model_dir:
        model = tf.estimator.DNNClassifier(
            hidden_units=task.HIDDEN_UNITS,
            feature_columns=[columns.embedding_column(one, task.WIDTH) for one in ids],
            model_dir=model_dir,
            optimizer=lambda: tf.keras.optimizers.legacy.Adagrad(task.LEARNING_RATE),
        )
        model.train(input_fn, hooks=[Timed()], steps=1 + 2 * task.MORE_STEPS)


if __name__ == "__main__":
    main()
