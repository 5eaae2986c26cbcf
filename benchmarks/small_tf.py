"""Racer: `tf.estimator.DNNClassifier.train` on the small task, with default hooks.

Runs in an environment of its own with TensorFlow 2.15.1; never beside JAX.
"""

from __future__ import annotations

import os
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import tensorflow as tf
from criteo import checksum
from pacing import Pacer
from small_dnn import Setup, examples
from tf_pacing import PacingHook, versions


def main() -> None:
    setup = Setup.from_json(sys.argv[1])
    features, labels = examples(setup)
    pacer = Pacer(setup.warmup, data=checksum(features), versions=versions())
    shape = (setup.batches, setup.batch_size)

    def input_fn() -> tf.data.Dataset:
        # Cut into batches by NumPy, once, as in criteo_tf.py.
        cut = {k: v.reshape(*shape, setup.width) for k, v in features.items()}
        batched = (cut, labels.reshape(shape))
        return tf.data.Dataset.from_tensor_slices(batched).repeat().prefetch(2)

    columns = [
        tf.feature_column.numeric_column(name, shape=(setup.width,))
        for name in features
    ]
    with tempfile.TemporaryDirectory(prefix="bench-") as model_dir:
        estimator = tf.estimator.DNNClassifier(
            hidden_units=setup.hidden_units,
            feature_columns=columns,
            model_dir=model_dir,
            optimizer=tf.keras.optimizers.legacy.Adagrad(setup.learning_rate),
            config=tf.estimator.RunConfig(tf_random_seed=setup.seed),
        )
        estimator.train(input_fn, hooks=[PacingHook(pacer)])


if __name__ == "__main__":
    main()
