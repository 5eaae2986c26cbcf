"""Racer: `tf.estimator.DNNLinearCombinedClassifier` on the flights.

Runs in an environment of its own with TensorFlow 2.15.1; never beside JAX.
"""

from __future__ import annotations

import os
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy as np
import tensorflow as tf
from flights_task import Setup, columns, flights


def main() -> None:
    setup = Setup.from_json(sys.argv[1])
    train, labels, test, _ = flights(setup)
    wide, deep = columns(tf.feature_column, setup.dimension)

    def input_fn() -> tf.data.Dataset:
        rows = tf.data.Dataset.from_tensor_slices((train, labels))
        return rows.repeat().batch(setup.batch_size).prefetch(2)

    def test_input_fn() -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices(test).batch(4096)

    with tempfile.TemporaryDirectory(prefix="bench-") as model_dir:
        model = tf.estimator.DNNLinearCombinedClassifier(
            model_dir,
            wide,
            tf.keras.optimizers.legacy.Ftrl(
                setup.linear_rate, l1_regularization_strength=setup.linear_l1
            ),
            deep,
            tf.keras.optimizers.legacy.Adagrad(setup.dnn_rate),
            setup.hidden_units,
            dnn_dropout=setup.dropout,
            config=tf.estimator.RunConfig(tf_random_seed=setup.seed),
        )
        model.train(input_fn, steps=setup.steps)
        answers = [one["logistic"][0] for one in model.predict(test_input_fn)]
    np.save(setup.answers, np.array(answers))


if __name__ == "__main__":
    main()
