"""The tagger of `tagger.py` as it was written for tf.estimator 1.x.

    python examples/sequence_tagger/tensorflow_version.py

Needs TensorFlow 2.15 or older. `tf.contrib.crf`, which such programs imported, was
removed in TensorFlow 2, so this file has the two functions it needs.
"""

import argparse

import tensorflow.compat.v1 as tf
from corpus import LONGEST, TAGS, as_arrays, sentences, vocabulary

tf.disable_v2_behavior()

PARAMS = {
    "words": None,
    "width": 32,
    "units": 32,
    "dropout": 0.2,
    "learning_rate": 0.01,
}


def model_fn(features, labels, mode, params):
    """Define a bidirectional LSTM with a CRF on top."""
    training = mode == tf.estimator.ModeKeys.TRAIN
    words, lengths = features["words"], features["length"]
    table = tf.get_variable("embeddings", [params["words"], params["width"]])
    net = tf.nn.embedding_lookup(table, words)  # [B, T, width]
    net = tf.layers.dropout(net, params["dropout"], training=training)
    outputs, _ = tf.nn.bidirectional_dynamic_rnn(
        tf.nn.rnn_cell.LSTMCell(params["units"]),
        tf.nn.rnn_cell.LSTMCell(params["units"]),
        net,
        sequence_length=lengths,
        dtype=tf.float32,
    )
    logits = tf.layers.dense(tf.concat(outputs, -1), len(TAGS), name="logits")
    transitions = tf.get_variable("transitions", [len(TAGS), len(TAGS)])
    if mode != tf.estimator.ModeKeys.TRAIN:
        decoded, score = crf_decode(logits, transitions, lengths)
    if mode == tf.estimator.ModeKeys.PREDICT:
        predictions = {"tags": decoded, "score": score}
        return tf.estimator.EstimatorSpec(mode, predictions=predictions)

    likelihood = crf_log_likelihood(logits, labels, lengths, transitions)
    loss = -tf.reduce_mean(likelihood)
    if mode == tf.estimator.ModeKeys.EVAL:
        inside = tf.sequence_mask(lengths, LONGEST)
        metrics = {
            "accuracy": tf.metrics.accuracy(labels, decoded, inside),
            "likelihood": tf.metrics.mean(tf.exp(likelihood)),
        }
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops=metrics)
    optimizer = tf.train.AdamOptimizer(params["learning_rate"])
    train_op = optimizer.minimize(loss, global_step=tf.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def crf_log_likelihood(logits, tags, lengths, transitions):
    """Return the log of the probability of `tags` [B, T], for each sentence."""
    inside = tf.sequence_mask(lengths, tf.shape(tags)[1], tf.float32)
    chosen = tf.reduce_sum(logits * tf.one_hot(tags, len(TAGS)), -1)
    pairs = tf.gather_nd(transitions, tf.stack([tags[:, :-1], tags[:, 1:]], -1))
    score = tf.reduce_sum(chosen * inside, 1) + tf.reduce_sum(pairs * inside[:, 1:], 1)

    def forward(alphas, step):
        scores, is_inside = step
        paths = alphas[:, :, None] + transitions + scores[:, None, :]
        return tf.where(is_inside, tf.reduce_logsumexp(paths, 1), alphas)

    steps = _by_time(logits, lengths)
    alphas = tf.foldl(forward, steps, logits[:, 0])
    return score - tf.reduce_logsumexp(alphas, 1)


def crf_decode(logits, transitions, lengths):
    """Return the best tags [B, T] of each sentence, padded with 0, and their score."""
    stay = tf.zeros_like(logits[:, 0], tf.int32) + tf.range(len(TAGS))

    def forward(carried, step):
        best, _ = carried
        scores, is_inside = step
        paths = best[:, :, None] + transitions
        longer = tf.reduce_max(paths, 1) + scores
        came_from = tf.argmax(paths, 1, output_type=tf.int32)
        return tf.where(is_inside, longer, best), tf.where(is_inside, came_from, stay)

    all_best, pointers = tf.scan(
        forward, _by_time(logits, lengths), (logits[:, 0], stay)
    )
    best = all_best[-1]
    last = tf.argmax(best, 1, output_type=tf.int32)
    earlier = tf.scan(
        lambda tag, pointer: tf.gather(pointer, tag, batch_dims=1),
        pointers,
        last,
        reverse=True,
    )
    tags = tf.transpose(tf.concat([earlier, last[None]], 0))
    inside = tf.sequence_mask(lengths, tf.shape(tags)[1], tf.int32)
    return tags * inside, tf.reduce_max(best, 1)


def _by_time(logits, lengths):
    """Return logits [T - 1, B, K] after the first step, and which are inside."""
    inside = tf.sequence_mask(lengths, tf.shape(logits)[1])
    by_time = tf.transpose(logits, [1, 0, 2])[1:]
    return by_time, tf.transpose(inside)[1:, :, None] & tf.fill(tf.shape(by_time), True)


def train_input_fn(data):
    """Return shuffled batches without end."""
    rows = tf.data.Dataset.from_tensor_slices(data)
    return rows.shuffle(2000).repeat().batch(64)


def test_input_fn(data):
    """Return all sentences once."""
    return tf.data.Dataset.from_tensor_slices(data).batch(250)


def build_estimator(model_dir, words):
    """Return the tagger for a vocabulary of so many words."""
    return tf.estimator.Estimator(
        model_fn,
        model_dir=model_dir,
        config=tf.estimator.RunConfig(tf_random_seed=1),
        params={**PARAMS, "words": words},
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model-dir", default="runs/tagger-tf")
    parser.add_argument("--steps", type=int, default=200)
    arguments = parser.parse_args()
    tf.logging.set_verbosity(tf.logging.INFO)

    train, test = sentences(2000, seed=1), sentences(500, seed=2)
    words_by_id = vocabulary(train)
    train_data, test_data = as_arrays(train, words_by_id), as_arrays(test, words_by_id)
    estimator = build_estimator(arguments.model_dir, len(words_by_id))
    estimator.train(lambda: train_input_fn(train_data), max_steps=arguments.steps)
    results = estimator.evaluate(lambda: test_input_fn(test_data))
    print(f"accuracy {results['accuracy']:.3f}, likelihood {results['likelihood']:.3f}")


if __name__ == "__main__":
    main()
