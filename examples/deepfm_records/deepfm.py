"""Train a DeepFM with hand-made tables, from TFRecord files.

    python examples/deepfm_records/deepfm.py

Records hold the ids and values of ten fields, as click logs often do. The `model_fn`
declares its tables with `ex.get_variable` and reads them with `ex.embedding_lookup`, so
a step updates only the rows of the batch. A factorization machine learns pairs of
fields, hidden layers learn the rest. The program prints the AUC of the linear part
alone and of the whole model. `ex.DeepFMClassifier` is the same model over feature
columns.
"""

import sys
import tempfile
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from flax import linen as nn

import estimax as ex

FIELDS, IDS = 10, 400
PARSER = ex.input.ExampleParser(
    {
        "ids": ex.input.FixedLenFeature([FIELDS], "int64"),
        "values": ex.input.FixedLenFeature([FIELDS], "float32"),
        "clicked": ex.input.FixedLenFeature([], "int64"),
    }
)


def model_fn(features, labels, mode, params):
    """Define a DeepFM; `params["parts"]` says which of its parts are used."""
    head = ex.heads.BinaryClassHead()
    ids, values = features["ids"], features["values"][..., None]  # [B, F], [B, F, 1]
    weights = ex.get_variable("linear", (IDS, 1), initializer=0.0)
    logits = jnp.sum(ex.embedding_lookup(weights, ids) * values, axis=1)  # [B, 1]
    logits += ex.get_variable("bias", (1,), initializer=0.0)
    if params["parts"] != "linear":
        vectors = ex.get_variable(
            "vectors", (IDS, 8), initializer=nn.initializers.normal(0.1)
        )
        fields = ex.embedding_lookup(vectors, ids) * values  # [B, F, 8]
        # The sum over pairs is half of (the sum)² minus the sum of squares.
        pairs = jnp.square(jnp.sum(fields, axis=1)) - jnp.sum(
            jnp.square(fields), axis=1
        )
        logits += 0.5 * jnp.sum(pairs, axis=1, keepdims=True)
        net = fields.reshape(fields.shape[0], -1)
        net = nn.relu(nn.Dense(32, name="hidden")(net))
        logits += nn.Dense(1, name="deep")(net)
    return head.create_estimator_spec(
        features, mode, logits, labels, optimizer=ex.optimizers.LazyAdam(0.005)
    )


def write(path, rows, seed):
    """Write clicks to a TFRecord file: a pair of fields decides."""
    draw = np.random.default_rng(seed)
    ids = draw.integers(0, IDS // FIELDS, (rows, FIELDS)) + np.arange(FIELDS) * (
        IDS // FIELDS
    )
    values = draw.uniform(0.5, 1.5, (rows, FIELDS)).astype(np.float32)
    groups = ids % 2
    score = 2.0 * (groups[:, 0] == groups[:, 1]) + 1.0 * (ids[:, 2] % 5 == 0) - 1.2
    clicked = (draw.random(rows) < 1 / (1 + np.exp(-2 * score))).astype(np.int64)
    columns = {"ids": ids, "values": values, "clicked": clicked}
    with ex.input.TFRecordWriter(path) as writer:
        writer.write_all(ex.input.serialize_examples(columns))


def input_fn(files, batch_size, epochs=1, shuffle=False):
    data = ex.input.TFRecordDataset(files)
    data = data.shuffle(50_000, seed=1) if shuffle else data
    data = data.repeat(epochs).batch(batch_size).map(PARSER, num_parallel_calls=2)
    return data.with_label("clicked").prefetch(2)


def main(rows=30_000, epochs=4):
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, f"train-{part}.tfrecord") for part in range(3)]
        for seed, path in enumerate(files):
            write(path, rows // 3, seed)
        write(Path(folder, "test.tfrecord"), 5000, seed=9)
        for parts in ("linear", "DeepFM"):
            model = ex.Estimator(
                model_fn,
                f"{folder}/{parts}",
                ex.RunConfig(tf_random_seed=1, save_summary_steps=0),
                params={"parts": parts},
            )
            model.train(lambda: input_fn(files, 256, epochs, shuffle=True))
            measured = model.evaluate(lambda: input_fn(f"{folder}/test.tfrecord", 1000))
            found[parts] = measured["auc"]
            print(f"{parts}: AUC {found[parts]:.3f}")
    return found


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
