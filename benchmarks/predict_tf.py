"""Racer: the `predict` signature of a SavedModel of `tf.estimator.DNNClassifier`.

Runs in an environment of its own with TensorFlow 2.15.1; never beside JAX.
"""

from __future__ import annotations

import os
import sys
import tempfile
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy as np
import predict_task
import tensorflow as tf
from predict_task import BUCKETS, HIDDEN, NUMBERS, WIDTH, WORDS, Setup
from tf_pacing import versions

fc = tf.feature_column


def main() -> None:
    setup = Setup.from_json(sys.argv[1])
    hashed = [fc.categorical_column_with_hash_bucket(name, BUCKETS) for name in WORDS]
    columns = [
        *(fc.numeric_column(name) for name in NUMBERS),
        *(fc.embedding_column(column, WIDTH) for column in hashed),
    ]
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        model = tf.estimator.DNNClassifier(HIDDEN, columns, model_dir=f"{folder}/model")
        batch = (predict_task.request(64, 1), np.arange(64) % 2)
        model.train(lambda: tf.data.Dataset.from_tensors(batch), steps=1)

        def receive() -> Any:
            kinds = dict.fromkeys(NUMBERS, tf.float32) | dict.fromkeys(WORDS, tf.string)
            features = {
                name: tf.compat.v1.placeholder(kind, [None], name)
                for name, kind in kinds.items()
            }
            return tf.estimator.export.ServingInputReceiver(features, features)

        path = model.export_saved_model(f"{folder}/export", receive)
        signature = tf.saved_model.load(path.decode()).signatures["predict"]

        def predict(columns: dict[str, Any]) -> dict[str, Any]:
            given = {name: tf.constant(value) for name, value in columns.items()}
            return {name: value.numpy() for name, value in signature(**given).items()}

        predict_task.race(setup, predict, versions())


if __name__ == "__main__":
    main()
