"""Racer: TFRecord files parsed by tf.data as its guide advises, both cores.

Batch first, then `parse_example` in a parallel map, then prefetch. Runs in an
environment of its own with TensorFlow 2.15.1; never beside JAX.
"""

from __future__ import annotations

import os
import sys
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy as np
import parse_task
import tensorflow as tf
from parse_task import FLOATS, TEXTS, Setup


def main() -> None:
    setup = Setup.from_json(sys.argv[1])
    features = {
        "label": tf.io.FixedLenFeature([], tf.int64),
        **{name: tf.io.FixedLenFeature([], tf.float32) for name in FLOATS},
        **{name: tf.io.FixedLenFeature([], tf.string) for name in TEXTS},
    }

    def work(records: tf.Tensor) -> dict[str, tf.Tensor]:
        batch = tf.io.parse_example(records, features)
        if setup.buckets:
            for name in TEXTS:
                batch[name] = tf.strings.to_hash_bucket_fast(batch[name], setup.buckets)
        return batch

    data = tf.data.TFRecordDataset(setup.path, buffer_size=4 << 20).repeat()
    data = data.batch(setup.batch_size, drop_remainder=True)
    data = data.map(work, num_parallel_calls=setup.threads)
    data = data.prefetch(tf.data.AUTOTUNE)
    versions = {"tensorflow": tf.__version__, "numpy": np.__version__}
    parse_task.race(setup, data, _digest, versions)


def _digest(batch: dict[str, Any]) -> str:
    texts = [batch[name] for name in TEXTS]
    if texts[0].dtype == tf.string:
        texts = [tf.strings.length(text) for text in texts]
    numbers = [batch[name].numpy() for name in FLOATS]
    told = [text.numpy() for text in texts]
    return parse_task.digest(batch["label"].numpy(), numbers, told)


if __name__ == "__main__":
    main()
