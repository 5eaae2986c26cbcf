"""Racer: `tf.data.experimental.make_csv_dataset` on the CSV task.

Runs in an environment of its own with TensorFlow 2.15.1; never beside JAX.
"""

from __future__ import annotations

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import tensorflow as tf
from csv_task import Setup
from pacing import Pacer
from tf_pacing import versions


def main() -> None:
    setup = Setup.from_json(sys.argv[1])
    pacer = Pacer(setup.warmup, versions=versions())
    data = tf.data.experimental.make_csv_dataset(
        setup.path,
        setup.batch_size,
        label_name="label",
        shuffle=setup.shuffle,
        shuffle_seed=setup.seed,
    )
    for step, (_, label) in enumerate(data, 1):
        mean = float(tf.reduce_mean(tf.cast(label, tf.float32)))
        if step == pacer.stop_at and not pacer.visit(step, mean):
            break


if __name__ == "__main__":
    main()
