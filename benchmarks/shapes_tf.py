"""Racer: the convolutional networks of shapes_task.py in `tf.estimator.Estimator`.

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
from shapes_task import Setup, examples
from tf_pacing import PacingHook, versions

v1 = tf.compat.v1


def network(x, setup: Setup):
    """Return the logits, as a program for TensorFlow 1 writes them."""
    layers = v1.layers
    if setup.words:
        table = v1.get_variable("table", (setup.vocabulary, setup.width))
        net = tf.nn.embedding_lookup(table, x)
        found = [
            tf.reduce_max(
                layers.conv1d(net, setup.filters, span, activation=tf.nn.relu), axis=1
            )
            for span in setup.spans
        ]
        net = tf.concat(found, axis=-1)
    else:
        net = x
        for filters in (32, 64):
            net = layers.conv2d(net, filters, 5, padding="same", activation=tf.nn.relu)
            net = layers.max_pooling2d(net, 2, 2)
        net = layers.dense(layers.flatten(net), 1024, activation=tf.nn.relu)
    return layers.dense(net, setup.classes)


def model_fn(features, labels, mode, params):
    logits = network(features["x"], params["setup"])
    loss = v1.losses.sparse_softmax_cross_entropy(labels, logits)
    optimizer = v1.train.AdagradOptimizer(params["setup"].learning_rate)
    step = v1.train.get_or_create_global_step()
    train_op = optimizer.minimize(loss, global_step=step)
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def main() -> None:
    setup = Setup.from_json(sys.argv[1])
    features, labels = examples(setup)
    pacer = Pacer(setup.warmup, data=checksum(features), versions=versions())

    def input_fn() -> tf.data.Dataset:
        rows = tf.data.Dataset.from_tensor_slices((features, labels))
        return rows.batch(setup.batch_size).cache().repeat().prefetch(2)

    with tempfile.TemporaryDirectory(prefix="bench-") as model_dir:
        config = tf.estimator.RunConfig(tf_random_seed=setup.seed)
        model = tf.estimator.Estimator(
            model_fn, model_dir, config, params={"setup": setup}
        )
        model.train(input_fn, hooks=[PacingHook(pacer)])


if __name__ == "__main__":
    main()
