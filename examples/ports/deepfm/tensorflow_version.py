"""DeepFM on libsvm files, as written for tf.estimator 1.x, with hand-made tables.

    python examples/ports/deepfm/clicks.py train.libsvm
    python examples/ports/deepfm/clicks.py test.libsvm --seed 2
    python examples/ports/deepfm/tensorflow_version.py train.libsvm test.libsvm

Needs TensorFlow 2.15 or older. `estimax_version.py` is the same program for estimax.
"""

import argparse

import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

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


def input_fn(filenames, batch_size, num_epochs=1, shuffle=False):
    """Return batches of feat_ids and feat_vals [B, F], and labels [B]."""

    def decode_libsvm(line):
        columns = tf.string_split([line], " ")
        labels = tf.string_to_number(columns.values[0], out_type=tf.float32)
        splits = tf.string_split(columns.values[1:], ":")
        id_vals = tf.reshape(splits.values, splits.dense_shape)
        feat_ids, feat_vals = tf.split(id_vals, num_or_size_splits=2, axis=1)
        feat_ids = tf.string_to_number(tf.squeeze(feat_ids, 1), out_type=tf.int32)
        feat_vals = tf.string_to_number(tf.squeeze(feat_vals, 1), out_type=tf.float32)
        return {"feat_ids": feat_ids, "feat_vals": feat_vals}, labels

    dataset = tf.data.TextLineDataset(filenames)
    dataset = dataset.map(decode_libsvm, num_parallel_calls=10).prefetch(10_000)
    if shuffle:
        dataset = dataset.shuffle(buffer_size=256)
    dataset = dataset.repeat(num_epochs)
    return dataset.batch(batch_size)


def model_fn(features, labels, mode, params):
    """Define a factorization machine and a deep network over the same embeddings."""
    field_size, embedding_size = params["field_size"], params["embedding_size"]
    training = mode == tf.estimator.ModeKeys.TRAIN

    fm_b = tf.get_variable("fm_bias", [1], initializer=tf.constant_initializer(0.0))
    fm_w = tf.get_variable(
        "fm_w", [params["feature_size"]], initializer=tf.glorot_normal_initializer()
    )
    fm_v = tf.get_variable(
        "fm_v",
        [params["feature_size"], embedding_size],
        initializer=tf.glorot_normal_initializer(),
    )
    feat_ids = tf.reshape(features["feat_ids"], [-1, field_size])
    feat_vals = tf.reshape(features["feat_vals"], [-1, field_size])

    with tf.variable_scope("First-order"):
        weights = tf.nn.embedding_lookup(fm_w, feat_ids)  # [B, F]
        y_w = tf.reduce_sum(tf.multiply(weights, feat_vals), 1)

    with tf.variable_scope("Second-order"):
        embeddings = tf.nn.embedding_lookup(fm_v, feat_ids)  # [B, F, K]
        embeddings = tf.multiply(embeddings, tf.reshape(feat_vals, [-1, field_size, 1]))
        sum_square = tf.square(tf.reduce_sum(embeddings, 1))
        square_sum = tf.reduce_sum(tf.square(embeddings), 1)
        y_v = 0.5 * tf.reduce_sum(tf.subtract(sum_square, square_sum), 1)

    with tf.variable_scope("Deep-part"):
        deep = tf.reshape(embeddings, [-1, field_size * embedding_size])
        for i, units in enumerate(params["deep_layers"]):
            deep = tf.layers.dense(deep, units, tf.nn.relu, name=f"mlp{i}")
            if params["batch_norm"]:
                deep = tf.layers.batch_normalization(
                    deep, momentum=0.9, training=training, name=f"bn{i}"
                )
            if training:
                deep = tf.nn.dropout(deep, rate=params["dropout"][i])
        y_d = tf.layers.dense(deep, 1, name="deep_out")[:, 0]

    y = fm_b + y_w + y_v + y_d
    pred = tf.sigmoid(y)
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions={"prob": pred})

    loss = tf.reduce_mean(
        tf.nn.sigmoid_cross_entropy_with_logits(logits=y, labels=labels)
    )
    if params["l2_reg"]:
        loss += params["l2_reg"] * (tf.nn.l2_loss(fm_w) + tf.nn.l2_loss(fm_v))
    if mode == tf.estimator.ModeKeys.EVAL:
        metrics = {"auc": tf.metrics.auc(labels, pred)}
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops=metrics)

    if params["optimizer"] == "Adam":
        optimizer = tf.train.AdamOptimizer(params["learning_rate"])
    else:
        optimizer = tf.train.AdagradOptimizer(params["learning_rate"])
    update_ops = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
    with tf.control_dependencies(update_ops):
        train_op = optimizer.minimize(loss, global_step=tf.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def build_estimator(model_dir, **changes):
    """Return the estimator; `changes` replace values of PARAMS."""
    return tf.estimator.Estimator(
        model_fn,
        model_dir,
        tf.estimator.RunConfig(tf_random_seed=1),
        params={**PARAMS, **changes},
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("train_data")
    parser.add_argument("test_data")
    parser.add_argument("--model-dir", default="runs/deepfm-tf")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=256)
    flags = parser.parse_args()
    tf.logging.set_verbosity(tf.logging.INFO)

    model = build_estimator(flags.model_dir)
    model.train(
        lambda: input_fn(flags.train_data, flags.batch_size, flags.epochs, True)
    )
    results = model.evaluate(lambda: input_fn(flags.test_data, flags.batch_size))
    for key in sorted(results):
        print(f"{key}: {results[key]}")


if __name__ == "__main__":
    main()
