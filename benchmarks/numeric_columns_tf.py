"""Racer: `tf.estimator.DNNClassifier.train`, as in numeric_columns_estimax.py.

Runs in an environment of its own with TensorFlow 2.15.1; never beside JAX.
"""

from __future__ import annotations

import os
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numeric_columns_task as task
import tensorflow as tf


class FirstStep(tf.estimator.SessionRunHook):
    """Tell when the first step was done."""

    def __init__(self, clock: task.Clock) -> None:
        self.clock = clock

    def after_run(self, run_context, run_values):
        self.clock.step_is_done()


def main() -> None:
    examples = task.examples()

    def input_fn() -> tf.data.Dataset:
        rows = tf.data.Dataset.from_tensor_slices(examples)
        return rows.repeat().batch(task.BATCH_SIZE).prefetch(2)

    clock = task.Clock()
    columns = [tf.feature_column.numeric_column(name) for name in examples[0]]
    with tempfile.TemporaryDirectory(prefix="bench-") as model_dir:
        model = tf.estimator.DNNClassifier(task.HIDDEN_UNITS, columns, model_dir)
        model.train(input_fn, hooks=[FirstStep(clock)], steps=task.STEPS)
        clock.tell(task.STEPS - 1)


if __name__ == "__main__":
    main()
