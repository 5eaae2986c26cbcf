"""DeepFM on libsvm files: the program of `tensorflow_version.py`, ported.

    python examples/ports/deepfm/clicks.py train.libsvm
    python examples/ports/deepfm/clicks.py test.libsvm --seed 2
    python examples/ports/deepfm/estimax_version.py train.libsvm test.libsvm

As in the original, the L2 penalty covers whole tables and Adam updates every row at
every step. `build_estimator(model_dir, optimizer="Adagrad", l2_reg=0.0)` updates only
the rows of the batch, in both versions.
"""

import argparse
import logging

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

import estimax as ex

PARAMS = {
    "feature_size": 117_581,
    "field_size": 39,
    "embedding_size": 32,
    "deep_layers": [256, 128, 64],
    "dropout": [0.5, 0.5, 0.5],
    "batch_norm": False,
    "l2_reg": 0.0001,
    "learning_rate": 0.0005,
    "optimizer": "Adam",
}
FIELD_DEFAULTS = [[0.0], *[[0], [0.0]] * PARAMS["field_size"]]


def input_fn(filenames, batch_size, num_epochs=1, shuffle=False):
    """Return batches of feat_ids and feat_vals [B, F], and labels [B]."""

    def decode_libsvm(line):
        # With spaces for colons, the lines are CSV: label, id, value, id, value …
        fields = line.replace(b":", b" ")
        label, *pairs = ex.input.decode_csv(fields, FIELD_DEFAULTS, field_delim=" ")
        feat_ids, feat_vals = np.stack(pairs[0::2]), np.stack(pairs[1::2])
        return {"feat_ids": feat_ids, "feat_vals": feat_vals}, label

    dataset = ex.input.TextLineDataset(filenames)
    dataset = dataset.map(decode_libsvm, num_parallel_calls=10).prefetch(10_000)
    if shuffle:
        dataset = dataset.shuffle(buffer_size=256)
    dataset = dataset.repeat(num_epochs)
    return dataset.batch(batch_size)


def model_fn(features, labels, mode, params):
    """Define a factorization machine and a deep network over the same embeddings."""
    field_size, embedding_size = params["field_size"], params["embedding_size"]
    training = mode == ex.ModeKeys.TRAIN

    fm_b = ex.get_variable("fm_bias", [1], initializer=jax.nn.initializers.zeros)
    fm_w = ex.get_variable(
        "fm_w",
        [params["feature_size"]],
        initializer=jax.nn.initializers.normal(params["feature_size"] ** -0.5),
    )
    fm_v = ex.get_variable(
        "fm_v",
        [params["feature_size"], embedding_size],
        initializer=jax.nn.initializers.glorot_normal(),
    )
    feat_ids = features["feat_ids"]
    feat_vals = features["feat_vals"]

    weights = ex.embedding_lookup(fm_w, feat_ids)  # [B, F]
    y_w = jnp.sum(weights * feat_vals, 1)

    embeddings = ex.embedding_lookup(fm_v, feat_ids)  # [B, F, K]
    embeddings = embeddings * feat_vals.reshape(-1, field_size, 1)
    sum_square = jnp.square(jnp.sum(embeddings, 1))
    square_sum = jnp.sum(jnp.square(embeddings), 1)
    y_v = 0.5 * jnp.sum(sum_square - square_sum, 1)

    with ex.variable_scope("Deep-part"):
        deep = embeddings.reshape(-1, field_size * embedding_size)
        for i, units in enumerate(params["deep_layers"]):
            deep = nn.relu(_dense(units, f"mlp{i}")(deep))
            if params["batch_norm"]:
                deep = nn.BatchNorm(
                    not training, momentum=0.9, epsilon=1e-3, name=f"bn{i}"
                )(deep)
            deep = nn.Dropout(params["dropout"][i], deterministic=not training)(deep)
        y_d = _dense(1, "deep_out")(deep)[:, 0]

    y = fm_b + y_w + y_v + y_d
    pred = jax.nn.sigmoid(y)
    if mode == ex.ModeKeys.PREDICT:
        return ex.EstimatorSpec(mode, predictions={"prob": pred})

    loss = jnp.mean(optax.sigmoid_binary_cross_entropy(y, labels))
    if params["l2_reg"]:
        l2_loss = ex.optimizers.l2_loss
        loss += params["l2_reg"] * (l2_loss(fm_w) + l2_loss(fm_v))
    if mode == ex.ModeKeys.EVAL:
        metrics = {"auc": ex.metrics.v1.auc(labels, pred)}
        return ex.EstimatorSpec(mode, loss=loss, eval_metric_ops=metrics)

    if params["optimizer"] == "Adam":
        optimizer = ex.optimizers.v1.AdamOptimizer(params["learning_rate"])
    else:
        optimizer = ex.optimizers.v1.AdagradOptimizer(params["learning_rate"])
    return ex.EstimatorSpec(mode, loss=loss, train_op=optimizer)


def _dense(units, name):
    """Like tf.layers.dense, which has another default initializer than Flax."""
    return nn.Dense(units, kernel_init=nn.initializers.glorot_uniform(), name=name)


def build_estimator(model_dir, **changes):
    """Return the estimator; `changes` replace values of PARAMS."""
    return ex.Estimator(
        model_fn,
        model_dir,
        ex.RunConfig(tf_random_seed=1),
        params={**PARAMS, **changes},
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("train_data")
    parser.add_argument("test_data")
    parser.add_argument("--model-dir", default="runs/deepfm")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=256)
    flags = parser.parse_args()
    logging.basicConfig(level="INFO")

    model = build_estimator(flags.model_dir)
    model.train(
        lambda: input_fn(flags.train_data, flags.batch_size, flags.epochs, True)
    )
    results = model.evaluate(lambda: input_fn(flags.test_data, flags.batch_size))
    for key in sorted(results):
        print(f"{key}: {results[key]}")


if __name__ == "__main__":
    main()
