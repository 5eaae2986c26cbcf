"""Starter: `tf.estimator.DNNLinearCombinedClassifier.train`, as in start_estimax.py.

Runs in an environment of its own with TensorFlow 2.15.1; never beside JAX.
"""

from __future__ import annotations

import os
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import start_task as task
import tensorflow as tf


class FirstStep(tf.estimator.SessionRunHook):
    """Tell when the first step was done."""

    is_told = False

    def after_run(self, run_context, run_values):
        if not self.is_told:
            task.tell_first_step()
        self.is_told = True


def main() -> None:
    columns = tf.feature_column
    words = [
        columns.categorical_column_with_hash_bucket(f"c{i}", task.BUCKETS)
        for i in range(task.WORDS)
    ]
    dense = [columns.embedding_column(word, task.WIDTH) for word in words]
    dense += [columns.numeric_column(f"x{i}") for i in range(task.NUMBERS)]

    def input_fn() -> tf.data.Dataset:
        rows = tf.data.Dataset.from_tensor_slices(task.examples())
        return rows.repeat().batch(task.BATCH_SIZE).prefetch(2)

    with tempfile.TemporaryDirectory(prefix="bench-") as model_dir:
        model = tf.estimator.DNNLinearCombinedClassifier(
            model_dir=model_dir,
            linear_feature_columns=words,
            dnn_feature_columns=dense,
            dnn_hidden_units=task.HIDDEN_UNITS,
        )
        model.train(input_fn, hooks=[FirstStep()], steps=task.STEPS)


if __name__ == "__main__":
    main()
