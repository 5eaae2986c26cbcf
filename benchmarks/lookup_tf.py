"""Racer: `tf.nn.embedding_lookup` in the `model_fn` of a `tf.estimator.Estimator`.

Runs in an environment of its own with TensorFlow 2.15.1; never beside JAX.
"""

from __future__ import annotations

import os
import sys
import tempfile
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import tensorflow as tf
from criteo import checksum
from lookup_task import Setup, examples
from pacing import Pacer
from tf_pacing import PacingHook, versions

v1 = tf.compat.v1


def main() -> None:
    setup = Setup.from_json(sys.argv[1])
    features, labels = examples(setup)
    pacer = Pacer(setup.warmup, data=checksum(features), versions=versions())
    shape = (setup.batches, setup.batch_size)

    def input_fn() -> tf.data.Dataset:
        # Cut into batches by NumPy, once, as in criteo_tf.py.
        cut = {k: v.reshape(*shape, *v.shape[1:]) for k, v in features.items()}
        batched = (cut, labels.reshape(shape))
        return tf.data.Dataset.from_tensor_slices(batched).repeat().prefetch(2)

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        table = v1.get_variable("emb", (setup.vocabulary, setup.dimension))
        rows = tf.nn.embedding_lookup(table, features["item"])
        net = rows if setup.ids == 1 else tf.reduce_mean(rows, axis=1)
        logits = v1.layers.dense(net, 1, name="logits")[:, 0]
        loss = v1.losses.sigmoid_cross_entropy(labels, logits)
        optimizer = v1.train.AdagradOptimizer(setup.learning_rate)
        train_op = optimizer.minimize(loss, v1.train.get_global_step())
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

    with tempfile.TemporaryDirectory(prefix="bench-") as model_dir:
        estimator = tf.estimator.Estimator(
            model_fn,
            model_dir,
            tf.estimator.RunConfig(
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
